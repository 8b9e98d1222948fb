//! Domains that providers share (fi_peer(3)): a peer uses the domain of the main provider to
//! register memory.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use fabric_abi::*;

use super::super::object::AnyFid;
use super::super::peer;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;

/// Another provider's domain.
#[derive(Clone, Copy)]
pub struct PeerDomain(NonNull<fid_domain>);

// SAFETY: the interface permits calls for a domain from any thread; the owner serializes them as
// the threading level requires.
unsafe impl Send for PeerDomain {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for PeerDomain {}

impl PeerDomain {
    /// Returns the domain in the context of fi_domain2(3) with `FI_PEER`.
    ///
    /// # Safety
    /// `context` is null or a `fi_peer_domain_context` whose domain stays open
    /// as long as the result and what comes from it.
    pub(in crate::ffi) unsafe fn import(context: *mut c_void) -> Result<Self> {
        // SAFETY: the caller guarantees that the context is null or valid, and that its domain is
        // open as long as the result.
        unsafe {
            let domain = peer::context::<fi_peer_domain_context>(context)?.domain;
            if AnyFid::new(domain.cast())?.class() != FI_CLASS_DOMAIN {
                return Err(Errno::EINVAL);
            }
            NonNull::new(domain).map(PeerDomain).ok_or(Errno::EINVAL)
        }
    }

    /// Registers memory with the owner, for these kinds of access (`fi_mr_attr::access`).
    ///
    /// # Errors
    /// What the owner returns.
    pub fn register(&self, memory: &AppIov, access: u64, key: u64) -> Result<PeerRegion> {
        let pieces = memory.pieces();
        // SAFETY: zero is a valid value of the attributes, and the caller of `PeerDomain::import`
        // has guaranteed that the domain is open.
        unsafe {
            let mut attr: fi_mr_attr = std::mem::zeroed();
            attr.mr_iov = pieces.as_ptr();
            attr.iov_count = pieces.len();
            attr.access = access;
            attr.requested_key = key;
            let domain = self.0.as_ptr();
            let ops = (*domain).mr.as_ref().and_then(|ops| ops.regattr);
            let mut mr = ptr::null_mut();
            let fid = domain.cast();
            let regattr = ops.ok_or(Errno::ENOSYS)?;
            Errno::check(regattr(fid, &raw const attr, 0, &raw mut mr))?;
            NonNull::new(mr).map(PeerRegion).ok_or(Errno::EINVAL)
        }
    }
}

/// Memory registered with another provider's domain, until it is dropped.
pub struct PeerRegion(NonNull<fid_mr>);

// SAFETY: the interface permits calls for a region from any thread.
unsafe impl Send for PeerRegion {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for PeerRegion {}

impl PeerRegion {
    /// Returns the descriptor, for operations of the owner.
    pub fn descriptor(&self) -> *mut c_void {
        // SAFETY: the region is open until `self` is dropped.
        unsafe { self.0.as_ref() }.mem_desc
    }

    /// Returns the key, for the owner's peers.
    pub fn key(&self) -> u64 {
        // SAFETY: the region is open until `self` is dropped.
        unsafe { self.0.as_ref() }.key
    }
}

impl Drop for PeerRegion {
    fn drop(&mut self) {
        // SAFETY: the region is open, and is closed once, by its only owner.
        let status = unsafe {
            let fid: *mut fid = self.0.as_ptr().cast();
            (*(*fid).ops).close.map_or(0, |close| close(fid))
        };
        if let Err(error) = Errno::check(status) {
            log::warn!(target: UTIL.mr, "the owner's region did not close: {error}");
        }
    }
}
