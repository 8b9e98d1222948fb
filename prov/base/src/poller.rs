//! An epoll(7) instance that reports which sockets have events, with a timer.
//!
//! Sockets are registered edge-triggered, for reading and writing, once for their whole life: a
//! connection that is idle or held back by flow control costs nothing, and no system call is needed
//! to change the set of events.

mod favourite;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use std::marker::PhantomData;

use rustix::event::epoll;
use rustix::time::Timespec;

use crate::errno::{Errno, Result};
use crate::process::Process;
use crate::timer_fd::TimerFd;

pub use self::favourite::Favourite;

/// The owner of a descriptor in a poller, encoded as a number.
pub trait Source: Copy {
    /// The poller's timer.
    const TIMER: Self;

    /// Encodes the owner.
    fn token(self) -> u64;

    /// Decodes a number.
    fn of_token(token: u64) -> Self;
}

/// The events of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Event<S> {
    /// The owner of the socket.
    pub source: S,
    /// The socket is readable.
    pub readable: bool,
    /// The socket is writable.
    pub writable: bool,
    /// The stream has ended; a read tells how.
    pub ended: bool,
    /// The socket has an error, or a message in its error queue.
    pub failed: bool,
}

/// See the module description.
pub struct Poller<S> {
    epoll: OwnedFd,
    timer: TimerFd,
    /// The time to which the timer is set.
    alarm: Option<Instant>,
    sources: PhantomData<S>,
    /// A forked child shares the descriptors, and must not change their registration.
    process: Process,
}

/// The events of a connection, which are reported only when they change.
const CONNECTION: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);
/// Largest number of events of one epoll_wait(2), which fits on the stack.
const BATCH: usize = 128;

impl<S: Source> Poller<S> {
    /// Creates a poller with a timer that is not set.
    ///
    /// # Errors
    /// `-FI_EMFILE` and others of epoll_create(2) and [`TimerFd::new`].
    pub fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = TimerFd::new()?;
        epoll::add(
            &epoll,
            &timer,
            epoll::EventData::new_u64(S::TIMER.token()),
            epoll::EventFlags::IN,
        )?;
        Ok(Poller {
            epoll,
            timer,
            alarm: None,
            sources: PhantomData,
            process: Process::current(),
        })
    }

    /// Registers a connection's socket.
    ///
    /// # Errors
    /// Those of epoll_ctl(2), and `-FI_EOPBADSTATE` in a forked child.
    pub fn watch(&self, socket: BorrowedFd<'_>, source: S) -> Result {
        if !self.is_own() {
            return Err(Errno::EOPBADSTATE);
        }
        let data = epoll::EventData::new_u64(source.token());
        epoll::add(&self.epoll, socket, data, CONNECTION)?;
        Ok(())
    }

    /// Watches a socket for what can be read, and only when there is more. [`Poller::tell_again`]
    /// has it watched as a connection's.
    ///
    /// # Errors
    /// Those of [`Poller::watch`].
    pub fn watch_reading(&self, socket: BorrowedFd<'_>, source: S) -> Result {
        if !self.is_own() {
            return Err(Errno::EOPBADSTATE);
        }
        let data = epoll::EventData::new_u64(source.token());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, data, flags)?;
        Ok(())
    }

    /// Makes the poller report the events of a registered connection again, though it has already
    /// reported them.
    pub fn tell_again(&self, socket: BorrowedFd<'_>, source: S) {
        if !self.process.is_noted() {
            return;
        }
        let data = epoll::EventData::new_u64(source.token());
        // A registered socket can be modified like this.
        let _ = epoll::modify(&self.epoll, socket, data, CONNECTION);
    }

    /// Registers a listening socket, level-triggered.
    ///
    /// # Errors
    /// Those of [`Poller::watch`].
    pub fn watch_listener(&self, socket: BorrowedFd<'_>, source: S) -> Result {
        if !self.is_own() {
            return Err(Errno::EOPBADSTATE);
        }
        epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(source.token()),
            epoll::EventFlags::IN,
        )?;
        Ok(())
    }

    /// Whether the calling process created the poller, and did not inherit it.
    pub fn is_own(&self) -> bool {
        self.process.is_current()
    }

    /// Removes a socket. Does nothing in a forked child.
    pub fn forget(&self, socket: BorrowedFd<'_>) {
        if !self.is_own() {
            return;
        }
        // The socket may not be registered.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Appends the current events to `events`.
    pub fn poll(&mut self, events: &mut Vec<Event<S>>) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut buffer = [const { MaybeUninit::uninit() }; BATCH];
        // An interrupted call returns no events; the next one does.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&now)) else {
            return;
        };
        for event in ready.iter() {
            use epoll::EventFlags as E;
            let flags = event.flags;
            events.push(Event {
                source: S::of_token(event.data.u64()),
                readable: flags.intersects(E::IN | E::RDHUP | E::HUP | E::ERR),
                writable: flags.contains(E::OUT),
                ended: flags.intersects(E::RDHUP | E::HUP),
                failed: flags.contains(E::ERR),
            });
        }
    }

    /// Sets the timer to `when`, if that is earlier than its time.
    pub fn wake_at(&mut self, when: Instant) {
        if self.alarm.is_none_or(|alarm| when < alarm) {
            self.set_alarm(Some(when));
        }
    }

    /// Sets the timer, or stops it.
    pub fn set_alarm(&mut self, when: Option<Instant>) {
        if self.alarm == when {
            return;
        }
        self.alarm = when;
        if !self.is_own() {
            return;
        }
        let now = Instant::now();
        self.timer
            .set(when.map(|when| when.saturating_duration_since(now)));
    }

    /// Resets a timer that has expired.
    pub fn alarm_heard(&mut self) {
        self.alarm = None;
        self.timer.heard();
    }
}

impl<S> AsFd for Poller<S> {
    /// The descriptor, readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Number(u64);

    impl Source for Number {
        const TIMER: Self = Number(0);

        fn token(self) -> u64 {
            self.0
        }

        fn of_token(token: u64) -> Self {
            Number(token)
        }
    }

    fn polled(poller: &mut Poller<Number>) -> Vec<Event<Number>> {
        let mut events = Vec::new();
        poller.poll(&mut events);
        events
    }

    #[test]
    fn the_events_of_a_socket_are_reported_once() {
        let mut poller = Poller::new().unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        poller.watch(here.as_fd(), Number(7)).unwrap();
        let first = polled(&mut poller);
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].source, Number(7));
        assert!(first[0].writable && !first[0].readable && !first[0].ended);
        assert!(polled(&mut poller).is_empty());
        std::io::Write::write_all(&mut there, b"x").unwrap();
        assert!(polled(&mut poller)[0].readable);
        assert!(polled(&mut poller).is_empty());
        poller.tell_again(here.as_fd(), Number(8));
        let again = polled(&mut poller);
        assert!(again[0].readable && again[0].source == Number(8));
        drop(there);
        assert!(polled(&mut poller)[0].ended);
        poller.forget(here.as_fd());
        assert!(polled(&mut poller).is_empty());
    }

    #[test]
    fn the_timer_is_reported_until_it_is_reset() {
        let mut poller = Poller::<Number>::new().unwrap();
        let (now, late) = (Instant::now(), Duration::from_secs(3600));
        poller.wake_at(now + late);
        assert!(polled(&mut poller).is_empty());
        poller.wake_at(now);
        let deadline = now + Duration::from_secs(20);
        while polled(&mut poller).is_empty() {
            assert!(Instant::now() < deadline, "the timer is silent");
        }
        assert_eq!(polled(&mut poller)[0].source, Number::TIMER);
        poller.alarm_heard();
        assert!(polled(&mut poller).is_empty());
    }
}
