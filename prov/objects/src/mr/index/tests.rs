//! The index beside a map that does the same.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

struct Entry {
    key: u64,
    number: usize,
    in_use: AtomicU64,
}

impl Keyed for Entry {
    fn key(&self) -> u64 {
        self.key
    }
}

fn entry(key: u64, number: usize) -> Arc<Entry> {
    let in_use = AtomicU64::new(0);
    Arc::new(Entry {
        key,
        number,
        in_use,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    Find(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few keys, some of them with the same low or high bits.
    let key = prop_oneof![0u64..40, (0u64..16).prop_map(|key| key << 60)];
    (0..3, key).prop_map(|(kind, key)| match kind {
        0 => Step::Insert(key),
        1 => Step::Remove(key),
        _ => Step::Find(key),
    })
}

proptest! {
    #[test]
    fn lookups_find_exactly_the_inserted_entries(steps in prop::collection::vec(step(), 0..if cfg!(miri) { 40 } else { 400 })) {
        let index = Arc::new(Index::<Entry>::new());
        let mut reader = index.reader();
        let mut model: HashMap<u64, Arc<Entry>> = HashMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(key) => {
                    let new = entry(key, number);
                    let is_in = index.insert(new.clone(), |_| true);
                    prop_assert_eq!(is_in, !model.contains_key(&key));
                    model.entry(key).or_insert(new);
                }
                Step::Remove(key) => {
                    if let Some(old) = model.remove(&key) {
                        index.remove(&old);
                        prop_assert_eq!(Arc::strong_count(&old), 1);
                        index.remove(&old);
                    }
                }
                Step::Find(key) => {
                    let found = reader.find(key, |_| true).map(|found| found.number);
                    prop_assert_eq!(found, model.get(&key).map(|entry| entry.number));
                }
            }
        }
        let entries: Vec<_> = model.into_values().collect();
        drop((index, reader));
        prop_assert!(entries.iter().all(|entry| Arc::strong_count(entry) == 1));
    }
}

#[test]
fn entries_with_one_key_are_distinguished() {
    let index = Arc::new(Index::<Entry>::new());
    let (first, second) = (entry(7, 1), entry(7, 2));
    assert!(index.insert(first.clone(), |_| true));
    assert!(index.insert(second.clone(), |other| other.number == 2));
    assert!(!index.insert(entry(7, 3), |other| other.number == 2));
    let mut reader = index.reader();
    for number in [1, 2] {
        assert!(reader.find(7, |entry| entry.number == number).is_some());
    }
    index.remove(&first);
    assert!(reader.find(7, |entry| entry.number == 1).is_none());
    assert!(reader.find(7, |entry| entry.number == 2).is_some());
}

#[test]
fn users_of_other_entries_are_not_waited_for() {
    let index = Arc::new(Index::<Entry>::new());
    let (kept, removed) = (entry(1, 1), entry(2, 2));
    assert!(index.insert(kept, |_| true));
    assert!(index.insert(removed.clone(), |_| true));
    let mut reader = index.reader();
    let found = reader.find(1, |_| true).unwrap();
    index.remove(&removed);
    for key in 3..100 {
        assert!(index.insert(entry(key, 0), |_| true));
    }
    assert_eq!(found.number, 1);
}

#[test]
fn removing_waits_for_readers_of_other_threads() {
    const ROUNDS: u64 = 200;
    let index = Arc::new(Index::<Entry>::new());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mut reader = index.reader();
            std::thread::spawn(move || {
                let mut seen = 0;
                while seen < ROUNDS {
                    std::thread::yield_now();
                    let Some(found) = reader.find(7, |_| true) else {
                        continue;
                    };
                    found.in_use.fetch_add(1, Ordering::Relaxed);
                    seen = found.number as u64;
                    found.in_use.fetch_sub(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for number in 1..=ROUNDS {
        let new = entry(7, number as usize);
        assert!(index.insert(new.clone(), |_| true));
        std::thread::yield_now();
        if number < ROUNDS {
            index.remove(&new);
            assert_eq!(new.in_use.load(Ordering::Relaxed), 0);
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
