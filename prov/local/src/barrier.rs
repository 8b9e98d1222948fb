//! A memory barrier between processes whose cost is borne by one side only.
//!
//! A thread that is about to sleep must be sure that a thread which has sent something either has
//! done so visibly, or sees the sleeper (membarrier(2), `MEMBARRIER_CMD_GLOBAL_EXPEDITED`). Threads
//! that send need only a compiler barrier, provided that their process has registered for the
//! command.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier(2) takes two integers, and neither reads nor writes memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether this process participates: the barriers of other processes reach it, and it can execute
/// them itself. The result is computed once.
pub fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED))
}

/// The barrier of a thread that sends. `asymmetric` says that both processes participate
/// ([`is_available`]); otherwise the barrier is a full fence.
#[inline(always)]
pub fn light(asymmetric: bool) {
    match asymmetric {
        true => compiler_fence(Ordering::SeqCst),
        false => fence(Ordering::SeqCst),
    }
}

/// The barrier of a thread that is about to sleep.
pub fn heavy() {
    if is_available() {
        membarrier(GLOBAL_EXPEDITED);
    }
    fence(Ordering::SeqCst);
}
