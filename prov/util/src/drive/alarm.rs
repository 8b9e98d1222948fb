//! What wakes the thread when the application has stopped calling.
//!
//! A thread that looked every few milliseconds whether the application still
//! makes progress calls would take the processor from it for nothing. Instead
//! the application puts the alarm off as it calls, some hundred times a second.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::errno::Result;

/// How long after the application's last call the alarm rings, about.
pub(super) const AWAY: Duration = Duration::from_millis(10);

/// Added to a lane's name, for the events of its alarm.
pub(super) const ALARM: u64 = 1 << 63;

/// A timer that the thread sets and sleeps at, and the application puts off.
pub(super) struct Alarm {
    timer: OwnedFd,
    /// Whether the thread hears it.
    is_heard: AtomicBool,
    /// Whether the thread sleeps at it.
    is_set: AtomicBool,
    /// When it was set or put off last, in nanoseconds after `start`.
    put_off: AtomicU64,
    start: Instant,
    /// A forked child has the same timer, and leaves it alone.
    process: u32,
}

impl Alarm {
    /// Not set.
    ///
    /// # Errors
    /// Those of timerfd_create(2).
    pub(super) fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Alarm {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            is_heard: AtomicBool::new(false),
            is_set: AtomicBool::new(false),
            put_off: AtomicU64::new(0),
            start: Instant::now(),
            process: std::process::id(),
        })
    }

    /// The thread hears it from now on.
    pub(super) fn is_heard(&self) {
        self.is_heard.store(true, Ordering::Release);
    }

    /// The application makes calls while the thread sleeps at something else, of
    /// which it takes what would wake that: the alarm will. `false` if the thread
    /// does not hear it.
    pub(super) fn relieve(&self, now: Instant) -> bool {
        if std::process::id() != self.process {
            // There is no thread.
            return true;
        }
        let is_heard = self.is_heard.load(Ordering::Acquire);
        let will_ring = self.is_set.load(Ordering::Acquire) && !self.is_long_ago(now);
        if is_heard && !will_ring {
            self.set(now);
        }
        is_heard
    }

    /// The thread goes to sleep at it.
    pub(super) fn set(&self, now: Instant) {
        self.ring_after(AWAY, now);
        self.is_set.store(true, Ordering::Release);
    }

    /// [`Alarm::set`] to ring after another time, unless it is put off until then.
    /// Nothing in a forked child.
    pub(super) fn set_for(&self, pause: Duration, now: Instant) {
        if std::process::id() == self.process {
            self.ring_after(pause, now);
            self.is_set.store(true, Ordering::Release);
        }
    }

    /// It does not ring, unless it does so already.
    pub(super) fn stop(&self) {
        self.unset();
        self.set_timer(Duration::ZERO);
    }

    /// The thread sleeps at something else.
    pub(super) fn unset(&self) {
        self.is_set.store(false, Ordering::Relaxed);
    }

    /// The application makes progress calls. Cheap, but for a call every half of
    /// [`AWAY`]; whether this was one.
    pub(super) fn put_off(&self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_set.load(Ordering::Acquire) {
            return false;
        }
        let now = now();
        if !self.is_long_ago(now) {
            return false;
        }
        if std::process::id() != self.process {
            self.unset();
            return false;
        }
        self.ring_after(AWAY, now);
        true
    }

    /// Whether it was put off so long ago that it may ring soon.
    fn is_long_ago(&self, now: Instant) -> bool {
        let last = Duration::from_nanos(self.put_off.load(Ordering::Relaxed));
        now.duration_since(self.start) >= last + AWAY / 2
    }

    fn ring_after(&self, pause: Duration, now: Instant) {
        let since = now.duration_since(self.start).as_nanos();
        self.put_off.store(since as u64, Ordering::Relaxed);
        self.set_timer(pause);
    }

    /// Zero stops it.
    fn set_timer(&self, pause: Duration) {
        let timing = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: pause.as_secs() as _,
                tv_nsec: pause.subsec_nanos() as _,
            },
        };
        // Cannot fail: the time is valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timing);
    }
}

/// Readable once it rings.
impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_put_off_where_it_is_set_and_that_is_some_time_ago() {
        let alarm = Alarm::new().unwrap();
        let start = Instant::now();
        let at = |halves: u32| start + AWAY / 2 * halves;
        assert!(!alarm.put_off(|| at(9)), "the thread does not sleep at it");
        alarm.set(start);
        assert!(!alarm.put_off(|| start));
        assert!(alarm.put_off(|| at(1)));
        assert!(!alarm.put_off(|| at(1)));
        assert!(alarm.put_off(|| at(2)));
        alarm.unset();
        assert!(!alarm.put_off(|| at(9)));
    }

    #[test]
    fn who_takes_what_would_wake_the_thread_sets_it_where_it_is_heard() {
        let alarm = Alarm::new().unwrap();
        let start = Instant::now();
        assert!(!alarm.relieve(start));
        alarm.is_heard();
        assert!(alarm.relieve(start));
        assert!(alarm.put_off(|| start + AWAY));
        // Once is enough for a while.
        assert!(alarm.relieve(start + AWAY + AWAY / 4));
        assert!(alarm.put_off(|| start + AWAY + AWAY / 2));
        assert!(alarm.relieve(start + 2 * AWAY));
        assert!(!alarm.put_off(|| start + 2 * AWAY + AWAY / 4));
    }

    #[test]
    fn it_rings_when_nobody_puts_it_off() {
        let alarm = Alarm::new().unwrap();
        alarm.set(Instant::now());
        let mut fds = [rustix::event::PollFd::new(
            &alarm,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
    }
}
