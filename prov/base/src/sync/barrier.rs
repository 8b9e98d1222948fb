//! A barrier between two threads, each of which writes one variable and then reads the other's: at
//! least one of them sees the other's write.
//!
//! Usually both threads execute a fence. Here one side, which executes often, has no cost, and the
//! other, which executes seldom, bears the cost for both: membarrier(2) interrupts every processor
//! that runs a thread of this process.

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(all(miri, not(loom)))]
use std::sync::atomic::{Ordering, fence};
#[cfg(not(any(loom, miri)))]
use std::sync::{
    OnceLock,
    atomic::{Ordering, compiler_fence},
};

#[cfg(not(any(loom, miri)))]
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// Whether the kernel supports membarrier(2) and permits it for this process. Never with the thread
/// sanitizer, which would report what it orders as races.
#[cfg(not(any(loom, miri)))]
pub fn is_available() -> bool {
    if cfg!(thread_sanitizer) {
        return false;
    }
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED) && register() && heavy()
    })
}

#[cfg(any(loom, miri))]
pub fn is_available() -> bool {
    true
}

/// Executed between the write and the read of the frequent side. Effective only if [`is_available`]
/// has returned `true`.
#[inline(always)]
pub fn light() {
    #[cfg(not(any(loom, miri)))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(any(loom, miri))]
    fence(Ordering::SeqCst);
}

/// Executed between the write and the read of the other side. `false` if the kernel refuses, in
/// which case there was no barrier; after [`is_available`] has returned `true`, it can do so only
/// if a system call filter was installed later.
#[cfg(not(any(loom, miri)))]
#[must_use]
pub fn heavy() -> bool {
    let barrier = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
    barrier() || (register() && barrier())
}

/// Loom and miri have no asymmetric fences: there both sides have one of equal strength.
#[cfg(any(loom, miri))]
#[must_use]
pub fn heavy() -> bool {
    fence(Ordering::SeqCst);
    true
}

#[cfg(not(any(loom, miri)))]
fn register() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}
