//! The slots of a table in this process's memory, by index: addresses and gaps. Storage grows in
//! chunks: it never moves, and wastes at most one chunk.

#![allow(
    clippy::indexing_slicing,
    reason = "callers have compared the number with the length"
)]

use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};

use hashbrown::DefaultHashBuilder;

use super::entry::AddressSlot;

/// Slots per chunk of storage.
const PIECE: usize = 1024;
/// Initial capacity of the first chunk in slots, so that a small table stays small.
const FIRST: usize = 4;

/// Storage for addresses of one kind.
pub trait Slots {
    /// An address as it is stored and read.
    type Address<'a>: Copy
    where
        Self: 'a;

    /// Returns the number of slots, used and free.
    fn len(&self) -> usize;

    /// Returns the address at an index; `None` for a free slot and beyond the end.
    fn get(&self, at: usize) -> Option<Self::Address<'_>>;

    /// Iterates over all addresses with their indices.
    fn used(&self) -> impl Iterator<Item = (usize, Self::Address<'_>)>;

    /// Appends a slot.
    fn push(&mut self, addr: Option<Self::Address<'_>>);

    /// Replaces the slot at an index below the end.
    fn set(&mut self, at: usize, addr: Option<Self::Address<'_>>);

    /// Returns whether two addresses identify the same peer.
    fn same(a: Self::Address<'_>, b: Self::Address<'_>) -> bool;

    /// Returns the hash of a peer's identity.
    fn hash(hasher: &DefaultHashBuilder, addr: Self::Address<'_>) -> u64;
}

/// Chunks of values, `width` of which make up a slot.
struct Pieces<T> {
    /// All chunks but the last are full.
    pieces: Vec<Vec<T>>,
    /// Number of slots.
    len: usize,
}

impl<T> Pieces<T> {
    const NONE: Self = Pieces {
        pieces: Vec::new(),
        len: 0,
    };

    /// Returns the chunk for one more slot.
    #[inline]
    fn grow(&mut self, width: usize) -> &mut Vec<T> {
        let piece = self.len / PIECE;
        if piece == self.pieces.len() {
            let room = if piece == 0 { FIRST } else { PIECE };
            self.pieces.push(Vec::with_capacity(room * width));
        }
        self.len += 1;
        &mut self.pieces[piece]
    }
}

impl<T> Deref for Pieces<T> {
    type Target = [Vec<T>];

    fn deref(&self) -> &[Vec<T>] {
        &self.pieces
    }
}

impl<T> DerefMut for Pieces<T> {
    fn deref_mut(&mut self) -> &mut [Vec<T>] {
        &mut self.pieces
    }
}

/// Packed internet addresses.
pub struct Packed<E>(Pieces<E>);

impl<E> Default for Packed<E> {
    fn default() -> Self {
        Packed(Pieces::NONE)
    }
}

impl<E: AddressSlot> Slots for Packed<E> {
    type Address<'a> = E;

    fn len(&self) -> usize {
        self.0.len
    }

    fn get(&self, at: usize) -> Option<E> {
        let entry = *self.0.get(at / PIECE)?.get(at % PIECE)?;
        entry.is_used().then_some(entry)
    }

    fn used(&self) -> impl Iterator<Item = (usize, E)> {
        let all = self.0.iter().flatten().copied().enumerate();
        all.filter(|(_, entry)| entry.is_used())
    }

    fn push(&mut self, addr: Option<E>) {
        self.0.grow(1).push(addr.unwrap_or(E::FREE));
    }

    fn set(&mut self, at: usize, addr: Option<E>) {
        self.0[at / PIECE][at % PIECE] = addr.unwrap_or(E::FREE);
    }

    fn same(a: E, b: E) -> bool {
        a.same(b)
    }

    fn hash(hasher: &DefaultHashBuilder, addr: E) -> u64 {
        hasher.hash_one(addr.key())
    }
}

/// Opaque addresses of one size: a byte that tells whether the slot is used, followed by the
/// address.
pub struct Fixed {
    pieces: Pieces<u8>,
    /// Size of an address in bytes.
    size: usize,
}

impl Fixed {
    /// Creates storage for addresses of `size` bytes.
    pub fn new(size: usize) -> Self {
        Fixed {
            pieces: Pieces::NONE,
            size,
        }
    }

    fn width(&self) -> usize {
        1 + self.size
    }
}

impl Slots for Fixed {
    type Address<'a> = &'a [u8];

    fn len(&self) -> usize {
        self.pieces.len
    }

    fn get(&self, at: usize) -> Option<&[u8]> {
        let first = at % PIECE * self.width();
        let slot = self.pieces.get(at / PIECE)?.get(first..)?;
        match slot.get(..self.width())? {
            [0, ..] => None,
            slot => Some(&slot[1..]),
        }
    }

    fn used(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let pieces = self.pieces.iter();
        let slots = pieces.flat_map(|piece| piece.chunks_exact(self.width()));
        let all = slots.enumerate();
        all.filter_map(|(at, slot)| (slot[0] != 0).then_some((at, &slot[1..])))
    }

    fn push(&mut self, addr: Option<&[u8]>) {
        let width = self.width();
        let piece = self.pieces.grow(width);
        let len = piece.len();
        piece.push(addr.is_some().into());
        piece.extend_from_slice(addr.unwrap_or_default());
        piece.resize(len + width, 0);
    }

    fn set(&mut self, at: usize, addr: Option<&[u8]>) {
        let width = self.width();
        let slot = &mut self.pieces[at / PIECE][at % PIECE * width..][..width];
        slot[0] = addr.is_some().into();
        for (to, &from) in slot[1..].iter_mut().zip(addr.unwrap_or_default()) {
            *to = from;
        }
    }

    fn same(a: &[u8], b: &[u8]) -> bool {
        a == b
    }

    fn hash(hasher: &DefaultHashBuilder, addr: &[u8]) -> u64 {
        hasher.hash_one(addr)
    }
}

/// Addresses of any length, each in its own allocation.
pub struct Varied(Pieces<Option<Box<[u8]>>>);

impl Default for Varied {
    fn default() -> Self {
        Varied(Pieces::NONE)
    }
}

impl Slots for Varied {
    type Address<'a> = &'a [u8];

    fn len(&self) -> usize {
        self.0.len
    }

    fn get(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at / PIECE)?.get(at % PIECE)?.as_deref()
    }

    fn used(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let all = self.0.iter().flatten().enumerate();
        all.filter_map(|(at, slot)| Some((at, slot.as_deref()?)))
    }

    fn push(&mut self, addr: Option<&[u8]>) {
        self.0.grow(1).push(addr.map(Box::from));
    }

    fn set(&mut self, at: usize, addr: Option<&[u8]>) {
        self.0[at / PIECE][at % PIECE] = addr.map(Box::from);
    }

    fn same(a: &[u8], b: &[u8]) -> bool {
        a == b
    }

    fn hash(hasher: &DefaultHashBuilder, addr: &[u8]) -> u64 {
        hasher.hash_one(addr)
    }
}
