//! A process, independent of the reuse of its process id.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use prov_base::errno::{Errno, Result};
use prov_base::kept_errno::KeptErrno;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::spare::Spare;

/// A process whose end can be detected.
#[derive(Clone, Debug)]
pub(crate) enum Itself {
    /// By a descriptor of it (pidfd_open(2)).
    Held(Arc<Held>),
    /// By its id and the time at which it was started, where there is no descriptor to spare.
    Named(Named),
}

/// A descriptor of a process.
#[derive(Debug)]
pub(crate) struct Held {
    descriptor: OwnedFd,
    _spare: Spare,
}

/// A process as proc_pid_stat(5) describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pid: libc::pid_t,
    /// In clock ticks since the system was started.
    started: u64,
}

/// The processes in use, by their ids: a process has one descriptor for all of its links.
static KNOWN: Mutex<Vec<(libc::pid_t, Weak<Held>)>> = Mutex::new(Vec::new());

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
        let mut same = same.filter_map(|(_, itself)| itself.upgrade().map(Itself::Held));
        if let Some(itself) = same.find(|itself| itself.has_ended() == Ok(false)) {
            return Ok(itself);
        }
        let itself = Itself::open(pid)?;
        if let Itself::Held(held) = &itself {
            known.push((pid, Arc::downgrade(held)));
        }
        Ok(itself)
    }

    fn open(pid: libc::pid_t) -> Result<Itself> {
        let number = Pid::from_raw(pid).ok_or(Errno::EINVAL)?;
        let Some(spare) = Spare::take() else {
            return Ok(Itself::Named(Named::of(pid)?));
        };
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => match spare.keep(descriptor) {
                Some(descriptor) => Ok(Itself::Held(Arc::new(Held {
                    descriptor,
                    _spare: spare,
                }))),
                None => Ok(Itself::Named(Named::of(pid)?)),
            },
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                Ok(Itself::Named(Named::of(pid)?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the descriptor of it, if there is one.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Itself::Held(held) => Some(held.descriptor.as_fd()),
            Itself::Named(_) => None,
        }
    }

    /// Returns whether it has ended, with all of its threads: from then on its id may be reused.
    ///
    /// # Errors
    /// Those of poll(2), or of reading proc_pid_stat(5).
    pub(crate) fn has_ended(&self) -> Result<bool> {
        match self {
            Itself::Held(held) => {
                let mut ended = [PollFd::new(&held.descriptor, PollFlags::IN)];
                Ok(poll(&mut ended, Some(&Timespec::default()))? != 0)
            }
            Itself::Named(named) => named.has_ended(),
        }
    }

    /// Returns whether it has ended, or closed its end of `socket`, as it does when another program
    /// is executed. `ends` belongs to this process and this socket.
    ///
    /// # Errors
    /// Those of poll(2).
    pub(crate) fn has_left(&self, socket: BorrowedFd<'_>, ends: &Ends) -> Result<bool> {
        let socket_end = PollFd::from_borrowed_fd(socket, PollFlags::RDHUP);
        let held = match self {
            Itself::Held(held) => held,
            Itself::Named(named) => {
                let has_closed = poll(&mut [socket_end], Some(&Timespec::default()))? != 0;
                return Ok(has_closed || named.has_ended()?);
            }
        };
        if ends.none_seen(held, socket) {
            return Ok(false);
        }
        let mut ends = [PollFd::new(&held.descriptor, PollFlags::IN), socket_end];
        Ok(poll(&mut ends, Some(&Timespec::default()))? != 0)
    }
}

impl Named {
    /// Returns the process that has this id now.
    ///
    /// # Errors
    /// `-FI_ESHUTDOWN` if none has it; others of open(2) and read(2).
    fn of(pid: libc::pid_t) -> Result<Named> {
        Named::read(pid)?.ok_or(Errno::ESHUTDOWN)
    }

    /// Returns the process that has this id now; `None` if none has it, or it has ended and was not
    /// waited for.
    fn read(pid: libc::pid_t) -> Result<Option<Named>> {
        let _errno = KeptErrno::begin();
        let mut text = [0; STAT];
        let mut len = 0;
        match File::open(format!("/proc/{pid}/stat")) {
            Ok(mut file) => {
                while let Some(rest @ &mut [_, ..]) = text.get_mut(len..) {
                    match file.read(rest) {
                        Ok(0) => break,
                        Ok(more) => len += more,
                        Err(error) if is_gone(&error) => return Ok(None),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let text = text.get(..len).unwrap_or_default();
        let (has_ended, started) = parse(text).ok_or(Errno::EPROTO)?;
        Ok((!has_ended).then_some(Named { pid, started }))
    }

    fn has_ended(&self) -> Result<bool> {
        Ok(Named::read(self.pid)? != Some(*self))
    }
}

/// Bytes that are read of proc_pid_stat(5): 52 numbers of up to 20 digits, and a name of 64 bytes.
const STAT: usize = 52 * 21 + 66;

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Returns from the text of proc_pid_stat(5) whether the process has ended with all of its threads, and
/// the time at which it was started.
fn parse(text: &[u8]) -> Option<(bool, u64)> {
    // The name, in parentheses, may contain any character.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let fields = str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    // Fields 20 and 22, of which the state is the third.
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    // The thread that the process began with may have ended before the others.
    let has_ended = matches!(state, "Z" | "X") && threads <= 1;
    Some((has_ended, started))
}

/// Detects the end of a process and of a socket there with one system call, which takes a third of
/// the time of poll(2). Created on first use.
#[derive(Debug, Default)]
pub struct Ends(OnceLock<(OwnedFd, Spare)>);

impl Ends {
    /// Returns whether neither has ended. If not, poll(2) tells which.
    fn none_seen(&self, process: &Held, socket: BorrowedFd<'_>) -> bool {
        let (watch, _) = match self.0.get() {
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

    fn watch(process: &Held, socket: BorrowedFd<'_>) -> Result<(OwnedFd, Spare)> {
        let spare = Spare::take().ok_or(Errno::EMFILE)?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = spare.keep(watch).ok_or(Errno::EMFILE)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watch, &process.descriptor, data, epoll::EventFlags::IN)?;
        epoll::add(&watch, socket, data, epoll::EventFlags::RDHUP)?;
        Ok((watch, spare))
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
        let same = pairs.find(|pair| match pair {
            (Itself::Held(one), Itself::Held(other)) => Arc::ptr_eq(one, other),
            _ => false,
        });
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
            let Itself::Held(held) = &itself else {
                panic!("no descriptor to spare");
            };
            assert!(ends.none_seen(held, socket.as_fd()));
            match process_ends {
                true => child.end(),
                false => far.shutdown(std::net::Shutdown::Both).unwrap(),
            }
            assert_eq!(has_left(), Ok(true));
            assert!(!ends.none_seen(held, socket.as_fd()));
        }
    }

    #[test]
    fn a_process_without_a_descriptor_is_known_by_the_time_at_which_it_was_started() {
        use std::os::fd::AsFd as _;
        use std::os::unix::net::UnixStream;

        let child = Child::new(|| {});
        let named = Named::of(child.pid()).unwrap();
        let itself = Itself::Named(named);
        let (socket, far) = UnixStream::pair().unwrap();
        let ends = Ends::default();
        assert_eq!(itself.has_ended(), Ok(false));
        assert_eq!(itself.has_left(socket.as_fd(), &ends), Ok(false));
        let earlier = Itself::Named(Named {
            started: named.started - 1,
            ..named
        });
        assert_eq!(earlier.has_ended(), Ok(true));
        // Not waited for yet.
        child.end();
        assert_eq!(itself.has_ended(), Ok(true));
        assert_eq!(itself.has_left(socket.as_fd(), &ends), Ok(true));
        drop(child);
        assert_eq!(itself.has_ended(), Ok(true));
        let own = Itself::Named(Named::of(std::process::id().cast_signed()).unwrap());
        assert_eq!(own.has_left(socket.as_fd(), &ends), Ok(false));
        // Processes that other tests fork have the socket, too.
        far.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(own.has_left(socket.as_fd(), &ends), Ok(true));
    }

    #[test]
    fn any_text_is_parsed_and_names_may_look_like_fields() {
        let text = |state: &str, threads: u64| {
            format!(
                "7 (a) Z 1 (b)) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 99 1"
            )
        };
        assert_eq!(parse(text("S", 1).as_bytes()), Some((false, 99)));
        assert_eq!(parse(text("Z", 1).as_bytes()), Some((true, 99)));
        assert_eq!(parse(text("Z", 2).as_bytes()), Some((false, 99)));
        for len in 0..text("S", 1).len() - 4 {
            assert_eq!(parse(&text("S", 1).as_bytes()[..len]), None);
        }
    }
}
