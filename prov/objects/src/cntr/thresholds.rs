//! Work that waits until a counter reaches a threshold (fi_trigger(3)).

#[cfg(test)]
mod tests;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use super::value::{Numbers, Value};
use prov_base::errno::{Errno, Result};

/// What queued work is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkName {
    /// Whether it is deferred work, and not a triggered operation.
    pub is_deferred: bool,
    /// The address of the application's structure for it.
    pub address: usize,
    /// The address of the endpoint that it is for; 0 for none.
    pub endpoint: usize,
}

/// Work that waits for a counter.
pub trait Due: Send + Sync {
    /// What it is known by.
    fn name(&self) -> WorkName;

    /// The threshold is reached: notes that the work may begin. Called once, in order, under locks
    /// of the counter and perhaps of a provider: it calls neither.
    fn due(self: Arc<Self>);

    /// Begins what is due, this work and other. Called without locks.
    fn begin(&self);

    /// The counter is closed: the threshold is never reached.
    fn never(self: Arc<Self>);
}

/// What reaches a threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// The number of successes.
    BySuccesses,
    /// The sum of successes and errors.
    ByEither,
}

impl Reached {
    pub(super) fn number(self, numbers: Numbers) -> u64 {
        match self {
            Reached::BySuccesses => numbers.count,
            Reached::ByEither => numbers.count.saturating_add(numbers.errors),
        }
    }
}

/// The work that waits for one counter, by threshold, and of one threshold in the order of posting.
pub(super) struct Thresholds(Mutex<WorkQueue>);

#[derive(Default)]
struct WorkQueue {
    work: BTreeMap<(u64, u64), QueuedWork>,
    /// Number of the next work.
    next: u64,
    is_closed: bool,
}

struct QueuedWork {
    reached: Reached,
    work: Arc<dyn Due>,
}

impl Thresholds {
    pub(super) fn new() -> Self {
        Thresholds(Mutex::new(WorkQueue::default()))
    }

    fn waiting(&self) -> MutexGuard<'_, WorkQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues work, which is due at once where the threshold has been reached.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a counter that is closed.
    pub(super) fn wait(
        &self,
        value: &Value,
        threshold: u64,
        reached: Reached,
        work: Arc<dyn Due>,
    ) -> Result {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(Errno::EINVAL);
        }
        let number = waiting.next;
        waiting.next += 1;
        let entry = QueuedWork { reached, work };
        waiting.work.insert((threshold, number), entry);
        bounded!(waiting.work, OPERATIONS);
        let numbers = value.has_work();
        waiting.release(numbers);
        waiting.settle(value);
        Ok(())
    }

    /// After an update: what has become due. `before` is what the numbers were before one that may
    /// have led back below a threshold: the update before may not have been looked at. Returns one
    /// of the works that are due, if there is any.
    pub(super) fn check(&self, value: &Value, before: Numbers) -> Option<Arc<dyn Due>> {
        let mut waiting = self.waiting();
        let now = value.has_work();
        let last = waiting.release(Numbers {
            count: now.count.max(before.count),
            errors: now.errors.max(before.errors),
        });
        waiting.settle(value);
        last
    }

    /// Takes out the work for which `is_meant` holds, in order.
    pub(super) fn remove(
        &self,
        value: &Value,
        mut is_meant: impl FnMut(WorkName) -> bool,
    ) -> Vec<Arc<dyn Due>> {
        let mut waiting = self.waiting();
        let all = std::mem::take(&mut waiting.work);
        let mut removed = Vec::new();
        for (key, entry) in all {
            match is_meant(entry.work.name()) {
                true => removed.push(entry.work),
                false => {
                    waiting.work.insert(key, entry);
                    bounded!(waiting.work, OPERATIONS);
                }
            }
        }
        waiting.settle(value);
        removed
    }

    /// Takes no work from now on. Returns what was queued.
    pub(super) fn close(&self, value: &Value) -> Vec<Arc<dyn Due>> {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        let all = std::mem::take(&mut waiting.work);
        waiting.settle(value);
        all.into_values().map(|entry| entry.work).collect()
    }
}

impl WorkQueue {
    /// Tells the work whose thresholds these numbers reach. Returns the last one.
    fn release(&mut self, numbers: Numbers) -> Option<Arc<dyn Due>> {
        let most = Reached::ByEither.number(numbers);
        let due: Vec<_> = self
            .work
            .range(..=(most, u64::MAX))
            .filter(|((threshold, _), entry)| entry.reached.number(numbers) >= *threshold)
            .map(|(key, _)| *key)
            .collect();
        let mut last = None;
        for key in due {
            if let Some(entry) = self.work.remove(&key) {
                entry.work.clone().due();
                last = Some(entry.work);
            }
        }
        last
    }

    fn settle(&self, value: &Value) {
        if self.work.is_empty() {
            value.has_no_work();
        }
    }
}
