//! Counters (fi_cntr(3)).

#[cfg(test)]
mod tests;
mod value;

use std::ops::ControlFlow;
use std::sync::Arc;

use value::Value;

use crate::errno::{Errno, Result};
use crate::progress::Progress;
use crate::sync::LockKind;
use crate::wait::{Attachment, Deadline, Pause, Sources, WaitKind, Waitable, Wake};

/// What a counter counts (`enum fi_cntr_events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CntrEvents {
    /// Completions.
    Completions,
    /// Bytes transferred.
    Bytes,
}

/// A counter of another provider which counts for this one (fi_peer(3)).
pub trait CntrOwner: Send + Sync {
    /// Counts a success.
    fn increment(&self);

    /// Counts an error.
    fn increment_error(&self);
}

/// A counter of successes and one of errors. Updates take no lock, and threads
/// that use different counters share no cache line.
#[repr(align(128))]
pub struct Cntr {
    value: Value,
    events: CntrEvents,
    sources: Sources,
    attachment: Attachment,
    owner: Option<Box<dyn CntrOwner>>,
}

impl Cntr {
    /// A counter at zero; with an `owner`, one that passes everything on.
    pub fn new(events: CntrEvents, wait: Attachment, owner: Option<Box<dyn CntrOwner>>) -> Self {
        Self {
            value: Value::new(wait.wait().is_some()),
            events,
            sources: Sources::new(LockKind::Real),
            attachment: wait,
            owner,
        }
    }

    /// Counts an operation that transferred `bytes` and succeeded.
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

    /// `fi_cntr_read`: drives the transports and returns the successes.
    #[inline]
    pub fn read(&self) -> u64 {
        self.sources.drive();
        self.value.get()
    }

    /// `fi_cntr_readerr`: drives the transports and returns the errors.
    pub fn read_error(&self) -> u64 {
        self.sources.drive();
        self.value.get_error()
    }

    /// `fi_cntr_add`. Wraps around.
    pub fn add(&self, value: u64) {
        self.value.expect(value, 0);
        self.wake(self.value.add(value));
    }

    /// `fi_cntr_adderr`. Wraps around.
    pub fn add_error(&self, value: u64) {
        self.value.expect(0, value);
        self.wake(self.value.add_error(value));
    }

    /// `fi_cntr_set`
    pub fn set(&self, value: u64) {
        self.wake(self.value.set(value));
    }

    /// `fi_cntr_seterr`
    pub fn set_error(&self, value: u64) {
        self.wake(self.value.set_error(value));
    }

    /// `fi_cntr_wait`: waits until the counter reaches `threshold`, up to
    /// `timeout` milliseconds (negative: for ever).
    ///
    /// # Errors
    /// `FI_EAVAIL` when the error count changes, `FI_ETIMEDOUT`, `FI_EINTR`
    /// when a signal handler ran, `FI_ENOSYS` for a counter in a wait set.
    /// Without a wait object this polls.
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

    /// All rounds of it, for a caller in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of its rounds.
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

    /// What is counted.
    pub fn events(&self) -> CntrEvents {
        self.events
    }

    /// Whether another provider's counter counts.
    pub fn is_peer(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether threads may sleep until it changes.
    pub fn can_sleep(&self) -> bool {
        self.attachment.wait().is_some()
    }

    /// Lets reads of this counter drive `progress`. Counted: endpoint by
    /// endpoint.
    ///
    /// # Errors
    /// What watching its descriptor returns.
    pub fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        self.sources.add(progress, self.attachment.wait())
    }

    /// Lets reads of this counter drive `progress`, for which who sleeps until it
    /// changes need not wake. Counted, with [`Cntr::add_source`].
    pub fn add_unwatched_source(&self, progress: Arc<dyn Progress>) {
        self.sources.add_unwatched(progress);
    }

    /// Takes back one [`Cntr::add_source`].
    pub fn remove_source(&self, progress: &Arc<dyn Progress>) {
        self.sources.remove(progress, self.attachment.wait());
    }

    /// Forgets all sources: the counter closes.
    pub fn shut(&self) {
        self.sources.clear(self.attachment.wait());
    }

    #[inline]
    fn wake(&self, armed: bool) {
        if armed && let Some(wait) = self.attachment.wait() {
            wait.ring();
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

/// A call of `fi_cntr_wait`. Nothing is to be done when it is given up.
#[derive(Clone, Copy)]
pub struct CntrWait<'a> {
    waiter: Waiter<'a>,
    deadline: Deadline,
}

impl CntrWait<'_> {
    /// What the call does after its thread woke: the outcome, or the next pause. The
    /// first time it is [`Wake::Ready`].
    pub fn round(&self, woke: Wake) -> ControlFlow<Result, Pause<'_>> {
        let cntr = self.waiter.cntr;
        if woke == Wake::Interrupted {
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

/// A thread in `fi_cntr_wait`.
#[derive(Clone, Copy)]
struct Waiter<'a> {
    cntr: &'a Cntr,
    threshold: u64,
    /// Error count when it came.
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
