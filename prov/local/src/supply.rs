//! Memory for long messages, which only some channels of a process have: on a host with many
//! processes, the memory of all channels together would be too much.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest number of channels of a process with memory of one kind: bounds what a process with many
/// peers uses.
const MOST: usize = 16;

/// Number of channels that have memory of one kind.
pub struct Count(AtomicUsize);

impl Count {
    pub const fn new() -> Count {
        Count(AtomicUsize::new(0))
    }
}

/// One of at most [`MOST`] shares, until it is dropped.
pub struct Supply(&'static Count);

impl Supply {
    /// Takes a share; `None` if there are [`MOST`].
    pub fn new(count: &'static Count) -> Option<Supply> {
        let one_more = |count: usize| (count < MOST).then_some(count + 1);
        let counted = count
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.ok().map(|_| Supply(count))
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_for_some_channels_and_gets_that_of_one_that_ends() {
        static COUNT: Count = Count::new();
        let mut some: Vec<_> = (0..MOST).map_while(|_| Supply::new(&COUNT)).collect();
        assert_eq!(some.len(), MOST);
        assert!(Supply::new(&COUNT).is_none());
        some.pop();
        assert!(Supply::new(&COUNT).is_some());
    }
}
