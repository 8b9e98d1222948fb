//! Whether another process is still there, without a descriptor that is open for that.

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;
use rustix::process::{Pid, test_kill_process};

use super::{Itself, OtherProcess};

/// A process whose end is looked for from time to time.
#[derive(Debug)]
pub struct Life {
    pid: Pid,
    /// Its memory, if it can be read: another program, or another process with the same id, does not
    /// have the seal.
    memory: Option<OtherProcess>,
    /// `None` if the system does not tell the processes with one id apart.
    itself: Option<Itself>,
}

impl Life {
    /// Returns that of the process with this id, whose memory is known if it can be read.
    ///
    /// # Errors
    /// `-FI_EINVAL` if the id is not a process's, as that of one in another pid namespace.
    pub fn of(pid: u32, memory: Option<OtherProcess>) -> Result<Life> {
        let number = libc::pid_t::try_from(pid).map_err(|_| Errno::EINVAL)?;
        Ok(Life {
            pid: Pid::from_raw(number).ok_or(Errno::EINVAL)?,
            memory,
            itself: Itself::of(number).ok(),
        })
    }

    /// Returns whether it has ended, or executes another program, as far as the system tells. Where its
    /// memory cannot be read, it does not tell the latter.
    pub fn has_ended(&self) -> bool {
        // Nothing but the seal is read.
        let sealed = |memory: &OtherProcess| memory.copy_out(&OtherIov::default(), &mut []);
        match self.memory.as_ref().map(sealed) {
            Some(Ok(())) => return false,
            Some(Err(Errno::ESHUTDOWN | Errno::EFAULT)) => return true,
            // Also if the thread that the process began with has ended.
            Some(Err(_)) | None => {}
        }
        match self.itself.as_ref().map(Itself::has_ended) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) | None => test_kill_process(self.pid) == Err(rustix::io::Errno::SRCH),
        }
    }
}

#[cfg(test)]
mod tests {
    use prov_base::process_memory::Seal;

    use super::super::child::Child;
    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen_by_its_id() {
        let child = Child::new(|| {});
        let life = Life::of(child.pid().unsigned_abs(), None).unwrap();
        assert!(!life.has_ended());
        // Not waited for yet.
        child.end();
        assert!(life.has_ended());
        assert!(Life::of(0, None).is_err());
    }

    #[test]
    fn the_end_of_a_program_is_seen_by_its_seal() {
        let seal = Seal::new().unwrap();
        let own = std::process::id();
        let (memory, _) = OtherProcess::find(own, seal.token()).unwrap();
        let life = Life::of(own, Some(memory)).unwrap();
        assert!(!life.has_ended());
        drop(seal);
        assert!(life.has_ended());
    }
}
