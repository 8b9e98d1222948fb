//! The descriptor that tells which sockets have something, and a timer in it.
//!
//! Sockets are watched edge-triggered, for reading and writing at once, from
//! the start to the end: an idle or a held back connection costs nothing, and
//! no change of interest ever takes a system call.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use prov_util::errno::Result;
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::engine::link::keys::Source;
use crate::engine::link::socket::system;

/// What a socket has.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Whose it is.
    pub source: Source,
    /// Something to read.
    pub readable: bool,
    /// Room to write.
    pub writable: bool,
    /// Its end: reading will tell.
    pub ended: bool,
    /// An error, or a note on its error queue.
    pub failed: bool,
}

/// See the module description.
pub struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer goes off.
    alarm: Option<Instant>,
}

/// What is told of a connection, and only when it changes.
const CONNECTION: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);
/// Events taken from the kernel at once.
const BATCH: usize = 128;

impl Poller {
    /// A poller with its timer, not set.
    pub fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map_err(system)?;
        epoll::add(
            &epoll,
            &timer,
            epoll::EventData::new_u64(Source::Timer.token()),
            epoll::EventFlags::IN,
        )
        .map_err(system)?;
        Ok(Poller {
            epoll,
            timer,
            alarm: None,
        })
    }

    /// Watches a connection's socket.
    pub fn watch(&self, socket: BorrowedFd<'_>, source: Source) -> Result {
        let data = epoll::EventData::new_u64(source.token());
        epoll::add(&self.epoll, socket, data, CONNECTION).map_err(system)
    }

    /// Tells once more what a watched connection's socket has, though it was
    /// told before.
    pub fn tell_again(&self, socket: BorrowedFd<'_>, source: Source) {
        let data = epoll::EventData::new_u64(source.token());
        // A socket that is watched can be watched so.
        let _ = epoll::modify(&self.epoll, socket, data, CONNECTION);
    }

    /// Watches a listening socket, level-triggered.
    pub fn watch_listener(&self, socket: BorrowedFd<'_>, source: Source) -> Result {
        epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(source.token()),
            epoll::EventFlags::IN,
        )
        .map_err(system)
    }

    /// Stops watching.
    pub fn forget(&self, socket: BorrowedFd<'_>) {
        // It may never have been watched.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Appends what is ready now to `events`.
    pub fn poll(&mut self, events: &mut Vec<Event>) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut buffer = [const { MaybeUninit::uninit() }; BATCH];
        // An interrupted call has no events, the next one has them.
        let Ok((ready, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&now)) else {
            return;
        };
        for event in ready.iter() {
            use epoll::EventFlags as E;
            let flags = event.flags;
            events.push(Event {
                source: Source::of_token(event.data.u64()),
                readable: flags.intersects(E::IN | E::RDHUP | E::HUP | E::ERR),
                writable: flags.contains(E::OUT),
                ended: flags.intersects(E::RDHUP | E::HUP),
                failed: flags.contains(E::ERR),
            });
        }
    }

    /// Makes the timer go off at `when`, if that is earlier than it is set to.
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
        // Zero would stop the timer instead of letting it go off at once.
        let left = when.map_or(Duration::ZERO, |when| {
            when.saturating_duration_since(Instant::now())
                .max(Duration::from_nanos(1))
        });
        let timing = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(left),
        };
        // Valid arguments cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timing);
    }

    /// Silences a timer that went off.
    pub fn alarm_heard(&mut self) {
        self.alarm = None;
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
    }
}

impl AsFd for Poller {
    /// The descriptor, readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
