//! The domain's side of its thread: seats, starting, waking and ending.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::Driven;
use super::alarm::Alarm;
use super::burst::Burst;
use super::fork;
use super::rounds::{News, Run};
use super::stall::{Begun, Stall};
use crate::errno::{Errno, Result};
use crate::logging::UTIL;
use crate::own_thread::OwnThread;

/// What the lanes of a domain share: one thread that helps them, at most.
pub struct Helper {
    /// What the thread is called, in 15 bytes at most.
    name: &'static str,
    /// Not held while a lane is entered.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Seats that have not been left.
    seats: usize,
    thread: Option<Thread>,
    /// Threads that end by themselves, having had to close the last lane.
    ending: Vec<OwnThread>,
}

struct Thread {
    run: Arc<Run>,
    own: OwnThread,
    /// The process that it belongs to.
    process: u32,
}

/// A lane's place at the [`Helper`] of its domain. Dropping it is leaving it.
pub struct Seat {
    helper: Arc<Helper>,
    place: Arc<Place>,
}

/// What a lane and the thread share.
pub(super) struct Place {
    pub(super) burst: Burst,
    pub(super) id: u64,
    lane: Weak<dyn Driven>,
    /// What to sleep at with automatic progress.
    pub(super) wait_fd: OnceLock<OwnedFd>,
    /// What wakes the thread when the application stops driving the lane itself,
    /// with automatic progress.
    pub(super) alarm: OnceLock<Alarm>,
    pub(super) stall: Stall,
    /// Whether the thread must stay away. Held while it is in the lane.
    is_closed: Mutex<bool>,
    is_left: AtomicBool,
    /// Whether the thread was ever told of this place.
    is_known: AtomicBool,
}

impl Helper {
    /// Without a thread yet.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Helper {
            name,
            state: Mutex::default(),
        })
    }

    /// A seat for a lane, which it may hold itself.
    pub fn seat(self: &Arc<Self>, lane: Weak<dyn Driven>) -> Seat {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.state.lock().seats += 1;
        Seat {
            helper: self.clone(),
            place: Arc::new(Place {
                burst: Burst::new(),
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                lane,
                wait_fd: OnceLock::new(),
                alarm: OnceLock::new(),
                stall: Stall::default(),
                is_closed: Mutex::new(false),
                is_left: AtomicBool::new(false),
                is_known: AtomicBool::new(false),
            }),
        }
    }

    /// Tells the thread, which starts for that if it has to.
    fn tell(&self, place: &Arc<Place>, news: News) -> Result {
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

    /// Ends the thread with the last seat.
    fn leave(&self, place: &Place) {
        let is_this_thread = self.is_this_thread();
        let mut state = self.state.lock();
        state.seats -= 1;
        let is_last = state.seats == 0;
        let Some(thread) = state.thread.take_if(|_| is_last) else {
            if let Some(thread) = &state.thread
                && !thread.is_foreign()
                && place.is_known.load(Ordering::Relaxed)
            {
                thread.run.tell(News::Left(place.id));
            }
            return;
        };
        if thread.is_foreign() {
            // There is nothing to wait for, nor to give back.
            return thread.own.forget();
        }
        thread.run.end();
        if is_this_thread {
            state.ending.push(thread.own);
            return;
        }
        drop(state);
        thread.own.join();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The last lane may have been the last to know of this.
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

    /// Whether it is a thread of the process that this one was forked from.
    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }
}

impl Seat {
    /// Whether the next message is to be held back, if `sent` of them have left
    /// since the application's last progress call.
    ///
    /// While the thread sleeps a second message leaves at once, too: to hold it
    /// back would spare no call of the system, and the third one shows that
    /// this is a burst.
    #[inline(always)]
    pub fn holds_after(&self, sent: u64) -> bool {
        sent >= 2 || (sent == 1 && self.place.burst.is_watched())
    }

    /// Messages are held back from now on, and none were. Called with the
    /// lane's lock.
    #[inline(always)]
    pub fn burst_begins(&self) {
        if !self.place.burst.begin() {
            self.wake();
        }
    }

    /// Nothing is held back any more. Called with the lane's lock.
    #[inline(always)]
    pub fn burst_ends(&self) {
        self.place.burst.end();
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        if self.place.burst.watch() {
            self.tell(News::Burst(self.place.clone()));
        }
    }

    fn tell(&self, news: News) {
        match self.helper.tell(&self.place, news) {
            Ok(()) | Err(Errno::EOPBADSTATE) => {}
            Err(error) => has_no_help(error),
        }
    }

    /// Something has no room, and nothing had waited for some. Called with the
    /// lane's lock.
    #[cold]
    #[inline(never)]
    pub fn stall_begins(&self) {
        match self.place.stall.begin(Instant::now) {
            Ok(Begun::Nothing) => {}
            Ok(Begun::Tell) => self.tell(News::Stall(self.place.clone())),
            Err(error) => has_no_help(error),
        }
    }

    /// Nothing waits for room any more. Called with the lane's lock.
    pub fn stall_ends(&self) {
        self.place.stall.end();
    }

    /// The application makes progress calls, and has made some dozens since this
    /// was called last: a thread that would drive the lane for it, or go on with what
    /// had no room, need not look.
    pub fn calls_go_on(&self) {
        self.place.stall.calls_go_on(Instant::now);
        if let Some(alarm) = self.place.alarm.get() {
            alarm.put_off(Instant::now);
        }
    }

    /// [`Signals::relieves_helper`](super::Signals::relieves_helper).
    pub(super) fn is_relieved(&self) -> bool {
        let alarm = self.place.alarm.get();
        alarm.is_some_and(|alarm| alarm.relieve(Instant::now()))
    }

    /// Lets the thread drive the lane while the application does not, from now
    /// on (`FI_PROGRESS_AUTO`). At most once.
    ///
    /// # Errors
    /// What starting the thread and sharing the lane's descriptor return;
    /// `FI_EOPBADSTATE` in a forked child.
    pub fn drive_automatically(&self) -> Result {
        let Some(lane) = self.place.lane.upgrade() else {
            return Err(Errno::EOPBADSTATE);
        };
        if let Some(fd) = lane.share_wait_fd()? {
            self.place.wait_fd.get_or_init(|| fd);
        }
        // Without one the thread looks whether the application still calls.
        if let Ok(alarm) = Alarm::new() {
            self.place.alarm.get_or_init(|| alarm);
        }
        self.helper
            .tell(&self.place, News::Drive(self.place.clone()))
    }

    /// Takes the lane from the thread: it is not in the lane when this returns,
    /// and does not come back. Nothing is left to be done when the seat is
    /// dropped. To be called without the lane's lock; with the last seat the
    /// thread ends, which may be in another lane.
    pub fn leave(&self) {
        if self.place.is_left.swap(true, Ordering::AcqRel) {
            return;
        }
        if !self.helper.is_this_thread() {
            *self.place.is_closed.lock() = true;
        }
        self.helper.leave(&self.place);
    }
}

/// What is held back or has no room then leaves with the application's next call.
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

impl Place {
    /// The thread enters the lane, if there still is one for it.
    pub(super) fn visit<R>(&self, visit: impl FnOnce(&dyn Driven) -> R) -> Option<R> {
        let is_closed = self.is_closed.lock();
        if *is_closed {
            return None;
        }
        let lane = self.lane.upgrade()?;
        let outcome = visit(&*lane);
        // Perhaps the last reference: then the lane leaves its seat here.
        drop(lane);
        drop(is_closed);
        Some(outcome)
    }

    pub(super) fn wait_fd(&self) -> Option<impl AsFd> {
        self.wait_fd.get()
    }
}
