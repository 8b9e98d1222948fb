//! The provider's side of [`peer_ends`](prov_objects::peer_ends): the owner of an endpoint's receives, as
//! the endpoint tells it of peers that are gone.

use std::ffi::{CStr, c_int, c_void};

use fabric_abi::{FI_PEER_TRANSFER, fi_addr_t};

use super::ep::EndpointObject;
use super::object::Handle;
use crate::endpoint::Endpoint;
use prov_base::errno::{Errno, Result};
use prov_objects::peer_ends::{NAME, PeerEndsOps};

/// Who is told of the ends of an endpoint's peers.
#[derive(Clone, Copy, Debug)]
pub struct PeerEnds {
    owner: *mut c_void,
    ended: unsafe extern "C" fn(*mut c_void, fi_addr_t, u64, c_int),
}

// SAFETY: the owner's function may be called from any thread, as its table says.
unsafe impl Send for PeerEnds {}
// SAFETY: as above.
unsafe impl Sync for PeerEnds {}

impl PeerEnds {
    /// A peer has ended with this error. The number is what its messages have as their source. With
    /// `transfers` only receives of other providers end.
    pub fn ended(&self, peer: fi_addr_t, transfers: bool, error: Errno) {
        let flags = if transfers { FI_PEER_TRANSFER } else { 0 };
        // SAFETY: the owner keeps what it has passed as long as the endpoint is open.
        unsafe { (self.ended)(self.owner, peer, flags, error.number()) }
    }
}

/// Implements fi_set_ops(3) of an endpoint.
///
/// # Safety
/// `ops` is the table that is known by this name.
pub(super) unsafe fn set_ops<E: Endpoint>(
    this: &Handle<EndpointObject<E>>,
    name: &CStr,
    ops: *mut c_void,
) -> Result {
    if name != NAME {
        return Err(Errno::ENOSYS);
    }
    // SAFETY: the caller guarantees that it is the table of this name.
    let ops = unsafe { ops.cast::<PeerEndsOps>().as_mut() }.ok_or(Errno::EINVAL)?;
    if ops.size < size_of::<PeerEndsOps>() {
        return Err(Errno::EINVAL);
    }
    let ended = ops.ended.ok_or(Errno::EINVAL)?;
    let owner = ops.owner;
    this.tell_ends(PeerEnds { owner, ended })?;
    ops.endpoint = this.as_c().cast();
    ops.awaits = Some(awaits::<E>);
    Ok(())
}

unsafe extern "C" fn awaits<E: Endpoint>(endpoint: *mut c_void, peer: fi_addr_t, flags: u64) {
    // SAFETY: the owner passes the endpoint of its table, which is open.
    let this = unsafe { Handle::<EndpointObject<E>>::borrow(endpoint.cast()) };
    this.awaits(peer, flags & FI_PEER_TRANSFER != 0);
}
