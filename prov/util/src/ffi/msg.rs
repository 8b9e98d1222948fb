//! fi_msg(3): messages without tags.

use std::ffi::c_void;
use std::ptr::null_mut;

use fabric_abi::*;
use libc::iovec;

use super::ep::{Caps, EndpointObject, Receiver};
use super::message::{self, Flags};
use super::{missing, posted};
use crate::buffer::AppIov;
use crate::endpoint::Endpoint;
use crate::errno::Errno;
use crate::request::{Select, Tag};

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const FUNCTIONS: fi_ops_msg = fi_ops_msg {
        size: size_of::<fi_ops_msg>(),
        recv: Some(recv::<EndpointObject<E>>),
        recvv: Some(recvv::<EndpointObject<E>>),
        recvmsg: Some(recvmsg::<EndpointObject<E>>),
        send: Some(send::<E>),
        sendv: Some(sendv::<E>),
        sendmsg: Some(sendmsg::<E>),
        inject: Some(inject::<E>),
        senddata: Some(senddata::<E>),
        injectdata: Some(injectdata::<E>),
    };
    const BOTH: &'static fi_ops_msg = &Self::FUNCTIONS;
    const SEND: &'static fi_ops_msg = &fi_ops_msg {
        recv: missing::slot(),
        recvv: missing::slot(),
        recvmsg: missing::slot(),
        ..Self::FUNCTIONS
    };
}

struct ReceiveTable<R>(std::marker::PhantomData<R>);

impl<R: Receiver> ReceiveTable<R> {
    const MSG: &'static fi_ops_msg = &fi_ops_msg {
        size: size_of::<fi_ops_msg>(),
        recv: Some(recv::<R>),
        recvv: Some(recvv::<R>),
        recvmsg: Some(recvmsg::<R>),
        send: missing::slot(),
        sendv: missing::slot(),
        sendmsg: missing::slot(),
        inject: missing::slot(),
        senddata: missing::slot(),
        injectdata: missing::slot(),
    };
}

/// The table of an endpoint with these capabilities.
pub(super) fn table<E: Endpoint>(caps: Caps) -> *const fi_ops_msg {
    match (caps.sends(FI_MSG), caps.receives(FI_MSG)) {
        (true, true) => Table::<E>::BOTH,
        (true, false) => Table::<E>::SEND,
        (false, receives) => receive_table::<EndpointObject<E>>(receives),
    }
}

/// The table of what only receives, if it does that.
pub(super) fn receive_table<R: Receiver>(receives: bool) -> *const fi_ops_msg {
    match receives {
        true => ReceiveTable::<R>::MSG,
        false => &raw const missing::MSG,
    }
}

unsafe extern "C" fn recv<R: Receiver>(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the table that holds this function belongs to objects of `R`;
    // the application lends `len` bytes at `buf`.
    unsafe {
        let buffers = Ok(AppIov::from_raw(buf.cast(), len));
        let select = Select::Untagged;
        message::receive::<R>(ep, buffers, src_addr, select, Flags::Plain, context)
    }
}

unsafe extern "C" fn recvv<R: Receiver>(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`, for the memory of `count` entries.
    unsafe {
        let buffers = AppIov::from_iov(iov, count);
        let select = Select::Untagged;
        message::receive::<R>(ep, buffers, src_addr, select, Flags::Plain, context)
    }
}

unsafe extern "C" fn recvmsg<R: Receiver>(
    ep: *mut fid_ep,
    msg: *const fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: as in `recv`, for the memory of a valid message.
    unsafe {
        let Some(msg) = msg.as_ref() else {
            return posted(Err(Errno::EINVAL));
        };
        let buffers = AppIov::from_iov(msg.msg_iov, msg.iov_count);
        let select = Select::Untagged;
        let flags = Flags::Given(flags);
        message::receive::<R>(ep, buffers, msg.addr, select, flags, msg.context)
    }
}

unsafe extern "C" fn send<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let buffers = Ok(AppIov::from_raw(buf.cast_mut().cast(), len));
        message::send::<E>(
            ep,
            buffers,
            dest_addr,
            Tag::None,
            Flags::Plain,
            None,
            context,
        )
    }
}

unsafe extern "C" fn sendv<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let buffers = AppIov::from_iov(iov, count);
        message::send::<E>(
            ep,
            buffers,
            dest_addr,
            Tag::None,
            Flags::Plain,
            None,
            context,
        )
    }
}

unsafe extern "C" fn sendmsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let Some(msg) = msg.as_ref() else {
            return posted(Err(Errno::EINVAL));
        };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let flags = Flags::Given(flags);
        let buffers = AppIov::from_iov(msg.msg_iov, msg.iov_count);
        message::send::<E>(ep, buffers, msg.addr, Tag::None, flags, data, msg.context)
    }
}

unsafe extern "C" fn inject<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let buffers = Ok(AppIov::from_raw(buf.cast_mut().cast(), len));
        message::send::<E>(
            ep,
            buffers,
            dest_addr,
            Tag::None,
            Flags::Inject,
            None,
            null_mut(),
        )
    }
}

unsafe extern "C" fn senddata<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let buffers = Ok(AppIov::from_raw(buf.cast_mut().cast(), len));
        message::send::<E>(
            ep,
            buffers,
            dest_addr,
            Tag::None,
            Flags::Plain,
            Some(data),
            context,
        )
    }
}

unsafe extern "C" fn injectdata<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
) -> isize {
    // SAFETY: as in `recv`.
    unsafe {
        let buffers = Ok(AppIov::from_raw(buf.cast_mut().cast(), len));
        message::send::<E>(
            ep,
            buffers,
            dest_addr,
            Tag::None,
            Flags::Inject,
            Some(data),
            null_mut(),
        )
    }
}
