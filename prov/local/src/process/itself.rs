//! A process itself, whichever has its number in the system later.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use prov_util::errno::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that can be seen to end (pidfd_open(2)).
#[derive(Clone, Debug)]
pub(crate) struct Itself(Arc<OwnedFd>);

/// Those that are in use, by their numbers: a process has one descriptor for all of its
/// links.
static KNOWN: Mutex<Vec<(libc::pid_t, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

impl Itself {
    /// The process that has this number now.
    ///
    /// # Errors
    /// Those of pidfd_open(2): `-FI_ENOSYS` where the system is an old one, `-FI_EPERM` where
    /// it does not let this process.
    pub(crate) fn of(pid: libc::pid_t) -> Result<Itself> {
        // In a process that was forked meanwhile nobody may ever unlock it.
        let Ok(mut known) = KNOWN.try_lock() else {
            return Itself::open(pid);
        };
        known.retain(|(_, itself)| itself.strong_count() != 0);
        let same = known.iter().filter(|(number, _)| *number == pid);
        let mut same = same.filter_map(|(_, itself)| itself.upgrade().map(Itself));
        if let Some(itself) = same.find(|itself| itself.has_ended() == Ok(false)) {
            return Ok(itself);
        }
        let itself = Itself::open(pid)?;
        known.push((pid, Arc::downgrade(&itself.0)));
        Ok(itself)
    }

    fn open(pid: libc::pid_t) -> Result<Itself> {
        let pid = Pid::from_raw(pid).ok_or(Errno::EINVAL)?;
        Ok(Itself(Arc::new(pidfd_open(pid, PidfdFlags::empty())?)))
    }

    /// Whether it has ended, with all of its threads: from then on its number may be
    /// another process's.
    ///
    /// # Errors
    /// Those of poll(2).
    pub(crate) fn has_ended(&self) -> Result<bool> {
        let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut ended, Some(&Timespec::default()))? != 0)
    }

    /// Whether it has ended, or closed its end of `socket`, as it does when another program
    /// begins in it.
    ///
    /// # Errors
    /// Those of poll(2).
    pub(crate) fn has_left(&self, socket: BorrowedFd<'_>) -> Result<bool> {
        let mut ends = [
            PollFd::new(&self.0, PollFlags::IN),
            PollFd::from_borrowed_fd(socket, PollFlags::RDHUP),
        ];
        Ok(poll(&mut ends, Some(&Timespec::default()))? != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::child::Child;
    use super::*;

    #[test]
    fn all_links_to_a_process_have_one_descriptor() {
        let child = Child::new(|| {});
        let find = || Itself::of(child.pid()).unwrap();
        // Other tests may be at the list: who does not get at it has one of its own.
        let mut pairs = (0..1000).map(|_| (find(), find()));
        let same = pairs.find(|(one, other)| Arc::ptr_eq(&one.0, &other.0));
        let (one, other) = same.unwrap();
        assert_eq!(one.has_ended(), Ok(false));
        child.end();
        assert_eq!(one.has_ended(), Ok(true));
        drop(child);
        assert_eq!(other.has_ended(), Ok(true));
    }
}
