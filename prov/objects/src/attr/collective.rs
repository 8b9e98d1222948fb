//! What the attributes of an endpoint say of collective operations (fi_collective(3)).

use std::sync::atomic::{AtomicBool, Ordering};

use fabric_abi::FI_COLLECTIVE;

/// The tag bit that endpoints with `FI_COLLECTIVE` reserve for the messages of collective
/// operations.
pub const RESERVED_TAG: u64 = 1 << 63;

/// Whether this code runs in an external provider: the library that loads it has its own collective
/// operations, or none.
static IS_EXTERNAL: AtomicBool = AtomicBool::new(false);

/// Returns the capabilities without those that need this library's collective operations.
pub fn available(caps: u64) -> u64 {
    match IS_EXTERNAL.load(Ordering::Relaxed) {
        true => caps & !FI_COLLECTIVE,
        false => caps,
    }
}

/// Records that this code runs in an external provider.
pub fn is_external() {
    IS_EXTERNAL.store(true, Ordering::Relaxed);
}
