//! Counters (fi_cntr(3)).

#[cfg(test)]
mod tests;
mod thresholds;
mod value;

use std::ops::ControlFlow;
use std::sync::Arc;

use thresholds::Thresholds;
pub use thresholds::{Due, Reached, WorkName};
use value::{Armed, Numbers, Value};

use crate::progress::Progress;
use crate::wait::{Attachment, Deadline, Pause, Sources, WaitKind, Waitable, Wake};
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;

/// The unit of a counter (`enum fi_cntr_events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CntrEvents {
    /// Completions.
    Completions,
    /// Transferred bytes.
    Bytes,
}

/// Another provider's counter, to which this one forwards (fi_peer(3)).
pub trait CntrOwner: Send + Sync {
    /// Counts a success.
    fn increment(&self);

    /// Counts an error.
    fn increment_error(&self);
}

/// A counter of successes and one of errors. Updates take no lock, and different counters share no
/// cache line.
#[repr(align(128))]
pub struct Cntr {
    value: Value,
    events: CntrEvents,
    sources: Sources,
    attachment: Attachment,
    owner: Option<Box<dyn CntrOwner>>,
    thresholds: Thresholds,
}

impl Cntr {
    /// Creates a counter at zero; with an `owner`, it forwards everything.
    pub fn new(events: CntrEvents, wait: Attachment, owner: Option<Box<dyn CntrOwner>>) -> Self {
        Self {
            value: Value::new(wait.wait().is_some()),
            events,
            sources: Sources::new(LockKind::Real),
            attachment: wait,
            owner,
            thresholds: Thresholds::new(),
        }
    }

    /// Counts a successful operation that transferred `bytes`.
    #[inline]
    pub fn count(&self, bytes: usize) {
        if let Some(owner) = &self.owner {
            return owner.increment();
        }
        let amount = match self.events {
            CntrEvents::Completions => 1,
            CntrEvents::Bytes => bytes as u64,
        };
        self.wake(self.value.add(amount));
    }

    /// Counts an operation that failed.
    #[cold]
    pub fn count_error(&self) {
        if let Some(owner) = &self.owner {
            return owner.increment_error();
        }
        self.wake(self.value.add_error(1));
    }

    /// Implements fi_cntr_read(3): makes progress and returns the successes.
    #[inline]
    pub fn read(&self) -> u64 {
        self.sources.drive();
        self.value.get()
    }

    /// Implements fi_cntr_readerr(3): makes progress and returns the errors.
    pub fn read_error(&self) -> u64 {
        self.sources.drive();
        self.value.get_error()
    }

    /// Implements fi_cntr_add(3). Wraps around.
    pub fn add(&self, value: u64) {
        self.begin(self.value.add_known(value));
    }

    /// Implements fi_cntr_adderr(3). Wraps around.
    pub fn add_error(&self, value: u64) {
        self.begin(self.value.add_known_error(value));
    }

    /// Implements fi_cntr_set(3).
    pub fn set(&self, value: u64) {
        self.begin(self.value.set(value));
    }

    /// Implements fi_cntr_seterr(3).
    pub fn set_error(&self, value: u64) {
        self.begin(self.value.set_error(value));
    }

    /// Queues work until the counter reaches `threshold`. What has reached it already is due at
    /// once, and the caller's to begin.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a counter that is closed, or another provider's.
    pub fn queue(&self, threshold: u64, reached: Reached, work: Arc<dyn Due>) -> Result {
        if self.owner.is_some() {
            return Err(Errno::EINVAL);
        }
        self.thresholds.wait(&self.value, threshold, reached, work)
    }

    /// Whether a threshold is reached.
    pub fn has_reached(&self, threshold: u64, reached: Reached) -> bool {
        reached.number(self.value.numbers()) >= threshold
    }

    /// Takes out the queued work for which `is_meant` holds, in order.
    pub fn take_back(&self, is_meant: impl FnMut(WorkName) -> bool) -> Vec<Arc<dyn Due>> {
        self.thresholds.remove(&self.value, is_meant)
    }

    /// Begins fi_cntr_wait(3): waits until the counter reaches `threshold`, for up to `timeout`
    /// milliseconds (negative: without limit).
    ///
    /// # Errors
    /// `FI_EAVAIL` when the error count changes, `FI_ETIMEDOUT`, `FI_EINTR` when a signal handler
    /// ran, `FI_ENOSYS` for a counter in a wait set. Without a wait object this polls.
    pub fn start_wait(&self, threshold: u64, timeout: i32) -> Result<CntrWait<'_>> {
        if !self.attachment.can_block() && self.attachment.kind() != WaitKind::None {
            return Err(Errno::ENOSYS);
        }
        Ok(CntrWait {
            waiter: Waiter {
                cntr: self,
                threshold,
                errors: self.value.get_error(),
            },
            deadline: Deadline::after_ms(timeout),
        })
    }

    /// Runs a whole wait, for callers in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of [`CntrWait::round`].
    pub fn wait(&self, threshold: u64, timeout: i32) -> Result {
        let wait = self.start_wait(threshold, timeout)?;
        let mut woke = Wake::Ready;
        loop {
            match wait.round(woke) {
                ControlFlow::Continue(pause) => woke = pause.take(),
                ControlFlow::Break(outcome) => return outcome,
            }
        }
    }

    /// Returns the unit.
    pub fn events(&self) -> CntrEvents {
        self.events
    }

    /// Returns whether the counter forwards to another provider's.
    pub fn is_peer(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns whether threads may sleep until it changes.
    pub fn can_sleep(&self) -> bool {
        self.attachment.wait().is_some()
    }

    /// Makes reads of this counter drive `progress`. Calls are counted: each needs its own
    /// [`Cntr::remove_source`].
    ///
    /// # Errors
    /// What watching its descriptor returns.
    pub fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        self.sources.add(progress, self.attachment.wait())
    }

    /// Makes reads of this counter drive `progress`, which does not wake threads that sleep until
    /// the counter changes. Counted, together with [`Cntr::add_source`].
    pub fn add_unwatched_source(&self, progress: Arc<dyn Progress>) {
        self.sources.add_unwatched(progress);
    }

    /// Undoes one [`Cntr::add_source`].
    pub fn remove_source(&self, progress: &Arc<dyn Progress>) {
        self.sources.remove(progress, self.attachment.wait());
    }

    /// Removes all sources and all queued work, for a counter that is being closed.
    pub fn shut(&self) {
        for work in self.thresholds.close(&self.value) {
            work.never();
        }
        self.sources.clear(self.attachment.wait());
    }

    #[inline]
    fn wake(&self, armed: Armed) {
        if armed.is_any() {
            self.wake_armed(armed, Numbers::default());
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_armed(&self, armed: Armed, before: Numbers) -> Option<Arc<dyn Due>> {
        if armed.has_sleeper()
            && let Some(wait) = self.attachment.wait()
        {
            wait.ring();
        }
        match armed.has_work() {
            true => self.thresholds.check(&self.value, before),
            false => None,
        }
    }

    /// What follows an update by the application, which holds no locks.
    fn begin(&self, (before, armed): (Numbers, Armed)) {
        if armed.is_any()
            && let Some(work) = self.wake_armed(armed, before)
        {
            work.begin();
        }
    }
}

impl Waitable for Cntr {
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    fn sources(&self) -> &Sources {
        &self.sources
    }

    fn take_news(&self) -> bool {
        self.value.take_news()
    }

    fn arm(&self) -> bool {
        self.value.arm();
        !self.value.has_news()
    }
}

/// A call of fi_cntr_wait(3). It needs no clean-up when it is abandoned.
#[derive(Clone, Copy)]
pub struct CntrWait<'a> {
    waiter: Waiter<'a>,
    deadline: Deadline,
}

impl CntrWait<'_> {
    /// The step after the thread woke (at first: with [`Wake::Ready`]). Returns the outcome or the
    /// next pause.
    pub fn round(&self, woke: Wake) -> ControlFlow<Result, Pause<'_>> {
        let cntr = self.waiter.cntr;
        if matches!(woke, Wake::Interrupted | Wake::Inherited) {
            cntr.sources.read();
            return ControlFlow::Break(Err(Errno::EINTR));
        }
        cntr.sources.drive();
        if cntr.value.get() >= self.waiter.threshold {
            return ControlFlow::Break(Ok(()));
        }
        if cntr.value.get_error() != self.waiter.errors {
            return ControlFlow::Break(Err(Errno::EAVAIL));
        }
        if self.deadline.is_over() {
            return ControlFlow::Break(Err(Errno::ETIMEDOUT));
        }
        ControlFlow::Continue(match cntr.attachment.can_block() {
            true => self.waiter.pause(self.deadline),
            false => Pause::Yield,
        })
    }
}

/// A thread in fi_cntr_wait(3).
#[derive(Clone, Copy)]
struct Waiter<'a> {
    cntr: &'a Cntr,
    threshold: u64,
    /// The error count at the beginning.
    errors: u64,
}

impl Waitable for Waiter<'_> {
    fn attachment(&self) -> &Attachment {
        &self.cntr.attachment
    }

    fn sources(&self) -> &Sources {
        &self.cntr.sources
    }

    fn take_news(&self) -> bool {
        self.cntr.value.get() >= self.threshold || self.cntr.value.get_error() != self.errors
    }

    fn arm(&self) -> bool {
        let (count, errors) = self.cntr.value.arm();
        count < self.threshold && errors == self.errors
    }
}
