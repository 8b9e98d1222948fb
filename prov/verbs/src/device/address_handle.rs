//! Destinations of datagrams.

use std::ptr::NonNull;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;

use super::{Gid, ProtectionDomain, numbered};
use crate::sys::ibverbs::*;

/// A port that datagrams can be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Its address beyond its subnet, if it has one.
    pub gid: Option<Gid>,
    /// Its address in the InfiniBand subnet.
    pub lid: u16,
    /// The service level.
    pub service_level: u8,
    /// The sender's port.
    pub port: u8,
    /// The index of the sender's address at its port.
    pub gid_index: u8,
}

/// The device's object for a destination.
pub struct AddressHandle {
    ah: NonNull<ibv_ah>,
    pd: Arc<ProtectionDomain>,
    /// Only the process that created the object destroys it.
    process: Process,
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for AddressHandle {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// Creates the device's object for a destination.
    pub fn new(pd: &Arc<ProtectionDomain>, to: &Destination) -> Result<Self> {
        /// Largest number of routers on the way.
        const HOPS: u8 = 64;
        let mut attr = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid {
                    raw: to.gid.unwrap_or_default().0,
                },
                flow_label: 0,
                sgid_index: to.gid_index,
                hop_limit: HOPS,
                traffic_class: 0,
            },
            dlid: to.lid,
            sl: to.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: to.gid.is_some().into(),
            port_num: to.port,
        };
        // SAFETY: the protection domain is open, and the result keeps it open; `attr` is valid
        // during the call.
        let ah = unsafe { (pd.context().libraries.verbs().ibv_create_ah)(pd.as_ptr(), &mut attr) };
        Ok(AddressHandle {
            ah: NonNull::new(ah).ok_or_else(Errno::last_os_error)?,
            pd: pd.clone(),
            process: Process::current(),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_ah {
        self.ah.as_ptr()
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let verbs = self.pd.context().libraries.verbs();
        // SAFETY: the handle is open, and no request refers to it: all such requests are complete,
        // or their queue pair, which kept the handle open, is destroyed.
        let outcome = unsafe { (verbs.ibv_destroy_ah)(self.as_ptr()) };
        if let Err(error) = numbered(outcome) {
            log::warn!(target: crate::LOG.av, "ibv_destroy_ah: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;

    #[test]
    fn a_forked_child_ends_nothing_that_its_parent_has_on_a_device() {
        let pd = ProtectionDomain::new(fake::context("forked")).unwrap();
        let to = Destination {
            gid: None,
            lid: 1,
            service_level: 0,
            port: 1,
            gid_index: 0,
        };
        let handle = AddressHandle::new(&pd, &to).unwrap();
        assert_eq!(fake::handles(), 1);
        // SAFETY: the child uses nothing that another thread of the parent may have had locked, and
        // ends by _exit(2).
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(handle);
            let left = fake::handles() as i32;
            // SAFETY: _exit(2) accepts any status, and ends the child only.
            unsafe { libc::_exit(left) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 1);
        drop(handle);
        assert_eq!(fake::handles(), 0);
    }
}
