//! Completion queues (fi_cq(3)).

mod blocking;
mod completion;
mod config;
mod ring;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wait_tests;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use blocking::BlockingRead;
pub use completion::{Completion, ErrorCompletion};
pub use config::{CqConfig, CqFormat, CqOwner};
use ring::Ring;

use crate::drive::Signals;
use crate::progress::Progress;
use crate::wait::{Attachment, Sources};
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::sync::{Lock, LockKind};

/// Returns the text of a provider-specific error number (fi_cq_strerror(3)).
pub type ErrorTexts = fn(i32) -> Option<&'static CStr>;

/// Default number of entries that a queue allocates.
const DEFAULT_SIZE: usize = 1024;

/// A completion queue.
///
/// Providers write to it while they hold their locks, so it calls no other code while it holds its
/// own. A full queue grows; only when memory is exhausted it is *overrun*, which it reports after
/// all its entries have been read.
///
/// Different queues share no cache line that is written, nor an aligned pair of cache lines, which
/// processors prefetch together: hence the alignment.
#[repr(align(128))]
pub struct Cq {
    /// Number of entries of both kinds in `state`, plus one if the queue is overrun. Written under
    /// its lock and read without it, so that reading an empty queue takes no lock.
    pending: AtomicUsize,
    /// Size in bytes of an entry in the application's format.
    entry_size: usize,
    /// Number of pending entries from which on there is no room for completions without a posted
    /// receive.
    unasked: usize,
    with_sources: bool,
    state: Lock<State>,
    sources: Sources,
    attachment: Attachment,
    by_threshold: bool,
    api_version: u32,
    owner: Option<Box<dyn CqOwner>>,
    /// Texts of the provider's error numbers.
    error_texts: ErrorTexts,
    /// Number of calls of [`Cq::signal`].
    signals: AtomicU64,
    /// Number of those that a blocking read has answered.
    answered: AtomicU64,
}

/// What a read of a queue will return, as far as that is known without the lock.
pub enum Outlook {
    /// The transports have to be driven first.
    Nothing,
    /// There is one completion, or an error.
    Single,
    /// There are more than one.
    Several,
}

struct State {
    ring: Ring,
    /// Error entries, each with the ring position that it precedes.
    errors: VecDeque<(u64, ErrorCompletion)>,
    /// Position of the first of `errors`; `u64::MAX` if there is none.
    first_error: u64,
    /// Number of pending entries at which the bell is rung; `usize::MAX` for never.
    armed_at: usize,
    /// An entry was lost because memory was exhausted.
    overrun: bool,
    /// The last `err_data` that was lent to the application.
    lent: Box<[u8]>,
    /// The signals of the transport that fills the queue, if there is one only.
    only_source: Option<Arc<Signals>>,
}

/// The outcome of an attempt to read one completion in a few instructions.
pub enum FastRead {
    /// It was taken.
    Taken,
    /// The transport has to be driven first.
    Due,
    /// It takes more instructions.
    Open,
}

impl Cq {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// `FI_ENOMEM`
    pub fn new(config: CqConfig) -> Result<Self> {
        let size = match (config.size, &config.owner) {
            (_, Some(_)) => 1,
            (0, None) => DEFAULT_SIZE,
            (size, None) => size,
        };
        // An application that polls the descriptor before its first fi_trywait(3) has to see the
        // first entry.
        let armed_at = match config.wait.wait() {
            Some(_) => 1,
            None => usize::MAX,
        };
        let mut ring = Ring::new(size)?;
        if config.owner.is_some() {
            ring.close();
        }
        // A wait set may be used by any thread.
        let lock = match config.wait.is_in_set() {
            true => LockKind::Real,
            false => config.lock,
        };
        Ok(Self {
            pending: AtomicUsize::new(0),
            entry_size: config.format.entry_size(),
            unasked: config.unasked.max(config.size).max(1),
            with_sources: config.with_sources,
            state: Lock::with_visitors(
                lock,
                State {
                    ring,
                    errors: VecDeque::new(),
                    first_error: u64::MAX,
                    armed_at,
                    overrun: false,
                    lent: Box::default(),
                    only_source: None,
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

    /// Sets the texts of the provider's error numbers.
    pub fn with_error_texts(self, error_texts: ErrorTexts) -> Self {
        Self {
            error_texts,
            ..self
        }
    }

    /// Returns the text of a `prov_errno`, if the provider defines it.
    pub fn error_text(&self, prov_errno: i32) -> Option<&'static CStr> {
        (self.error_texts)(prov_errno)
    }

    /// Writes the completion of a successful operation.
    #[inline]
    pub fn write(&self, completion: &Completion) {
        self.write_with(|| *completion);
    }

    /// Writes the completion of a successful operation. `make` constructs it in its slot, without a
    /// copy.
    #[inline(always)]
    pub fn write_with(&self, make: impl Fn() -> Completion) {
        self.write_under(self.state.lock(), make);
    }

    /// [`Cq::write_with`], optimised for providers whose locks are mostly real.
    #[inline(always)]
    pub fn write_promptly(&self, make: impl Fn() -> Completion) {
        self.write_under(self.state.lock().promptly(), make);
    }

    #[inline(always)]
    fn write_under(&self, mut state: impl DerefMut<Target = State>, make: impl Fn() -> Completion) {
        match state.ring.push_fast(&make) {
            true => self.publish(&mut state, 1),
            false => {
                drop(state);
                self.write_specially(&make());
            }
        }
    }

    /// The fast path of [`Cq::write_with`], a few instructions without a call: writes the completion
    /// if no other thread can be in the queue, it has room, and nobody is to be woken. Returns
    /// whether it did.
    #[inline(always)]
    pub fn write_fast(&self, make: impl Fn() -> Completion) -> bool {
        let Some(mut state) = self.state.enter_lone() else {
            return false;
        };
        let pending = self.pending.load(Ordering::Relaxed) + 1;
        let written = pending < state.armed_at && state.ring.push_fast(make);
        if written {
            self.pending.store(pending, Ordering::Relaxed);
        }
        written
    }

    /// Handles a full or closed ring.
    #[cold]
    #[inline(never)]
    fn write_specially(&self, completion: &Completion) {
        self.write_batch(std::slice::from_ref(completion));
    }

    /// Writes the completions of successful operations, in order.
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

    /// Writes the error entry of a failed operation. It is read in order, with [`Cq::read_error`].
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
            bounded!(state.errors, OPERATIONS);
            state.first_error = state.first_error.min(position);
            state.wake_at_next();
            1
        };
        self.publish(&mut state, more);
    }

    /// Makes progress, and passes up to `count` completions to `sink`.
    ///
    /// # Errors
    /// `FI_EAGAIN` if there are none, `FI_EAVAIL` if an error entry is next.
    #[inline(always)]
    pub fn read(&self, count: usize, sink: impl FnMut(&Completion)) -> Result<usize> {
        if !self.is_ready(count) {
            self.drive();
        }
        self.take(count, sink)
    }

    /// Removes and returns the error entry that is next.
    ///
    /// # Errors
    /// `FI_EAGAIN` if there is none.
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

    /// Keeps the `err_data` of an error entry valid until the next [`Cq::read_error`], and returns
    /// its address.
    pub fn lend(&self, err_data: Box<[u8]>) -> *const [u8] {
        let mut state = self.state.lock();
        state.lent = err_data;
        &raw const *state.lent
    }

    /// Returns whether threads may sleep until an entry is written.
    pub fn can_sleep(&self) -> bool {
        self.attachment.wait().is_some()
    }

    /// Makes reads of this queue drive `progress`. Calls are counted: each needs its own
    /// [`Cq::remove_source`].
    ///
    /// # Errors
    /// What watching its descriptor returns.
    pub fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        let added = self.sources.add(progress, self.attachment.wait());
        self.sources_have_changed();
        added
    }

    fn sources_have_changed(&self) {
        let old = self
            .state
            .visit(|state| std::mem::replace(&mut state.only_source, self.sources.only()));
        // Dropped without the lock.
        drop(old);
    }

    /// Undoes one [`Cq::add_source`].
    pub fn remove_source(&self, progress: &Arc<dyn Progress>) {
        self.sources.remove(progress, self.attachment.wait());
        self.sources_have_changed();
    }

    /// Removes all sources, for a queue that is being closed.
    pub fn shut(&self) {
        self.sources.clear(self.attachment.wait());
        self.sources_have_changed();
    }

    /// Returns the size in bytes of an entry in the application's format ([`CqFormat`]).
    #[inline(always)]
    pub fn entry_size(&self) -> usize {
        self.entry_size
    }

    /// Returns whether completions have source addresses (`FI_SOURCE`).
    pub fn with_sources(&self) -> bool {
        self.with_sources
    }

    /// Returns whether blocking reads wait for a number of entries (`FI_CQ_COND_THRESHOLD`).
    pub fn by_threshold(&self) -> bool {
        self.by_threshold
    }

    /// Returns the interface version of the application.
    pub fn api_version(&self) -> u32 {
        self.api_version
    }

    /// Returns whether completions go to another provider's queue.
    pub fn is_peer(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns whether peers may add a completion without a posted receive. If not, the operation
    /// that causes it waits until the application has read some. A queue of another provider has
    /// its own limit.
    #[inline]
    pub fn has_room_unasked(&self) -> bool {
        self.pending.load(Ordering::Relaxed) < self.unasked
    }

    /// Returns the number of pending entries from which on [`Cq::has_room_unasked`] is `false`.
    pub fn unasked(&self) -> usize {
        self.unasked
    }

    /// Returns whether completions are pending that the caller wants, and the transports need not
    /// be driven before they are taken.
    #[inline(always)]
    fn is_ready(&self, count: usize) -> bool {
        self.pending.load(Ordering::Relaxed).min(count) != 0 && !self.sources.read()
    }

    /// Predicts the result of a read of up to `count` completions.
    #[inline(always)]
    pub fn outlook(&self, count: usize) -> Outlook {
        match self.pending.load(Ordering::Relaxed).min(count) {
            0 => Outlook::Nothing,
            1 => Outlook::Single,
            _ => Outlook::Several,
        }
    }

    /// The fast path of [`Cq::read`] for one completion: passes it to `sink` if no other thread can
    /// be in the queue.
    #[inline(always)]
    pub fn read_fast(&self, sink: impl FnOnce(&Completion)) -> FastRead {
        match self.state.enter_lone() {
            Some(mut state) => self.read_fast_inside(&mut state, sink),
            None => FastRead::Open,
        }
    }

    /// Like [`Cq::read_fast`], for queues that other threads may use.
    #[inline(always)]
    pub fn read_fast_shared(&self, sink: impl FnOnce(&Completion)) -> FastRead {
        match self.state.enter_real() {
            Some(mut state) => self.read_fast_inside(&mut state, sink),
            None => FastRead::Open,
        }
    }

    #[inline(always)]
    fn read_fast_inside(&self, state: &mut State, sink: impl FnOnce(&Completion)) -> FastRead {
        let Some(signals) = &state.only_source else {
            return FastRead::Open;
        };
        if signals.read() || signals.is_due() {
            return FastRead::Due;
        }
        match self.take_one(state, sink) {
            true => FastRead::Taken,
            false => FastRead::Open,
        }
    }

    /// Makes progress.
    #[inline(always)]
    pub fn drive(&self) {
        self.sources.drive();
    }

    /// The fast path of a read: passes the next completion to `sink` if that takes a few
    /// instructions and no other thread can be in the queue. Returns whether it was done; if not,
    /// the caller continues with [`Cq::take_single`].
    #[inline(always)]
    pub fn take_fast(&self, sink: impl FnOnce(&Completion)) -> bool {
        let state = self.state.enter_lone();
        state.is_some_and(
            #[inline(always)]
            |mut state| self.take_one(&mut state, sink),
        )
    }

    /// Like [`Cq::take_fast`], for queues that other threads may use. If it returns `false`, the
    /// caller continues with [`Cq::take`].
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

    /// Passes up to `count` pending completions to `sink`.
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

    /// Subtracts entries that were taken; called with the lock of `state`.
    #[inline(always)]
    fn taken(&self, count: usize) {
        let pending = self.pending.load(Ordering::Relaxed);
        self.pending.store(pending - count, Ordering::Relaxed);
    }

    /// Makes `more` written entries visible to readers, and wakes them.
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

    /// Adds an entry. Returns the number of entries that this adds for readers.
    fn push(&mut self, completion: &Completion) -> usize {
        match self.ring.push(completion) {
            Ok(()) => 1,
            Err(_) => self.overrun(),
        }
    }

    /// Loses an entry. Returns the number of entries that this adds for readers.
    #[cold]
    fn overrun(&mut self) -> usize {
        if self.overrun {
            return 0;
        }
        log::error!(target: UTIL.cq, "no memory for a completion: the completion queue is overrun");
        self.overrun = true;
        self.ring.close();
        self.wake_at_next();
        1
    }

    /// Makes a thread that waits for a number of entries wake at the next one.
    fn wake_at_next(&mut self) {
        if self.armed_at != usize::MAX {
            self.armed_at = 1;
        }
    }
}
