//! The owner's side: receives of this provider that match messages of its peers.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use fabric_abi::*;

use super::super::object::{Class, Handle, Header, without_calls};
use super::super::options::{Options, getopt};
use super::super::{missing, status};
use super::entry::{Arrived, EntryRef, Phase, Pool};
use crate::endpoint::OptionValue;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::sync::{Guard, Lock, LockKind};
use prov_objects::cq::Completion;
use prov_objects::matching::{
    ANY_SOURCE, Cancelled, Filter, Matched, Message, Receive, ReceiveContext, ReceiveQueue, Single,
};

/// Callbacks to the provider that owns a queue.
pub trait QueueOwner: Send + Sync {
    /// The last message in a multi-receive buffer posted with `context` has completed, and the
    /// buffer accepts no more: to be reported with `FI_MULTI_RECV`. Called while the queue's lock
    /// is held.
    fn buffer_released(&self, context: *mut c_void);

    /// A receive for one message has ended with a message of a peer of this library, which has copied
    /// the bytes: to be reported. Called while the queue's lock is held.
    fn received(&self, received: &WholeReceive);
}

/// A message that was received by [`SharedQueue::take_whole`].
#[derive(Clone, Copy, Debug)]
pub struct WholeReceive {
    /// What is to be reported, with the length of the whole message.
    pub completion: Completion,
    /// The flags of the receive.
    pub flags: u64,
    /// The length of the receive's buffer in bytes: the rest of the message is lost.
    pub room: usize,
}

/// A receive queue with which peers match their messages.
pub struct OwnedQueue {
    /// The owner's lock; see the [module](super) description.
    lock: Lock<()>,
    /// Held only briefly, so that peers can call back while the lock above is held.
    state: Lock<State>,
    min_multi_recv: AtomicUsize,
    owner: Box<dyn QueueOwner>,
}

struct State {
    matching: ReceiveContext<AppIov, EntryRef>,
    pool: Pool,
}

impl State {
    fn queue(&mut self, tagged: bool) -> &mut ReceiveQueue<AppIov, EntryRef> {
        match tagged {
            true => &mut self.matching.tagged,
            false => &mut self.matching.msg,
        }
    }
}

/// A message that a peek has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The sender, or `FI_ADDR_UNSPEC`, as the peer numbers it.
    pub src: fi_addr_t,
    /// The tag.
    pub tag: u64,
    /// The length in bytes.
    pub len: usize,
    /// Immediate data, with `FI_REMOTE_CQ_DATA` in `flags`.
    pub data: u64,
    /// Flags for the completion.
    pub flags: u64,
}

impl Seen {
    fn of(message: &Message<EntryRef>) -> Self {
        Seen {
            src: message.src,
            tag: message.tag,
            len: message.len,
            data: message.data,
            flags: message.flags,
        }
    }
}

impl OwnedQueue {
    /// Creates an empty queue, with locks of this kind and this `FI_OPT_MIN_MULTI_RECV`.
    pub fn new(kind: LockKind, min_multi_recv: usize, owner: Box<dyn QueueOwner>) -> Arc<Self> {
        Arc::new(OwnedQueue {
            lock: Lock::new(kind, ()),
            state: Lock::new(
                kind,
                State {
                    matching: ReceiveContext::new(min_multi_recv),
                    pool: Pool::new(),
                },
            ),
            min_multi_recv: AtomicUsize::new(min_multi_recv),
            owner,
        })
    }

    /// Shares the queue with another peer: returns the target of `fi_peer_srx_context::srx`. To be
    /// kept until the peer has closed the object that imported it.
    pub fn share(self: &Arc<Self>) -> Handle<SharedQueue> {
        self.share_noting(&Arc::default())
    }

    /// The same, for a caller that wants to know when a message of the peer has come: `arrivals` is
    /// set to [`ARRIVED`] then.
    pub fn share_noting(self: &Arc<Self>, arrivals: &Arc<AtomicU32>) -> Handle<SharedQueue> {
        let shared = SharedQueue(self.clone(), arrivals.clone());
        Handle::new(shared, ptr::null_mut(), Vec::new())
    }

    /// Takes the queue's lock, for using the queue or driving a peer.
    pub fn enter(&self) -> Section<'_> {
        Section {
            queue: self,
            _lock: self.lock.lock(),
        }
    }

    /// The same if no other thread has it.
    #[inline]
    pub fn try_enter(&self) -> Option<Section<'_>> {
        let _lock = self.lock.try_lock()?;
        Some(Section { queue: self, _lock })
    }

    /// A peer matches a message.
    fn get(&self, srx: *mut fid_peer_srx, arrived: Arrived) -> (bool, EntryRef) {
        let mut state = self.state.lock();
        let matched = state
            .queue(arrived.tagged)
            .arrive(arrived.src, arrived.tag, arrived.len);
        let entry = state.pool.take();
        entry.begin(srx, arrived);
        if let Some(matched) = &matched {
            entry.give(matched, arrived.src);
        }
        (matched.is_some(), entry)
    }

    /// A peer queues a message that matched no receive.
    fn put(&self, entry: EntryRef) -> Result {
        if entry.phase() != Phase::New {
            return Err(Errno::EINVAL);
        }
        let public = entry.public();
        let id = self.state.lock().queue(entry.tagged()).keep(Message {
            src: public.addr,
            tag: public.tag,
            len: public.msg_size,
            data: public.cq_data,
            flags: public.flags & FI_REMOTE_CQ_DATA,
            payload: entry,
        });
        entry.set_phase(Phase::Waiting(id));
        Ok(())
    }

    /// A peer frees an entry.
    fn free(&self, entry: EntryRef) {
        let mut state = self.state.lock();
        let mut released = false;
        match entry.phase() {
            // It was freed twice; it may be reused at any time.
            Phase::Free => return,
            Phase::New => {}
            Phase::Waiting(id) => drop(state.queue(entry.tagged()).withdraw(id)),
            Phase::Given(multi) => {
                released = multi.is_some_and(|id| state.queue(entry.tagged()).finish_multi(id));
            }
        }
        let context = entry.public().context;
        state.pool.put(entry);
        drop(state);
        if released {
            self.owner.buffer_released(context);
        }
    }

    /// A peer has learnt the sources of messages.
    fn relabel(&self, srx: *mut fid_peer_srx, source: impl Fn(EntryRef) -> fi_addr_t) {
        let section = self.enter();
        for tagged in [false, true] {
            let mut unknown = Vec::new();
            // Collects the messages without a source, and changes none.
            self.state.lock().queue(tagged).relabel(|message| {
                if message.src == ANY_SOURCE && message.payload.public().srx == srx {
                    unknown.push(message.payload);
                }
                None
            });
            let known: std::collections::HashMap<_, _> = unknown
                .into_iter()
                .map(|entry| (entry.as_c(), source(entry)))
                .filter(|&(_, src)| src != ANY_SOURCE)
                .collect();
            if known.is_empty() {
                continue;
            }
            let pairs = self
                .state
                .lock()
                .queue(tagged)
                .relabel(|message| known.get(&message.payload.as_c()).copied());
            for (matched, message) in pairs {
                if let Err(error) = section.catch_up(tagged, matched, message) {
                    log::warn!(target: UTIL.ep_data, "a peer did not start a message: {error}");
                }
            }
        }
    }
}

/// The right to use an [`OwnedQueue`] and to drive its peers.
pub struct Section<'a> {
    queue: &'a OwnedQueue,
    _lock: Guard<'a, ()>,
}

impl Section<'_> {
    /// The fast path of [`Section::post`], for a receive of one message, while fewer than `most` are
    /// posted. Returns `false`, without any effect, if messages wait.
    #[inline]
    pub fn post_fast(
        &self,
        tagged: bool,
        (context, flags): (usize, u64),
        filter: Filter,
        buf: &mut AppIov,
        most: usize,
    ) -> bool {
        let mut state = self.queue.state.lock();
        let queue = state.queue(tagged);
        queue.post_fast(context, flags, filter, buf, most)
    }

    /// Posts a receive: it is queued, or a peer starts the message that waited for it.
    ///
    /// # Errors
    /// Those of the peer, for which the receive is then lost.
    #[inline]
    pub fn post(&self, tagged: bool, receive: Receive<AppIov>) -> Result {
        let mut state = self.queue.state.lock();
        let Some((matched, message)) = state.queue(tagged).post(receive) else {
            return Ok(());
        };
        drop(state);
        self.catch_up(tagged, matched, message)
    }

    /// Starts a message that waited; for a multi-receive buffer, all that fit.
    fn catch_up(
        &self,
        tagged: bool,
        matched: Matched<AppIov>,
        message: Message<EntryRef>,
    ) -> Result {
        let multi = matched.multi;
        let mut next = Some((matched, message));
        while let Some((matched, message)) = next {
            self.start(&matched, message)?;
            next = multi.and_then(|id| self.queue.state.lock().queue(tagged).refill(id));
        }
        Ok(())
    }

    /// Returns the oldest message that a receive with this filter would match (`FI_PEEK`).
    pub fn peek(&self, tagged: bool, filter: Filter) -> Option<Seen> {
        let mut state = self.queue.state.lock();
        state.queue(tagged).peek(filter).map(Seen::of)
    }

    /// The same, and sets the message aside for `context` (`FI_PEEK | FI_CLAIM`).
    pub fn peek_claim(&self, tagged: bool, filter: Filter, context: usize) -> Option<Seen> {
        let mut state = self.queue.state.lock();
        let found = state.queue(tagged).peek_claim(filter, context);
        found.map(Seen::of)
    }

    /// The same as [`Section::peek`], and removes the message (`FI_PEEK | FI_DISCARD`).
    pub fn peek_discard(&self, tagged: bool, filter: Filter) -> Option<Seen> {
        let found = self.queue.state.lock().queue(tagged).peek_discard(filter);
        found.map(|message| self.discard(message))
    }

    /// Receives the message that was set aside for the context `name` (`FI_CLAIM`).
    ///
    /// # Errors
    /// `FI_ENOMSG` if there is none; otherwise those of [`Section::post`].
    pub fn claim(&self, tagged: bool, name: usize, receive: Receive<AppIov>) -> Result {
        let found = self.queue.state.lock().queue(tagged).claim(name);
        let matched = Matched {
            context: receive.context,
            buf: receive.buf,
            flags: receive.flags,
            multi: None,
        };
        self.start(&matched, found.ok_or(Errno::ENOMSG)?)
    }

    /// Drops the message that was set aside for `context` (`FI_CLAIM | FI_DISCARD`).
    pub fn claim_discard(&self, tagged: bool, context: usize) -> Option<Seen> {
        let found = self.queue.state.lock().queue(tagged).claim(context);
        found.map(|message| self.discard(message))
    }

    /// Cancels the oldest receive with this context (fi_cancel(3)), untagged ones first. Returns it
    /// with whether it is a tagged one.
    pub fn cancel(&self, context: usize) -> Option<(bool, Cancelled<AppIov>)> {
        let mut state = self.queue.state.lock();
        [false, true].into_iter().find_map(|tagged| {
            let cancelled = state.queue(tagged).cancel(context)?;
            Some((tagged, cancelled))
        })
    }

    /// Cancels the receives that only messages of `src` can match and that have these flags, oldest
    /// first, for a peer that is gone. Returns each with whether it is a tagged one.
    pub fn cancel_from(&self, src: fi_addr_t, flags: u64) -> Vec<(bool, Cancelled<AppIov>)> {
        let mut state = self.queue.state.lock();
        let mut all = Vec::new();
        for tagged in [false, true] {
            let cancelled = state.queue(tagged).cancel_from(src, flags);
            all.extend(cancelled.into_iter().map(|cancelled| (tagged, cancelled)));
        }
        all
    }

    /// Forgets the source of the messages of `src`, whose address was removed.
    pub fn forget_source(&self, src: fi_addr_t) {
        let mut state = self.queue.state.lock();
        for tagged in [false, true] {
            let forgets = |message: &Message<EntryRef>| message.src == src;
            // No receive that matches any source waits while a message does.
            let _ = state
                .queue(tagged)
                .relabel(|message| forgets(message).then_some(ANY_SOURCE));
        }
    }

    /// Returns the number of posted receives.
    pub fn posted_len(&self) -> usize {
        self.queue.state.lock().matching.posted_len()
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`, for buffers that are posted later.
    pub fn set_min_multi_recv(&self, bytes: usize) {
        self.queue.min_multi_recv.store(bytes, Ordering::Relaxed);
        let mut state = self.queue.state.lock();
        state.matching.set_min_multi_recv(bytes);
    }

    /// Ends the queue: posted receives are forgotten, and peers discard their messages.
    pub fn shut(&self) {
        for tagged in [false, true] {
            let mut state = self.queue.state.lock();
            let queue = state.queue(tagged);
            queue.cancel_all();
            let messages = queue.withdraw_if(|_| true);
            drop(state);
            for message in messages {
                self.discard(message);
            }
        }
    }

    fn start(&self, matched: &Matched<AppIov>, message: Message<EntryRef>) -> Result {
        let entry = message.payload;
        entry.give(matched, message.src);
        let start = |ops: &fi_ops_srx_peer| match entry.tagged() {
            true => ops.start_tag,
            false => ops.start_msg,
        };
        call_peer(entry, start)
    }

    fn discard(&self, message: Message<EntryRef>) -> Seen {
        let entry = message.payload;
        let discard = |ops: &fi_ops_srx_peer| match entry.tagged() {
            true => ops.discard_tag,
            false => ops.discard_msg,
        };
        if let Err(error) = call_peer(entry, discard) {
            log::warn!(target: UTIL.ep_data, "a peer did not discard a message: {error}");
        }
        self.queue.state.lock().pool.put(entry);
        Seen::of(&message)
    }
}

type PeerFunction = Option<unsafe extern "C" fn(*mut fi_peer_rx_entry) -> c_int>;

/// Calls the peer of an entry. No lock of a queue's state is held.
fn call_peer(entry: EntryRef, function: impl Fn(&fi_ops_srx_peer) -> PeerFunction) -> Result {
    // SAFETY: the queue is shared as long as the peer has it, and the peer set
    // the table before it could make the entry.
    unsafe {
        let ops = (*entry.public().srx).peer_ops.as_ref();
        let function = ops.and_then(function).ok_or(Errno::ENOSYS)?;
        Errno::check(function(entry.as_c())).map(drop)
    }
}

/// See [`OwnedQueue::share_noting`].
pub const ARRIVED: u32 = 1024;

/// An [`OwnedQueue`] as one peer sees it, and what is set when it has messages.
pub struct SharedQueue(Arc<OwnedQueue>, Arc<AtomicU32>);

/// A message as it arrives at a queue, whole.
#[derive(Clone, Copy, Debug)]
pub struct WholeMessage {
    /// Whether it has a tag.
    pub tagged: bool,
    /// The sender, or `FI_ADDR_UNSPEC`.
    pub src: fi_addr_t,
    /// The tag.
    pub tag: u64,
    /// The length in bytes.
    pub len: usize,
}

impl SharedQueue {
    /// The short way for peers of this library: receives a message with a posted receive in one
    /// step, without an entry. `copy` puts the bytes where they belong. Returns `false`, without any
    /// effect, if no receive matches, or one that needs an entry.
    #[inline(always)]
    pub(super) fn take_whole(&self, message: WholeMessage, copy: impl Fn(&AppIov)) -> bool {
        self.1.store(ARRIVED, Ordering::Relaxed);
        let mut state = self.0.state.lock();
        let queue = state.queue(message.tagged);
        let WholeMessage { src, tag, .. } = message;
        let received = match queue.take_first_if(src, tag, needs_no_entry) {
            Some(single) => message.received_by(&single, copy),
            None => match queue.take_single_if(src, tag, needs_no_entry) {
                Some(single) => message.received_by(&single, copy),
                None => return false,
            },
        };
        drop(state);
        self.0.owner.received(&received);
        true
    }
}

/// Whether a receive with these flags and this buffer may end at once, wherever it is reported.
#[inline(always)]
fn needs_no_entry(flags: u64, buf: &AppIov) -> bool {
    flags & FI_PEER_TRANSFER == 0 && !buf.has_device()
}

impl WholeMessage {
    #[inline(always)]
    fn received_by(&self, single: &Single<'_, AppIov>, copy: impl FnOnce(&AppIov)) -> WholeReceive {
        copy(single.buf);
        WholeReceive {
            completion: Completion {
                context: ptr::with_exposed_provenance_mut(single.context),
                flags: FI_RECV | if self.tagged { FI_TAGGED } else { FI_MSG },
                len: self.len,
                buf: single.buf.address(),
                data: 0,
                tag: self.tag,
                src: self.src,
            },
            flags: single.flags,
            room: single.buf.len(),
        }
    }
}

/// The owner's functions, which peers of this library know the queue by.
pub(super) static OWNER_OPS: fi_ops_srx_owner = fi_ops_srx_owner {
    size: size_of::<fi_ops_srx_owner>(),
    get_msg: Some(get_msg),
    get_tag: Some(get_tag),
    queue_msg: Some(queue),
    queue_tag: Some(queue),
    foreach_unspec_addr: Some(foreach_unspec_addr),
    free_entry: Some(free_entry),
};

impl Options for SharedQueue {
    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_MIN_MULTI_RECV => Ok(OptionValue::Size(
                self.0.min_multi_recv.load(Ordering::Relaxed),
            )),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

// SAFETY: the interface specifies that `fid_peer_srx` begins with a `fid_ep`, which begins with a
// `fid`.
unsafe impl Header for fid_peer_srx {}

impl Class for SharedQueue {
    type Header = fid_peer_srx;

    fn class(&self) -> usize {
        FI_CLASS_PEER_SRX
    }

    fn header(&self, fid: fid) -> fid_peer_srx {
        static EP_OPS: fi_ops_ep = fi_ops_ep {
            getopt: Some(getopt::<SharedQueue>),
            ..missing::EP
        };
        fid_peer_srx {
            ep_fid: without_calls(fid, &EP_OPS),
            owner_ops: (&raw const OWNER_OPS).cast_mut(),
            // Set by the peer.
            peer_ops: ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn get_msg(
    srx: *mut fid_peer_srx,
    attr: *mut fi_peer_match_attr,
    entry: *mut *mut fi_peer_rx_entry,
) -> c_int {
    // SAFETY: the arguments are those of this function, for which the peer keeps the same contract.
    unsafe { get(false, srx, attr, entry) }
}

unsafe extern "C" fn get_tag(
    srx: *mut fid_peer_srx,
    attr: *mut fi_peer_match_attr,
    entry: *mut *mut fi_peer_rx_entry,
) -> c_int {
    // SAFETY: the arguments are those of this function, for which the peer keeps the same contract.
    unsafe { get(true, srx, attr, entry) }
}

/// # Safety
/// Arguments of a peer.
unsafe fn get(
    tagged: bool,
    srx: *mut fid_peer_srx,
    attr: *mut fi_peer_match_attr,
    place: *mut *mut fi_peer_rx_entry,
) -> c_int {
    // SAFETY: this function is only in the tables of shared queues; the peer passes an open one,
    // and attributes and a location that are null or valid.
    unsafe {
        let Some(attr) = attr.as_ref().filter(|_| !place.is_null()) else {
            return Errno::EINVAL.to_c();
        };
        let arrived = Arrived {
            tagged,
            src: attr.addr,
            tag: if tagged { attr.tag } else { 0 },
            len: attr.msg_size,
        };
        let shared = Handle::<SharedQueue>::borrow(srx);
        shared.1.store(ARRIVED, Ordering::Relaxed);
        let (expected, entry) = shared.0.get(srx, arrived);
        place.write(entry.as_c());
        match expected {
            true => 0,
            false => Errno::ENOENT.to_c(),
        }
    }
}

/// Returns the queue of an entry, and the entry.
///
/// # Safety
/// `entry` is null or one that `get` has returned.
unsafe fn named<'a>(entry: *mut fi_peer_rx_entry) -> Option<(&'a OwnedQueue, EntryRef)> {
    // SAFETY: the caller guarantees that the entry is null or one of `get`, whose queue is shared
    // as long as peers have entries of it.
    unsafe {
        let entry = EntryRef::from_c(entry)?;
        let shared = Handle::<SharedQueue>::borrow(entry.public().srx);
        Some((&shared.0, entry))
    }
}

unsafe extern "C" fn queue(entry: *mut fi_peer_rx_entry) -> c_int {
    // SAFETY: the peer passes an entry that `get` has returned to it.
    let named = unsafe { named(entry) }.ok_or(Errno::EINVAL);
    status(named.and_then(|(queue, entry)| queue.put(entry)))
}

unsafe extern "C" fn free_entry(entry: *mut fi_peer_rx_entry) {
    // SAFETY: the peer passes an entry that it got from this queue.
    if let Some((queue, entry)) = unsafe { named(entry) } {
        queue.free(entry);
    }
}

unsafe extern "C" fn foreach_unspec_addr(
    srx: *mut fid_peer_srx,
    get_addr: Option<unsafe extern "C" fn(*mut fi_peer_rx_entry) -> fi_addr_t>,
) {
    let Some(get_addr) = get_addr else {
        return;
    };
    // SAFETY: this function is only in the tables of shared queues, and the peer passes an open
    // one.
    let queue = &unsafe { Handle::<SharedQueue>::borrow(srx) }.0;
    // SAFETY: the function is the peer's, and is called with an entry that the peer has queued.
    queue.relabel(srx, |entry| unsafe { get_addr(entry.as_c()) });
}
