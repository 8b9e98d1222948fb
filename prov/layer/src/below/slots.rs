//! The packet buffers of a layered provider, in slots that belong either to it or to the provider
//! below, never to both.
//!
//! A [`Slot`] is the right to use one buffer. Posting an operation consumes it, and the operation's
//! completion returns it. Each has memory that the provider below may use freely (`FI_CONTEXT`,
//! `FI_CONTEXT2`), whose address is the context of the operation. That of the slots of a chunk lies
//! together in front of their bytes, so that a buffer which is posted and not used takes no page.

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
use prov_base::arch::Line;
use prov_base::device_memory::Kind;
use prov_base::errno::Result;

/// The two sizes of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// For headers, and for operations without payload.
    Small,
    /// For the longest packets.
    Large,
}

/// The right to use a slot. A slot that is dropped is leaked.
#[derive(Debug)]
#[must_use = "the slot is lost"]
pub struct Slot(u32);

/// What the provider below uses of a slot besides its bytes.
#[repr(C)]
struct Head {
    line: [Line; 0],
    /// Used by the provider below while an operation is outstanding.
    context: fi_context2,
    /// The slot's number.
    number: u32,
}

const HEAD: usize = size_of::<Head>();
const ALIGN: usize = align_of::<Head>();
/// Size in bytes of the chunks in which slots are allocated.
const CHUNK: usize = 256 << 10;
/// Access rights of slots, if the provider below requires registration.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
/// First key of slots: peers never use these keys, and they differ from those that peers use.
const FIRST_KEY: u64 = 1 << 30;

struct SlotRecord<T> {
    head: NonNull<Head>,
    bytes: NonNull<u8>,
    /// The descriptor, if the provider below requires registration.
    desc: *mut c_void,
    state: State,
    size: Size,
    /// Whether the last operation was a receive.
    is_receive: bool,
    what: Option<T>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// It belongs to the layered provider.
    Held,
    /// It belongs to the provider below, for the endpoint with this number.
    Lent(u32),
    /// Like `Lent`, but the endpoint is closed: the operation has ended, and its completion may or
    /// may not be read later.
    Orphaned,
}

/// See the [module](self) description. `T` is the data that is needed when an operation completes.
pub struct Slots<T> {
    entries: Vec<SlotRecord<T>>,
    free: [Vec<u32>; 2],
    bytes: [usize; 2],
    /// Orphaned slots of receives, and of all other operations.
    orphans: [Vec<u32>; 2],
    /// Number of outstanding operations other than receives, each of which will have a completion;
    /// and its limit.
    sent: usize,
    limit: usize,
    memory: Arc<Memory>,
    is_registered: bool,
    domain: Arc<Domain>,
}

// SAFETY: the value owns its memory, which is bound to no thread, and does not access slots that
// are lent.
unsafe impl<T: Send> Send for Slots<T> {}

/// The memory of slots, which has to outlive operations of the provider below.
#[derive(Default)]
pub(super) struct Memory(Mutex<Vec<Chunk>>);

struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
    _region: Option<Region>,
}

// SAFETY: the chunk is allocated memory, which is bound to no thread.
unsafe impl Send for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        // The region is closed first, so that it never covers other memory.
        self._region = None;
        // SAFETY: the memory was allocated with this layout, and no slot in it is lent any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl<T> Slots<T> {
    /// Creates an empty set, with slots of these sizes in bytes. The provider below may require
    /// them to be registered (`FI_MR_LOCAL`).
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

    /// Takes a free slot.
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

    /// Frees a slot.
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

    /// Sets the limit of outstanding operations other than receives: the number of completions for
    /// which their queue has room beside those of receives.
    pub fn limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the number of operations other than receives that are outstanding, or whose
    /// completion has not been read.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Returns whether the limit is reached.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.sent >= self.limit
    }

    /// Returns the number of slots, small and large.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, size: Size) -> Result {
        use prov_base::errno::Errno;
        let stride = self.bytes[size as usize].next_multiple_of(ALIGN);
        let count = (CHUNK / (HEAD + stride)).max(1);
        let heads = count * HEAD;
        let whole = heads + count * stride;
        // An alignment beyond the allocator's would make it write to all of the memory, and not
        // only to what packets use.
        let layout = Layout::from_size_align(whole + ALIGN, 16);
        let layout = layout.map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the layout has a size that is not zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        let mut chunk = Chunk {
            start: allocated,
            layout,
            _region: None,
        };
        // SAFETY: the chunk is longer than its heads and bytes by the alignment, so that the aligned
        // start is inside it.
        let start = unsafe { allocated.add(allocated.align_offset(ALIGN)) };
        let mut desc = null_mut();
        if self.is_registered {
            let address = start.as_ptr().expose_provenance();
            let region = self.register(address, whole)?;
            desc = region.desc();
            chunk._region = Some(region);
        }
        let first = u32::try_from(self.entries.len()).map_err(|_| Errno::ENOMEM)?;
        for at in 0..count {
            let number = first + at as u32;
            // SAFETY: the heads are at the start of the chunk, aligned since the start and their
            // size are; the bytes of all slots follow.
            let (head, bytes) = unsafe {
                let head = start.add(at * HEAD).cast::<Head>();
                (head, start.add(heads + at * stride))
            };
            // SAFETY: the head is inside the chunk and aligned, and the new chunk has no other
            // users.
            unsafe { (*head.as_ptr()).number = number };
            self.entries.push(SlotRecord {
                head,
                bytes,
                desc,
                state: State::Free,
                size,
                is_receive: false,
                what: None,
            });
        }
        // The first slot is used first and again, so that it stays in the cache.
        self.free[size as usize].extend((0..count as u32).rev().map(|at| first + at));
        let mut chunks = self.memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.push(chunk);
        Ok(())
    }

    fn register(&self, address: usize, len: usize) -> Result<Region> {
        use prov_base::errno::Errno;
        let mut key = FIRST_KEY + self.entries.len() as u64;
        loop {
            let piece = std::iter::once((address, len));
            match self.domain.register(piece, ACCESS, key, 0, Kind::HOST) {
                Err(Errno::ENOKEY) if key < FIRST_KEY * 2 => key += 1,
                registered => return registered,
            }
        }
    }

    #[inline(always)]
    fn held(&self, slot: &Slot) -> Option<&SlotRecord<T>> {
        let entry = self.entries.get(slot.0 as usize)?;
        (entry.state == State::Held).then_some(entry)
    }

    /// Returns the bytes of a slot.
    #[inline]
    pub fn bytes(&self, slot: &Slot) -> &[u8] {
        self.held(slot).map_or(&[], |entry| self.bytes_of(entry))
    }

    /// Returns the bytes of a slot, and the data of its operation, if there is any.
    #[inline(always)]
    pub fn look(&self, slot: &Slot) -> (&[u8], Option<&T>) {
        match self.held(slot) {
            Some(entry) => (self.bytes_of(entry), entry.what.as_ref()),
            None => (&[], None),
        }
    }

    #[inline(always)]
    fn bytes_of(&self, entry: &SlotRecord<T>) -> &[u8] {
        // SAFETY: the slot's bytes are inside the chunk, initialized, and accessed only by the owner
        // of the slot.
        unsafe { std::slice::from_raw_parts(entry.bytes.as_ptr(), self.bytes[entry.size as usize]) }
    }

    /// Returns the bytes of a slot.
    #[inline]
    pub fn bytes_mut(&mut self, slot: &Slot) -> &mut [u8] {
        match self.held(slot) {
            // SAFETY: the slot's bytes are inside the chunk, initialized, and all slots are borrowed
            // mutably.
            Some(entry) => unsafe {
                std::slice::from_raw_parts_mut(
                    entry.bytes.as_ptr(),
                    self.bytes[entry.size as usize],
                )
            },
            None => &mut [],
        }
    }

    /// Sets the data of a slot's next operation.
    #[inline]
    pub fn set(&mut self, slot: &Slot, what: T) {
        if let Some(entry) = self.entries.get_mut(slot.0 as usize) {
            entry.what = Some(what);
        }
    }

    /// Returns the data of a slot's operation.
    #[inline]
    pub fn about(&self, slot: &Slot) -> Option<&T> {
        self.entries.get(slot.0 as usize)?.what.as_ref()
    }

    /// Takes the data of a slot's operation.
    #[inline]
    pub fn what(&mut self, slot: &Slot) -> Option<T> {
        self.entries.get_mut(slot.0 as usize)?.what.take()
    }

    /// Lends a slot to the provider below for an operation of the endpoint `owner`, which is a
    /// receive or not. Returns its context, its bytes and their descriptor. If the call fails,
    /// [`Slots::take_back`] has to follow.
    #[inline]
    pub(super) fn lend(&mut self, slot: &Slot, owner: u32, is_receive: bool) -> Option<Lent> {
        let entry = self.entries.get_mut(slot.0 as usize)?;
        if entry.state != State::Held {
            return None;
        }
        entry.state = State::Lent(owner);
        entry.is_receive = is_receive;
        self.sent += usize::from(!is_receive);
        debug_assert!(self.sent <= self.limit);
        let context = entry.head.as_ptr();
        Some(Lent {
            context: context.cast(),
            bytes: entry.bytes.as_ptr().cast(),
            len: self.bytes[entry.size as usize],
            desc: entry.desc,
        })
    }

    /// Undoes [`Slots::lend`] for a call that failed.
    #[inline]
    pub(super) fn take_back(&mut self, slot: &Slot) {
        if let Some(entry) = self.entries.get_mut(slot.0 as usize) {
            entry.state = State::Held;
            self.sent -= usize::from(!entry.is_receive);
        }
    }

    /// Returns the slot of a completion; `None` if its endpoint is closed, or if the context is
    /// that of no slot.
    ///
    /// # Safety
    /// The context is null or came from [`Slots::lend`].
    #[inline]
    pub(super) unsafe fn returned(&mut self, context: *mut c_void) -> Option<Slot> {
        if context.is_null() {
            return None;
        }
        // SAFETY: the caller guarantees that the pointer is to a slot's head, whose number does not
        // change.
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
                // It is removed from the list of orphans later.
                entry.state = State::Free;
                self.sent -= usize::from(!entry.is_receive);
                self.free[entry.size as usize].push(number);
                None
            }
            State::Free | State::Held => None,
        }
    }

    /// Returns the data of the operations of the endpoint `owner` that are outstanding.
    pub(super) fn lent_to(&self, owner: u32) -> impl Iterator<Item = &T> {
        let of_it = move |entry: &&SlotRecord<T>| entry.state == State::Lent(owner);
        let lent = self.entries.iter().filter(of_it);
        lent.filter_map(|entry| entry.what.as_ref())
    }

    /// Handles the closing of an endpoint. Returns the data of its operations that have not
    /// completed.
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

    /// Handles that the queue below of receives, or of all other operations, is empty: slots of
    /// closed endpoints that were lent for these operations are free, since no completion will
    /// return them.
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

/// The arguments of an operation for the provider below.
pub(super) struct Lent {
    pub context: *mut c_void,
    pub bytes: *mut c_void,
    pub len: usize,
    pub desc: *mut c_void,
}
