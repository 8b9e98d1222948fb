//! Memory registered with the provider below (fi_mr(3)).

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::*;
use libc::iovec;

use super::{Counter, Domain, done};
use prov_base::device_memory::Kind;
use prov_base::errno::{Errno, Result};
use prov_objects::hmem::Functions;

/// A region of the provider below; closed when it is dropped.
pub struct Region {
    object: *mut fid_mr,
    key: u64,
    desc: *mut c_void,
    is_closed: AtomicBool,
    /// The counters that are bound to it, which may be closed after it.
    counters: Mutex<Vec<Arc<Counter>>>,
    _domain: Arc<Domain>,
}

// SAFETY: the interface permits any thread to read and close a region.
unsafe impl Send for Region {}
// SAFETY: a shared reference permits to read the region, and to close it once.
unsafe impl Sync for Region {}

impl Domain {
    /// Registers memory given as segments of address and length in bytes, for `access` (`FI_SEND`
    /// to `FI_REMOTE_WRITE`), with the key `key` unless the provider chooses it, as the memory of the
    /// host or of a device. The memory is
    /// accessed only by later operations on endpoints, and by peers that are given the key.
    ///
    /// # Errors
    /// `-FI_ENOKEY` for a key in use, and others of the provider.
    pub fn register(
        self: &Arc<Self>,
        pieces: impl Iterator<Item = (usize, usize)>,
        access: u64,
        key: u64,
        flags: u64,
        kind: Kind,
    ) -> Result<Region> {
        let (iface, device) = kind.identity().unwrap_or((FI_HMEM_SYSTEM, 0));
        let pieces: Vec<iovec> = pieces
            .map(|(address, len)| iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(address),
                iov_len: len,
            })
            .collect();
        let attr = fi_mr_attr {
            mr_iov: pieces.as_ptr(),
            iov_count: pieces.len(),
            access,
            offset: 0,
            requested_key: key,
            context: null_mut(),
            auth_key_size: 0,
            auth_key: null_mut(),
            iface,
            device: fi_mr_attr_device { reserved: device },
            hmem_data: null_mut(),
            page_size: 0,
            base_mr: null(),
            sub_mr_cnt: 0,
        };
        let mut object = null_mut();
        // SAFETY: the domain is open, and the attributes are valid during the call.
        let status = unsafe {
            let register = (*(*self.as_c()).mr).regattr.ok_or(Errno::ENOSYS)?;
            register(self.object.fid(), &attr, flags, &mut object)
        };
        done(status)?;
        if object.is_null() {
            return Err(Errno::EOTHER);
        }
        // SAFETY: the provider has just opened the region.
        let (key, desc) = unsafe { ((*object).key, (*object).mem_desc) };
        Ok(Region {
            object,
            key,
            desc,
            is_closed: AtomicBool::new(false),
            counters: Mutex::default(),
            _domain: self.clone(),
        })
    }
}

impl Domain {
    /// Has the provider below copy memory of devices with these functions (fi_set_ops(3)).
    ///
    /// # Errors
    /// Those of the provider.
    pub fn set_functions(&self, functions: Functions) -> Result {
        let mut ops = fi_hmem_override_ops::from(functions);
        // SAFETY: the domain is open; the name and the table are valid during the call, and the
        // functions as long as the application's domain, which is closed before this one.
        let status = unsafe {
            let set = (*(*self.object.fid()).ops).ops_set.ok_or(Errno::ENOSYS)?;
            let (name, ops) = (c"hmem_override_ops", (&raw mut ops).cast());
            set(self.object.fid(), name.as_ptr(), 0, ops, null_mut())
        };
        done(status)
    }
}

impl Region {
    /// Returns the key for peers (fi_mr_key(3)).
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the descriptor for requests (fi_mr_desc(3)); may be null.
    pub fn desc(&self) -> *mut c_void {
        self.desc
    }

    /// Has a counter count accesses by peers, of the kinds `access` (`FI_REMOTE_*`).
    ///
    /// # Errors
    /// What the provider returns.
    pub fn count_in(&self, counter: &Arc<Counter>, access: u64) -> Result {
        // SAFETY: both objects are open.
        let status = unsafe {
            let fid = &raw mut (*self.object).fid;
            let bind = (*(*fid).ops).bind.ok_or(Errno::ENOSYS)?;
            bind(fid, counter.fid(), access)
        };
        done(status)?;
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.push(counter.clone());
        Ok(())
    }

    /// Closes the region: the memory is not accessed after it. Further calls have no effect.
    ///
    /// # Errors
    /// Those of the provider, after which the region is still open.
    pub fn close(&self) -> Result {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the object is open, and is closed once, which the flag above ensures.
        let status = unsafe {
            let fid = &raw mut (*self.object).fid;
            (*(*fid).ops).close.map_or(0, |close| close(fid))
        };
        done(status).inspect_err(|_| self.is_closed.store(false, Ordering::Release))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!(target: super::UTIL.mr, "a region below does not close: {error}");
        }
    }
}
