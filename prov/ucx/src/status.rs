//! UCX's error numbers, and those of this interface for them.

use prov_base::errno::{Errno, Result};

use crate::sys::{UCS_ERR_CANCELED, UCS_OK, ucs_status_t};

/// Why an operation of UCX has failed: `UCS_ERR_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub ucs_status_t);

impl Failure {
    /// Whether the operation was cancelled.
    pub fn is_cancelled(self) -> bool {
        self.0 == UCS_ERR_CANCELED
    }
}

/// Returns the outcome of a call. Positive numbers are no failures.
pub fn outcome(status: ucs_status_t) -> std::result::Result<(), Failure> {
    match status {
        UCS_OK.. => Ok(()),
        failed => Err(Failure(failed)),
    }
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        match failure.0 {
            -1 => Errno::ENOMSG,
            -3 | -13 => Errno::EIO,
            -4 => Errno::ENOMEM,
            -2 | -5 | -7 | -17 | -19 => Errno::EINVAL,
            -6 => Errno::ENETUNREACH,
            -8 | -22 => Errno::ENOSYS,
            -9 => Errno::ETRUNC,
            -10 => Errno::EAGAIN,
            -11 => Errno::ETOOSMALL,
            -12 => Errno::ENOENT,
            -14 => Errno::ENODEV,
            -15 => Errno::EBUSY,
            -16 => Errno::ECANCELED,
            -18 => Errno::EEXIST,
            -20 => Errno::ETIMEDOUT,
            -21 => Errno::E2BIG,
            _ => Errno::EOTHER,
        }
    }
}

/// [`outcome`] with an error number of this interface.
pub fn result(status: ucs_status_t) -> Result {
    outcome(status).map_err(Errno::from)
}
