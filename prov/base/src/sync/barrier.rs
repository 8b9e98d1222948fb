//! The barrier between two threads of which each writes one thing and then
//! reads what the other writes: at least one of them sees the other's write.
//!
//! Usually both pay for it. Here one side comes by often and pays nothing, and
//! the other, which comes by seldom, pays for both: membarrier(2) interrupts
//! every processor that runs a thread of this process.

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
use std::sync::{
    OnceLock,
    atomic::{Ordering, compiler_fence},
};

#[cfg(not(loom))]
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Whether the kernel has the barrier, and lets this process use it.
#[cfg(not(loom))]
pub fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED) && register() && heavy()
    })
}

#[cfg(loom)]
pub fn is_available() -> bool {
    true
}

/// Between the write and the read of the side that comes by often. Only worth
/// anything where [`is_available`] answered `true`.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Between the write and the read of the other side. `false`: the kernel
/// refuses, which it can only begin to do later if somebody tells it to, and
/// there was no barrier.
#[cfg(not(loom))]
#[must_use]
pub fn heavy() -> bool {
    let barrier = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
    barrier() || (register() && barrier())
}

/// Loom has no fence of two weights: its model has two that weigh the same.
#[cfg(loom)]
#[must_use]
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    true
}

#[cfg(not(loom))]
fn register() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}
