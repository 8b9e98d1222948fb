//! Processes for tests.

use std::ffi::{c_int, c_void};

/// A process with a copy of this one's memory.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// `begin` may only call functions that are permitted after fork(2).
    pub(crate) fn new(begin: impl FnOnce()) -> Child {
        // SAFETY: as `begin` promises.
        match unsafe { libc::fork() } {
            0 => {
                begin();
                pauses(std::ptr::null_mut());
                panic!()
            }
            pid => {
                assert!(pid > 0);
                Child(pid)
            }
        }
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.0
    }

    /// Kills it, without waiting for it.
    pub(crate) fn end(&self) {
        // SAFETY: a child that nobody has waited for, and zeros are a place for what is
        // said of it.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            let mut how = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOWAIT;
            let waited = libc::waitid(libc::P_PID, self.0.unsigned_abs(), &mut how, options);
            assert_eq!(waited, 0);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a child that nobody has waited for; no status is asked for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

pub(crate) extern "C" fn pauses(_: *mut c_void) -> c_int {
    loop {
        // SAFETY: it takes no arguments.
        unsafe { libc::pause() };
    }
}
