//! The errors of failed work requests.

use prov_base::errno::Errno;

/// The failure of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FI_ECANCELED` if the request was flushed, since its connection has ended; `FI_ETRUNC` for a
    /// message that is longer than the receive; another error, such as `FI_EIO`, for all other
    /// failures.
    pub error: Errno,
    /// The device's status, which is the provider's error number.
    pub status: i32,
    /// The vendor's error number.
    pub vendor: u32,
}

impl Failure {
    /// Whether the request failed only because its connection ended.
    pub fn is_flush(&self) -> bool {
        self.error == Errno::ECANCELED
    }

    /// Returns the vendor's error number in the form of error entries (`err_data`).
    pub fn vendor_data(&self) -> Box<[u8]> {
        self.vendor.to_ne_bytes().into()
    }
}
