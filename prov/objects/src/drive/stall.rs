//! Operations that cannot leave a lane for want of room, where no descriptor announces room
//! (back-pressure).
//!
//! The application's progress calls continue with them, and postpone the alarm on which the thread
//! sleeps: it checks a lane only if the application has made no call for some time, and then less
//! and less often as long as nothing can be sent.
//!
//! Both sides modify one word. A side that begins to wait either finds no alarm set, and sets it;
//! or the thread, which clears the flag before it checks, sees afterwards that an operation waits.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::alarm::{AWAY, Alarm};
use prov_base::errno::Result;

/// Bit that marks the epoll events of this alarm; the other bits are the lane's id.
pub(super) const STALL: u64 = 1 << 62;

/// Interval until the next check if something was sent: more room is likely soon.
const SOON: Duration = Duration::from_micros(500);
/// Longest interval until the next check if nothing could be sent.
const LATEST: Duration = Duration::from_millis(64);

/// An operation waits for room.
const WAITS: u8 = 1 << 0;
/// The alarm is set.
const ARMED: u8 = 1 << 1;

/// The state of one lane.
#[derive(Default)]
pub(super) struct Stall {
    state: AtomicU8,
    alarm: OnceLock<Alarm>,
    /// Held while the timer and [`ARMED`] change together.
    setting: Mutex<()>,
}

/// What the caller of [`Stall::begin`] has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Nothing,
    /// Tell the thread of the alarm, once.
    Tell,
}

impl Stall {
    /// Records that an operation waits for room.
    ///
    /// # Errors
    /// The timer could not be created.
    pub(super) fn begin(&self, now: impl FnOnce() -> Instant) -> Result<Begun> {
        if self.state.fetch_or(WAITS, Ordering::AcqRel) & ARMED != 0 {
            return Ok(Begun::Nothing);
        }
        let begun = match self.alarm.get() {
            Some(_) => Begun::Nothing,
            None => {
                let alarm = Alarm::new()?;
                self.alarm.get_or_init(|| alarm);
                Begun::Tell
            }
        };
        self.arm(AWAY, now());
        Ok(begun)
    }

    /// Records that no operation waits any more.
    pub(super) fn end(&self) {
        self.state.fetch_and(!WAITS, Ordering::AcqRel);
    }

    /// Called by an application that makes progress calls. Cheap, except for one call per half of
    /// [`AWAY`] while the alarm is set.
    pub(super) fn calls_resumed(&self, now: impl FnOnce() -> Instant) {
        let state = self.state.load(Ordering::Relaxed);
        if state & ARMED != 0
            && let Some(alarm) = self.alarm.get()
            && alarm.put_off(now)
            && state & WAITS == 0
        {
            let _setting = self.setting.lock();
            let is_over =
                self.state
                    .compare_exchange(ARMED, 0, Ordering::AcqRel, Ordering::Relaxed);
            if is_over.is_ok() {
                alarm.stop();
            }
        }
    }

    /// Handles the alarm. The thread is about to check, and calls [`Stall::looked`] afterwards.
    pub(super) fn rings(&self) {
        let _setting = self.setting.lock();
        self.state.fetch_and(!ARMED, Ordering::AcqRel);
        if let Some(alarm) = self.alarm.get() {
            alarm.unset();
        }
    }

    /// Handles the result of a check after this interval: whether something was sent, or `None` if
    /// the application has made progress calls. Returns the interval until the next check, if
    /// operations still wait.
    pub(super) fn looked(&self, pause: Duration, has_left: Option<bool>, now: Instant) -> Duration {
        if self.state.load(Ordering::Acquire) & WAITS == 0 {
            return SOON;
        }
        let next = match has_left {
            None => AWAY,
            Some(true) => SOON,
            Some(false) => (pause * 2).clamp(AWAY, LATEST),
        };
        self.arm(next, now);
        next
    }

    fn arm(&self, pause: Duration, now: Instant) {
        if let Some(alarm) = self.alarm.get() {
            let _setting = self.setting.lock();
            self.state.fetch_or(ARMED, Ordering::AcqRel);
            alarm.ring_within(pause, now);
        }
    }

    /// Returns the alarm, if it was ever needed.
    pub(super) fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.get().map(Alarm::as_fd)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn rings(stall: &Stall, wait: Duration) -> bool {
        let timeout = rustix::time::Timespec {
            tv_sec: wait.as_secs() as _,
            tv_nsec: wait.subsec_nanos() as _,
        };
        let alarm = stall.alarm().unwrap();
        let mut fds = [PollFd::from_borrowed_fd(alarm, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)) == Ok(1)
    }

    fn is_armed(stall: &Stall) -> bool {
        stall.state.load(Ordering::Relaxed) & ARMED != 0
    }

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn the_thread_is_told_once_and_woken_when_no_call_postpones_the_alarm() {
        let stall = Stall::default();
        assert_eq!(stall.begin(Instant::now), Ok(Begun::Tell));
        stall.end();
        assert_eq!(stall.begin(Instant::now), Ok(Begun::Nothing));
        assert!(rings(&stall, LONG));
    }

    #[test]
    fn calls_postpone_the_alarm_and_stop_it_when_nothing_waits() {
        let stall = Stall::default();
        let start = Instant::now();
        stall.begin(|| start).unwrap();
        // Simulated times, which the timer does not know.
        stall.calls_resumed(|| start + AWAY);
        assert!(is_armed(&stall));
        stall.end();
        stall.calls_resumed(|| start + AWAY);
        assert!(is_armed(&stall), "not at each call");
        stall.calls_resumed(|| start + 2 * AWAY);
        assert!(!is_armed(&stall));
        assert!(!rings(&stall, 2 * AWAY));
        stall.begin(|| start + 2 * AWAY).unwrap();
        assert!(is_armed(&stall) && rings(&stall, LONG));
    }

    #[test]
    fn checks_become_less_frequent_until_something_is_sent() {
        let stall = Stall::default();
        stall.begin(Instant::now).unwrap();
        let mut pause = SOON;
        let mut look = |has_left| {
            assert!(rings(&stall, LONG));
            stall.rings();
            assert!(!is_armed(&stall));
            pause = stall.looked(pause, has_left, Instant::now());
            assert!(is_armed(&stall));
            pause
        };
        let pauses: Vec<_> = (0..5).map(|_| look(Some(false))).collect();
        assert!(pauses.is_sorted());
        assert_eq!((pauses[0], pauses[4]), (AWAY, LATEST));
        assert_eq!(look(Some(true)), SOON);
        assert_eq!(look(None), AWAY);
        stall.rings();
        stall.end();
        stall.looked(SOON, Some(true), Instant::now());
        assert!(!is_armed(&stall));
    }

    #[test]
    fn an_operation_that_stalls_during_a_check_sets_the_alarm() {
        let stall = Stall::default();
        stall.begin(Instant::now).unwrap();
        stall.rings();
        stall.end();
        stall.begin(Instant::now).unwrap();
        assert!(is_armed(&stall));
    }
}
