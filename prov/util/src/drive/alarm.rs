//! The timer that wakes the progress thread when the application has stopped calling.
//!
//! A thread that checked every few milliseconds whether the application still makes progress calls
//! would take processor time from it for nothing. Instead the application postpones this timer with
//! its calls, about 200 times per second.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use prov_base::errno::Result;

/// Approximate time between the application's last call and the alarm.
pub(super) const AWAY: Duration = Duration::from_millis(10);

/// Time until an alarm that is to ring at once: timers cannot be set to none.
pub(super) const AT_ONCE: Duration = Duration::from_nanos(1);

/// Bit that marks the epoll events of a lane's alarm; the other bits are the lane's id.
pub(super) const ALARM: u64 = 1 << 63;

/// A timer that the thread sets and sleeps on, and that the application postpones.
pub(super) struct Alarm {
    timer: OwnedFd,
    /// Whether the alarm wakes the thread.
    is_heard: AtomicBool,
    /// Whether the alarm is set, so that the thread relies on it.
    is_set: AtomicBool,
    /// When it was last set or postponed, in nanoseconds after `start`.
    put_off: AtomicU64,
    start: Instant,
    /// The process that created it: a forked child shares the timer, and must not use it.
    process: u32,
}

impl Alarm {
    /// Creates an alarm that is not set.
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

    /// Records that the alarm wakes the thread.
    pub(super) fn is_heard(&self) {
        self.is_heard.store(true, Ordering::Release);
    }

    /// Called by an application that consumes the events for which the thread sleeps on another
    /// descriptor: sets the alarm to wake the thread instead. Returns `false` if the alarm does not
    /// wake the thread.
    pub(super) fn relieve(&self, now: Instant) -> bool {
        if std::process::id() != self.process {
            // A forked child has no such thread.
            return true;
        }
        let is_heard = self.is_heard.load(Ordering::Acquire);
        let will_ring = self.is_set.load(Ordering::Acquire) && !self.is_long_ago(now);
        if is_heard && !will_ring {
            self.set(now);
        }
        is_heard
    }

    /// Sets the alarm, on which the thread is about to sleep.
    pub(super) fn set(&self, now: Instant) {
        self.ring_after(AWAY, now);
        self.is_set.store(true, Ordering::Release);
    }

    /// [`Alarm::set`] for another time, which postponing does not extend beyond [`AWAY`]. Has no
    /// effect in a forked child.
    pub(super) fn set_for(&self, pause: Duration, now: Instant) {
        if std::process::id() == self.process {
            self.ring_after(pause, now);
            self.is_set.store(true, Ordering::Release);
        }
    }

    /// Stops the alarm, unless it already rings.
    pub(super) fn stop(&self) {
        self.unset();
        self.set_timer(Duration::ZERO);
    }

    /// Records that the thread does not sleep on the alarm.
    pub(super) fn unset(&self) {
        self.is_set.store(false, Ordering::Relaxed);
    }

    /// Postpones the alarm, for an application that makes progress calls. Cheap, except for one
    /// call per half of [`AWAY`]. Returns whether this was such a call.
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

    /// Returns whether it was postponed so long ago that it may ring soon.
    fn is_long_ago(&self, now: Instant) -> bool {
        let last = Duration::from_nanos(self.put_off.load(Ordering::Relaxed));
        now.duration_since(self.start) >= last + AWAY / 2
    }

    fn ring_after(&self, pause: Duration, now: Instant) {
        let since = now.duration_since(self.start).as_nanos();
        self.put_off.store(since as u64, Ordering::Relaxed);
        self.set_timer(pause);
    }

    /// Zero stops the timer.
    fn set_timer(&self, pause: Duration) {
        let timing = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: pause.as_secs() as _,
                tv_nsec: pause.subsec_nanos() as _,
            },
        };
        // Cannot fail, since the time is valid.
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
    fn an_alarm_is_postponed_only_if_it_is_set_and_not_recent() {
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
    fn an_application_that_consumes_the_wake_up_event_sets_the_alarm() {
        let alarm = Alarm::new().unwrap();
        let start = Instant::now();
        assert!(!alarm.relieve(start));
        alarm.is_heard();
        assert!(alarm.relieve(start));
        assert!(alarm.put_off(|| start + AWAY));
        // The alarm is set again only after half of its time.
        assert!(alarm.relieve(start + AWAY + AWAY / 4));
        assert!(alarm.put_off(|| start + AWAY + AWAY / 2));
        assert!(alarm.relieve(start + 2 * AWAY));
        assert!(!alarm.put_off(|| start + 2 * AWAY + AWAY / 4));
    }

    #[test]
    fn the_alarm_rings_if_it_is_not_postponed() {
        let alarm = Alarm::new().unwrap();
        alarm.set(Instant::now());
        let mut fds = [rustix::event::PollFd::new(
            &alarm,
            rustix::event::PollFlags::IN,
        )];
        assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
    }
}
