//! fi_msg(3): messages without tags.

use std::ffi::c_void;

use fabric_abi::*;
use libc::iovec;

use super::ep::{EndpointObject, Receiver};
use super::{Handle, missing, posted};
use crate::buffer::AppIov;
use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::request::{Receive, Select, Tag, Transmit};

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const MSG: &'static fi_ops_msg = &fi_ops_msg {
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
}

struct ReceiveTable<R>(std::marker::PhantomData<R>);

impl<R: Receiver> ReceiveTable<R> {
    const MSG: &'static fi_ops_msg = &fi_ops_msg {
        size: size_of::<fi_ops_msg>(),
        recv: Some(recv::<R>),
        recvv: Some(recvv::<R>),
        recvmsg: Some(recvmsg::<R>),
        send: Some(missing::msg_send),
        sendv: Some(missing::msg_sendv),
        sendmsg: Some(missing::msg_sendmsg),
        inject: Some(missing::msg_inject),
        senddata: Some(missing::msg_senddata),
        injectdata: Some(missing::msg_injectdata),
    };
}

/// The table of an endpoint.
pub(super) fn table<E: Endpoint>() -> *const fi_ops_msg {
    Table::<E>::MSG
}

/// The table of a receive context.
pub(super) fn receive_table<R: Receiver>() -> *const fi_ops_msg {
    ReceiveTable::<R>::MSG
}

#[inline(always)]
unsafe fn post_receive<R: Receiver>(
    ep: *mut fid_ep,
    buffers: Result<AppIov>,
    peer: fi_addr_t,
    flags: Option<u64>,
    context: *mut c_void,
) -> isize {
    // SAFETY: the table that holds the caller belongs to objects of `R`.
    let receiver = unsafe { Handle::<R>::borrow(ep) };
    posted(buffers.and_then(|buffers| {
        receiver.receive(Receive {
            select: Select::Untagged,
            buffers,
            peer,
            flags: match flags {
                Some(flags) => receiver.flags().with(flags),
                None => receiver.flags().plain(),
            },
            context,
        })
    }))
}

unsafe extern "C" fn recv<R: Receiver>(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the application lends `len` bytes at `buf` to the receive.
    unsafe {
        let buffers = AppIov::from_raw(buf.cast(), len);
        post_receive::<R>(ep, Ok(buffers), src_addr, None, context)
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
    // SAFETY: the application lends the memory of `count` entries.
    unsafe {
        let buffers = AppIov::from_iov(iov, count);
        post_receive::<R>(ep, buffers, src_addr, None, context)
    }
}

unsafe extern "C" fn recvmsg<R: Receiver>(
    ep: *mut fid_ep,
    msg: *const fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: the application passes a valid message, whose memory it lends.
    unsafe {
        let Some(msg) = msg.as_ref() else {
            return posted(Err(Errno::EINVAL));
        };
        let buffers = AppIov::from_iov(msg.msg_iov, msg.iov_count);
        post_receive::<R>(ep, buffers, msg.addr, Some(flags), msg.context)
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
    // SAFETY: the table belongs to endpoints of `E`; the application lends
    // `len` bytes at `buf`.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(ep.transmit(Transmit {
            tag: Tag::None,
            buffers: AppIov::from_raw(buf.cast_mut().cast(), len),
            peer: dest_addr,
            data: 0,
            flags: ep.tx.plain(),
            context,
        }))
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
    // SAFETY: as in `send`, for the memory of `count` entries.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(AppIov::from_iov(iov, count).and_then(|buffers| {
            ep.transmit(Transmit {
                tag: Tag::None,
                buffers,
                peer: dest_addr,
                data: 0,
                flags: ep.tx.plain(),
                context,
            })
        }))
    }
}

unsafe extern "C" fn sendmsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: as in `send`, for the memory of a valid message.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        let Some(msg) = msg.as_ref() else {
            return posted(Err(Errno::EINVAL));
        };
        posted(
            AppIov::from_iov(msg.msg_iov, msg.iov_count).and_then(|buffers| {
                ep.transmit(Transmit {
                    tag: Tag::None,
                    buffers,
                    peer: msg.addr,
                    data: msg.data,
                    flags: ep.tx.with(flags),
                    context: msg.context,
                })
            }),
        )
    }
}

unsafe extern "C" fn inject<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
) -> isize {
    // SAFETY: as in `send`.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(ep.transmit(Transmit {
            tag: Tag::None,
            buffers: AppIov::from_raw(buf.cast_mut().cast(), len),
            peer: dest_addr,
            data: 0,
            flags: ep.tx.inject(),
            context: std::ptr::null_mut(),
        }))
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
    // SAFETY: as in `send`.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(ep.transmit(Transmit {
            tag: Tag::None,
            buffers: AppIov::from_raw(buf.cast_mut().cast(), len),
            peer: dest_addr,
            data,
            flags: ep.tx.plain() | FI_REMOTE_CQ_DATA,
            context,
        }))
    }
}

unsafe extern "C" fn injectdata<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
) -> isize {
    // SAFETY: as in `send`.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(ep.transmit(Transmit {
            tag: Tag::None,
            buffers: AppIov::from_raw(buf.cast_mut().cast(), len),
            peer: dest_addr,
            data,
            flags: ep.tx.inject() | FI_REMOTE_CQ_DATA,
            context: std::ptr::null_mut(),
        }))
    }
}
