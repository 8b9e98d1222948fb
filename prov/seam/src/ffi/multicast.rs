//! Multicast groups (fi_cm(3)): `fi_join` of an address, and the object that stands for the
//! membership. What `fi_join` of a collective group is, is in `collective`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;

use super::ep::EndpointObject;
use super::group::{Group, Purpose};
use super::names::address;
use super::object::{Handle, Use};
use super::{deliver, status};
use crate::endpoint::{Endpoint, Multicast};
use prov_base::errno::{Errno, Result};
use prov_objects::eq::{Event, EventBody};

/// The first number of a group as a destination (`fi_mc_addr`). Numbers of addresses are
/// smaller.
const FIRST: fi_addr_t = 1 << 48;

/// `fi_ops_cm::join` of a multicast group.
///
/// # Safety
/// `ep` is an open endpoint of `E`; `addr` is null or a socket address, `place` null or a place
/// for a pointer.
pub(super) unsafe fn join<E: Endpoint>(
    ep: *mut fid_ep,
    addr: *const c_void,
    flags: u64,
    place: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that the endpoint is open, the address null or valid, and the
    // location of the result null or writable.
    unsafe {
        let this = Handle::<EndpointObject<E>>::from_c(ep);
        match address(addr).and_then(|addr| joined(&this, addr, flags, context)) {
            Ok(group) => deliver(place, Ok(group)),
            Err(error) => status(Err(error)),
        }
    }
}

fn joined<E: Endpoint>(
    this: &Handle<EndpointObject<E>>,
    address: &[u8],
    flags: u64,
    context: *mut c_void,
) -> Result<Handle<Group<E>>> {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST);
    if !E::HAS_MULTICAST {
        return Err(Errno::ENOSYS);
    }
    let endpoint = this.to_move()?;
    let eq = this.event_queue().ok_or(Errno::ENOEQ)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Without a direction, all of those that the endpoint has are meant.
    endpoint.join_multicast(&Multicast {
        address,
        number,
        receives: flags & (FI_SEND | FI_RECV) != FI_SEND,
    })?;
    let group = Group {
        endpoint: this.clone(),
        address: number,
        purpose: Purpose::Multicast,
    };
    let group = Handle::new(group, context, vec![Use::of(this).any()]);
    let written = eq.write(Event {
        kind: FI_JOIN_COMPLETE,
        body: EventBody::Control {
            fid: group.fid(),
            context,
            data: 0,
        },
    });
    if let Err(error) = written {
        endpoint.leave_multicast(number)?;
        return Err(error);
    }
    Ok(group)
}
