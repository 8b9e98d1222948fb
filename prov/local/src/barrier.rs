//! A memory barrier between processes that only one side pays for.
//!
//! Whoever is about to sleep must know that whoever has sent something before
//! either is seen to have done so, or sees the sleeper (membarrier(2),
//! `MEMBARRIER_CMD_GLOBAL_EXPEDITED`). Those who send need a barrier of the
//! compiler only, if their process has registered for that.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no memory and changes none.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether this process takes part: the barriers of others reach it, and it has
/// some for them.
pub fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED))
}

/// The barrier of those who send. `asymmetric` where both processes take part
/// ([`is_available`]).
#[inline(always)]
pub fn light(asymmetric: bool) {
    match asymmetric {
        true => compiler_fence(Ordering::SeqCst),
        false => fence(Ordering::SeqCst),
    }
}

/// The barrier of those who go to sleep.
pub fn heavy() {
    if is_available() {
        membarrier(GLOBAL_EXPEDITED);
    }
    fence(Ordering::SeqCst);
}
