//! Memory for long messages, which only some channels of a process have: on a host with many
//! processes, all channels together would take too much.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Channels of a process with such memory, of each kind.
const MOST: usize = 16;

/// How many channels have memory of one kind.
pub struct Count(AtomicUsize);

impl Count {
    pub const fn new() -> Count {
        Count(AtomicUsize::new(0))
    }
}

/// One of [`MOST`], until it is dropped.
pub struct Supply(&'static Count);

impl Supply {
    /// One more, if there may be.
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
