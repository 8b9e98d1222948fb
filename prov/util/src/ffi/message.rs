//! What the calls of fi_msg(3) and fi_tagged(3) have in common.

use std::ffi::c_void;

use fabric_abi::{FI_REMOTE_CQ_DATA, fi_addr_t, fid_ep};

use super::ep::{EndpointObject, Receiver};
use super::{Handle, posted};
use crate::buffer::AppIov;
use crate::endpoint::Endpoint;
use crate::errno::Result;
use crate::request::{Receive, Select, Tag, Transmit};

/// Where the flags of a call come from.
#[derive(Clone, Copy)]
pub(super) enum Flags {
    /// The call has none: the endpoint's default.
    Plain,
    /// The call brought these.
    Given(u64),
    /// An inject call.
    Inject,
}

/// Posts a receive.
///
/// # Safety
/// `ep` is an open object of type `R`, and `buffers` is memory that the
/// application lends.
#[inline(always)]
pub(super) unsafe fn receive<R: Receiver>(
    ep: *mut fid_ep,
    buffers: Result<AppIov>,
    peer: fi_addr_t,
    select: Select,
    flags: Flags,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller vouches for the object.
    let receiver = unsafe { Handle::<R>::borrow(ep) };
    let buffers = match buffers {
        Ok(buffers) => buffers,
        Err(error) => return posted(Err(error)),
    };
    let flags = match flags {
        Flags::Given(flags) => receiver.flags().with(flags),
        Flags::Plain | Flags::Inject => receiver.flags().plain(),
    };
    post_receive(
        receiver,
        &Receive {
            select,
            buffers,
            peer,
            flags,
            context,
        },
    )
}

#[inline(never)]
fn post_receive<R: Receiver>(receiver: &R, receive: &Receive) -> isize {
    posted(receiver.receive(receive))
}

/// Posts a message, with immediate data where there is `data`.
///
/// # Safety
/// `ep` is an open endpoint of `E`, and `buffers` is memory that the
/// application lends.
#[inline(always)]
pub(super) unsafe fn send<E: Endpoint>(
    ep: *mut fid_ep,
    buffers: Result<AppIov>,
    peer: fi_addr_t,
    tag: Tag,
    flags: Flags,
    data: Option<u64>,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller vouches for the endpoint.
    let ep = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    let flags = match flags {
        Flags::Plain => ep.tx.plain(),
        Flags::Given(flags) => ep.tx.with(flags),
        Flags::Inject => ep.tx.inject(),
    };
    let buffers = match buffers {
        Ok(buffers) => buffers,
        Err(error) => return posted(Err(error)),
    };
    transmit(
        &**ep,
        &Transmit {
            tag,
            buffers,
            peer,
            data: data.unwrap_or(0),
            flags: flags | data.map_or(0, |_| FI_REMOTE_CQ_DATA),
            context,
        },
    )
}

#[inline(never)]
fn transmit<E: Endpoint>(ep: &E, message: &Transmit) -> isize {
    posted(ep.transmit(message))
}
