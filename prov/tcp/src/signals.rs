//! Signals, which are for the application's threads only.

/// Keeps all signals from the calling thread, which is the library's own.
pub fn block_all() {
    // SAFETY: `sigfillset` fills the set that `pthread_sigmask` reads; both
    // only get pointers to it.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Makes the calling thread's sleeps end on time.
pub fn sleep_exactly() {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong);
    }
}
