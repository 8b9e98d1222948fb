//! What distinguishes the library's own threads from the application's.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// Whether the calling thread is the one of `handle`. Unlike
/// `std::thread::current()` this works in destructors of thread-specific data.
pub(super) fn is_current(handle: &JoinHandle<()>) -> bool {
    // SAFETY: neither has conditions; the handle's thread has not been joined, so its
    // number is no other thread's.
    unsafe { libc::pthread_equal(handle.as_pthread_t(), libc::pthread_self()) != 0 }
}

/// Starts a thread that gets no signals: they are for the application's.
pub fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: a set of signals is plain data; `sigfillset` fills the one that
    // `pthread_sigmask` reads, which fills the other.
    let before = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let started = start();
    // SAFETY: as above; nothing is read back.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    started
}

/// Makes the calling thread's sleeps end on time.
pub(super) fn sleep_exactly() {
    const SLACK: Option<std::num::NonZeroU64> = std::num::NonZeroU64::new(1_000);
    // Without it bursts end some 50 microseconds later.
    let _ = rustix::thread::set_current_timer_slack(SLACK);
}
