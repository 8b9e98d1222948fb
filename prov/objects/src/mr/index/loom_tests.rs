//! Every order of the steps of readers and of those who add and remove.

use std::sync::atomic::{AtomicBool as StdBool, Ordering as StdOrdering};

use super::*;

/// Says so when it is used after it was freed, or after it was removed.
struct Entry {
    key: u64,
    freed: Arc<StdBool>,
    removed: Arc<StdBool>,
}

impl Entry {
    fn new(key: u64) -> Arc<Self> {
        Arc::new(Entry {
            key,
            freed: Arc::default(),
            removed: Arc::default(),
        })
    }
}

impl Keyed for Entry {
    fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.freed.store(true, StdOrdering::Relaxed);
    }
}

fn look(reader: &mut Reader<Entry>, key: u64, turns: usize) {
    for _ in 0..turns {
        let Some(found) = reader.find(key, |_| true) else {
            continue;
        };
        let (freed, removed) = (found.freed.clone(), found.removed.clone());
        loom::thread::yield_now();
        assert!(!removed.load(StdOrdering::Relaxed), "used behind remove");
        assert!(!freed.load(StdOrdering::Relaxed), "used behind its end");
        drop(found);
    }
}

#[test]
fn a_removed_entry_is_not_in_use() {
    loom::model(|| {
        let index = Arc::new(Index::<Entry>::new());
        let entry = Entry::new(7);
        assert!(index.insert(entry.clone(), |_| true));
        let mut reader = index.reader();
        let reads = loom::thread::spawn(move || look(&mut reader, 7, 2));
        index.remove(&entry);
        entry.removed.store(true, StdOrdering::Relaxed);
        assert_eq!(Arc::strong_count(&entry), 1);
        reads.join().unwrap();
    });
}

#[test]
fn a_reader_is_at_home_in_a_table_that_grows() {
    loom::model(|| {
        let index = Arc::new(Index::<Entry>::new());
        for key in 0..4 {
            assert!(index.insert(Entry::new(key), |_| true));
        }
        let mut reader = index.reader();
        let reads = loom::thread::spawn(move || {
            assert!(reader.find(3, |_| true).is_some());
            look(&mut reader, 4, 1);
        });
        assert!(index.insert(Entry::new(4), |_| true));
        reads.join().unwrap();
    });
}

#[test]
fn a_new_entry_under_the_key_of_the_old_one_is_whole() {
    loom::model(|| {
        let index = Arc::new(Index::<Entry>::new());
        let entry = Entry::new(7);
        assert!(index.insert(entry.clone(), |_| true));
        let mut reader = index.reader();
        let reads = loom::thread::spawn(move || look(&mut reader, 7, 1));
        index.remove(&entry);
        entry.removed.store(true, StdOrdering::Relaxed);
        assert!(index.insert(Entry::new(7), |_| true));
        reads.join().unwrap();
    });
}
