//! Objects of a provider that serves another one's endpoint (fi_peer(3)).

use std::ffi::c_void;
use std::ptr::null_mut;

use fabric_abi::*;

use super::{Fabric, Made, Object};
use crate::marshal::info;
use prov_base::errno::{Errno, Result};
use prov_objects::attr::Info;

/// A peer's completion queue, counter or event queue; closed when it is dropped.
pub struct PeerObject<T>(Object<T>);

impl<T> PeerObject<T> {
    pub fn fid(&self) -> *mut fid {
        self.0.fid()
    }
}

impl PeerObject<fid_cq> {
    /// Lets the peer make progress.
    pub fn drive(&self) {
        // SAFETY: the queue is open, and the call reads no entries, so that the buffer may be null.
        unsafe {
            let cq = self.0.as_ptr();
            if let Some(read) = (*cq).ops.as_ref().and_then(|ops| ops.read) {
                read(cq, null_mut(), 0);
            }
        }
    }
}

/// Opens a counter that forwards to `owner`.
///
/// # Safety
/// The domain is open, and `owner` stays open as long as the result.
pub(super) unsafe fn open_counter(
    domain: *mut fid_domain,
    owner: *mut fid_peer_cntr,
) -> Result<Object<fid_cntr>> {
    let mut context = fi_peer_cntr_context {
        size: size_of::<fi_peer_cntr_context>(),
        cntr: owner,
    };
    let mut cntr = null_mut();
    // SAFETY: zero is a valid value of the attributes, and the caller guarantees that the domain and
    // the owner are open.
    unsafe {
        let mut attr: fi_cntr_attr = std::mem::zeroed();
        attr.flags = FI_PEER;
        let open = (*(*domain).ops).cntr_open.ok_or(Errno::ENOSYS)?;
        let context = (&raw mut context).cast();
        let status = open(domain, &raw mut attr, &mut cntr, context);
        Object::opened(status, cntr)
    }
}

/// A peer's domain. What was opened in it has to be closed before.
pub struct PeerSide {
    domain: Object<fid_domain>,
    fabric: Fabric,
}

impl PeerSide {
    /// Opens the fabric and the domain of an entry, for `owner`'s domain. Also returns the entry,
    /// for objects that are opened there.
    ///
    /// # Safety
    /// `owner` is an open domain, and stays so as long as the result.
    pub unsafe fn open(entry: &Info, owner: *mut fid_domain) -> Result<(Self, Made)> {
        let fabric = Fabric::open(entry)?;
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        let mut context = fi_peer_domain_context {
            size: size_of::<fi_peer_domain_context>(),
            domain: owner,
        };
        let mut domain = null_mut();
        // SAFETY: the entry has all of its attributes, the fabric is open, and the caller
        // guarantees that the owner is open.
        let domain = unsafe {
            let open = (*(*fabric.as_c()).ops).domain2.ok_or(Errno::ENOSYS)?;
            let context: *mut c_void = (&raw mut context).cast();
            let status = open(fabric.as_c(), entry.0, &mut domain, FI_PEER, context);
            Object::opened(status, domain)?
        };
        Ok((PeerSide { domain, fabric }, entry))
    }

    pub fn domain(&self) -> *mut fid_domain {
        self.domain.as_ptr()
    }

    /// Opens a queue whose completions go to `owner`.
    ///
    /// # Safety
    /// `owner` stays open as long as the result.
    pub unsafe fn cq(&self, owner: *mut fid_peer_cq) -> Result<PeerObject<fid_cq>> {
        let mut context = fi_peer_cq_context {
            size: size_of::<fi_peer_cq_context>(),
            cq: owner,
        };
        let mut cq = null_mut();
        // SAFETY: the domain is open, zero is a valid value of the attributes, and the caller
        // guarantees that the owner is open.
        unsafe {
            let mut attr: fi_cq_attr = std::mem::zeroed();
            attr.flags = FI_PEER;
            let open = (*(*self.domain()).ops).cq_open.ok_or(Errno::ENOSYS)?;
            let context = (&raw mut context).cast();
            let status = open(self.domain(), &raw mut attr, &mut cq, context);
            Object::opened(status, cq).map(PeerObject)
        }
    }

    /// Opens a counter that forwards to `owner`.
    ///
    /// # Safety
    /// `owner` stays open as long as the result.
    pub unsafe fn cntr(&self, owner: *mut fid_peer_cntr) -> Result<PeerObject<fid_cntr>> {
        // SAFETY: the domain is open, and the caller guarantees that the owner is.
        unsafe { open_counter(self.domain(), owner) }.map(PeerObject)
    }

    /// Opens an event queue whose events go to `owner`.
    ///
    /// # Safety
    /// `owner` stays open as long as the result.
    pub unsafe fn eq(&self, owner: *mut fid_eq) -> Result<PeerObject<fid_eq>> {
        let mut context = fi_peer_eq_context {
            size: size_of::<fi_peer_eq_context>(),
            eq: owner,
        };
        let mut eq = null_mut();
        // SAFETY: the domain or fabric is open, zero is a valid value of the attributes, and the
        // caller guarantees that the owner is open.
        unsafe {
            let mut attr: fi_eq_attr = std::mem::zeroed();
            attr.flags = FI_PEER;
            let open = (*(*self.fabric.as_c()).ops).eq_open.ok_or(Errno::ENOSYS)?;
            let context = (&raw mut context).cast();
            let status = open(self.fabric.as_c(), &raw mut attr, &mut eq, context);
            Object::opened(status, eq).map(PeerObject)
        }
    }
}
