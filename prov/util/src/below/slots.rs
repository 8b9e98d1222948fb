//! Memory for the packets of a layering provider, in slots that are with it or
//! with the provider below, and never with both.
//!
//! A [`Slot`] is the right to the bytes of one. Posting an operation takes it,
//! the operation's completion gives it back. In front of the bytes is what the
//! provider below may use as it likes (`FI_CONTEXT`, `FI_CONTEXT2`), which is
//! the context of the operation.

#![allow(
    clippy::indexing_slicing,
    reason = "numbers of slots are made here, and contexts of completions are looked up before they are used"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::*;

use super::{Domain, Region};
use crate::errno::Result;

/// The two kinds of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// For headers, and for operations without bytes of their own.
    Small,
    /// For the longest packets.
    Large,
}

/// The right to the bytes of a slot. One that is dropped is lost.
#[derive(Debug)]
#[must_use = "the slot is lost"]
pub struct Slot(u32);

/// In front of a slot's bytes.
#[repr(C, align(64))]
struct Head {
    /// The provider's while an operation is under way.
    context: fi_context2,
    /// The slot's number.
    number: u32,
}

const HEAD: usize = size_of::<Head>();
const ALIGN: usize = align_of::<Head>();
/// Bytes of the slots that are made at once.
const CHUNK: usize = 256 << 10;
/// What slots may be used for, where the provider below wants them registered.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
/// Keys of slots that peers never hear of, beside those that they do.
const FIRST_KEY: u64 = 1 << 30;

struct Entry<T> {
    head: NonNull<Head>,
    /// Where the provider below wants memory registered.
    desc: *mut c_void,
    state: State,
    size: Size,
    /// Whether it was lent for a receive last.
    is_receive: bool,
    what: Option<T>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// Somebody has the [`Slot`].
    Held,
    /// With the provider below, for the endpoint of this number.
    Lent(u32),
    /// As before, but the endpoint is closed: its operation has ended, whether
    /// or not there is a completion still to be read.
    Orphaned,
}

/// See the [module](self) description. `T` is what is to be known of an
/// operation when it has completed.
pub struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: [Vec<u32>; 2],
    bytes: [usize; 2],
    /// Those of receives, and all others.
    orphans: [Vec<u32>; 2],
    /// How many are with the provider below but for receives, each for a completion;
    /// and may be.
    sent: usize,
    limit: usize,
    memory: Arc<Memory>,
    is_registered: bool,
    domain: Arc<Domain>,
}

// SAFETY: the memory is the value's own, but for what is lent, which it leaves
// alone.
unsafe impl<T: Send> Send for Slots<T> {}

/// The memory of slots, for those who have lent some to the provider below.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<Chunk>>);

struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
    _region: Option<Region>,
}

// SAFETY: the chunk is plain memory.
unsafe impl Send for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        // The region first: nobody is to find other memory behind it.
        self._region = None;
        // SAFETY: allocated with this layout, and nobody has a slot in it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl<T> Slots<T> {
    /// Without memory yet; of so many bytes each, small and large. The provider
    /// below may want to have them registered (`FI_MR_LOCAL`).
    pub fn new(domain: &Arc<Domain>, small: usize, large: usize, is_registered: bool) -> Self {
        Slots {
            entries: Vec::new(),
            free: [Vec::new(), Vec::new()],
            bytes: [small, large],
            orphans: [Vec::new(), Vec::new()],
            sent: 0,
            limit: usize::MAX,
            memory: Arc::default(),
            is_registered,
            domain: domain.clone(),
        }
    }

    pub(super) fn memory(&self) -> Arc<Memory> {
        self.memory.clone()
    }

    /// A slot that nobody has.
    ///
    /// # Errors
    /// Those of registering more memory; `-FI_ENOMEM`.
    #[inline]
    pub fn take(&mut self, size: Size) -> Result<Slot> {
        loop {
            if let Some(number) = self.free[size as usize].pop() {
                self.entries[number as usize].state = State::Held;
                return Ok(Slot(number));
            }
            self.grow(size)?;
        }
    }

    /// Nobody needs the slot any more.
    #[inline]
    pub fn give_back(&mut self, slot: Slot) {
        if let Some(entry) = self.entries.get_mut(slot.0 as usize)
            && entry.state == State::Held
        {
            entry.state = State::Free;
            entry.what = None;
            self.free[entry.size as usize].push(slot.0);
        }
    }

    /// So many operations but receives are under way from now on at most: no more
    /// completions than their queue has room for beside those of receives.
    pub fn limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Operations but receives that are under way, or have completed without having
    /// been read.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Whether there must not be another one.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.sent >= self.limit
    }

    /// Slots in all, small and large.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, size: Size) -> Result {
        use crate::errno::Errno;
        let stride = (HEAD + self.bytes[size as usize]).next_multiple_of(ALIGN);
        let count = (CHUNK / stride).max(1);
        // With more than the usual alignment, all of it would be written to, and
        // not only what packets fill.
        let layout = Layout::from_size_align(stride * count + ALIGN, 16);
        let layout = layout.map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the layout is not empty.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        let mut chunk = Chunk {
            start: allocated,
            layout,
            _region: None,
        };
        // SAFETY: the chunk is that much longer than what is used of it.
        let start = unsafe { allocated.add(allocated.align_offset(ALIGN)) };
        let mut desc = null_mut();
        if self.is_registered {
            let address = start.as_ptr().expose_provenance();
            let region = self.register(address, stride * count)?;
            desc = region.desc();
            chunk._region = Some(region);
        }
        let first = u32::try_from(self.entries.len()).map_err(|_| Errno::ENOMEM)?;
        for at in 0..count {
            let number = first + at as u32;
            // SAFETY: within the chunk, and aligned as the stride is.
            let head = unsafe { start.add(at * stride) }.cast::<Head>();
            // SAFETY: as above; it is memory of ours that nobody else has.
            unsafe { (*head.as_ptr()).number = number };
            self.entries.push(Entry {
                head,
                desc,
                state: State::Free,
                size,
                is_receive: false,
                what: None,
            });
        }
        // The first one is used first, and again: it is in the caches.
        self.free[size as usize].extend((0..count as u32).rev().map(|at| first + at));
        let mut chunks = self.memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.push(chunk);
        Ok(())
    }

    fn register(&self, address: usize, len: usize) -> Result<Region> {
        use crate::errno::Errno;
        let mut key = FIRST_KEY + self.entries.len() as u64;
        loop {
            let piece = std::iter::once((address, len));
            match self.domain.register(piece, ACCESS, key, 0) {
                Err(Errno::ENOKEY) if key < FIRST_KEY * 2 => key += 1,
                registered => return registered,
            }
        }
    }

    #[inline(always)]
    fn held(&self, slot: &Slot) -> Option<&Entry<T>> {
        let entry = self.entries.get(slot.0 as usize)?;
        (entry.state == State::Held).then_some(entry)
    }

    /// The bytes of a slot.
    #[inline]
    pub fn bytes(&self, slot: &Slot) -> &[u8] {
        self.held(slot).map_or(&[], |entry| self.bytes_of(entry))
    }

    /// The bytes of a slot, and what its operation is or was about, if that is
    /// known.
    #[inline(always)]
    pub fn look(&self, slot: &Slot) -> (&[u8], Option<&T>) {
        match self.held(slot) {
            Some(entry) => (self.bytes_of(entry), entry.what.as_ref()),
            None => (&[], None),
        }
    }

    #[inline(always)]
    fn bytes_of(&self, entry: &Entry<T>) -> &[u8] {
        // SAFETY: the slot's bytes follow its head, and are with whoever has the
        // slot.
        unsafe {
            let start = entry.head.as_ptr().cast::<u8>().add(HEAD);
            std::slice::from_raw_parts(start, self.bytes[entry.size as usize])
        }
    }

    /// The bytes of a slot.
    #[inline]
    pub fn bytes_mut(&mut self, slot: &Slot) -> &mut [u8] {
        match self.held(slot) {
            // SAFETY: as above, and borrowed from all slots.
            Some(entry) => unsafe {
                let start = entry.head.as_ptr().cast::<u8>().add(HEAD);
                std::slice::from_raw_parts_mut(start, self.bytes[entry.size as usize])
            },
            None => &mut [],
        }
    }

    /// Says what the next operation with a slot is about.
    #[inline]
    pub fn set(&mut self, slot: &Slot, what: T) {
        if let Some(entry) = self.entries.get_mut(slot.0 as usize) {
            entry.what = Some(what);
        }
    }

    /// What the operation of a slot is or was about.
    #[inline]
    pub fn about(&self, slot: &Slot) -> Option<&T> {
        self.entries.get(slot.0 as usize)?.what.as_ref()
    }

    /// What the operation of a slot was about, which it is not any more.
    #[inline]
    pub fn what(&mut self, slot: &Slot) -> Option<T> {
        self.entries.get_mut(slot.0 as usize)?.what.take()
    }

    /// A slot goes to the provider below, for the endpoint `owner`, for a receive or
    /// not: its context, its bytes and their descriptor. To be followed by the call, and by
    /// [`Slots::take_back`] where that fails.
    #[inline]
    pub(super) fn lend(&mut self, slot: &Slot, owner: u32, is_receive: bool) -> Option<Lent> {
        let entry = self.entries.get_mut(slot.0 as usize)?;
        if entry.state != State::Held {
            return None;
        }
        entry.state = State::Lent(owner);
        entry.is_receive = is_receive;
        self.sent += usize::from(!is_receive);
        let context = entry.head.as_ptr();
        Some(Lent {
            context: context.cast(),
            // SAFETY: the slot's bytes follow its head.
            bytes: unsafe { context.cast::<u8>().add(HEAD) }.cast(),
            len: self.bytes[entry.size as usize],
            desc: entry.desc,
        })
    }

    /// The provider below has not taken it.
    #[inline]
    pub(super) fn take_back(&mut self, slot: &Slot) {
        if let Some(entry) = self.entries.get_mut(slot.0 as usize) {
            entry.state = State::Held;
            self.sent -= usize::from(!entry.is_receive);
        }
    }

    /// The slot that a completion is about; `None` where its endpoint is closed,
    /// or where it is none.
    ///
    /// # Safety
    /// The context is null or came out of [`Slots::lend`].
    #[inline]
    pub(super) unsafe fn returned(&mut self, context: *mut c_void) -> Option<Slot> {
        if context.is_null() {
            return None;
        }
        // SAFETY: the caller's promise; nobody writes to the number.
        let number = unsafe { (*context.cast::<Head>()).number };
        let entry = self.entries.get_mut(number as usize)?;
        if entry.head.as_ptr().cast() != context {
            return None;
        }
        match entry.state {
            State::Lent(_) => {
                entry.state = State::Held;
                self.sent -= usize::from(!entry.is_receive);
                Some(Slot(number))
            }
            State::Orphaned => {
                // It is taken off the list of orphans when that is looked at.
                entry.state = State::Free;
                self.sent -= usize::from(!entry.is_receive);
                self.free[entry.size as usize].push(number);
                None
            }
            State::Free | State::Held => None,
        }
    }

    /// An endpoint is closed. Returns what its operations were about that have
    /// not completed.
    pub(super) fn orphan(&mut self, owner: u32) -> Vec<T> {
        let mut ended = Vec::new();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            if entry.state == State::Lent(owner) {
                entry.state = State::Orphaned;
                let kind = usize::from(!entry.is_receive);
                self.orphans[kind].push(number as u32);
                ended.extend(entry.what.take());
            }
        }
        ended
    }

    /// The queue below of receives, or of all else, is empty: whatever of that was lent to
    /// endpoints that are closed has come back, or never will.
    #[inline(always)]
    pub fn bury(&mut self, receives: bool) {
        if !self.orphans[usize::from(!receives)].is_empty() {
            self.bury_orphans(receives);
        }
    }

    #[cold]
    fn bury_orphans(&mut self, receives: bool) {
        for number in std::mem::take(&mut self.orphans[usize::from(!receives)]) {
            let entry = &mut self.entries[number as usize];
            if entry.state == State::Orphaned {
                entry.state = State::Free;
                self.sent -= usize::from(!entry.is_receive);
                self.free[entry.size as usize].push(number);
            }
        }
    }
}

/// A slot as the provider below gets it.
pub(super) struct Lent {
    pub context: *mut c_void,
    pub bytes: *mut c_void,
    pub len: usize,
    pub desc: *mut c_void,
}
