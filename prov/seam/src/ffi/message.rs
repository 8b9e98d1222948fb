//! The calls of fi_msg(3) and fi_tagged(3), which differ only in their tags.

use fabric_abi::fid_ep;

use super::call::{Call, Local};
use super::ep::{EndpointObject, Receiver, Request, one_message, transmit};
use super::{Handle, posted};
use crate::endpoint::Endpoint;
use prov_base::errno::Result;
use prov_objects::request::{Receive, Select, Tag, Transmit};

/// Creates the functions and tables of one of the two interfaces. `send` lists the tag arguments of
/// sends, and `receive` those of receives, each with their meaning.
macro_rules! interface {
    (
        $kind:ident: $table:ident, $message:ident, $missing:ident,
        send($($tag:ident)?) $tag_of:expr,
        receive($($select:ident),*) $select_of:expr $(,)?
    ) => {
        use std::ptr::null_mut;

        use fabric_abi::{$kind, $message, $table};

        use $crate::endpoint::Endpoint;
        use prov_base::errno::Errno;
        use $crate::ffi::call::{Call, Local, calls};
        use $crate::ffi::ep::{EndpointObject, Receiver};
        use $crate::ffi::{message, missing};
        use prov_objects::request::{Select, Tag};

        struct Table<T>(std::marker::PhantomData<T>);

        impl<E: Endpoint> Table<E> {
            const BOTH: &'static $table = &Self::sending(Table::<EndpointObject<E>>::RECEIVE);
            const SEND: &'static $table = &Self::sending(&missing::$missing);

            /// A table that sends, and receives as another one does.
            const fn sending(receiving: &$table) -> $table {
                $table {
                    send: Some(send::<E>),
                    sendv: Some(sendv::<E>),
                    sendmsg: Some(sendmsg::<E>),
                    inject: Some(inject::<E>),
                    senddata: Some(senddata::<E>),
                    injectdata: Some(injectdata::<E>),
                    ..*receiving
                }
            }
        }

        impl<R: Receiver> Table<R> {
            const RECEIVE: &'static $table = &$table {
                recv: Some(recv::<R>),
                recvv: Some(recvv::<R>),
                recvmsg: Some(recvmsg::<R>),
                ..missing::$missing
            };
        }

        /// Returns the table of an endpoint of a provider with these capabilities.
        pub(super) fn table<E: Endpoint>(caps: u64) -> *const $table {
            match caps & $kind {
                0 => &raw const missing::$missing,
                _ => Table::<E>::BOTH,
            }
        }

        /// The table of what only sends, of a provider with these capabilities.
        pub(super) fn send_table<E: Endpoint>(caps: u64) -> *const $table {
            match caps & $kind {
                0 => &raw const missing::$missing,
                _ => Table::<E>::SEND,
            }
        }

        /// Returns the table of an object that only receives, of a provider with these
        /// capabilities.
        pub(super) fn receive_table<R: Receiver>(caps: u64) -> *const $table {
            match caps & $kind {
                0 => &raw const missing::$missing,
                _ => Table::<R>::RECEIVE,
            }
        }

        calls! {
            fn recv<R: Receiver>(ep, room, len, desc, peer, $($select,)* context) {
                let local = Local::one(room, len, desc);
                message::receive::<R>(ep, local, $select_of, Call::plain(peer, context))
            }

            fn recvv<R: Receiver>(ep, iov, descs, count, peer, $($select,)* context) {
                let local = Local::vector(iov, descs, count)?;
                message::receive::<R>(ep, local, $select_of, Call::plain(peer, context))
            }

            fn recvmsg<R: Receiver>(ep, msg: *const $message, flags) {
                let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
                $(let $select = msg.$select;)*
                let local = Local::vector(msg.msg_iov, msg.desc, msg.iov_count)?;
                let call = Call::message(msg.addr, flags, 0, msg.context);
                message::receive::<R>(ep, local, $select_of, call)
            }

            fn send<E: Endpoint>(ep, buf, len, desc, peer, $($tag,)? context) {
                let local = Local::one(buf, len, desc);
                message::send::<E>(ep, local, $tag_of, Call::plain(peer, context))
            }

            fn sendv<E: Endpoint>(ep, iov, descs, count, peer, $($tag,)? context) {
                let local = Local::vector(iov, descs, count)?;
                message::send::<E>(ep, local, $tag_of, Call::plain(peer, context))
            }

            fn sendmsg<E: Endpoint>(ep, msg: *const $message, flags) {
                let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
                $(let $tag = msg.$tag;)?
                let local = Local::vector(msg.msg_iov, msg.desc, msg.iov_count)?;
                let call = Call::message(msg.addr, flags, msg.data, msg.context);
                message::send::<E>(ep, local, $tag_of, call)
            }

            fn inject<E: Endpoint>(ep, buf, len, peer $(, $tag)?) {
                let local = Local::one(buf, len, null_mut());
                message::send::<E>(ep, local, $tag_of, Call::inject(peer))
            }

            fn senddata<E: Endpoint>(ep, buf, len, desc, data, peer, $($tag,)? context) {
                let local = Local::one(buf, len, desc);
                let call = Call::plain(peer, context).with_data(data);
                message::send::<E>(ep, local, $tag_of, call)
            }

            fn injectdata<E: Endpoint>(ep, buf, len, data, peer $(, $tag)?) {
                let local = Local::one(buf, len, null_mut());
                message::send::<E>(ep, local, $tag_of, Call::inject(peer).with_data(data))
            }
        }
    };
}

pub(super) use interface;

/// Posts a receive.
///
/// # Safety
/// `ep` is an open object of type `R`.
#[inline(always)]
pub(super) unsafe fn receive<R: Receiver>(
    ep: *mut fid_ep,
    local: Local,
    select: Select,
    call: Call,
) -> Result<isize> {
    // SAFETY: the caller guarantees that `ep` is an open object of type `R`.
    let receiver = unsafe { Handle::<R>::borrow(ep) };
    // Most receives are queued in a few instructions, inlined here, where the request is known. The
    // fast and the slow path build separate requests, so that the former's stays in registers.
    let request = || Receive {
        select,
        // SAFETY: the second request is built only if the first one is not kept.
        buffers: unsafe { local.buffers.duplicate() },
        desc: local.desc,
        peer: call.peer,
        flags: call.flags(receiver.flags()),
        context: call.context,
    };
    if receiver.receive_fast(&mut request()) {
        return Ok(0);
    }
    let mut receive = request();
    receive.flags |= one_message(&receive, receiver.caps());
    Ok(post_receive(receiver, &mut receive))
}

#[inline(never)]
fn post_receive<R: Receiver>(receiver: &R, receive: &mut Receive) -> isize {
    posted(receiver.receive(receive))
}

/// Posts a message.
///
/// # Safety
/// `ep` is an open endpoint of `E`.
#[inline(always)]
pub(super) unsafe fn send<E: Endpoint>(
    ep: *mut fid_ep,
    local: Local,
    tag: Tag,
    call: Call,
) -> Result<isize> {
    // SAFETY: the caller guarantees that `ep` is an open endpoint of `E`.
    let ep = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    let request = || Transmit {
        tag,
        buffers: local.buffers,
        desc: local.desc,
        peer: call.peer,
        data: call.data(),
        flags: call.flags(&ep.tx),
        context: call.context,
    };
    match ep.fast_path() {
        Some(endpoint) => Ok(transmit(endpoint, &mut request())),
        None => Ok(posted(ep.post_watchfully(Request::Transmit(request())))),
    }
}
