//! The domain's side of its progress thread: seats, starting, waking and ending.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::Driven;
use super::alarm::{AT_ONCE, Alarm, away};
use super::care::Leaving;
use super::fork;
use super::lane_state::LaneState;
use super::rounds::{HelperMessage, Run};
use super::stall::Begun;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::own_thread::OwnThread;

/// The progress thread of a domain, shared by its lanes; there is at most one.
pub struct Helper {
    /// Name of the thread; at most 15 bytes.
    name: &'static str,
    /// Not held while a lane is entered.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of seats in use.
    seats: usize,
    thread: Option<Thread>,
    /// Threads that end by themselves because they had to close the last lane.
    ending: Vec<OwnThread>,
}

struct Thread {
    run: Arc<Run>,
    own: OwnThread,
    /// The process that it belongs to.
    process: u32,
}

/// A lane's registration at the [`Helper`] of its domain. Dropping it unregisters the lane.
pub struct Seat {
    helper: Arc<Helper>,
    place: Arc<LaneState>,
}

impl Helper {
    /// Creates a helper; its thread is started on first need.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Helper {
            name,
            state: Mutex::default(),
        })
    }

    /// Creates a seat for a lane, which may own the seat.
    pub fn seat(self: &Arc<Self>, lane: Weak<dyn Driven>) -> Seat {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.state.lock().seats += 1;
        Seat {
            helper: self.clone(),
            place: Arc::new(LaneState::new(NEXT.fetch_add(1, Ordering::Relaxed), lane)),
        }
    }

    /// Sends a message to the thread, which is started if necessary.
    fn tell(&self, place: &Arc<LaneState>, news: HelperMessage) -> Result {
        let mut state = self.state.lock();
        if state.thread.as_ref().is_some_and(Thread::is_foreign) {
            return Err(Errno::EOPBADSTATE);
        }
        let thread = match &mut state.thread {
            Some(thread) => thread,
            none => none.insert(Thread::start(self.name)?),
        };
        place.is_known.store(true, Ordering::Relaxed);
        thread.run.tell(news);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn has_thread(&self) -> bool {
        self.state.lock().thread.is_some()
    }

    fn is_this_thread(&self) -> bool {
        let state = self.state.lock();
        let thread = state.thread.as_ref();
        thread.is_some_and(|thread| thread.own.is_current())
    }

    /// Unregisters a lane, and ends the thread with the last one.
    fn leave(&self, place: &LaneState) {
        let is_this_thread = self.is_this_thread();
        let mut state = self.state.lock();
        state.seats -= 1;
        let is_last = state.seats == 0;
        let Some(thread) = state.thread.take_if(|_| is_last) else {
            if let Some(thread) = &state.thread
                && !thread.is_foreign()
                && place.is_known.load(Ordering::Relaxed)
            {
                thread.run.tell(HelperMessage::Left(place.id));
            }
            return;
        };
        if thread.is_foreign() {
            // In a forked child there is no thread to wait for, and nothing to free.
            return thread.own.forget();
        }
        thread.run.end();
        if is_this_thread {
            state.ending.push(thread.own);
            bounded!(state.ending, OBJECTS);
            return;
        }
        drop(state);
        thread.own.join();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The last lane may have held the last reference to the helper.
        for thread in self.state.get_mut().ending.drain(..) {
            if !thread.is_current() {
                thread.join();
            }
        }
    }
}

impl Thread {
    fn start(name: &str) -> Result<Self> {
        fork::watch();
        let run = Arc::new(Run::new()?);
        let own = {
            let run = run.clone();
            OwnThread::start(name, 256 * 1024, move || run.run())?
        };
        Ok(Thread {
            run,
            own,
            process: std::process::id(),
        })
    }

    /// Returns whether it belongs to the process from which this one was forked.
    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Seat {
    /// Returns whether the next message has to be held back for coalescing, if `sent` of them were
    /// sent since the application's last progress call.
    ///
    /// While the thread sleeps, a second message is sent immediately, too: holding it back would
    /// save no system call, and only the third one shows that this is a burst.
    #[inline(always)]
    pub fn holds_after(&self, sent: u64) -> bool {
        sent >= 2 || (sent == 1 && self.place.burst.is_watched())
    }

    /// Called with the lane's lock when the first message of a burst is held back.
    #[inline(always)]
    pub fn burst_begins(&self) {
        if !self.place.burst.begin() {
            self.wake();
        }
    }

    /// Called with the lane's lock when no message is held back any more.
    #[inline(always)]
    pub fn burst_ends(&self) {
        self.place.burst.end();
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        if self.place.burst.watch() {
            self.tell(HelperMessage::Burst(self.place.clone()));
        }
    }

    fn tell(&self, news: HelperMessage) {
        match self.helper.tell(&self.place, news) {
            Ok(()) | Err(Errno::EOPBADSTATE) => {}
            Err(error) => has_no_help(error),
        }
    }

    /// Called with the lane's lock when an operation has no room and none was waiting for room.
    #[cold]
    #[inline(never)]
    pub fn stall_begins(&self) {
        match self.place.stall.begin(Instant::now) {
            Ok(Begun::Nothing) => {}
            Ok(Begun::Tell) => self.tell(HelperMessage::Stall(self.place.clone())),
            Err(error) => has_no_help(error),
        }
    }

    /// Called with the lane's lock when no operation waits for room any more.
    pub fn stall_ends(&self) {
        self.place.stall.end();
    }

    /// Called by an application that makes progress calls, once in several dozens of them: a thread
    /// that would drive the lane, or continue with operations that had no room, need not check it.
    pub fn calls_resumed(&self) {
        self.place.stall.calls_resumed(Instant::now);
        if let Some(alarm) = self.place.alarm.get() {
            alarm.put_off(Instant::now);
        }
    }

    /// Implements [`Signals::relieves_helper`](super::Signals::relieves_helper).
    pub(super) fn is_relieved(&self) -> bool {
        let alarm = self.place.alarm.get();
        alarm.is_some_and(|alarm| alarm.relieve(Instant::now))
    }

    /// Makes the thread drive the lane while the application does not (`FI_PROGRESS_AUTO`, and
    /// [`Seat::take_care`]). To be called at most once.
    ///
    /// # Errors
    /// Those of starting the thread and of sharing the lane's descriptor; `FI_EOPBADSTATE` in a
    /// forked child.
    pub fn drive_automatically(&self) -> Result {
        let Some(lane) = self.place.lane.upgrade() else {
            return Err(Errno::EOPBADSTATE);
        };
        if let Some(fd) = lane.share_wait_fd()? {
            self.place.wait_fd.get_or_init(|| fd);
        }
        // Without an alarm, the thread polls whether the application still calls.
        if let Ok(alarm) = Alarm::new() {
            self.place.alarm.get_or_init(|| alarm);
        }
        self.helper
            .tell(&self.place, HelperMessage::Drive(self.place.clone()))
    }

    /// Called by a thread of the application that leaves the lane alone, when it has counted this
    /// many calls: from now on the thread drives it while nobody else does. Returns whether
    /// [`Seat::take_care`] has to be called.
    #[must_use]
    pub fn is_left(&self, calls: u64) -> bool {
        match self.place.care.leave(calls) {
            Leaving::Nothing => false,
            Leaving::Tell => true,
            Leaving::Ring => {
                if let Some(alarm) = self.place.alarm.get() {
                    alarm.ring_within(AT_ONCE, Instant::now());
                }
                false
            }
        }
    }

    /// Whether the thread was told to drive the lane while nobody else does, because a thread left
    /// it alone.
    pub(super) fn is_cared_for(&self) -> bool {
        self.place.care.is_given()
    }

    /// Makes the thread drive the lane while no other thread does. To be called without locks.
    #[cold]
    pub fn take_care(&self) {
        match self.drive_automatically() {
            // A lane that is being closed, or a forked child.
            Ok(()) | Err(Errno::EOPBADSTATE) => {}
            Err(error) => log::warn!(
                target: UTIL.domain,
                "no thread to drive endpoints that the application leaves while it sleeps: {error}"
            ),
        }
    }

    /// Called by a thread of the application that drives the lane after it, or another one, has
    /// slept there: the progress thread looks whether it goes on doing so.
    #[cold]
    pub fn sleeper_woke(&self) {
        if let Some(alarm) = self.place.alarm.get() {
            alarm.ring_within(away(), Instant::now());
        }
    }

    /// Unregisters the lane: after this returns, the thread is not in the lane and does not enter
    /// it. Dropping the seat has no further effect. To be called without the lane's lock, since the
    /// thread, which ends with the last seat, may be in another lane.
    pub fn leave(&self) {
        if self.place.is_left.swap(true, Ordering::AcqRel) {
            return;
        }
        if !self.helper.is_this_thread() {
            *self.place.is_closed.lock() = true;
        }
        self.helper.leave(&self.place);
    }

    /// As [`Seat::leave`], but not if the lane is in use by others. `is_in_use` may count the
    /// references to the lane: the thread has none meanwhile, unless it is the caller.
    pub fn leave_unless(&self, is_in_use: impl FnOnce() -> bool) {
        if self.helper.is_this_thread() {
            if !is_in_use() {
                self.leave();
            }
            return;
        }
        let mut is_closed = self.place.is_closed.lock();
        if is_in_use() {
            return;
        }
        *is_closed = true;
        drop(is_closed);
        self.leave();
    }
}

/// Logs that messages without room, or held back, are sent only by the application's next call.
fn has_no_help(error: Errno) {
    log::warn!(
        target: UTIL.domain,
        "no thread to send what the application has left: {error}"
    );
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}
