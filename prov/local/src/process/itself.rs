//! A process itself, whichever has its number in the system later.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use prov_base::errno::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
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
    /// begins in it. `ends` is for this process and this socket alone.
    ///
    /// # Errors
    /// Those of poll(2).
    pub(crate) fn has_left(&self, socket: BorrowedFd<'_>, ends: &Ends) -> Result<bool> {
        if ends.none_seen(self, socket) {
            return Ok(false);
        }
        let mut ends = [
            PollFd::new(&self.0, PollFlags::IN),
            PollFd::from_borrowed_fd(socket, PollFlags::RDHUP),
        ];
        Ok(poll(&mut ends, Some(&Timespec::default()))? != 0)
    }
}

/// What hears of the end of a process, and of that of a socket there: of both with one
/// question, which takes a third of the time of poll(2). It is made when it is first asked.
#[derive(Debug, Default)]
pub struct Ends(OnceLock<OwnedFd>);

impl Ends {
    /// Whether neither has ended. If it may have, poll(2) knows.
    fn none_seen(&self, process: &Itself, socket: BorrowedFd<'_>) -> bool {
        let watch = match self.0.get() {
            Some(watch) => watch,
            None => match Ends::watch(process, socket) {
                Ok(watch) => self.0.get_or_init(|| watch),
                // No descriptor is left.
                Err(_) => return false,
            },
        };
        let mut ended = [const { std::mem::MaybeUninit::uninit() }; 1];
        let seen = epoll::wait(watch, &mut ended, Some(&Timespec::default()));
        seen.is_ok_and(|(seen, _)| seen.is_empty())
    }

    fn watch(process: &Itself, socket: BorrowedFd<'_>) -> Result<OwnedFd> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watch, &process.0, data, epoll::EventFlags::IN)?;
        epoll::add(&watch, socket, data, epoll::EventFlags::RDHUP)?;
        Ok(watch)
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

    #[test]
    fn the_end_of_a_process_or_of_its_socket_is_seen_at_once_and_nothing_else_is() {
        use std::io::Write as _;
        use std::os::fd::AsFd as _;
        use std::os::unix::net::UnixStream;

        for process_ends in [true, false] {
            let child = Child::new(|| {});
            let itself = Itself::of(child.pid()).unwrap();
            let (socket, mut far) = UnixStream::pair().unwrap();
            let ends = Ends::default();
            let has_left = || itself.has_left(socket.as_fd(), &ends);
            assert_eq!(has_left(), Ok(false));
            // Something to read is no end.
            far.write_all(b"word").unwrap();
            assert_eq!(has_left(), Ok(false));
            assert!(ends.none_seen(&itself, socket.as_fd()));
            match process_ends {
                true => child.end(),
                false => far.shutdown(std::net::Shutdown::Both).unwrap(),
            }
            assert_eq!(has_left(), Ok(true));
            assert!(!ends.none_seen(&itself, socket.as_fd()));
        }
    }
}
