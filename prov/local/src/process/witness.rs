//! Whether another process still is there.

use std::os::fd::OwnedFd;

use libc::iovec;
use prov_util::errno::{Errno, Result};
use prov_util::process_memory::{Token, read};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

use super::OtherProcess;

/// Another process that can be seen to end.
#[derive(Debug)]
pub struct Witness {
    /// Known by a seal that lasts as long as the process.
    process: OtherProcess,
    /// The process itself, whichever has its number later. None where the system is
    /// an old one.
    itself: Option<OwnedFd>,
}

impl Witness {
    /// Of this process, if it has the other seal, too, that lasts as long as it does.
    ///
    /// # Errors
    /// Those of [`OtherProcess::find`] and of pidfd_open(2).
    pub fn new(process: &OtherProcess, seal: Token) -> Result<Witness> {
        let pid = Pid::from_raw(process.pid).ok_or(Errno::EINVAL)?;
        // Before the seals: what has them has the number, and so had it.
        let itself = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Some(fd),
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => None,
            Err(error) => return Err(error.into()),
        };
        let known = OtherProcess { seal, ..*process };
        // Of both, by which it is the same.
        process.holds()?;
        known.holds()?;
        Ok(Witness {
            process: known,
            itself,
        })
    }

    /// Whether no thread of the process is left.
    pub fn is_gone(&self) -> bool {
        let OtherProcess { pid, seal } = self.process;
        let mut found = 0u64;
        let near = iovec {
            iov_base: std::ptr::from_mut(&mut found).cast(),
            iov_len: size_of::<u64>(),
        };
        let far = iovec {
            iov_base: std::ptr::without_provenance_mut(seal.addr as usize),
            ..near
        };
        // SAFETY: `near` describes `found`.
        match unsafe { read(pid, &[near], &[far]) } {
            Ok(_) => return found != seal.value,
            // Another program is there.
            Err(Errno::EFAULT) => return true,
            // Its memory goes before its last threads do, which may be at ours.
            Err(_) => {}
        }
        match &self.itself {
            Some(itself) => {
                let mut ended = [PollFd::new(itself, PollFlags::IN)];
                poll(&mut ended, Some(&Timespec::default())) == Ok(1)
            }
            None => Pid::from_raw(pid)
                .is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};
    use std::time::{Duration, Instant};

    use prov_util::process_memory::Seal;

    use super::*;

    /// A process that has all that this one had when it began.
    struct Child(libc::pid_t);

    impl Child {
        /// `begin` makes no calls but such as may be made behind fork(2).
        fn new(begin: impl FnOnce()) -> Child {
            // SAFETY: as `begin` promises.
            match unsafe { libc::fork() } {
                0 => {
                    begin();
                    pauses(std::ptr::null_mut());
                    unreachable!()
                }
                pid => {
                    assert!(pid > 0);
                    Child(pid)
                }
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

    extern "C" fn pauses(_: *mut c_void) -> c_int {
        loop {
            // SAFETY: it takes no arguments.
            unsafe { libc::pause() };
        }
    }

    /// A process whose memory nobody can read, since its first thread is over.
    fn unreadable() -> Child {
        let seal = Seal::new().unwrap();
        let mut stack = vec![0u128; 4096];
        let top = stack.as_mut_ptr_range().end;
        let child = Child::new(|| {
            let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES;
            let flags = shared | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
            // SAFETY: the stack is there as long as the child, whose other thread ends
            // without a word to its library.
            unsafe {
                libc::clone(pauses, top.cast(), flags, std::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while OtherProcess::find(child.0.unsigned_abs(), seal.token()).is_ok() {
            assert!(Instant::now() < deadline, "it is not over");
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn who_is_gone_is_gone_whoever_has_its_number_then() {
        let (seal, other) = (Seal::new().unwrap(), Seal::new().unwrap());
        let child = Child::new(|| {});
        let (process, _) = OtherProcess::find(child.0.unsigned_abs(), seal.token()).unwrap();
        let mut witness = Witness::new(&process, other.token()).unwrap();
        assert!(!witness.is_gone());
        let stranger = unreadable();
        drop(child);
        assert!(witness.is_gone());
        witness.process.pid = stranger.0;
        assert!(witness.is_gone());
        let pid = Pid::from_raw(stranger.0).unwrap();
        witness.itself = Some(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        assert!(!witness.is_gone(), "a thread of it is left");
    }
}
