//! Processes for tests.

use std::ffi::{c_int, c_void};

/// A process with a copy of this process's memory.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Creates a process. `begin` may only call functions that are permitted after fork(2).
    pub(crate) fn new(begin: impl FnOnce()) -> Child {
        // SAFETY: the child calls `begin`, which only calls functions that are permitted after
        // fork(2), and functions of that kind.
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

    /// Kills the process, without reaping it.
    pub(crate) fn end(&self) {
        // SAFETY: the child has not been reaped, so the id is its own; zeros are a valid
        // `siginfo_t`, which is writable.
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
        // SAFETY: the child has not been reaped, so the id is its own; waitpid(2) accepts a null
        // pointer for the status.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

pub(crate) extern "C" fn pauses(_: *mut c_void) -> c_int {
    loop {
        // SAFETY: pause(2) takes no arguments and accesses no memory.
        unsafe { libc::pause() };
    }
}
