//! What threads sleep at: the descriptors of the linked endpoints.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use prov_base::errno::{Errno, Result};
use prov_base::timer_fd::TimerFd;
use rustix::event::epoll;
use rustix::io;

/// Descriptors that poll readable together.
pub struct Watched {
    all: OwnedFd,
    /// In place of the descriptors that cannot be watched in a descriptor that the application
    /// watches in turn: the kernel limits how deep epoll(7) descriptors are nested, and those of
    /// layered providers are nested themselves.
    clock: Option<TimerFd>,
}

/// How long a thread sleeps at most at links that are not watched: the processor is idle nearly all
/// the time, and a message waits no longer than a thread waits for one on a busy machine.
const LOOK: Duration = Duration::from_millis(1);

/// The levels above those of a link: [`Watched`], a completion queue, and what the application has.
const LEVELS: usize = 3;

impl Watched {
    /// Watches these until they are closed.
    ///
    /// # Errors
    /// Those of epoll_create(2), epoll_ctl(2) and timerfd_create(2).
    pub fn new<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<Self> {
        let mut watched = Watched {
            all: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            clock: None,
        };
        for fd in fds {
            if has_room(fd)? {
                add(&watched.all, fd)?;
            } else if watched.clock.is_none() {
                let clock = TimerFd::new()?;
                add(&watched.all, clock.as_fd())?;
                watched.clock = Some(clock);
            }
        }
        Ok(watched)
    }

    /// Called before a thread sleeps.
    pub fn sleeps(&self) {
        if let Some(clock) = &self.clock {
            clock.set(Some(LOOK));
        }
    }

    /// Returns the descriptor to poll.
    pub fn fd(&self) -> RawFd {
        self.all.as_raw_fd()
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }
}

fn add(to: &OwnedFd, fd: BorrowedFd<'_>) -> Result {
    let data = epoll::EventData::new_u64(0);
    match epoll::add(to, fd, data, epoll::EventFlags::IN) {
        Err(io::Errno::EXIST) => Ok(()),
        outcome => outcome.map_err(Errno::from),
    }
}

/// Whether a descriptor may be nested so many [`LEVELS`] deep.
fn has_room(fd: BorrowedFd<'_>) -> Result<bool> {
    let mut levels: Vec<OwnedFd> = Vec::with_capacity(LEVELS);
    for _ in 0..LEVELS {
        let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inner = levels.last().map_or(fd, |level| level.as_fd());
        let data = epoll::EventData::new_u64(0);
        match epoll::add(&outer, inner, data, epoll::EventFlags::IN) {
            Err(io::Errno::LOOP) => return Ok(false),
            outcome => outcome?,
        }
        levels.push(outer);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(fd: impl AsFd, milliseconds: i64) -> bool {
        let time = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: milliseconds * 1_000_000,
        };
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, Some(&time)).unwrap() != 0
    }

    fn around(inner: BorrowedFd<'_>) -> OwnedFd {
        let outer = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        add(&outer, inner).unwrap();
        outer
    }

    #[test]
    fn what_is_nested_too_deep_is_looked_at_by_time() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut levels = vec![around(reader.as_fd())];
        let shallow = Watched::new([levels[0].as_fd()]).unwrap();
        assert!(shallow.clock.is_none());
        for _ in 0..3 {
            levels.push(around(levels.last().unwrap().as_fd()));
        }
        let deep = Watched::new([levels[0].as_fd(), levels[3].as_fd()]).unwrap();
        assert!(deep.clock.is_some());
        let queue = around(deep.as_fd());
        let application = around(queue.as_fd());
        assert!(!is_readable(&application, 0));
        deep.sleeps();
        assert!(is_readable(&deep, 900));
        shallow.sleeps();
        assert!(!is_readable(&shallow, 0));
        rustix::io::write(&writer, b".").unwrap();
        assert!(is_readable(&shallow, 0));
    }
}
