//! The parameters that users can set (fi_shm(7)).

use std::time::Duration;

use prov_base::param_table;
use prov_message::{GDRCOPY_LIMIT, Sizes};

/// Largest number of bytes of operands of an atomic operation: such a request is one message of the
/// channel.
pub const ATOMIC_LIMIT: usize = 4096;
/// Largest number of bytes of an injected message, as with the C library's shm.
pub const INJECT_LIMIT: usize = 4096;

/// The limits that requests are checked against.
pub const SIZES: Sizes = Sizes {
    inject: INJECT_LIMIT,
    atomic: ATOMIC_LIMIT,
    message: Sizes::LONGEST,
};

param_table! {
    /// The parameters of the provider.
    pub struct Params for "shm" {
        /// Largest number of outstanding transmit operations of an endpoint, unless the application
        /// requests another one
        tx_size: usize = 1024, in 1..=1 << 24;
        /// Number of posted receives that an endpoint announces, unless the application requests
        /// another one; more are accepted
        rx_size: usize = 1024, in 1..=1 << 24;
        /// Whether all transfers go through shared memory, and no process copies from or to the
        /// memory of another one (process_vm_readv(2), process_vm_writev(2))
        disable_cma: bool = false;
        /// Bytes up to which this process copies from and to memory of a CUDA device through a mapping of
        /// GDRCopy's, if it has one, and not by the driver
        max_gdrcopy_size: usize = GDRCOPY_LIMIT;
        /// Bytes of unexpected messages that are buffered; beyond that the senders keep theirs
        max_unexpected: usize = 64 << 20;
        /// Milliseconds for which operations wait for a peer that has not started yet
        connect_timeout: i32 = 15_000, in 1..=3_600_000;
    }
}

impl Params {
    /// See `connect_timeout`.
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout.unsigned_abs().into())
    }
}
