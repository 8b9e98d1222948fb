//! The owner's entries: `fi_peer_rx_entry` with the storage for what it points to.

use std::ptr::{self, NonNull};

use fabric_abi::*;
use libc::iovec;

use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_objects::matching::{Matched, MessageId, MultiId};

/// The part that peers see, followed by the owner's part.
#[repr(C)]
struct ExportedEntry {
    public: fi_peer_rx_entry,
    iov: [iovec; IOV_LIMIT],
    desc: [*mut std::ffi::c_void; IOV_LIMIT],
    tagged: bool,
    phase: Phase,
}

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is free.
    Free,
    /// It belongs to the peer, whose message matched no receive and has not been queued.
    New,
    /// Its message waits in the owner's queue.
    Waiting(MessageId),
    /// It belongs to the peer, which receives its message.
    Given(Option<MultiId>),
}

/// A live entry, in the form that C uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRef(NonNull<ExportedEntry>);

// SAFETY: the interface makes the owner lock all accesses to its entries (fi_peer(3)).
unsafe impl Send for EntryRef {}

/// The message of an entry.
#[derive(Clone, Copy)]
pub(super) struct Arrived {
    pub tagged: bool,
    pub src: fi_addr_t,
    pub tag: u64,
    pub len: usize,
}

impl EntryRef {
    /// Converts an entry that a peer names.
    ///
    /// # Safety
    /// `entry` is null or came from [`Pool::take`] of a pool that still exists.
    pub unsafe fn from_c(entry: *mut fi_peer_rx_entry) -> Option<Self> {
        NonNull::new(entry.cast()).map(EntryRef)
    }

    pub fn as_c(self) -> *mut fi_peer_rx_entry {
        self.0.as_ptr().cast()
    }

    /// Returns the current values of the members that peers see.
    pub fn public(self) -> fi_peer_rx_entry {
        // SAFETY: the entry lives as long as the owner of its pool, which makes this call.
        unsafe { (*self.0.as_ptr()).public }
    }

    pub fn tagged(self) -> bool {
        // SAFETY: the entry lives as long as the owner of its pool, which makes this call.
        unsafe { (*self.0.as_ptr()).tagged }
    }

    pub fn phase(self) -> Phase {
        // SAFETY: the entry lives as long as the owner of its pool, which makes this call.
        unsafe { (*self.0.as_ptr()).phase }
    }

    pub fn set_phase(self, phase: Phase) {
        // SAFETY: the entry lives as long as the owner of its pool, which makes this call and alone
        // uses the member.
        unsafe { (*self.0.as_ptr()).phase = phase }
    }

    /// Makes it the entry of a message, of the peer with this queue.
    pub fn begin(self, srx: *mut fid_peer_srx, arrived: Arrived) {
        let this = self.0.as_ptr();
        let kind = if arrived.tagged { FI_TAGGED } else { FI_MSG };
        // SAFETY: the entry lives as long as the owner of its pool, which makes this call, and no
        // peer has the entry.
        unsafe {
            (*this).tagged = arrived.tagged;
            (*this).phase = Phase::New;
            (*this).public = fi_peer_rx_entry {
                srx,
                addr: arrived.src,
                msg_size: arrived.len,
                tag: arrived.tag,
                cq_data: 0,
                flags: kind | FI_RECV,
                context: ptr::null_mut(),
                count: 0,
                desc: (&raw mut (*this).desc).cast(),
                peer_context: ptr::null_mut(),
                owner_context: ptr::null_mut(),
                iov: (&raw mut (*this).iov).cast(),
            };
        }
    }

    /// Fills in the receive that its message, from `src`, has matched.
    #[allow(
        clippy::indexing_slicing,
        reason = "a buffer has at most `IOV_LIMIT` pieces"
    )]
    pub fn give(self, matched: &Matched<AppIov>, src: fi_addr_t) {
        let this = self.0.as_ptr();
        let pieces = matched.buf.pieces();
        // SAFETY: the entry lives as long as the owner of its pool, and no peer has it; a buffer
        // has at most `IOV_LIMIT` pieces.
        unsafe {
            for (i, piece) in pieces.iter().enumerate() {
                (*this).iov[i] = *piece;
            }
            let public = &mut (*this).public;
            public.addr = src;
            public.count = pieces.len();
            public.context = ptr::without_provenance_mut(matched.context);
            // A peer reports one message; the owner reports the end of the buffer.
            public.flags |= matched.flags & !(FI_MULTI_RECV | FI_PEER_TRANSFER);
            public.msg_size = public.msg_size.min(matched.buf.len());
            (*this).phase = Phase::Given(matched.multi);
        }
    }
}

/// Free entries, for reuse.
#[derive(Debug)]
pub(super) struct Pool(Vec<EntryRef>);

impl Pool {
    pub const fn new() -> Self {
        Pool(Vec::new())
    }

    /// Returns an entry to [begin](EntryRef::begin) a message with.
    pub fn take(&mut self) -> EntryRef {
        self.0.pop().unwrap_or_else(|| {
            // SAFETY: the structure consists of integers and pointers, for which zero is a valid
            // value.
            let public = unsafe { std::mem::zeroed() };
            let entry = Box::new(ExportedEntry {
                public,
                iov: [iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0,
                }; IOV_LIMIT],
                desc: [ptr::null_mut(); IOV_LIMIT],
                tagged: false,
                phase: Phase::Free,
            });
            EntryRef(NonNull::from(Box::leak(entry)))
        })
    }

    pub fn put(&mut self, entry: EntryRef) {
        entry.set_phase(Phase::Free);
        self.0.push(entry);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for entry in self.0.drain(..) {
            // SAFETY: the entry was leaked in `take`, and entries in the pool have no other users.
            // Entries that peers still have are never freed.
            drop(unsafe { Box::from_raw(entry.0.as_ptr()) });
        }
    }
}
