//! Event queues (fi_eq(3)).

mod connection;
mod event;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabric_abi::fid;
use parking_lot::Mutex;

pub use connection::ConnectionEvents;
pub use event::{Event, EventBody, EventError, EventInfo};

use crate::errno::{Errno, Result};
use crate::progress::Progress;
use crate::sync::LockKind;
use crate::wait::{Attachment, Deadline, Pause, Sources, Waitable, Wake};

/// A queue which takes another one's events (fi_peer(3)).
pub trait EqOwner: Send + Sync {
    /// As [`Eq::write`].
    fn write(&self, event: Event) -> Result;

    /// As [`Eq::write_error`].
    fn write_error(&self, error: EventError) -> Result;

    /// As [`Eq::forget`].
    fn forget(&self, fid: *mut fid);

    /// As [`Eq::add_source`].
    fn add_source(&self, progress: Arc<dyn Progress>) -> Result;

    /// As [`Eq::remove_source`].
    fn remove_source(&self, progress: &Arc<dyn Progress>);
}

/// An event queue. Like a completion queue it calls nobody while it holds its
/// lock; it grows without bound, and is overrun when memory runs out.
pub struct Eq {
    /// Number of queued events, mirrored for reading without the lock.
    pending: AtomicUsize,
    state: Mutex<State>,
    sources: Sources,
    attachment: Attachment,
    api_version: u32,
    /// The queue that everything goes to instead.
    owner: Option<Box<dyn EqOwner>>,
}

struct State {
    queue: VecDeque<Queued>,
    /// The next event has to ring.
    armed: bool,
    /// An event was lost for want of memory.
    overrun: bool,
    /// The last `err_data` that the application was lent.
    lent: Box<[u8]>,
}

enum Queued {
    Event(Event),
    Error(EventError),
}

impl Eq {
    /// An empty queue for an application of interface version `api_version`,
    /// on which error entries depend.
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

    /// A queue whose events go to `owner`.
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

    /// Queues an error; it is read in its turn, with [`Eq::read_error`].
    ///
    /// # Errors
    /// `FI_EOVERRUN` when the queue is overrun.
    pub fn write_error(&self, error: EventError) -> Result {
        if let Some(owner) = &self.owner {
            return owner.write_error(error);
        }
        self.push(Queued::Error(error))
    }

    /// Drives the transports and gives the next event to `deliver`, which has
    /// `room` bytes for it; with `peek` it stays in the queue. Returns the
    /// bytes that the event takes, cut off to `room` where connection data is
    /// longer.
    ///
    /// # Errors
    /// `FI_EAGAIN` without an event, `FI_EAVAIL` when an error is next,
    /// `FI_ETOOSMALL` when `room` is too small for the event's fixed part.
    pub fn read(&self, room: usize, peek: bool, deliver: impl FnOnce(&Event)) -> Result<usize> {
        self.sources.drive();
        self.take(room, peek, deliver)
    }

    /// Begins an [`Eq::read`] that waits up to `timeout` milliseconds (negative: for ever)
    /// for an event.
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

    /// All rounds of it, for a caller in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of its rounds.
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

    /// Takes the error that is next; with `peek` it stays.
    ///
    /// # Errors
    /// `FI_EAGAIN` without one.
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

    /// Keeps the `err_data` of an error for the application to look at until
    /// the next [`Eq::read_error`], and returns where it is.
    pub fn lend(&self, err_data: Box<[u8]>) -> *const [u8] {
        let mut state = self.state.lock();
        state.lent = err_data;
        &raw const *state.lent
    }

    /// Drops the events of an object that closes.
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
        // What hangs on them may call the provider.
        drop(gone);
    }

    /// Lets reads of this queue drive `progress`. Counted.
    ///
    /// # Errors
    /// What watching its descriptor returns.
    pub fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        if let Some(owner) = &self.owner {
            owner.add_source(progress.clone())?;
        }
        self.sources.add(progress, self.attachment.wait())
    }

    /// Takes back one [`Eq::add_source`].
    pub fn remove_source(&self, progress: &Arc<dyn Progress>) {
        if let Some(owner) = &self.owner {
            owner.remove_source(progress);
        }
        self.sources.remove(progress, self.attachment.wait());
    }

    /// Forgets all sources: the queue closes.
    pub fn shut(&self) {
        self.sources.clear(self.attachment.wait());
    }

    /// Interface version of the application.
    pub fn api_version(&self) -> u32 {
        self.api_version
    }

    /// Whether events go to another queue.
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

/// A blocking read. Nothing is to be done when it is given up.
#[derive(Clone, Copy)]
pub struct BlockingRead<'a> {
    eq: &'a Eq,
    deadline: Deadline,
}

impl BlockingRead<'_> {
    /// What the read does after its thread woke (the first time: with [`Wake::Ready`]):
    /// the outcome, which is one of [`Eq::read`]'s, or the next pause.
    pub fn round(
        &self,
        room: usize,
        peek: bool,
        woke: Wake,
        deliver: impl FnOnce(&Event),
    ) -> ControlFlow<Result<usize>, Pause<'_>> {
        if woke == Wake::Interrupted {
            return ControlFlow::Break(Err(Errno::EAGAIN));
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
