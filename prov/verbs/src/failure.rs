//! The errors of failed requests, as a device reports them.

use std::ffi::CStr;

use prov_base::errno::Errno;

use crate::device::WorkCompletion;
use crate::sys::ibverbs::{IBV_WC_LOC_LEN_ERR, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR};

/// The failure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FI_ECANCELED` if the request was flushed, since its connection has ended; `FI_ETRUNC` for a
    /// message that is longer than the receive; `FI_EIO` for all other failures.
    pub error: Errno,
    /// `enum ibv_wc_status`, the provider's error number.
    pub status: i32,
    /// The vendor's error number.
    vendor: u32,
}

impl Failure {
    /// The failure of a request whose device is gone.
    pub const FLUSHED: Failure = Failure {
        error: Errno::ECANCELED,
        status: IBV_WC_WR_FLUSH_ERR as i32,
        vendor: 0,
    };

    /// Returns the failure of a send request; `None` if it succeeded.
    #[inline(always)]
    pub fn of(completion: &WorkCompletion) -> Option<Self> {
        match completion.status {
            IBV_WC_SUCCESS => None,
            _ => Some(Self::new(completion, Errno::EIO)),
        }
    }

    /// Returns the failure of a receive request; `None` if it succeeded.
    #[inline(always)]
    pub fn of_receive(completion: &WorkCompletion) -> Option<Self> {
        match completion.status {
            IBV_WC_SUCCESS => None,
            IBV_WC_LOC_LEN_ERR => Some(Self::new(completion, Errno::ETRUNC)),
            _ => Some(Self::new(completion, Errno::EIO)),
        }
    }

    #[cold]
    fn new(completion: &WorkCompletion, error: Errno) -> Self {
        Failure {
            error: match completion.status {
                IBV_WC_WR_FLUSH_ERR => Errno::ECANCELED,
                _ => error,
            },
            status: i32::try_from(completion.status).unwrap_or(i32::MAX),
            vendor: completion.vendor_err,
        }
    }

    /// Whether the request failed only because its connection ended.
    pub fn is_flush(&self) -> bool {
        self.error == Errno::ECANCELED
    }

    /// Returns the vendor's error number in the form of error entries (`err_data`).
    pub fn vendor_data(&self) -> Box<[u8]> {
        self.vendor.to_ne_bytes().into()
    }
}

/// Returns the library's text for a status (`fi_cq_strerror`).
pub fn text(status: i32) -> Option<&'static CStr> {
    crate::device::status_text(u32::try_from(status).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(status: u32) -> WorkCompletion {
        WorkCompletion {
            status,
            vendor_err: 0x81,
            ..WorkCompletion::default()
        }
    }

    #[test]
    fn success_is_no_failure() {
        assert_eq!(Failure::of(&completion(IBV_WC_SUCCESS)), None);
        assert_eq!(Failure::of_receive(&completion(IBV_WC_SUCCESS)), None);
    }

    #[test]
    fn flushed_requests_are_cancelled_and_others_failed() {
        let flushed = Failure::of(&completion(IBV_WC_WR_FLUSH_ERR)).unwrap();
        assert_eq!((flushed.error, flushed.status), (Errno::ECANCELED, 5));
        assert!(flushed.is_flush());
        let long = Failure::of_receive(&completion(IBV_WC_LOC_LEN_ERR)).unwrap();
        assert_eq!(long.error, Errno::ETRUNC);
        let failed = Failure::of(&completion(12)).unwrap();
        assert_eq!((failed.error, failed.status), (Errno::EIO, 12));
        assert_eq!(*failed.vendor_data(), 0x81u32.to_ne_bytes());
    }
}
