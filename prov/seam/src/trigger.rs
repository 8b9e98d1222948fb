//! Triggered operations and deferred work of a domain (fi_trigger(3)).
//!
//! Work waits at its counter ([`Cntr::queue`]). An update of the counter, which may happen under the
//! locks of a provider, only moves what has become due into the domain's list. It is begun without
//! locks: by the call that updated the counter where that is the application's, by reads of the
//! queues and counters concerned, and by a thread of the domain where threads may meet there.

#[cfg(test)]
mod tests;

use prov_base::bell::Bell;
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::object::Handle;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::own_thread::OwnThread;
use prov_base::process::Process;
use prov_objects::cntr::{Cntr, Due, Reached, WorkName};
use prov_objects::drive::Signals;
use prov_objects::progress::Progress;

/// Stack of the thread, in bytes: it posts operations, which may copy through the stack.
const STACK: usize = 256 << 10;
/// How long the thread waits before it tries again to begin what a provider had no room for.
const RETRY: Duration = Duration::from_millis(1);

/// What a work does when its threshold is reached.
pub trait Operation: Send + Sync {
    /// Begins it. `-FI_EAGAIN` when it should be tried again later.
    ///
    /// # Errors
    /// Those of the provider.
    fn begin(&self) -> Result;

    /// Reports that it cannot be begun.
    fn fail(&self, error: Errno);
}

/// A queued operation.
struct Work {
    triggers: Weak<Triggers>,
    name: WorkName,
    operation: Box<dyn Operation>,
}

impl Due for Work {
    fn name(&self) -> WorkName {
        self.name
    }

    fn due(self: Arc<Self>) {
        if let Some(triggers) = self.triggers.upgrade() {
            triggers.push(self);
        }
    }

    fn begin(&self) {
        if let Some(triggers) = self.triggers.upgrade() {
            triggers.begin();
        }
    }

    fn never(self: Arc<Self>) {
        // Who closes the counter of deferred work cancels it (fi_trigger(3)); the context of a
        // triggered operation is the application's again with its completion.
        if !self.name.is_deferred {
            self.operation.fail(Errno::ECANCELED);
        }
    }
}

/// The work of one domain.
pub struct Triggers {
    state: Mutex<State>,
    /// There is something for the thread to do.
    woken: Condvar,
    /// Whether anything is in the list of what is due. Read without the lock.
    has_due: AtomicBool,
    /// Readable while something is due; made for the first thread that sleeps for it.
    bell: OnceLock<Bell>,
    signals: Arc<Signals>,
    /// Counters at which work has been queued, by their addresses.
    counters: Mutex<HashMap<usize, Handle<Cntr>>>,
    process: Process,
    /// Whether threads may meet in the domain, so that one of the library's may begin work.
    has_thread: bool,
    thread: Mutex<Option<OwnThread>>,
}

#[derive(Default)]
struct State {
    /// In the order in which it became due.
    due: VecDeque<Arc<Work>>,
    /// What a thread is beginning. One does at a time, so that the order is kept.
    beginning: Option<WorkName>,
    /// Whether the first of the list had no room at the last attempt.
    is_blocked: bool,
    /// Whether the thread is to end.
    is_over: bool,
}

impl Triggers {
    /// Without any work. `has_thread` tells whether a thread of the library may begin it.
    pub fn new(has_thread: bool) -> Arc<Self> {
        Arc::new(Triggers {
            state: Mutex::default(),
            woken: Condvar::new(),
            has_due: AtomicBool::new(false),
            bell: OnceLock::new(),
            signals: Arc::default(),
            counters: Mutex::default(),
            process: Process::current(),
            has_thread,
            thread: Mutex::default(),
        })
    }

    /// Queues an operation until `cntr` reaches a threshold, and begins it if it has.
    ///
    /// # Errors
    /// Those of [`Cntr::queue`].
    pub fn queue(
        self: &Arc<Self>,
        cntr: &Handle<Cntr>,
        threshold: u64,
        reached: Reached,
        name: WorkName,
        operation: Box<dyn Operation>,
    ) -> Result {
        cntr.queue(
            threshold,
            reached,
            Arc::new(Work {
                triggers: Arc::downgrade(self),
                name,
                operation,
            }),
        )?;
        self.begin();
        Ok(())
    }

    /// Has reads of a counter, and the thread, begin what is due, and the former drive `progress`.
    ///
    /// # Errors
    /// Those of [`Cntr::add_source`] and pthread_create(3).
    pub fn watch(
        self: &Arc<Self>,
        cntr: &Handle<Cntr>,
        progress: Option<Arc<dyn Progress>>,
    ) -> Result {
        let mut counters = self.counters.lock();
        counters.retain(|_, cntr| !cntr.is_closed());
        let address = cntr.as_c().addr();
        if counters.contains_key(&address) {
            return Ok(());
        }
        if self.has_thread {
            self.start_thread()?;
        }
        cntr.add_source(self.clone())?;
        if let Some(progress) = progress {
            cntr.add_source(progress)?;
        }
        counters.insert(address, cntr.clone());
        Ok(())
    }

    /// Whether work that is due has not been begun: what becomes due now comes behind it.
    pub fn is_busy(&self) -> bool {
        self.has_due.load(Ordering::Acquire) || self.state.lock().beginning.is_some()
    }

    /// Cancels the work for which `is_meant` holds, at one counter or all, and returns how much
    /// there was. What is being begun comes to its end first.
    pub fn cancel(
        &self,
        cntr: Option<&Handle<Cntr>>,
        is_meant: impl Fn(WorkName) -> bool,
    ) -> usize {
        self.take_back(cntr, is_meant).len()
    }

    /// [`Triggers::cancel`] of a triggered operation, which is reported.
    pub fn cancel_operation(&self, is_meant: impl Fn(WorkName) -> bool) -> usize {
        let taken = self.take_back(None, is_meant);
        for work in &taken {
            work.clone().never();
        }
        taken.len()
    }

    fn take_back(
        &self,
        cntr: Option<&Handle<Cntr>>,
        is_meant: impl Fn(WorkName) -> bool,
    ) -> Vec<Arc<dyn Due>> {
        let counters: Vec<_> = match cntr {
            Some(cntr) => vec![cntr.clone()],
            None => self.counters.lock().values().cloned().collect(),
        };
        let mut taken = Vec::new();
        for cntr in counters {
            taken.extend(cntr.take_back(&is_meant));
        }
        loop {
            let mut state = self.state.lock();
            let due = std::mem::take(&mut state.due);
            let (meant, left): (VecDeque<_>, _) =
                due.into_iter().partition(|work| is_meant(work.name));
            state.due = left;
            self.settle(&state);
            let is_being_begun = state.beginning.is_some_and(&is_meant);
            drop(state);
            taken.extend(meant.into_iter().map(|work| work as Arc<dyn Due>));
            if !is_being_begun {
                return taken;
            }
            // It takes as long as a call that posts an operation.
            std::thread::yield_now();
        }
    }

    fn push(&self, work: Arc<Work>) {
        let mut state = self.state.lock();
        state.due.push_back(work);
        bounded!(state.due, OPERATIONS);
        if state.due.len() == 1 {
            self.settle(&state);
            self.signals.drive_next();
            self.woken.notify_one();
        }
    }

    /// Begins what is due, in order, until there is no room. Called without locks. Returns whether
    /// anything was begun.
    pub fn begin(&self) -> bool {
        if !self.has_due.load(Ordering::Acquire) || !self.process.is_noted() {
            return false;
        }
        let mut has_begun = false;
        let mut state = self.state.lock();
        while state.beginning.is_none()
            && let Some(work) = state.due.pop_front()
        {
            state.beginning = Some(work.name);
            drop(state);
            let begun = work.operation.begin();
            if let Err(error) = begun
                && error != Errno::EAGAIN
            {
                log::info!(target: UTIL.ep_data, "a triggered operation is not posted: {error}");
                work.operation.fail(error);
            }
            state = self.state.lock();
            state.beginning = None;
            state.is_blocked = begun == Err(Errno::EAGAIN);
            if state.is_blocked {
                state.due.push_front(work);
                bounded!(state.due, OPERATIONS);
                // The thread tries again.
                self.woken.notify_one();
                break;
            }
            has_begun = true;
        }
        self.settle(&state);
        self.signals.serve();
        has_begun
    }

    /// Shows outside of the lock what is in the list.
    fn settle(&self, state: &MutexGuard<'_, State>) {
        let has_due = !state.due.is_empty();
        self.has_due.store(has_due, Ordering::Release);
        if let Some(bell) = self.bell.get() {
            // What has no room is tried again when the transport has brought something.
            match has_due && !state.is_blocked {
                true => bell.ring(),
                false => bell.silence(),
            }
        }
    }

    fn start_thread(self: &Arc<Self>) -> Result {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let this = Arc::downgrade(self);
            *thread = Some(OwnThread::start("fi_trigger", STACK, move || live(&this))?);
        }
        Ok(())
    }

    /// Ends the thread, for a domain that is being closed.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.woken.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            match self.process.is_current() {
                true => thread.join(),
                false => thread.forget(),
            }
        }
        self.counters.lock().clear();
    }
}

/// The life of the thread.
fn live(triggers: &Weak<Triggers>) {
    while let Some(triggers) = triggers.upgrade() {
        let mut state = triggers.state.lock();
        while !state.is_over && (state.due.is_empty() || state.beginning.is_some()) {
            triggers.woken.wait(&mut state);
        }
        if state.is_over {
            return;
        }
        if state.is_blocked {
            triggers.woken.wait_for(&mut state, RETRY);
        }
        drop(state);
        triggers.begin();
    }
}

impl Progress for Triggers {
    fn progress(&self) {
        self.begin();
    }

    fn signals(&self) -> Arc<Signals> {
        self.signals.clone()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        let state = self.state.lock();
        if self.bell.get().is_none() {
            let bell = Bell::new().inspect_err(|error| {
                log::warn!(target: UTIL.cntr, "who waits for triggered operations polls: {error}");
            });
            let _ = self.bell.set(bell.ok()?);
            self.settle(&state);
        }
        self.bell.get().map(AsRawFd::as_raw_fd)
    }

    fn prepare_wait(&self) -> bool {
        !self.begin()
    }
}

/// `FI_OP_CNTR_ADD` and `FI_OP_CNTR_SET`.
pub struct Count {
    /// The counter to change.
    pub cntr: Handle<Cntr>,
    /// The value.
    pub value: u64,
    /// Whether it is the counter's new value, and not added to it.
    pub is_new: bool,
}

impl Operation for Count {
    fn begin(&self) -> Result {
        match self.is_new {
            true => self.cntr.set(self.value),
            false => self.cntr.add(self.value),
        }
        Ok(())
    }

    fn fail(&self, _: Errno) {}
}
