//! The timer that wakes the progress thread when the application has stopped calling.
//!
//! A thread that checked every few milliseconds whether the application still makes progress calls
//! would take processor time from it for nothing. Instead the application postpones this timer with
//! its calls, about 200 times per second.
//!
//! Only many calls postpone it ([`Alarm::put_off`]). What single calls set ([`Alarm::ring_within`])
//! brings it forward at most: a thread that calls from time to time does not keep it from ringing.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::signals::last_yield;
use prov_base::errno::Result;
use prov_base::timer_fd::TimerFd;

/// Approximate time between the application's last call and the alarm, where the process need not wait
/// for a processor ([`away`]).
pub(super) const AWAY: Duration = Duration::from_millis(10);

/// The longest time between the application's last call and the alarm, where many processes share a
/// processor.
const LONGEST_AWAY: Duration = Duration::from_millis(100);

/// Time between the application's last call and the alarm: [`AWAY`], or twice the time that the
/// process had to wait for a processor when it last yielded one. An application that waits for that
/// has not stopped calling, and the thread would take the processor from it.
pub(super) fn away() -> Duration {
    away_after(last_yield())
}

fn away_after(last_yield: Duration) -> Duration {
    (2 * last_yield).clamp(AWAY, LONGEST_AWAY)
}

/// Time until an alarm that is to ring at once.
pub(super) const AT_ONCE: Duration = Duration::ZERO;

/// Bit that marks the epoll events of a lane's alarm; the other bits are the lane's id.
pub(super) const ALARM: u64 = 1 << 63;

/// The time of an alarm that is not set.
const NEVER: u64 = u64::MAX;

/// A timer that the thread sets and sleeps on, and that the application postpones.
pub(super) struct Alarm {
    timer: TimerFd,
    /// Whether the alarm wakes the thread.
    is_heard: AtomicBool,
    /// When it was last set or postponed, in nanoseconds after `start`.
    put_off: AtomicU64,
    /// When it rings, in nanoseconds after `start`; [`NEVER`] if the thread does not rely on it, or
    /// has heard it. Written before the timer is set, so that an alarm that seems to be set rings.
    rings_at: AtomicU64,
    start: Instant,
    /// The process that created it: a forked child shares the timer, and must not use it.
    process: u32,
}

impl Alarm {
    /// Creates an alarm that is not set.
    ///
    /// # Errors
    /// Those of [`TimerFd::new`].
    pub(super) fn new() -> Result<Self> {
        Ok(Alarm {
            timer: TimerFd::new()?,
            is_heard: AtomicBool::new(false),
            put_off: AtomicU64::new(0),
            rings_at: AtomicU64::new(NEVER),
            start: Instant::now(),
            process: std::process::id(),
        })
    }

    /// Records that the alarm wakes the thread.
    pub(super) fn is_heard(&self) {
        self.is_heard.store(true, Ordering::Release);
    }

    /// Called by an application that consumes the events for which the thread sleeps on another
    /// descriptor: has the alarm wake the thread instead. Returns `false` if the alarm does not wake
    /// the thread.
    pub(super) fn relieve(&self, now: impl FnOnce() -> Instant) -> bool {
        let is_heard = self.is_heard.load(Ordering::Acquire);
        if is_heard && !self.is_set() {
            self.ring_within(away(), now());
        }
        // A forked child has no such thread.
        is_heard || std::process::id() != self.process
    }

    /// Sets the alarm, on which the thread is about to sleep.
    pub(super) fn set(&self, now: Instant) {
        self.ring_after(away(), now);
    }

    /// Makes the alarm ring after this time, unless it is set to ring earlier. Postponing does not
    /// extend the time beyond [`away`]. Has no effect in a forked child.
    pub(super) fn ring_within(&self, pause: Duration, now: Instant) {
        if std::process::id() != self.process {
            return;
        }
        let rings_at = nanoseconds(self.since_start(now) + pause);
        if rings_at < self.rings_at.load(Ordering::Acquire) {
            self.ring_after(pause, now);
        }
    }

    /// Stops the alarm, unless it already rings.
    pub(super) fn stop(&self) {
        self.unset();
        self.timer.set(None);
    }

    /// Records that the thread does not sleep on the alarm, or has heard it.
    pub(super) fn unset(&self) {
        self.rings_at.store(NEVER, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.rings_at.load(Ordering::Acquire) != NEVER
    }

    /// Postpones the alarm, for an application that makes progress calls. Cheap, except for one
    /// call per half of [`AWAY`]. Returns whether this was such a call.
    pub(super) fn put_off(&self, now: impl FnOnce() -> Instant) -> bool {
        if !self.is_set() {
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
        self.ring_after(away(), now);
        true
    }

    /// Returns whether it was postponed so long ago that it may ring soon.
    fn is_long_ago(&self, now: Instant) -> bool {
        let last = Duration::from_nanos(self.put_off.load(Ordering::Relaxed));
        self.since_start(now) >= last + AWAY / 2
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.duration_since(self.start)
    }

    fn ring_after(&self, pause: Duration, now: Instant) {
        let since = self.since_start(now);
        self.put_off.store(nanoseconds(since), Ordering::Relaxed);
        self.rings_at
            .store(nanoseconds(since + pause), Ordering::Release);
        self.timer.set(Some(pause));
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
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
    use rustix::time::Timespec;

    use super::*;

    #[test]
    fn an_application_that_waits_for_a_processor_is_away_later() {
        let away = [0, 3, 20, 500].map(|waited| away_after(Duration::from_millis(waited)));
        assert_eq!(away, [AWAY, AWAY, Duration::from_millis(40), LONGEST_AWAY]);
    }

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
        assert!(!alarm.relieve(|| start));
        alarm.is_heard();
        assert!(alarm.relieve(|| start));
        assert!(alarm.put_off(|| start + AWAY));
        // Events do not postpone it.
        assert!(alarm.relieve(|| start + AWAY + AWAY / 2));
        assert!(alarm.put_off(|| start + AWAY + AWAY / 2));
        alarm.unset();
        assert!(alarm.relieve(|| start + 2 * AWAY));
        assert!(!alarm.put_off(|| start + 2 * AWAY + AWAY / 4));
    }

    fn rings_within(alarm: &Alarm, limit: Duration) -> bool {
        let limit = Timespec {
            tv_sec: limit.as_secs() as _,
            tv_nsec: limit.subsec_nanos() as _,
        };
        let mut fds = [rustix::event::PollFd::new(
            alarm,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, Some(&limit)) == Ok(1)
    }

    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn an_alarm_that_is_set_again_and_again_rings_in_time() {
        let alarm = Alarm::new().unwrap();
        alarm.is_heard();
        while !rings_within(&alarm, Duration::from_nanos(1)) {
            alarm.ring_within(AWAY, Instant::now());
            assert!(alarm.relieve(Instant::now));
        }
    }

    #[test]
    fn an_alarm_is_brought_forward() {
        let alarm = Alarm::new().unwrap();
        alarm.ring_within(LONG, Instant::now());
        alarm.ring_within(AT_ONCE, Instant::now());
        assert!(rings_within(&alarm, LONG));
        // The thread hears it, and it is set anew.
        alarm.unset();
        alarm.ring_within(LONG, Instant::now());
        assert!(!rings_within(&alarm, AT_ONCE));
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
