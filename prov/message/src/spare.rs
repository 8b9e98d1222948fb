//! A pool of buffers for unexpected messages. Fresh memory from the system is zeroed page by page,
//! which takes longer than copying the message.

/// Smallest pooled buffer for long messages in bytes: smaller ones are left to the allocator, which
/// does not return them to the system.
const SMALLEST: usize = 16 << 10;
/// Limit of the pool in bytes, without the buffers for short messages.
const MOST: usize = 8 << 20;

/// Size in bytes of the buffers for short messages: not more than what each message is charged in
/// addition to its payload.
const SHORT: usize = 128;
/// Limit of the pooled buffers for short messages.
const MOST_SHORT: usize = 1024;

/// See the [module](self) description. Buffers for short messages are pooled, too, so that lanes of
/// different threads do not meet in the allocator for each message.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    short: Vec<Vec<u8>>,
    /// The buffer that was returned last is the last one: it is most likely in the cache.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Takes a buffer with room for `len` bytes but not much more; it may have old contents.
    /// Returns an empty vector if there is none.
    #[inline]
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        match len {
            1..=SHORT => self
                .short
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(SHORT)),
            _ => self.take_long(len),
        }
    }

    fn take_long(&mut self, len: usize) -> Vec<u8> {
        // Messages are charged for their bytes and not for their buffer's capacity, so that must
        // not be much larger.
        let most = len.saturating_mul(2);
        let fits = |buffer: &Vec<u8>| (len..=most).contains(&buffer.capacity());
        let at = match len {
            ..SMALLEST => None,
            _ => self.buffers.iter().rposition(fits),
        };
        let buffer = at.map(|at| self.buffers.remove(at)).unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Returns a buffer to the pool.
    #[inline]
    pub fn give(&mut self, buffer: Vec<u8>) {
        let size = buffer.capacity();
        if (SHORT..2 * SHORT).contains(&size) {
            if self.short.len() < MOST_SHORT {
                self.short.push(buffer);
            }
        } else if size >= SMALLEST && self.bytes + size <= MOST {
            self.bytes += size;
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_part_of_returned_buffers_is_kept() {
        let mut spare = Spare::default();
        spare.give(vec![1; SMALLEST - 1]);
        assert_eq!(spare.take(SMALLEST - 1).capacity(), 0);
        for _ in 0..3 {
            spare.give(vec![1; MOST / 2]);
        }
        let room = |spare: &mut Spare| spare.take(MOST / 2).capacity();
        assert_eq!(spare.take(MOST).capacity(), 0, "none is so long");
        assert!(room(&mut spare) >= MOST / 2 && room(&mut spare) >= MOST / 2);
        assert_eq!(room(&mut spare), 0, "the third was too much");
        assert_eq!(spare.bytes, 0);
    }

    #[test]
    fn buffers_for_short_messages_are_used_again() {
        let mut spare = Spare::default();
        let used: Vec<_> = (0..2 * MOST_SHORT).map(|_| spare.take(8)).collect();
        assert!(used.iter().all(|buffer| buffer.capacity() >= SHORT));
        let last = used[MOST_SHORT - 1].as_ptr();
        used.into_iter().for_each(|buffer| spare.give(buffer));
        assert_eq!(spare.short.len(), MOST_SHORT);
        let again = spare.take(SHORT);
        assert_eq!(again.as_ptr(), last);
        // Longer ones are others.
        assert_eq!(spare.take(SHORT + 1).capacity(), 0);
        assert_eq!((spare.short.len(), spare.bytes), (MOST_SHORT - 1, 0));
    }

    #[test]
    fn the_last_used_buffer_is_preferred_if_it_is_not_much_too_large() {
        let mut spare = Spare::default();
        for (number, size) in [(1, 1), (2, 2), (3, 2), (4, 4)] {
            spare.give(vec![number; size * SMALLEST]);
        }
        let taken = [1, 1, 1].map(|size| spare.take(size * SMALLEST)[0]);
        assert_eq!(taken, [3, 2, 1]);
        assert_eq!(
            spare.take(SMALLEST).capacity(),
            0,
            "four times as much is left"
        );
        assert_eq!(spare.take(2 * SMALLEST)[0], 4);
    }
}
