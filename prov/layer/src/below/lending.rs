//! Operations for which a slot is lent to the provider below.

use std::sync::atomic::{AtomicU32, Ordering};

use fabric_abi::*;

use super::Object;
use super::slots::{Lent, Slot, Slots};
use prov_base::errno::{Errno, Result};

/// An operation that the provider below has refused: the caller gets its slot back.
#[derive(Debug)]
pub struct Refused {
    /// The error; `-FI_EAGAIN` if it may be retried.
    pub error: Errno,
    /// The slot of the operation.
    pub slot: Slot,
}

pub(super) type Posted = std::result::Result<(), Refused>;

/// Returns a number that identifies an endpoint as the owner of operations.
pub(super) fn next_owner() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[inline(always)]
pub(super) fn receive<T>(
    object: &Object<fid_ep>,
    owner: u32,
    slots: &mut Slots<T>,
    slot: Slot,
) -> Posted {
    lend(slots, slot, owner, true, |lent| {
        // SAFETY: the endpoint is open, and the slot's bytes are lent to this operation until it
        // completes.
        unsafe {
            match (*(*object.as_ptr()).msg).recv {
                Some(recv) => recv(
                    object.as_ptr(),
                    lent.bytes,
                    lent.len,
                    lent.desc,
                    FI_ADDR_UNSPEC,
                    lent.context,
                ),
                None => Errno::ENOSYS.to_c() as isize,
            }
        }
    })
}

/// Lends a slot for an operation other than a receive, if the limit allows another one.
#[inline(always)]
pub(super) fn post<T>(
    slots: &mut Slots<T>,
    slot: Slot,
    owner: u32,
    call: impl FnOnce(&Lent) -> isize,
) -> Posted {
    if slots.is_full() {
        let error = Errno::EAGAIN;
        return Err(Refused { error, slot });
    }
    lend(slots, slot, owner, false, call)
}

/// Sends a packet that the call copies and whose completion is not reported.
///
/// # Errors
/// `-FI_EAGAIN` if there is no room for it.
#[inline(always)]
pub(super) fn inject(object: &Object<fid_ep>, packet: &[u8], to: fi_addr_t) -> Result {
    let ep = object.as_ptr();
    // SAFETY: the endpoint is open, and the provider copies the packet during the call.
    let status = unsafe {
        let inject = (*(*ep).msg).inject.ok_or(Errno::ENOSYS)?;
        inject(ep, packet.as_ptr().cast(), packet.len(), to)
    };
    match status {
        0 => Ok(()),
        error => Err(Errno::new(error as i32)),
    }
}

/// Lends a slot for an operation.
#[inline(always)]
fn lend<T>(
    slots: &mut Slots<T>,
    slot: Slot,
    owner: u32,
    is_receive: bool,
    call: impl FnOnce(&Lent) -> isize,
) -> Posted {
    let Some(lent) = slots.lend(&slot, owner, is_receive) else {
        let error = Errno::EINVAL;
        return Err(Refused { error, slot });
    };
    match call(&lent) {
        0 => Ok(()),
        error => {
            slots.take_back(&slot);
            let error = Errno::new(error as i32);
            Err(Refused { error, slot })
        }
    }
}
