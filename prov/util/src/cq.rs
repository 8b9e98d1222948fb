//! Completion queues (fi_cq(3)).

mod completion;
mod ring;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wait_tests;

use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::{ControlFlow, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fabric_abi::{fi_cq_data_entry, fi_cq_entry, fi_cq_msg_entry, fi_cq_tagged_entry};

pub use completion::{Completion, ErrorCompletion};
use ring::Ring;

use crate::errno::{Errno, Result};
use crate::logging::UTIL;
use crate::progress::Progress;
use crate::sync::{LockKind, LoneLock};
use crate::wait::{Attachment, Deadline, Pause, Sources, Waitable, Wake};

/// What an entry consists of (`enum fi_cq_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqFormat {
    /// `struct fi_cq_entry`
    Context,
    /// `struct fi_cq_msg_entry`
    Msg,
    /// `struct fi_cq_data_entry`
    Data,
    /// `struct fi_cq_tagged_entry`
    Tagged,
}

impl CqFormat {
    /// Bytes of an entry.
    fn entry_size(self) -> usize {
        match self {
            CqFormat::Context => size_of::<fi_cq_entry>(),
            CqFormat::Msg => size_of::<fi_cq_msg_entry>(),
            CqFormat::Data => size_of::<fi_cq_data_entry>(),
            CqFormat::Tagged => size_of::<fi_cq_tagged_entry>(),
        }
    }
}

/// How to open a queue.
pub struct CqConfig {
    /// What an entry consists of.
    pub format: CqFormat,
    /// Entries to set memory aside for; 0: the library chooses.
    pub size: usize,
    /// Whether source addresses are kept for `readfrom`.
    pub with_sources: bool,
    /// Whether the threading level makes threads meet here.
    pub lock: LockKind,
    /// What to wait with.
    pub wait: Attachment,
    /// Whether blocking reads name a number of entries to wait for
    /// (`FI_CQ_COND_THRESHOLD`).
    pub by_threshold: bool,
    /// Interface version of the application, on which error entries depend.
    pub api_version: u32,
    /// Unread entries from which on peers add none for which no receive was posted
    /// (immediate data of remote writes and atomic operations): the links that bring
    /// such operations wait until entries are read. At least `size`.
    pub unasked: usize,
    /// The queue that everything goes to instead (fi_peer(3)).
    pub owner: Option<Box<dyn CqOwner>>,
}

/// A queue of entries with all that there is to say, and with nothing to wait with.
impl Default for CqConfig {
    fn default() -> Self {
        CqConfig {
            format: CqFormat::Tagged,
            size: 0,
            with_sources: true,
            lock: LockKind::Real,
            wait: Attachment::None,
            by_threshold: false,
            api_version: crate::attr::version(2, 0),
            unasked: UNASKED,
            owner: None,
        }
    }
}

/// A queue of another provider which takes this one's completions.
pub trait CqOwner: Send + Sync {
    /// Takes a completion.
    fn write(&self, completion: &Completion) -> Result;

    /// Takes an error entry.
    fn write_error(&self, error: &ErrorCompletion) -> Result;
}

/// Texts of error numbers that are a provider's own (`fi_cq_strerror`).
pub type ErrorTexts = fn(i32) -> Option<&'static CStr>;

/// Entries that a queue has room for unless it is told.
const DEFAULT_SIZE: usize = 1024;

/// Default of [`CqConfig::unasked`]: 262,144 entries of 56 bytes are 14 MiB.
const UNASKED: usize = 1 << 18;

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

    /// [`Cq::read`] that waits, up to `timeout` milliseconds (negative: for
    /// ever), until `threshold` completions are there, or fewer and an error.
    ///
    /// # Errors
    /// Those of [`Cq::read`], where `FI_EAGAIN` means that the time is over or
    /// that [`Cq::signal`] was called; `FI_ENOSYS` if the queue has no wait
    /// object of its own.
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
                // More than there is room for may never come.
                threshold: threshold.clamp(1, count.max(1)).min(self.unasked),
                answered: self.answered.load(Ordering::Relaxed),
            },
            count,
            deadline: Deadline::after_ms(timeout),
        })
    }

    /// All rounds of it, for a caller in Rust. The thread must not be cancelled meanwhile.
    ///
    /// # Errors
    /// Those of its rounds.
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

    /// Makes all blocked reads return, or the next one if there is none.
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

    /// Arms for `threshold` entries; whether fewer are there, and no error.
    fn arm_at(&self, threshold: usize) -> bool {
        let mut state = self.state.lock();
        if self.pending.load(Ordering::Relaxed) >= threshold || state.error_is_pending() {
            return false;
        }
        state.armed_at = state.armed_at.min(threshold);
        true
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

/// A blocking read. Nothing is to be done when it is given up.
#[derive(Clone, Copy)]
pub struct BlockingRead<'a> {
    waiter: Waiter<'a>,
    count: usize,
    deadline: Deadline,
}

impl BlockingRead<'_> {
    /// What the read does after its thread woke (the first time: with [`Wake::Ready`]):
    /// the outcome, or the next pause.
    pub fn round(
        &self,
        woke: Wake,
        mut sink: impl FnMut(&Completion),
    ) -> ControlFlow<Result<usize>, Pause<'_>> {
        let (cq, count) = (self.waiter.cq, self.count);
        if woke == Wake::Interrupted {
            return ControlFlow::Break(cq.take(count, sink));
        }
        if !cq.is_ready(count) {
            cq.drive();
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
    /// [`Cq::answered`] when it came.
    answered: u64,
}

impl Waiter<'_> {
    fn is_satisfied(&self) -> bool {
        let pending = self.cq.pending.load(Ordering::Relaxed);
        pending >= self.threshold || (pending > 0 && self.cq.state.lock().error_is_pending())
    }

    /// How often the queue was signalled, if that was since this thread came.
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
