//! Whether another process still is there.

use libc::iovec;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{Token, read};
use rustix::process::{Pid, test_kill_process};

use super::OtherProcess;
use super::itself::Itself;

/// Another process that can be seen to end.
#[derive(Debug)]
pub struct Witness {
    /// Known by a seal that lasts as long as the process.
    process: OtherProcess,
}

impl Witness {
    /// Of this process, if it has the other seal, too, that lasts as long as it does.
    ///
    /// # Errors
    /// Those of [`OtherProcess::find`] and of pidfd_open(2).
    pub fn new(process: &OtherProcess, seal: Token) -> Result<Witness> {
        let pid = process.pid;
        // Before the seals: what has them has the number, and so had it.
        let itself = match &process.itself {
            Some(itself) => Some(itself.clone()),
            None => match Itself::of(pid) {
                Ok(itself) => Some(itself),
                Err(Errno::ENOSYS | Errno::EPERM) => None,
                Err(error) => return Err(error),
            },
        };
        let known = OtherProcess {
            pid,
            seal,
            itself,
            memory: None,
        };
        // Of both, by which it is the same.
        process.holds()?;
        known.holds()?;
        Ok(Witness { process: known })
    }

    /// Whether no thread of the process is left.
    pub fn is_gone(&self) -> bool {
        let OtherProcess {
            pid, seal, itself, ..
        } = &self.process;
        let pid = *pid;
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
        match itself {
            Some(itself) => itself.has_ended() == Ok(true),
            None => Pid::from_raw(pid)
                .is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use prov_base::process_memory::Seal;

    use super::super::child::{Child, pauses};
    use super::*;

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
        while OtherProcess::find(child.pid().unsigned_abs(), seal.token()).is_ok() {
            assert!(Instant::now() < deadline, "it is not over");
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn who_is_gone_is_gone_whoever_has_its_number_then() {
        let (seal, other) = (Seal::new().unwrap(), Seal::new().unwrap());
        let child = Child::new(|| {});
        let (process, _) = OtherProcess::find(child.pid().unsigned_abs(), seal.token()).unwrap();
        let mut witness = Witness::new(&process, other.token()).unwrap();
        assert!(!witness.is_gone());
        let stranger = unreadable();
        drop(child);
        assert!(witness.is_gone());
        witness.process.pid = stranger.pid();
        assert!(witness.is_gone());
        witness.process.itself = Some(Itself::of(stranger.pid()).unwrap());
        assert!(!witness.is_gone(), "a thread of it is left");
    }
}
