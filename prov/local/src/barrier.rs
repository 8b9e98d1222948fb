//! A memory barrier between processes whose cost is borne by one side only.
//!
//! A thread that is about to sleep must be sure that a thread which has sent something either has
//! done so visibly, or sees the sleeper (membarrier(2), `MEMBARRIER_CMD_GLOBAL_EXPEDITED`). Threads
//! that send need only a compiler barrier, provided that their process has registered for the
//! command.

use std::sync::atomic::{Ordering, compiler_fence, fence};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use prov_base::kept_errno::KeptErrno;
use prov_base::logging::UTIL;

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

fn membarrier(command: libc::c_int) -> bool {
    let _errno = KeptErrno::begin();
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
    if is_available() && !membarrier(GLOBAL_EXPEDITED) {
        wait_for_stores();
    }
    fence(Ordering::SeqCst);
}

/// Time after which the stores of other processors have arrived, with a wide margin: a processor keeps
/// one for less than a microsecond, and a thread that is interrupted leaves none behind.
const STORES_ARRIVE: Duration = Duration::from_micros(100);

/// The substitute for the barrier where the kernel refuses what it once permitted: a filter of system
/// calls (seccomp(2)) was installed after [`is_available`] had been asked.
#[cold]
fn wait_for_stores() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::info!(
            target: UTIL.domain,
            "membarrier(2) is refused now: a thread that falls asleep waits for {} us first",
            STORES_ARRIVE.as_micros()
        );
    });
    std::thread::sleep(STORES_ARRIVE);
}
