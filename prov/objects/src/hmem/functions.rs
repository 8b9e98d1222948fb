//! Functions of the application that copy from and to memory of devices
//! (`FI_SET_OPS_HMEM_OVERRIDE`, fi_domain(3)).

use std::ffi::c_void;

use fabric_abi::{fi_hmem_iface, fi_hmem_override_ops};
use libc::iovec;
use prov_base::device_memory::Copier;
use prov_base::errno::{Errno, Result};

/// `copy_from_hmem_iov`
type CopyFrom = unsafe extern "C" fn(
    *mut c_void,
    usize,
    fi_hmem_iface,
    u64,
    *const iovec,
    usize,
    u64,
) -> libc::ssize_t;
/// `copy_to_hmem_iov`
type CopyTo = unsafe extern "C" fn(
    fi_hmem_iface,
    u64,
    *const iovec,
    usize,
    u64,
    *const c_void,
    usize,
) -> libc::ssize_t;

/// Both functions.
#[derive(Clone, Copy)]
pub struct Functions {
    copy_from: CopyFrom,
    copy_to: CopyTo,
}

impl Functions {
    /// Returns the functions in a structure of the application.
    ///
    /// # Errors
    /// `-FI_EINVAL` if it is too short, or lacks one.
    ///
    /// # Safety
    /// The structure has as many bytes as it says, and its functions are as fi_domain(3) describes
    /// them, as long as the domain is open.
    pub unsafe fn read(ops: *const fi_hmem_override_ops) -> Result<Self> {
        // SAFETY: the caller guarantees that the structure has the members that its size covers.
        unsafe {
            if ops.is_null() || (&raw const (*ops).size).read() < size_of::<fi_hmem_override_ops>()
            {
                return Err(Errno::EINVAL);
            }
            let copy_from = (&raw const (*ops).copy_from_hmem_iov).read();
            let copy_to = (&raw const (*ops).copy_to_hmem_iov).read();
            match (copy_from, copy_to) {
                (Some(copy_from), Some(copy_to)) => Ok(Functions { copy_from, copy_to }),
                _ => Err(Errno::EINVAL),
            }
        }
    }
}

impl From<Functions> for fi_hmem_override_ops {
    fn from(functions: Functions) -> Self {
        fi_hmem_override_ops {
            size: size_of::<fi_hmem_override_ops>(),
            copy_from_hmem_iov: Some(functions.copy_from),
            copy_to_hmem_iov: Some(functions.copy_to),
        }
    }
}

/// The functions, for the memory of one device.
pub(super) struct OwnCopier {
    pub functions: Functions,
    pub interface: u32,
    pub device: u64,
}

/// What a function returned, which has to be the length.
fn all_of(len: usize, returned: libc::ssize_t) -> Result {
    match usize::try_from(returned) {
        Ok(copied) if copied == len => Ok(()),
        _ => Err(Errno::EIO),
    }
}

impl Copier for OwnCopier {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        let memory = iovec {
            iov_base: from.cast_mut().cast(),
            iov_len: len,
        };
        // SAFETY: the caller guarantees that both ranges are valid, and the application that its
        // function copies from the one to the other.
        all_of(len, unsafe {
            (self.functions.copy_from)(
                to.cast(),
                len,
                self.interface,
                self.device,
                &raw const memory,
                1,
                0,
            )
        })
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        let memory = iovec {
            iov_base: to.cast(),
            iov_len: len,
        };
        // SAFETY: as for `read`.
        all_of(len, unsafe {
            (self.functions.copy_to)(
                self.interface,
                self.device,
                &raw const memory,
                1,
                0,
                from.cast(),
                len,
            )
        })
    }

    unsafe fn copy(&self, _from: *const u8, _to: *mut u8, _len: usize) -> Result {
        Err(Errno::ENOSYS)
    }

    fn family(&self) -> Option<u32> {
        None
    }

    fn identity(&self) -> (u32, u64) {
        (self.interface, self.device)
    }
}
