//! What wakes a lane: descriptors that are ready, and points in time.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use prov_base::errno::Result;
use prov_base::poller::{Event, Poller, Source};
use prov_base::timers::Timers;

use crate::lane::Core;

/// How long a listener is left alone that the process cannot serve: long enough for descriptors to
/// be closed meanwhile, and short beside the time that peers wait for an answer.
const REST: Duration = Duration::from_millis(100);

/// The poller of a lane with its timers. The poller's alarm is set for the next of them.
pub struct Wakeups<S, D> {
    poller: Poller<S>,
    timers: Timers<D>,
    /// Empty between two questions to the poller; keeps its memory.
    events: Vec<Event<S>>,
}

impl<S: Source, D: Copy + Ord> Wakeups<S, D> {
    /// Creates a poller without descriptors and timers.
    ///
    /// # Errors
    /// Those of [`Poller::new`].
    pub fn new() -> Result<Self> {
        Ok(Wakeups {
            poller: Poller::new()?,
            timers: Timers::default(),
            events: Vec::new(),
        })
    }

    /// Has [`Woken::fall_due`] called with `due` at this time.
    pub fn call_at(&mut self, when: Instant, due: D) {
        self.timers.set(when, due);
        self.poller.wake_at(when);
    }

    /// Leaves a listener alone for a while, because the process has no descriptors left or the
    /// application too many requests to answer. Peers wait in the kernel meanwhile, and
    /// [`Woken::fall_due`] is called with `due` afterwards.
    pub fn rest(&mut self, listener: BorrowedFd<'_>, due: D) {
        self.poller.forget(listener);
        self.call_at(Instant::now() + REST, due);
    }

    /// Watches a listener that has rested. It rests again if that is impossible: the next attempt
    /// may not be.
    pub fn rested(&mut self, listener: BorrowedFd<'_>, source: S, due: D) {
        if self.poller.watch_listener(listener, source).is_err() {
            self.rest(listener, due);
        }
    }

    /// Forgets all timers, and stops the alarm.
    pub fn forget_timers(&mut self) {
        self.timers = Timers::default();
        self.poller.set_alarm(None);
    }
}

impl<S, D> Deref for Wakeups<S, D> {
    type Target = Poller<S>;

    fn deref(&self) -> &Poller<S> {
        &self.poller
    }
}

impl<S, D> DerefMut for Wakeups<S, D> {
    fn deref_mut(&mut self) -> &mut Poller<S> {
        &mut self.poller
    }
}

/// The answer of the poller to one question.
#[derive(Clone, Copy, Debug)]
pub struct Polled {
    /// Whether there were events.
    pub had_events: bool,
    /// Whether one of them brought something that reading the links would not have found.
    pub is_news: bool,
}

/// A core that is woken by a poller and timers.
pub trait Woken: Core {
    /// What a descriptor in the poller belongs to.
    type Source: Source;
    /// What is looked at again at a point in time.
    type Due: Copy + Ord;

    /// Returns the poller with the timers.
    fn wakeups(&mut self) -> &mut Wakeups<Self::Source, Self::Due>;

    /// Handles the event of a descriptor. Returns whether it was news.
    fn is_ready(&mut self, event: Event<Self::Source>) -> bool;

    /// Handles a point in time that has come. Timers are never cancelled: whoever set one looks
    /// whether there is still something to do.
    fn fall_due(&mut self, due: Self::Due, now: Instant);

    /// Handles points in time that are no timers, such as the end of a nap. Returns the next one.
    fn other_times(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Handles the poller's alarm, which was heard.
    fn alarmed(&mut self) {
        self.run_timers(Instant::now());
    }

    /// Asks the poller once, and handles what it says.
    fn poll_once(&mut self) -> Polled {
        let wakeups = self.wakeups();
        let mut events = std::mem::take(&mut wakeups.events);
        wakeups.poller.poll(&mut events);
        let mut polled = Polled {
            had_events: !events.is_empty(),
            is_news: false,
        };
        for event in events.drain(..) {
            polled.is_news |= match event.source.token() == Self::Source::TIMER.token() {
                true => {
                    self.wakeups().poller.alarm_heard();
                    self.alarmed();
                    true
                }
                false => self.is_ready(event),
            };
        }
        self.wakeups().events = events;
        polled
    }

    /// Handles the timers that are due, and sets the alarm for the next one.
    fn run_timers(&mut self, now: Instant) {
        while let Some(due) = self.wakeups().timers.pop_due(now) {
            self.fall_due(due, now);
        }
        let other = self.other_times(now);
        let wakeups = self.wakeups();
        let next = [wakeups.timers.next(), other].into_iter().flatten().min();
        wakeups.poller.set_alarm(next);
    }
}
