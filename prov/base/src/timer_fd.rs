//! A descriptor that polls readable once a time has come: a timerfd_create(2), or a bell and a thread
//! that rings it where the system denies that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::bell::Bell;
use crate::errno::{Errno, Result};
use crate::logging::UTIL;
use crate::own_thread::OwnThread;
use crate::process::Process;

/// Bytes of stack of the thread.
const STACK: usize = 64 * 1024;

/// See the module description. A forked child shares the descriptor of a kernel's timer, and must not
/// set it.
pub struct TimerFd(Kind);

enum Kind {
    Kernel(OwnedFd),
    Thread(Watchman),
}

impl TimerFd {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// Those of timerfd_create(2), such as `-FI_EMFILE`; where it is denied, those of [`Bell::new`], and
    /// `-FI_EAGAIN` if no thread can be started.
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        match timerfd_create(TimerfdClockId::Monotonic, flags).map_err(Errno::from) {
            Ok(timer) => Ok(TimerFd(Kind::Kernel(timer))),
            Err(error) if error.is_denial() => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    log::info!(target: UTIL.core,
                        "timerfd_create(2) is denied ({error}): threads instead");
                });
                Self::thread()
            }
            Err(error) => Err(error),
        }
    }

    fn thread() -> Result<Self> {
        Ok(TimerFd(Kind::Thread(Watchman::new()?)))
    }

    /// Sets the timer to expire in so much time, at once if that is zero, or stops it (`None`). The
    /// descriptor is not readable until then.
    pub fn set(&self, left: Option<Duration>) {
        match &self.0 {
            Kind::Kernel(timer) => {
                // Zero would stop the timer instead of making it expire immediately.
                let left = left.map(|left| left.max(Duration::from_nanos(1)));
                let timing = Itimerspec {
                    it_interval: Timespec::default(),
                    it_value: timespec(left.unwrap_or_default()),
                };
                // Valid arguments cannot fail.
                let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &timing);
            }
            Kind::Thread(watchman) => watchman.set(left),
        }
    }

    /// Makes the descriptor of a timer that has expired unreadable.
    pub fn heard(&self) {
        match &self.0 {
            Kind::Kernel(timer) => drop(rustix::io::read(timer, &mut [0; 8])),
            Kind::Thread(watchman) => watchman.heard(),
        }
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Kernel(timer) => timer.as_fd(),
            Kind::Thread(watchman) => watchman.shared.bell.as_fd(),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// A bell, and the thread that rings it.
struct Watchman {
    shared: Arc<Shared>,
    thread: Option<OwnThread>,
    /// A forked child has no such thread.
    process: Process,
}

struct Shared {
    /// Rung and silenced under the lock of `task`.
    bell: Bell,
    task: Mutex<Task>,
    changed: Condvar,
}

#[derive(Default)]
struct Task {
    /// When to ring. Too far away to be a point in time is never.
    when: Option<Instant>,
    is_over: bool,
}

impl Watchman {
    fn new() -> Result<Self> {
        let shared = Arc::new(Shared {
            bell: Bell::new()?,
            task: Mutex::default(),
            changed: Condvar::new(),
        });
        let watched = shared.clone();
        let thread = OwnThread::start("fi-timer", STACK, move || watched.run())?;
        Ok(Watchman {
            shared,
            thread: Some(thread),
            process: Process::current(),
        })
    }

    fn set(&self, left: Option<Duration>) {
        if !self.process.is_current() {
            return;
        }
        let when = left.and_then(|left| Instant::now().checked_add(left));
        let mut task = self.shared.task.lock();
        self.shared.bell.silence();
        // A thread that sleeps until an earlier time looks again by itself.
        let is_earlier = match (task.when, when) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(when)) => when < before,
        };
        task.when = when;
        if is_earlier {
            self.shared.changed.notify_one();
        }
    }

    fn heard(&self) {
        if self.process.is_current() {
            let _task = self.shared.task.lock();
            self.shared.bell.silence();
        }
    }
}

impl Drop for Watchman {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.process.is_current() {
            return thread.forget();
        }
        self.shared.task.lock().is_over = true;
        self.shared.changed.notify_one();
        thread.join();
    }
}

impl Shared {
    fn run(&self) {
        let mut task = self.task.lock();
        while !task.is_over {
            match task.when {
                None => self.changed.wait(&mut task),
                Some(when) if when <= Instant::now() => {
                    task.when = None;
                    self.bell.ring();
                }
                Some(when) => drop(self.changed.wait_until(&mut task, when)),
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn expires_within(timer: &TimerFd, limit: Duration) -> bool {
        let mut fds = [PollFd::new(timer, PollFlags::IN)];
        poll(&mut fds, Some(&timespec(limit))) == Ok(1)
    }

    fn both() -> [TimerFd; 2] {
        [TimerFd::new().unwrap(), TimerFd::thread().unwrap()]
    }

    const LONG: Duration = Duration::from_secs(1000);

    #[test]
    fn it_expires_once() {
        for timer in both() {
            assert!(!expires_within(&timer, Duration::ZERO));
            for left in [Duration::ZERO, Duration::from_millis(1)] {
                timer.set(Some(left));
                assert!(expires_within(&timer, LONG));
                timer.heard();
                assert!(!expires_within(&timer, Duration::from_millis(2)));
            }
        }
    }

    #[test]
    fn a_timer_that_is_set_anew_forgets_its_earlier_time() {
        for timer in both() {
            timer.set(Some(Duration::ZERO));
            assert!(expires_within(&timer, LONG));
            timer.set(Some(LONG));
            assert!(!expires_within(&timer, Duration::ZERO));
            timer.set(Some(Duration::MAX));
            assert!(!expires_within(&timer, Duration::ZERO));
            timer.set(Some(Duration::from_millis(1)));
            assert!(expires_within(&timer, LONG));
            timer.set(None);
            assert!(!expires_within(&timer, Duration::from_millis(2)));
        }
    }

    #[test]
    fn a_postponed_time_is_kept() {
        for timer in both() {
            for _ in 0..100 {
                let set = Instant::now();
                timer.set(Some(Duration::from_micros(50)));
                timer.set(Some(Duration::from_micros(500)));
                assert!(expires_within(&timer, LONG));
                assert!(set.elapsed() >= Duration::from_micros(500));
            }
        }
    }
}
