//! Buffers for what cannot go to or from application memory: unexpected
//! messages, and small sends that leave together.

use std::ops::{Deref, DerefMut};

/// Buffers of one size that are reused, and larger ones made to measure, with a
/// bound on the bytes of all that are out together.
///
/// It takes no lock; its owner has one. Buffers that are dropped instead of
/// [given back](BufferPool::give_back) stay counted as being out.
#[derive(Debug)]
pub struct BufferPool {
    /// Bytes in a buffer that is reused.
    size: usize,
    /// Bytes that may be out at a time.
    limit: usize,
    /// Bytes that are out.
    out: usize,
    /// Each of `size` bytes; together with `out` at most `limit`.
    idle: Vec<Box<[u8]>>,
    /// Idle buffers that are worth keeping.
    most_idle: usize,
}

/// A buffer on loan from a [`BufferPool`]. Its first [`Buffer::len`] bytes are in
/// use; what they contain at first is left over from earlier uses.
#[derive(Debug)]
pub struct Buffer {
    memory: Box<[u8]>,
    /// At most the length of `memory`.
    len: usize,
}

impl BufferPool {
    /// A pool of buffers of `size` bytes, `limit` bytes of which may be out at a
    /// time, and which keeps at most `most_idle` buffers for reuse.
    pub fn new(size: usize, limit: usize, most_idle: usize) -> Self {
        BufferPool {
            size,
            limit,
            out: 0,
            idle: Vec::new(),
            most_idle,
        }
    }

    /// Lends a buffer of `len` bytes. `None` if that would take the pool over its
    /// limit or the system has no memory.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<Buffer> {
        if len <= self.size
            && let Some(memory) = self.idle.pop()
        {
            self.out += self.size;
            return Some(Buffer { memory, len });
        }
        self.allocate(len)
    }

    #[cold]
    fn allocate(&mut self, len: usize) -> Option<Buffer> {
        let size = len.max(self.size);
        if size > self.room() {
            return None;
        }
        let mut memory = Vec::new();
        memory.try_reserve_exact(size).ok()?;
        memory.resize(size, 0);
        self.out += size;
        // Idle buffers make way: `room` counted them as free memory.
        while self.out + self.idle.len() * self.size > self.limit {
            self.idle.pop()?;
        }
        Some(Buffer {
            memory: memory.into_boxed_slice(),
            len,
        })
    }

    /// Takes back a buffer that this pool lent.
    #[inline]
    pub fn give_back(&mut self, buffer: Buffer) {
        let size = buffer.memory.len();
        self.out = self.out.saturating_sub(size);
        if size == self.size && self.idle.len() < self.most_idle {
            self.idle.push(buffer.memory);
        }
    }

    /// Bytes in a buffer that is reused; longer ones are made to measure.
    pub fn buffer_size(&self) -> usize {
        self.size
    }

    /// Bytes that are out.
    pub fn in_use(&self) -> usize {
        self.out
    }

    /// Bytes that can still be lent before the limit is reached.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.out)
    }

    /// Frees the buffers that nobody uses.
    pub fn release_idle(&mut self) {
        self.idle = Vec::new();
    }
}

impl Buffer {
    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the buffer has room for.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Sets the number of bytes in use, cut to the capacity.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.memory.len());
    }

    /// Puts as many of `bytes` as fit behind those in use; returns how many.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.memory[self.len..];
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.len += count;
        count
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_given_back_are_lent_again() {
        let mut pool = BufferPool::new(64, 128, 8);
        let mut first = pool.take(5).unwrap();
        first.copy_from_slice(b"hello");
        assert_eq!((first.len(), first.capacity()), (5, 64));
        let memory = first.as_ptr();
        pool.give_back(first);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.take(64).unwrap().as_ptr(), memory);
    }

    #[test]
    fn no_more_than_the_limit_is_out() {
        let mut pool = BufferPool::new(64, 200, 8);
        let small = pool.take(1).unwrap();
        assert!(pool.take(137).is_none());
        let large = pool.take(136).unwrap();
        assert_eq!(pool.room(), 0);
        assert!(pool.take(0).is_none());
        pool.give_back(large);
        assert_eq!(pool.room(), 136);
        pool.give_back(small);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn idle_buffers_make_way_for_a_large_one() {
        let mut pool = BufferPool::new(64, 256, 8);
        let lent: Vec<_> = (0..4).map(|_| pool.take(64).unwrap()).collect();
        lent.into_iter().for_each(|buffer| pool.give_back(buffer));
        assert_eq!(pool.idle.len(), 4);
        let large = pool.take(200).unwrap();
        assert_eq!(pool.idle.len(), 0);
        pool.give_back(large);
        assert_eq!(pool.idle.len(), 0, "made to measure, so not kept");
    }

    #[test]
    fn only_so_many_idle_buffers_are_kept() {
        let mut pool = BufferPool::new(64, 1024, 2);
        let lent: Vec<_> = (0..4).map(|_| pool.take(64).unwrap()).collect();
        lent.into_iter().for_each(|buffer| pool.give_back(buffer));
        assert_eq!(pool.idle.len(), 2);
        pool.release_idle();
        assert_eq!(pool.idle.len(), 0);
    }

    #[test]
    fn appending_stops_at_the_capacity() {
        let mut pool = BufferPool::new(8, 64, 2);
        let mut buffer = pool.take(0).unwrap();
        assert!(buffer.is_empty());
        assert_eq!(buffer.append(b"hello"), 5);
        assert_eq!(buffer.append(b"world"), 3);
        assert_eq!(&buffer[..], b"hellowor");
        buffer.set_len(100);
        assert_eq!(buffer.len(), 8);
    }
}
