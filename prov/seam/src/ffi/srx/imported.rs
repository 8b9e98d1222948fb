//! The importer's side: another provider's receive queue, and its entries as types that cannot be
//! freed twice or forgotten.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::*;

use super::super::object::Handle;
use super::super::{peer, status};
use super::owned::{OWNER_OPS, SharedQueue, WholeMessage};
use prov_base::buffer::AppIov;
use prov_base::device_memory::interfaces;
use prov_base::errno::{Errno, Result};
use prov_objects::matching::MessageId;

/// The importer's part when the owner has a receive for a queued message. Called while the owner's
/// lock is held, and none of the importer's.
pub trait StartReceives: Send + Sync {
    /// A message has matched a receive: see [`ForeignQueue::start`](super::ForeignQueue::start).
    ///
    /// # Errors
    /// Only those of that function: a failure of the message is reported by a completion.
    fn start(&self, started: Started) -> Result;

    /// A message is discarded, and nothing is reported: see
    /// [`ForeignQueue::discard`](super::ForeignQueue::discard).
    ///
    /// # Errors
    /// Those of that function.
    fn discard(&self, discarded: Discarded) -> Result;
}

/// Identifies the message that the owner starts.
pub struct Started(pub(crate) MessageId);

/// Identifies the message that the owner discards.
pub struct Discarded(pub(crate) MessageId);

type Get = unsafe extern "C" fn(
    *mut fid_peer_srx,
    *mut fi_peer_match_attr,
    *mut *mut fi_peer_rx_entry,
) -> c_int;
type Queue = unsafe extern "C" fn(*mut fi_peer_rx_entry) -> c_int;
type Free = unsafe extern "C" fn(*mut fi_peer_rx_entry);
type GetAddr = Option<unsafe extern "C" fn(*mut fi_peer_rx_entry) -> fi_addr_t>;

/// Another provider's receive queue.
#[derive(Clone, Copy)]
pub struct ImportedSrx {
    srx: NonNull<fid_peer_srx>,
    get_msg: Get,
    get_tag: Get,
    queue_msg: Queue,
    queue_tag: Queue,
    free: Free,
    for_each_unknown: unsafe extern "C" fn(*mut fid_peer_srx, GetAddr),
    /// Whether the queue is a [`SharedQueue`] of this library.
    is_own: bool,
    /// Whether memory of its receives may be that of devices.
    has_devices: bool,
}

// SAFETY: the interface makes the owner responsible for locking, so that its functions may be
// called from any thread (fi_peer(3)).
unsafe impl Send for ImportedSrx {}
// SAFETY: a shared reference permits the same calls, which the owner locks.
unsafe impl Sync for ImportedSrx {}

/// The owner's result for an arriving message.
pub enum Arrival {
    /// The receive that matches. To be dropped after its completion has been written.
    Received(Received),
    /// No receive matches: to be queued, or dropped with the message.
    Unexpected(Unexpected),
}

impl ImportedSrx {
    /// Returns the queue in the context of fi_srx_context(3) with `FI_PEER`.
    ///
    /// # Errors
    /// `FI_EINVAL` for an incomplete context or queue.
    ///
    /// # Safety
    /// `context` is null or a `fi_peer_srx_context` whose queue stays valid as
    /// long as the result, its copies and what comes from them.
    pub unsafe fn import(context: *mut c_void) -> Result<Self> {
        // SAFETY: the caller guarantees that the context is null or a valid `fi_peer_srx_context`.
        let srx = unsafe { peer::context::<fi_peer_srx_context>(context) }?.srx;
        let srx = NonNull::new(srx).ok_or(Errno::EINVAL)?;
        // SAFETY: the caller guarantees that the queue is valid as long as the result.
        let ops = unsafe { srx.as_ref().owner_ops.as_ref() }.ok_or(Errno::EINVAL)?;
        Ok(ImportedSrx {
            srx,
            get_msg: ops.get_msg.ok_or(Errno::EINVAL)?,
            get_tag: ops.get_tag.ok_or(Errno::EINVAL)?,
            queue_msg: ops.queue_msg.ok_or(Errno::EINVAL)?,
            queue_tag: ops.queue_tag.ok_or(Errno::EINVAL)?,
            free: ops.free_entry.ok_or(Errno::EINVAL)?,
            for_each_unknown: ops.foreach_unspec_addr.ok_or(Errno::EINVAL)?,
            is_own: ptr::eq(ops, &raw const OWNER_OPS),
            has_devices: false,
        })
    }

    /// The same for a domain with `FI_HMEM`: memory of devices is found by its address.
    pub(crate) fn with_devices(self, has_devices: bool) -> Self {
        ImportedSrx {
            has_devices,
            ..self
        }
    }

    /// The short way to a queue of this library: see [`SharedQueue::take_whole`]. `false` for the
    /// queues of others. May be called when [`ImportedSrx::get`] may.
    #[inline]
    pub(crate) fn take_whole(&self, message: WholeMessage, copy: impl Fn(&AppIov)) -> bool {
        if !self.is_own {
            return false;
        }
        // SAFETY: the caller of `ImportedSrx::import` has guaranteed that the queue is valid, and only
        // shared queues have that table.
        let queue = unsafe { Handle::<SharedQueue>::borrow(self.srx.as_ptr()) };
        queue.take_whole(message, copy)
    }

    /// Passes the functions for queued messages to the owner.
    pub(crate) fn answer(&self) {
        static OPS: fi_ops_srx_peer = fi_ops_srx_peer {
            size: size_of::<fi_ops_srx_peer>(),
            start_msg: Some(start),
            start_tag: Some(start),
            discard_msg: Some(discard),
            discard_tag: Some(discard),
        };
        // SAFETY: the caller of `ImportedSrx::import` has guaranteed that the queue is valid, and
        // this member is set by the peer.
        unsafe { (*self.srx.as_ptr()).peer_ops = (&raw const OPS).cast_mut() }
    }

    /// Matches a message of `len` bytes from `src`, which is `FI_ADDR_UNSPEC` if unknown.
    ///
    /// # Errors
    /// Those of the owner, if it cannot take the message at all.
    pub(crate) fn get(
        &self,
        tagged: bool,
        src: fi_addr_t,
        tag: u64,
        len: usize,
    ) -> Result<Arrival> {
        let mut attr = fi_peer_match_attr {
            addr: src,
            msg_size: len,
            tag: if tagged { tag } else { 0 },
        };
        let get = if tagged { self.get_tag } else { self.get_msg };
        let mut entry = ptr::null_mut();
        // SAFETY: the caller of `ImportedSrx::import` has guaranteed that the queue is valid;
        // `attr` and `entry` live until the call returns.
        let answer = unsafe { get(self.srx.as_ptr(), &raw mut attr, &raw mut entry) };
        let taken = || -> Result<ImportedEntry> {
            let entry = NonNull::new(entry).ok_or(Errno::EINVAL)?;
            let (free, has_devices) = (self.free, self.has_devices);
            Ok(ImportedEntry {
                entry,
                free,
                has_devices,
            })
        };
        match Errno::check(answer) {
            Ok(_) => Ok(Arrival::Received(Received(taken()?))),
            Err(Errno::ENOENT) => Ok(Arrival::Unexpected(Unexpected {
                entry: taken()?,
                queue: if tagged {
                    self.queue_tag
                } else {
                    self.queue_msg
                },
            })),
            Err(error) => Err(error),
        }
    }
}

/// An entry that the importer has to free.
struct ImportedEntry {
    entry: NonNull<fi_peer_rx_entry>,
    free: Free,
    /// [`ImportedSrx::has_devices`]
    has_devices: bool,
}

// SAFETY: an entry belongs to its message, not to a thread.
unsafe impl Send for ImportedEntry {}

impl ImportedEntry {
    fn get(&self) -> &fi_peer_rx_entry {
        // SAFETY: the owner's entry is valid until it is freed, which ends `self`, and no other
        // code changes it until then.
        unsafe { self.entry.as_ref() }
    }

    /// Leaves the entry to the owner.
    fn give_up(self) {
        std::mem::forget(self);
    }
}

impl Drop for ImportedEntry {
    fn drop(&mut self) {
        // SAFETY: this value owns the entry, which is freed once.
        unsafe { (self.free)(self.entry.as_ptr()) }
    }
}

/// Finds out whose memory the segments are, by their addresses.
#[cold]
fn find_devices(memory: &mut AppIov) -> Result {
    let Some(interfaces) = interfaces() else {
        return Ok(());
    };
    for position in 0..memory.pieces().len() {
        let piece = memory.pieces().get(position);
        let address = piece.map_or(0, |piece| piece.iov_base.addr());
        let kind = interfaces.owner(address)?;
        // SAFETY: the driver that owns the memory says so.
        unsafe { memory.set_kind(position, kind) };
    }
    memory.defer();
    Ok(())
}

/// A receive of the owner's application that has matched a message. It is returned to the owner
/// when it is dropped, after the message has completed.
pub struct Received(ImportedEntry);

impl Received {
    /// Returns the memory of the whole receive, whatever the length of the message.
    ///
    /// # Errors
    /// `FI_EINVAL` if there are more segments than this library supports, and the driver's of a device
    /// that cannot be used.
    pub fn buffers(&self) -> Result<AppIov> {
        let entry = self.0.get();
        // SAFETY: the owner passes the vector of its application, which lends the memory to the
        // operation.
        let mut memory = unsafe { AppIov::from_iov(entry.iov, entry.count)? };
        if self.0.has_devices {
            find_devices(&mut memory)?;
        }
        Ok(memory)
    }

    /// Returns the descriptor of the segment at `index`; null if there is none.
    pub fn descriptor(&self, index: usize) -> *mut c_void {
        let entry = self.0.get();
        if entry.desc.is_null() || index >= entry.count {
            return ptr::null_mut();
        }
        // SAFETY: the array has an element for each piece of the vector, and the index is below
        // their number.
        unsafe { *entry.desc.add(index) }
    }

    /// Returns the application's context, for the completion.
    pub fn context(&self) -> *mut c_void {
        self.0.get().context
    }

    /// Returns the flags of the receive and its completion; `FI_COMPLETION` requests a report of
    /// success.
    pub fn flags(&self) -> u64 {
        self.0.get().flags
    }
}

/// A message that matches no receive and is not queued. If it is dropped, the owner forgets it.
pub struct Unexpected {
    entry: ImportedEntry,
    queue: Queue,
}

impl Unexpected {
    /// Leaves matching the message to the owner.
    ///
    /// # Errors
    /// Those of the owner; the message is then not queued.
    pub(crate) fn queue(self, data: Option<u64>, ticket: Ticket) -> Result<Queued> {
        let entry = self.entry.entry.as_ptr();
        // SAFETY: the entry belongs to this peer until it is queued, and the peer has to fill these
        // members.
        unsafe {
            if let Some(data) = data {
                (*entry).flags |= FI_REMOTE_CQ_DATA;
                (*entry).cq_data = data;
            }
            (*entry).peer_context = ticket.0.as_ptr().cast();
            Errno::check((self.queue)(entry))?;
        }
        Ok(Queued {
            entry: self.entry,
            ticket,
        })
    }
}

/// A message that is queued with the owner. Dropping it withdraws it, which is for an importer that
/// is being closed, since not every owner can withdraw a message earlier.
pub struct Queued {
    entry: ImportedEntry,
    ticket: Ticket,
}

impl Queued {
    /// Handles that the owner has started the entry.
    pub(crate) fn started(self) -> (Received, Ticket) {
        (Received(self.entry), self.ticket)
    }

    /// Handles that the owner has discarded the entry, and frees it.
    pub(crate) fn discarded(self) -> Ticket {
        self.entry.give_up();
        self.ticket
    }

    fn news(&self, source: fi_addr_t) -> SourceReport {
        SourceReport {
            entry: self.entry.entry,
            ticket: self.ticket.0,
            id: self.ticket.body().id.load(Ordering::Relaxed),
            source,
        }
    }
}

/// The owner's reference from a queued message to the importer (`peer_context`).
pub(crate) struct Ticket(NonNull<TicketBody>);

struct TicketBody {
    home: Weak<dyn StartReceives>,
    /// [`MessageId::to_bits`]
    id: AtomicU64,
}

// SAFETY: the body is Send and Sync, and this is its only owner.
unsafe impl Send for Ticket {}

impl Ticket {
    pub(crate) fn new(home: Weak<dyn StartReceives>) -> Self {
        let body = Box::new(TicketBody {
            home,
            id: AtomicU64::new(0),
        });
        Ticket(NonNull::from(Box::leak(body)))
    }

    /// Assigns it to the message `id`.
    pub(crate) fn set(&self, id: MessageId) {
        self.body().id.store(id.to_bits(), Ordering::Relaxed);
    }

    fn body(&self) -> &TicketBody {
        // SAFETY: the body lives as long as the ticket, and is only shared.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // SAFETY: the body was leaked in `new`. Each queued message has its ticket, so that the
        // owner has no entry left that refers to the body.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Takes the ticket out of an entry that the owner returns.
///
/// # Safety
/// `entry` is null or one that was queued here.
unsafe fn redeem(entry: *mut fi_peer_rx_entry) -> Result<(Arc<dyn StartReceives>, MessageId)> {
    if entry.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that the entry is one that this peer has queued, and its ticket
    // lives until the message leaves the queue of its importer.
    unsafe {
        // A second call for the same entry finds a null pointer.
        let ticket = ptr::replace(&raw mut (*entry).peer_context, ptr::null_mut());
        let body = ticket.cast::<TicketBody>().as_ref().ok_or(Errno::EINVAL)?;
        let home = body.home.upgrade().ok_or(Errno::EOPBADSTATE)?;
        Ok((home, MessageId::from_bits(body.id.load(Ordering::Relaxed))))
    }
}

unsafe extern "C" fn start(entry: *mut fi_peer_rx_entry) -> c_int {
    // SAFETY: the owner passes an entry that this peer has queued.
    status(unsafe { redeem(entry) }.and_then(|(home, id)| home.start(Started(id))))
}

unsafe extern "C" fn discard(entry: *mut fi_peer_rx_entry) -> c_int {
    // SAFETY: the owner passes an entry that this peer has queued.
    status(unsafe { redeem(entry) }.and_then(|(home, id)| home.discard(Discarded(id))))
}

/// New sources of messages that an importer has queued without one, after the address vector has
/// grown.
#[must_use]
pub struct NewSources {
    owner: ImportedSrx,
    news: Vec<SourceReport>,
}

struct SourceReport {
    entry: NonNull<fi_peer_rx_entry>,
    ticket: NonNull<TicketBody>,
    id: u64,
    source: fi_addr_t,
}

thread_local! {
    /// The sources that this thread is reporting to an owner, during the call. It has no
    /// destructor, so that it can be used for as long as the thread runs.
    static NEWS: Cell<Option<NonNull<[SourceReport]>>> = const { Cell::new(None) };
}

impl NewSources {
    pub(crate) fn new<'a>(
        owner: ImportedSrx,
        news: impl Iterator<Item = (&'a Queued, fi_addr_t)>,
    ) -> Self {
        let news = news.map(|(queued, source)| queued.news(source)).collect();
        NewSources { owner, news }
    }

    /// Returns whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.news.is_empty()
    }

    /// Reports to the owner, which may start messages. To be called without any lock of the
    /// importer.
    pub fn tell(self) {
        if self.news.is_empty() {
            return;
        }
        let before = NEWS.replace(Some(NonNull::from(&*self.news)));
        // SAFETY: the caller of `ImportedSrx::import` has guaranteed that the queue is valid as
        // long as `self`.
        unsafe { (self.owner.for_each_unknown)(self.owner.srx.as_ptr(), Some(source_of)) }
        NEWS.set(before);
    }
}

/// Returns the source of an entry, `FI_ADDR_UNSPEC` if it is unknown. Some owners also ask for
/// entries of other peers.
unsafe extern "C" fn source_of(entry: *mut fi_peer_rx_entry) -> fi_addr_t {
    let source = NEWS.get().and_then(|news| {
        // SAFETY: `tell` keeps the list until the owner has returned to it.
        let news = unsafe { news.as_ref() };
        let news = news.iter().find(|news| news.entry.as_ptr() == entry)?;
        // SAFETY: the entry is in the owner's queue, so it is valid. If it contains this peer's
        // ticket, it belongs to this peer, possibly to a later message.
        unsafe {
            if (*entry).peer_context != news.ticket.as_ptr().cast() {
                return None;
            }
            let id = news.ticket.as_ref().id.load(Ordering::Relaxed);
            (id == news.id).then_some(news.source)
        }
    });
    source.unwrap_or(FI_ADDR_UNSPEC)
}
