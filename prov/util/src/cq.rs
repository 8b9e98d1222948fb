//! Completion queues (fi_cq(3)).

mod blocking;
mod completion;
mod config;
mod ring;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wait_tests;

use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use blocking::BlockingRead;
pub use completion::{Completion, ErrorCompletion};
pub use config::{CqConfig, CqFormat, CqOwner};
use ring::Ring;

use crate::errno::{Errno, Result};
use crate::logging::UTIL;
use crate::progress::Progress;
use crate::sync::{LockKind, LoneLock};
use crate::wait::{Attachment, Sources};

/// Texts of error numbers that are a provider's own (`fi_cq_strerror`).
pub type ErrorTexts = fn(i32) -> Option<&'static CStr>;

/// Entries that a queue has room for unless it is told.
const DEFAULT_SIZE: usize = 1024;

/// A completion queue.
///
/// Providers write to it under their locks, so it calls nobody while it holds
/// its own. A queue that overflows grows; only when memory runs out is it
/// *overrun*, and reports that when all it has is read.
///
/// Threads that use different queues share no cache line that is written, nor
/// a pair of them, which processors fetch together.
#[repr(align(128))]
pub struct Cq {
    /// Entries of both kinds in `state`, and one more where it is overrun.
    /// Written under its lock, and read without, so that reading an empty queue
    /// takes none.
    pending: AtomicUsize,
    /// Bytes of an entry as the application reads it, which tell its format.
    entry_size: usize,
    /// Pending entries up to which there is room for more that no receive asked for.
    unasked: usize,
    with_sources: bool,
    state: LoneLock<State>,
    sources: Sources,
    attachment: Attachment,
    by_threshold: bool,
    api_version: u32,
    owner: Option<Box<dyn CqOwner>>,
    /// Texts of the provider's own error numbers.
    error_texts: ErrorTexts,
    /// Calls of [`Cq::signal`].
    signals: AtomicU64,
    /// Those that a blocking read has answered.
    answered: AtomicU64,
}

/// What a read of a queue comes to, as far as that is plain to see.
pub enum Outlook {
    /// Transports are to be driven first.
    Nothing,
    /// There is one completion, or an error.
    Single,
    /// It takes a closer look.
    Open,
}

struct State {
    ring: Ring,
    /// Error entries and the ring position that each stands before.
    errors: VecDeque<(u64, ErrorCompletion)>,
    /// Position of the first of `errors`; `u64::MAX` without.
    first_error: u64,
    /// Ring the bell when so many entries are pending; `usize::MAX`: never.
    armed_at: usize,
    /// Something was lost for want of memory.
    overrun: bool,
    /// The last `err_data` that the application was lent.
    lent: Box<[u8]>,
}

impl Cq {
    /// An empty queue.
    ///
    /// # Errors
    /// `FI_ENOMEM`
    pub fn new(config: CqConfig) -> Result<Self> {
        let size = match (config.size, &config.owner) {
            (_, Some(_)) => 1,
            (0, None) => DEFAULT_SIZE,
            (size, None) => size,
        };
        // An application that polls a fresh descriptor is to see the first
        // entry, even if it did not call fi_trywait(3).
        let armed_at = match config.wait.wait() {
            Some(_) => 1,
            None => usize::MAX,
        };
        let mut ring = Ring::new(size)?;
        if config.owner.is_some() {
            ring.close();
        }
        // What the owner's queue is used from is not this domain's to say, nor who waits
        // at a wait set.
        let lock = match config.owner.is_some() || config.wait.is_in_set() {
            true => LockKind::Real,
            false => config.lock,
        };
        Ok(Self {
            pending: AtomicUsize::new(0),
            entry_size: config.format.entry_size(),
            unasked: config.unasked.max(config.size).max(1),
            with_sources: config.with_sources,
            state: LoneLock::alone(
                lock,
                State {
                    ring,
                    errors: VecDeque::new(),
                    first_error: u64::MAX,
                    armed_at,
                    overrun: false,
                    lent: Box::default(),
                },
            ),
            sources: Sources::new(lock),
            attachment: config.wait,
            by_threshold: config.by_threshold,
            api_version: config.api_version,
            owner: config.owner,
            error_texts: |_| None,
            signals: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        })
    }

    /// The same, whose provider has error numbers of its own.
    pub fn with_error_texts(self, error_texts: ErrorTexts) -> Self {
        Self {
            error_texts,
            ..self
        }
    }

    /// The text of a `prov_errno`, where it is the provider's own number.
    pub fn error_text(&self, prov_errno: i32) -> Option<&'static CStr> {
        (self.error_texts)(prov_errno)
    }

    /// Reports an operation that succeeded.
    #[inline]
    pub fn write(&self, completion: &Completion) {
        self.write_with(|| *completion);
    }

    /// Reports an operation that succeeded. What `make` says is written to its
    /// place, and not moved there.
    #[inline(always)]
    pub fn write_with(&self, make: impl Fn() -> Completion) {
        self.write_under(self.state.lock(), make);
    }

    /// [`Cq::write_with`] of providers whose locks are real more often than not.
    #[inline(always)]
    pub fn write_promptly(&self, make: impl Fn() -> Completion) {
        self.write_under(self.state.lock().promptly(), make);
    }

    #[inline(always)]
    fn write_under(&self, mut state: impl DerefMut<Target = State>, make: impl Fn() -> Completion) {
        match state.ring.push_at_once(&make) {
            true => self.publish(&mut state, 1),
            false => {
                drop(state);
                self.write_specially(&make());
            }
        }
    }

    /// The ring is full, or closed.
    #[cold]
    #[inline(never)]
    fn write_specially(&self, completion: &Completion) {
        self.write_batch(std::slice::from_ref(completion));
    }

    /// Reports operations that succeeded, in order.
    pub fn write_batch(&self, completions: &[Completion]) {
        if let Some(owner) = &self.owner {
            for completion in completions {
                self.forwarded(owner.write(completion));
            }
            return;
        }
        let mut state = self.state.lock();
        let mut more = 0;
        for completion in completions {
            more += state.push(completion);
        }
        self.publish(&mut state, more);
    }

    /// Reports an operation that failed. It is read in its turn, with
    /// [`Cq::read_error`].
    #[cold]
    pub fn write_error(&self, error: ErrorCompletion) {
        if let Some(owner) = &self.owner {
            return self.forwarded(owner.write_error(&error));
        }
        let mut state = self.state.lock();
        let more = if state.overrun || state.errors.try_reserve(1).is_err() {
            state.overrun()
        } else {
            let position = state.ring.tail();
            state.errors.push_back((position, error));
            state.first_error = state.first_error.min(position);
            state.ring_at_once();
            1
        };
        self.publish(&mut state, more);
    }

    /// Drives the transports and hands up to `count` completions to `sink`.
    ///
    /// # Errors
    /// `FI_EAGAIN` when there are none, `FI_EAVAIL` when an error entry is
    /// next.
    #[inline(always)]
    pub fn read(&self, count: usize, sink: impl FnMut(&Completion)) -> Result<usize> {
        if !self.is_ready(count) {
            self.drive();
        }
        self.take(count, sink)
    }

    /// Takes the error entry that is next.
    ///
    /// # Errors
    /// `FI_EAGAIN` when there is none.
    pub fn read_error(&self) -> Result<ErrorCompletion> {
        if self.owner.is_some() {
            return Err(Errno::ENOSYS);
        }
        let mut state = self.state.lock();
        state.lent = Box::default();
        if state.first_error == state.ring.head() {
            let error = state.errors.pop_front().map(|(_, error)| error);
            state.first_error = state.errors.front().map_or(u64::MAX, |&(at, _)| at);
            self.taken(usize::from(error.is_some()));
            error.ok_or(Errno::EAGAIN)
        } else if state.overrun && state.ring.head() == state.ring.tail() {
            let nothing = Completion::new(std::ptr::null_mut(), 0);
            Ok(ErrorCompletion::new(nothing, Errno::EOVERRUN))
        } else {
            Err(Errno::EAGAIN)
        }
    }

    /// Keeps the `err_data` of an error entry for the application to look at
    /// until the next [`Cq::read_error`], and returns where it is.
    pub fn lend(&self, err_data: Box<[u8]>) -> *const [u8] {
        let mut state = self.state.lock();
        state.lent = err_data;
        &raw const *state.lent
    }

    /// Whether threads may sleep until something comes.
    pub fn can_sleep(&self) -> bool {
        self.attachment.wait().is_some()
    }

    /// Lets reads of this queue drive `progress`. Counted: endpoint by
    /// endpoint.
    ///
    /// # Errors
    /// What watching its descriptor returns.
    pub fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        self.sources.add(progress, self.attachment.wait())
    }

    /// Takes back one [`Cq::add_source`].
    pub fn remove_source(&self, progress: &Arc<dyn Progress>) {
        self.sources.remove(progress, self.attachment.wait());
    }

    /// Forgets all sources: the queue closes.
    pub fn shut(&self) {
        self.sources.clear(self.attachment.wait());
    }

    /// Bytes of an entry as the application reads it ([`CqFormat`]).
    #[inline(always)]
    pub fn entry_size(&self) -> usize {
        self.entry_size
    }

    /// Whether completions have sources to report (`FI_SOURCE`).
    pub fn with_sources(&self) -> bool {
        self.with_sources
    }

    /// Whether the condition of a blocking read is a number of entries.
    pub fn by_threshold(&self) -> bool {
        self.by_threshold
    }

    /// Interface version of the application.
    pub fn api_version(&self) -> u32 {
        self.api_version
    }

    /// Whether completions go to another provider's queue.
    pub fn is_peer(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether peers may add a completion for which no receive was posted. `false`:
    /// what brings it waits until the application has read some. A queue of another
    /// provider has a limit of its own.
    #[inline]
    pub fn has_room_unasked(&self) -> bool {
        self.pending.load(Ordering::Relaxed) < self.unasked
    }

    /// Pending entries from which on [`Cq::has_room_unasked`] is `false`.
    pub fn unasked(&self) -> usize {
        self.unasked
    }

    /// Whether completions are here that the caller wants, and transports need
    /// not be driven before they are taken.
    #[inline(always)]
    fn is_ready(&self, count: usize) -> bool {
        self.pending.load(Ordering::Relaxed).min(count) != 0 && !self.sources.read()
    }

    /// What a read of up to `count` completions comes to.
    #[inline(always)]
    pub fn outlook(&self, count: usize) -> Outlook {
        match self.pending.load(Ordering::Relaxed).min(count) {
            0 => Outlook::Nothing,
            1 => match self.sources.read_at_once() {
                Some(false) => Outlook::Single,
                Some(true) => Outlook::Nothing,
                None => Outlook::Open,
            },
            _ => Outlook::Open,
        }
    }

    /// Whether there is one completion, or an error, of up to `count`.
    #[inline(always)]
    pub fn has_single(&self, count: usize) -> bool {
        self.pending.load(Ordering::Relaxed).min(count) == 1
    }

    /// Drives the transports.
    #[inline(always)]
    pub fn drive(&self) {
        self.sources.drive();
    }

    /// Hands the completion that is next to `sink`, where that takes a few
    /// instructions and no other thread can be here. If not, it is for
    /// [`Cq::take_single`]; whether it was done.
    #[inline(always)]
    pub fn take_at_once(&self, sink: impl FnOnce(&Completion)) -> bool {
        let state = self.state.enter_at_once();
        state.is_some_and(
            #[inline(always)]
            |mut state| self.take_one(&mut state, sink),
        )
    }

    /// The same where other threads may be here. If there is more to it, it is for
    /// [`Cq::take`].
    #[inline(always)]
    pub fn take_single(&self, sink: impl FnOnce(&Completion)) -> bool {
        let state = self.state.enter_real();
        state.is_some_and(
            #[inline(always)]
            |mut state| self.take_one(&mut state, sink),
        )
    }

    #[inline(always)]
    fn take_one(&self, state: &mut State, sink: impl FnOnce(&Completion)) -> bool {
        let end = state.first_error;
        let taken = state.ring.take_single(end, sink);
        if taken {
            self.taken(1);
        }
        taken
    }

    /// Hands up to `count` completions that are here to `sink`.
    ///
    /// # Errors
    /// Those of [`Cq::read`].
    #[inline(always)]
    pub fn take(&self, count: usize, sink: impl FnMut(&Completion)) -> Result<usize> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return Err(Errno::EAGAIN);
        }
        let mut state = self.state.lock();
        let end = state.first_error;
        let taken = state.ring.take(count, end, sink);
        if taken == 0 {
            return self.nothing_taken(&state);
        }
        self.taken(taken);
        Ok(taken)
    }

    #[cold]
    fn nothing_taken(&self, state: &State) -> Result<usize> {
        if state.error_is_next() {
            Err(Errno::EAVAIL)
        } else if self.pending.load(Ordering::Relaxed) > 0 {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    }

    /// Counts entries that were taken out, under the lock of `state`.
    #[inline(always)]
    fn taken(&self, count: usize) {
        let pending = self.pending.load(Ordering::Relaxed);
        self.pending.store(pending - count, Ordering::Relaxed);
    }

    /// Makes `more` entries that were written visible to readers.
    #[inline(always)]
    fn publish(&self, state: &mut State, more: usize) {
        let pending = self.pending.load(Ordering::Relaxed) + more;
        self.pending.store(pending, Ordering::Relaxed);
        if pending >= state.armed_at {
            self.wake(state);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, state: &mut State) {
        state.armed_at = usize::MAX;
        if let Some(wait) = self.attachment.wait() {
            wait.ring();
        }
    }

    #[cold]
    fn forwarded(&self, outcome: Result) {
        if let Err(error) = outcome {
            log::error!(target: UTIL.cq, "the owner of a peer completion queue lost an entry: {error}");
        }
    }
}

impl State {
    fn error_is_pending(&self) -> bool {
        !self.errors.is_empty() || self.overrun
    }

    fn error_is_next(&self) -> bool {
        let head = self.ring.head();
        self.first_error == head || (self.overrun && head == self.ring.tail())
    }

    /// Adds an entry; how many more there are to be read for that.
    fn push(&mut self, completion: &Completion) -> usize {
        match self.ring.push(completion) {
            Ok(()) => 1,
            Err(_) => self.overrun(),
        }
    }

    /// Loses an entry; how many more there are to be read for that.
    #[cold]
    fn overrun(&mut self) -> usize {
        if self.overrun {
            return 0;
        }
        log::error!(target: UTIL.cq, "no memory for a completion: the completion queue is overrun");
        self.overrun = true;
        self.ring.close();
        self.ring_at_once();
        1
    }

    /// Whoever waits for a number of entries is not to wait for the rest.
    fn ring_at_once(&mut self) {
        if self.armed_at != usize::MAX {
            self.armed_at = 1;
        }
    }
}
