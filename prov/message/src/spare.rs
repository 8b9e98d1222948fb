//! A pool of buffers for unexpected messages. Fresh memory from the system is zeroed page by page,
//! which takes longer than copying the message.

/// Smallest pooled buffer in bytes: smaller ones are left to the allocator, which does not return
/// them to the system.
const SMALLEST: usize = 16 << 10;
/// Limit of the pool in bytes.
const MOST: usize = 8 << 20;

/// See the [module](self) description.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// The buffer that was returned last is the last one: it is most likely in the cache.
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Takes a buffer with room for `len` bytes but not much more; it may have old contents.
    /// Returns an empty vector if there is none.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
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
    pub fn give(&mut self, buffer: Vec<u8>) {
        let size = buffer.capacity();
        if size >= SMALLEST && self.bytes + size <= MOST {
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
