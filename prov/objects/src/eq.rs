//! Event queues (fi_eq(3)).

mod event;
#[cfg(test)]
mod tests;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabric_abi::fid;
use parking_lot::Mutex;

pub use event::{Event, EventBody, EventError, EventInfo};

use crate::progress::Progress;
use crate::wait::{Attachment, Deadline, Pause, Sources, Waitable, Wake};
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;

/// A queue that receives another one's events (fi_peer(3)).
pub trait EqOwner: Send + Sync {
    /// Like [`Eq::write`].
    fn write(&self, event: Event) -> Result;

    /// Like [`Eq::write_error`].
    fn write_error(&self, error: EventError) -> Result;

    /// Like [`Eq::forget`].
    fn forget(&self, fid: *mut fid);

    /// Like [`Eq::add_source`].
    fn add_source(&self, progress: Arc<dyn Progress>) -> Result;

    /// Like [`Eq::remove_source`].
    fn remove_source(&self, progress: &Arc<dyn Progress>);
}

/// An event queue. Like a completion queue it calls no other code while it holds its lock; it grows
/// without bound, and is overrun when memory is exhausted.
pub struct Eq {
    /// Number of queued events, mirrored for reading without the lock.
    pending: AtomicUsize,
    state: Mutex<State>,
    sources: Sources,
    attachment: Attachment,
    api_version: u32,
    /// The queue that gets all events of this one.
    owner: Option<Box<dyn EqOwner>>,
}

struct State {
    queue: VecDeque<Queued>,
    /// The next event has to ring the bell.
    armed: bool,
    /// An event was lost because memory was exhausted.
    overrun: bool,
    /// The last `err_data` that was lent to the application.
    lent: Box<[u8]>,
}

enum Queued {
    Event(Event),
    Error(EventError),
}

impl Eq {
    /// Creates an empty queue for an application of interface version `api_version`, which
    /// determines the layout of error entries.
    pub fn new(wait: Attachment, api_version: u32) -> Self {
        Self {
            pending: AtomicUsize::new(0),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                armed: wait.wait().is_some(),
                overrun: false,
                lent: Box::default(),
            }),
            sources: Sources::new(LockKind::Real),
            attachment: wait,
            api_version,
            owner: None,
        }
    }

    /// Creates a queue whose events go to `owner`.
    pub fn of_peer(wait: Attachment, api_version: u32, owner: Box<dyn EqOwner>) -> Self {
        Self {
            owner: Some(owner),
            ..Self::new(wait, api_version)
        }
    }

    /// Queues an event.
    ///
    /// # Errors
    /// `FI_EOVERRUN` when the queue is overrun.
    pub fn write(&self, event: Event) -> Result {
        if let Some(owner) = &self.owner {
            return owner.write(event);
        }
        self.push(Queued::Event(event))
    }

    /// Queues an error, which is read in order with [`Eq::read_error`].
    ///
    /// # Errors
    /// `FI_EOVERRUN` when the queue is overrun.
    pub fn write_error(&self, error: EventError) -> Result {
        if let Some(owner) = &self.owner {
            return owner.write_error(error);
        }
        self.push(Queued::Error(error))
    }

    /// Makes progress, and passes the next event to `deliver`, which has `room` bytes for it; with
    /// `peek` the event stays in the queue. Returns the bytes that the event takes; connection data
    /// is truncated to `room`.
    ///
    /// # Errors
    /// `FI_EAGAIN` without an event, `FI_EAVAIL` if an error is next, `FI_ETOOSMALL` if `room` is
    /// too small for the event's fixed part.
    pub fn read(&self, room: usize, peek: bool, deliver: impl FnOnce(&Event)) -> Result<usize> {
        self.sources.drive();
        self.take(room, peek, deliver)
    }

    /// Begins an [`Eq::read`] that waits for an event for up to `timeout` milliseconds (negative:
    /// without limit).
    ///
    /// # Errors
    /// `FI_ENOSYS` if the queue has no wait object of its own.
    pub fn start_blocking(&self, timeout: i32) -> Result<BlockingRead<'_>> {
        if !self.attachment.can_block() {
            return Err(Errno::ENOSYS);
        }
        Ok(BlockingRead {
            eq: self,
            deadline: Deadline::after_ms(timeout),
        })
    }

    /// Runs a whole blocking read, for callers in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of [`BlockingRead::round`].
    pub fn read_blocking(
        &self,
        room: usize,
        peek: bool,
        timeout: i32,
        deliver: impl Fn(&Event),
    ) -> Result<usize> {
        let read = self.start_blocking(timeout)?;
        let mut woke = Wake::Ready;
        loop {
            match read.round(room, peek, woke, &deliver) {
                ControlFlow::Continue(pause) => woke = pause.take(),
                ControlFlow::Break(outcome) => return outcome,
            }
        }
    }

    /// Returns the error that is next, and removes it unless `peek` is set.
    ///
    /// # Errors
    /// `FI_EAGAIN` without an error.
    pub fn read_error(&self, peek: bool) -> Result<EventError> {
        let mut state = self.state.lock();
        state.lent = Box::default();
        let error = match state.queue.front() {
            Some(Queued::Error(error)) => error.clone(),
            None if state.overrun => return Ok(EventError::overrun()),
            _ => return Err(Errno::EAGAIN),
        };
        if !peek {
            state.queue.pop_front();
            self.mirror(&state);
        }
        Ok(error)
    }

    /// Keeps the `err_data` of an error valid until the next [`Eq::read_error`], and returns its
    /// address.
    pub fn lend(&self, err_data: Box<[u8]>) -> *const [u8] {
        let mut state = self.state.lock();
        state.lent = err_data;
        &raw const *state.lent
    }

    /// Removes the events of an object that is being closed.
    pub fn forget(&self, fid: *mut fid) {
        if let Some(owner) = &self.owner {
            return owner.forget(fid);
        }
        let mut state = self.state.lock();
        let (gone, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut state.queue)
            .into_iter()
            .partition(|queued| match queued {
                Queued::Event(event) => event.fid() == Some(fid),
                Queued::Error(error) => error.fid == fid,
            });
        state.queue = kept;
        self.mirror(&state);
        drop(state);
        // The destructors of events may call the provider, so they run without the lock.
        drop(gone);
    }

    /// Makes reads of this queue drive `progress`. Calls are counted.
    ///
    /// # Errors
    /// What watching its descriptor returns.
    pub fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        if let Some(owner) = &self.owner {
            owner.add_source(progress.clone())?;
        }
        self.sources.add(progress, self.attachment.wait())
    }

    /// Undoes one [`Eq::add_source`].
    pub fn remove_source(&self, progress: &Arc<dyn Progress>) {
        if let Some(owner) = &self.owner {
            owner.remove_source(progress);
        }
        self.sources.remove(progress, self.attachment.wait());
    }

    /// Removes all sources, for a queue that is being closed.
    pub fn shut(&self) {
        self.sources.clear(self.attachment.wait());
    }

    /// Returns the interface version of the application.
    pub fn api_version(&self) -> u32 {
        self.api_version
    }

    /// Returns whether events go to another queue.
    pub fn is_peer(&self) -> bool {
        self.owner.is_some()
    }

    fn push(&self, queued: Queued) -> Result {
        let mut state = self.state.lock();
        if state.overrun || state.queue.try_reserve(1).is_err() {
            state.overrun = true;
            self.mirror(&state);
            return Err(Errno::EOVERRUN);
        }
        state.queue.push_back(queued);
        bounded!(state.queue, OPERATIONS);
        self.mirror(&state);
        if std::mem::take(&mut state.armed)
            && let Some(wait) = self.attachment.wait()
        {
            wait.ring();
        }
        Ok(())
    }

    fn take(&self, room: usize, peek: bool, deliver: impl FnOnce(&Event)) -> Result<usize> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return Err(Errno::EAGAIN);
        }
        let mut state = self.state.lock();
        let event = match state.queue.front() {
            Some(Queued::Event(event)) => event,
            Some(Queued::Error(_)) => return Err(Errno::EAVAIL),
            None if state.overrun => return Err(Errno::EAVAIL),
            None => return Err(Errno::EAGAIN),
        };
        let len = match event.len_within(room) {
            Some(len) => len,
            None if peek && room == 0 => 0,
            None => return Err(Errno::ETOOSMALL),
        };
        deliver(event);
        if !peek {
            if let Some(Queued::Event(event)) = state.queue.pop_front() {
                event.delivered();
            }
            self.mirror(&state);
        }
        Ok(len)
    }

    fn mirror(&self, state: &State) {
        let pending = state.queue.len().max(usize::from(state.overrun));
        self.pending.store(pending, Ordering::Relaxed);
    }
}

/// A blocking read. It needs no clean-up when it is abandoned.
#[derive(Clone, Copy)]
pub struct BlockingRead<'a> {
    eq: &'a Eq,
    deadline: Deadline,
}

impl BlockingRead<'_> {
    /// The step after the thread woke (at first: with [`Wake::Ready`]). Returns the outcome, which
    /// is one of [`Eq::read`]'s or `FI_EINTR` after a signal handler, or the next pause.
    pub fn round(
        &self,
        room: usize,
        peek: bool,
        woke: Wake,
        deliver: impl FnOnce(&Event),
    ) -> ControlFlow<Result<usize>, Pause<'_>> {
        match woke {
            Wake::Interrupted => return ControlFlow::Break(Err(Errno::EINTR)),
            Wake::Inherited => return ControlFlow::Break(Err(Errno::EAGAIN)),
            Wake::Ready | Wake::TimedOut => {}
        }
        self.eq.sources.drive();
        match self.eq.take(room, peek, deliver) {
            Err(Errno::EAGAIN) if !self.deadline.is_over() => {
                ControlFlow::Continue(self.eq.pause(self.deadline))
            }
            outcome => ControlFlow::Break(outcome),
        }
    }
}

impl Waitable for Eq {
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
        let mut state = self.state.lock();
        state.armed = true;
        state.queue.is_empty() && !state.overrun
    }
}
