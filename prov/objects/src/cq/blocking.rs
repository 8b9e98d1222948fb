//! Blocking reads of a completion queue, and the signal that ends them (fi_cq(3)).

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use super::{Completion, Cq};
use crate::wait::{Attachment, Deadline, Pause, Sources, Waitable, Wake};
use prov_base::errno::{Errno, Result};

impl Cq {
    /// Begins an [`Cq::read`] that waits, for up to `timeout` milliseconds (negative: without
    /// limit), until `threshold` completions are pending, or fewer and an error.
    ///
    /// # Errors
    /// Those of [`Cq::read`], where `FI_EAGAIN` means that the timeout has expired or
    /// [`Cq::signal`] was called; `FI_ENOSYS` if the queue has no wait object of its own.
    pub fn start_blocking(
        &self,
        count: usize,
        threshold: usize,
        timeout: i32,
    ) -> Result<BlockingRead<'_>> {
        if !self.attachment.can_block() {
            return Err(Errno::ENOSYS);
        }
        Ok(BlockingRead {
            waiter: Waiter {
                cq: self,
                // Flow control may prevent more entries than this.
                threshold: threshold.clamp(1, count.max(1)).min(self.unasked),
                answered: self.answered.load(Ordering::Relaxed),
            },
            count,
            deadline: Deadline::after_ms(timeout),
        })
    }

    /// Runs a whole blocking read, for callers in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of [`BlockingRead::round`].
    pub fn read_blocking(
        &self,
        count: usize,
        threshold: usize,
        timeout: i32,
        mut sink: impl FnMut(&Completion),
    ) -> Result<usize> {
        let read = self.start_blocking(count, threshold, timeout)?;
        let mut woke = Wake::Ready;
        loop {
            match read.round(woke, &mut sink) {
                ControlFlow::Continue(pause) => woke = pause.take(),
                ControlFlow::Break(outcome) => return outcome,
            }
        }
    }

    /// Implements fi_cq_signal(3): makes all blocked reads return, or the next one if there is
    /// none.
    ///
    /// # Errors
    /// `FI_ENOSYS` if the queue has no wait object.
    pub fn signal(&self) -> Result {
        if matches!(self.attachment, Attachment::None) {
            return Err(Errno::ENOSYS);
        }
        self.signals.fetch_add(1, Ordering::Release);
        if let Some(wait) = self.attachment.wait() {
            wait.ring();
        }
        Ok(())
    }

    /// Arms the bell for `threshold` entries. Returns whether fewer are pending, and no error.
    pub(super) fn arm_at(&self, threshold: usize) -> bool {
        let mut state = self.state.lock();
        if self.pending.load(Ordering::Relaxed) >= threshold || state.error_is_pending() {
            return false;
        }
        state.armed_at = state.armed_at.min(threshold);
        true
    }
}

impl Waitable for Cq {
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    fn sources(&self) -> &Sources {
        &self.sources
    }

    fn take_news(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    fn arm(&self) -> bool {
        self.arm_at(1)
    }
}

/// A blocking read. It needs no clean-up when it is abandoned.
#[derive(Clone, Copy)]
pub struct BlockingRead<'a> {
    waiter: Waiter<'a>,
    count: usize,
    deadline: Deadline,
}

impl BlockingRead<'_> {
    /// The step after the thread woke (at first: with [`Wake::Ready`]). Returns the outcome or the
    /// next pause. The outcome is `FI_EINTR` if a signal handler ran and there is no entry.
    pub fn round(
        &self,
        woke: Wake,
        mut sink: impl FnMut(&Completion),
    ) -> ControlFlow<Result<usize>, Pause<'_>> {
        let (cq, count) = (self.waiter.cq, self.count);
        if matches!(woke, Wake::Interrupted | Wake::Inherited) {
            cq.sources.read();
            return ControlFlow::Break(cq.take(count, sink).map_err(|error| match (error, woke) {
                (Errno::EAGAIN, Wake::Interrupted) => Errno::EINTR,
                (error, _) => error,
            }));
        }
        match cq.is_ready(count) {
            // The thread is awake, whether or not it drives.
            true => {
                cq.sources.read();
            }
            false => cq.drive(),
        }
        if self.waiter.is_satisfied() {
            match cq.take(count, &mut sink) {
                Err(Errno::EAGAIN) => {}
                outcome => return ControlFlow::Break(outcome),
            }
        }
        if let Some(signals) = self.waiter.signalled() {
            cq.answered.fetch_max(signals, Ordering::Relaxed);
            return ControlFlow::Break(cq.take(count, sink));
        }
        match self.deadline.is_over() {
            true => ControlFlow::Break(cq.take(count, sink)),
            false => ControlFlow::Continue(self.waiter.pause(self.deadline)),
        }
    }
}

/// A thread in a blocking read.
#[derive(Clone, Copy)]
struct Waiter<'a> {
    cq: &'a Cq,
    threshold: usize,
    /// The value of [`Cq::answered`] at the beginning.
    answered: u64,
}

impl Waiter<'_> {
    fn is_satisfied(&self) -> bool {
        let pending = self.cq.pending.load(Ordering::Relaxed);
        pending >= self.threshold || (pending > 0 && self.cq.state.lock().error_is_pending())
    }

    /// Returns the number of signals, if there was one since the read began.
    fn signalled(&self) -> Option<u64> {
        let signals = self.cq.signals.load(Ordering::Acquire);
        (signals > self.answered).then_some(signals)
    }
}

impl Waitable for Waiter<'_> {
    fn attachment(&self) -> &Attachment {
        &self.cq.attachment
    }

    fn sources(&self) -> &Sources {
        &self.cq.sources
    }

    fn take_news(&self) -> bool {
        self.is_satisfied()
    }

    fn arm(&self) -> bool {
        self.signalled().is_none() && self.cq.arm_at(self.threshold)
    }
}
