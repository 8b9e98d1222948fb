//! A process, independent of the reuse of its process id.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use prov_base::errno::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process whose end can be detected (pidfd_open(2)).
#[derive(Clone, Debug)]
pub(crate) struct Itself(Arc<OwnedFd>);

/// The processes in use, by their ids: a process has one descriptor for all of its links.
static KNOWN: Mutex<Vec<(libc::pid_t, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

impl Itself {
    /// Returns the process that has this id now.
    ///
    /// # Errors
    /// Those of pidfd_open(2): `-FI_ENOSYS` on old kernels, `-FI_EPERM` if the system does not
    /// permit it.
    pub(crate) fn of(pid: libc::pid_t) -> Result<Itself> {
        // After a fork in another thread the lock may never be released.
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

    /// Returns whether it has ended, with all of its threads: from then on its id may be reused.
    ///
    /// # Errors
    /// Those of poll(2).
    pub(crate) fn has_ended(&self) -> Result<bool> {
        let mut ended = [PollFd::new(&self.0, PollFlags::IN)];
        Ok(poll(&mut ended, Some(&Timespec::default()))? != 0)
    }

    /// Returns whether it has ended, or closed its end of `socket`, as it does when another program
    /// is executed. `ends` belongs to this process and this socket.
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

/// Detects the end of a process and of a socket there with one system call, which takes a third of
/// the time of poll(2). Created on first use.
#[derive(Debug, Default)]
pub struct Ends(OnceLock<OwnedFd>);

impl Ends {
    /// Returns whether neither has ended. If not, poll(2) tells which.
    fn none_seen(&self, process: &Itself, socket: BorrowedFd<'_>) -> bool {
        let watch = match self.0.get() {
            Some(watch) => watch,
            None => match Ends::watch(process, socket) {
                Ok(watch) => self.0.get_or_init(|| watch),
                // No descriptor is available.
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
        // Other tests may hold the lock of the list, in which case each call opens a descriptor of
        // its own.
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
    fn the_end_of_a_process_or_of_its_socket_is_detected_immediately() {
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
            // Data to read is not the end.
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
