//! Offered payloads that their sender has copied elsewhere in its memory, since the receiver has not
//! fetched them for some time: the sender's operation is complete, and the application may change
//! the memory that was offered.
//!
//! The sender copies the payload, publishes the copy's address in a [`Table`] of the channel, and only
//! then completes the operation. The receiver looks into the table *after* it has copied from the
//! memory that was offered. If it finds nothing there, no byte that it has copied was written after
//! the publication, and all of them are the payload (as in a seqlock). Otherwise it copies again, from
//! the new address. The copy stays in place until the receiver says that it has the payload.
//!
//! Neither side waits for the other one. The receiver uses an address to read from the sender's memory
//! with system calls, as it does with the addresses of offers.

#[cfg(not(loom))]
mod ends;
#[cfg(all(test, loom))]
mod loom_tests;

use prov_base::shared_words::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub use self::ends::{Relocated, Relocating};

/// Largest number of payloads of one direction that are in a table: what there is room for in a
/// channel's segment. Payloads of more than 64 KiB are offered, so that this many have 2.4 MiB at
/// least.
pub const ENTRIES: usize = if cfg!(loom) { 2 } else { 39 };

/// The payloads that a sender has copied elsewhere. All bytes zero are a valid table without any.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Table {
    /// Number of entries in use.
    count: AtomicU64,
    entries: [Entry; ENTRIES],
}

#[derive(Debug)]
struct Entry {
    /// The sender's name for the payload; 0 if the entry is free.
    name: AtomicU64,
    addr: AtomicU64,
}

impl Table {
    /// Returns a table without entries.
    #[cfg(test)]
    fn empty() -> Self {
        let word = || AtomicU64::new(0);
        Table {
            count: word(),
            entries: std::array::from_fn(|_| Entry {
                name: word(),
                addr: word(),
            }),
        }
    }

    /// Returns the address to which the payload `name` was copied, if it was. Called by the receiver
    /// before it copies, to do that once only, and, if there was nothing, after it has copied.
    pub fn find(&self, name: u64) -> Option<u64> {
        // If a byte that was copied before has been written after the publication, the publication is
        // visible from here on.
        fence(Ordering::Acquire);
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.name.load(Ordering::Acquire) == name)?;
        Some(entry.addr.load(Ordering::Relaxed))
    }
}

/// The sender's record of its table: it reads nothing there.
#[derive(Debug)]
pub struct Entries {
    /// The name in each entry; 0 if it is free.
    names: [u64; ENTRIES],
    count: u64,
}

impl Default for Entries {
    fn default() -> Self {
        Entries {
            names: [0; ENTRIES],
            count: 0,
        }
    }
}

impl Entries {
    /// Publishes that the payload `name`, which is not 0, was copied to this address. After this has
    /// returned `true`, the memory that was offered may change. Returns `false` if there is no free
    /// entry.
    pub fn publish(&mut self, table: &Table, name: u64, addr: u64) -> bool {
        let mut free = self.names.iter_mut().zip(&table.entries);
        let Some((mine, entry)) = free.find(|(name, _)| **name == 0) else {
            return false;
        };
        *mine = name;
        self.count += 1;
        entry.addr.store(addr, Ordering::Relaxed);
        entry.name.store(name, Ordering::Release);
        table.count.store(self.count, Ordering::Relaxed);
        // All that this process writes from here on is visible later than the entry.
        fence(Ordering::Release);
        true
    }

    /// Frees the entry of a payload that the receiver has, if there is one.
    pub fn withdraw(&mut self, table: &Table, name: u64) {
        let mut used = self.names.iter_mut().zip(&table.entries);
        if name == 0 {
            return;
        }
        if let Some((mine, entry)) = used.find(|(mine, _)| **mine == name) {
            *mine = 0;
            self.count -= 1;
            entry.name.store(0, Ordering::Relaxed);
            table.count.store(self.count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_found_from_their_publication_until_they_are_withdrawn() {
        let (table, mut entries) = (Table::empty(), Entries::default());
        assert_eq!(table.find(7), None);
        for number in 1..=ENTRIES as u64 {
            assert!(entries.publish(&table, number, 100 * number));
        }
        assert!(!entries.publish(&table, 1000, 1));
        entries.withdraw(&table, 7);
        entries.withdraw(&table, 7);
        assert_eq!((table.find(7), table.find(8)), (None, Some(800)));
        assert!(entries.publish(&table, 1000, 1));
        assert_eq!(table.find(1000), Some(1));
        for number in (1..=ENTRIES as u64).chain([1000]) {
            entries.withdraw(&table, number);
        }
        assert_eq!(table.count.load(Ordering::Relaxed), 0);
    }
}
