use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use prov_util::mr::publish::Published;

use super::protocol::*;
use super::turns::{Giving, Taking, Turn};

/// Two words, two segments of memory and an entry that represents one of them.
struct Shared {
    flight: AtomicU64,
    revoked: AtomicU64,
    entry: Entry,
    memory: [UnsafeCell<u32>; 2],
}

#[derive(Clone)]
struct Ends(Arc<Shared>);

impl Words for Ends {
    fn flight(&self) -> &AtomicU64 {
        &self.0.flight
    }

    fn revoked(&self) -> &AtomicU64 {
        &self.0.revoked
    }
}

fn ends() -> Ends {
    Ends(Arc::new(Shared {
        flight: AtomicU64::new(0),
        revoked: AtomicU64::new(0),
        entry: Entry::vacant(),
        memory: [UnsafeCell::new(0), UnsafeCell::new(0)],
    }))
}

/// Returns a region that is one of the two segments of memory.
fn region(key: u64, piece: u64) -> Published {
    Published {
        key,
        addr: piece,
        ..Published::default()
    }
}

/// Writes as the initiator to the region with this key, if there is one; returns the index of its
/// segment.
fn write(ends: &Ends, flights: &mut Flights<Ends>, key: u64) -> Option<u64> {
    let flight = flights.begin()?;
    let found = ends.0.entry.find(key);
    if let Some(found) = &found {
        // SAFETY: the flight in progress makes the owner wait before it uses the memory; loom
        // reports any concurrent access.
        ends.0.memory[found.addr as usize].with_mut(|memory| unsafe { *memory += 1 });
    }
    drop(flight);
    found.map(|found| found.addr)
}

fn wait(watched: &Watched<Ends>) {
    watched.wait(|_| {
        thread::yield_now();
        true
    });
}

/// The owner may use its memory again when it has withdrawn the region.
fn take_back(ends: &Ends, piece: usize) {
    // SAFETY: the region is withdrawn and no flight is in progress; loom reports any concurrent
    // access.
    ends.0.memory[piece].with_mut(|memory| unsafe { *memory = 7 });
}

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

#[test]
fn closing_a_region_waits_for_the_copy_in_flight() {
    model(3, || {
        let ends = ends();
        ends.0.entry.fill(&region(1, 0));
        let there = ends.clone();
        let initiator = thread::spawn(move || {
            let mut flights = Flights::new(there.clone());
            write(&there, &mut flights, 1);
            write(&there, &mut flights, 1);
        });
        ends.0.entry.free();
        wait(&Watched::new(ends.clone()));
        take_back(&ends, 0);
        initiator.join().unwrap();
    });
}

#[test]
fn an_entry_that_is_filled_again_leads_to_the_new_region_alone() {
    model(2, || {
        let ends = ends();
        ends.0.entry.fill(&region(1, 0));
        let there = ends.clone();
        let initiator = thread::spawn(move || {
            let mut flights = Flights::new(there.clone());
            let found = write(&there, &mut flights, 1);
            assert!(found.is_none_or(|piece| piece == 0));
            let found = write(&there, &mut flights, 2);
            assert!(found.is_none_or(|piece| piece == 1));
        });
        ends.0.entry.free();
        wait(&Watched::new(ends.clone()));
        take_back(&ends, 0);
        ends.0.entry.fill(&region(2, 1));
        initiator.join().unwrap();
    });
}

#[test]
fn the_same_key_again_is_the_new_region() {
    model(2, || {
        let ends = ends();
        ends.0.entry.fill(&region(1, 0));
        let there = ends.clone();
        let initiator = thread::spawn(move || {
            write(&there, &mut Flights::new(there.clone()), 1);
        });
        ends.0.entry.free();
        wait(&Watched::new(ends.clone()));
        take_back(&ends, 0);
        ends.0.entry.fill(&region(1, 1));
        ends.0.entry.free();
        wait(&Watched::new(ends.clone()));
        take_back(&ends, 1);
        initiator.join().unwrap();
    });
}

#[test]
fn a_link_that_is_revoked_and_idle_has_no_more_flights() {
    model(3, || {
        let ends = ends();
        ends.0.entry.fill(&region(1, 0));
        let there = ends.clone();
        let initiator = thread::spawn(move || {
            write(&there, &mut Flights::new(there.clone()), 1);
        });
        let watched = Watched::new(ends.clone());
        watched.revoke();
        // The words are not used from here on.
        if watched.is_idle() {
            take_back(&ends, 0);
        }
        initiator.join().unwrap();
    });
}

#[test]
fn a_dead_initiator_is_not_waited_for() {
    model(3, || {
        let ends = ends();
        ends.0.entry.fill(&region(1, 0));
        let gone = Arc::new(AtomicU64::new(0));
        let (there, dies) = (ends.clone(), gone.clone());
        let initiator = thread::spawn(move || {
            let mut flights = Flights::new(there.clone());
            let flight = flights.begin();
            let found = there.0.entry.find(1);
            if found.is_some() {
                // SAFETY: the flight in progress makes the owner wait, which loom checks, as in
                // `write`.
                there.0.memory[0].with_mut(|memory| unsafe { *memory += 1 });
            }
            // Its word stays odd.
            std::mem::forget(flight);
            dies.store(1, Ordering::Release);
        });
        ends.0.entry.free();
        let watched = Watched::new(ends.clone());
        watched.wait(|_| {
            thread::yield_now();
            gone.load(Ordering::Acquire) == 0
        });
        take_back(&ends, 0);
        initiator.join().unwrap();
    });
}

/// Writes in a ring, the word that says who applies them, and the memory.
struct Ring {
    published: AtomicU64,
    word: AtomicU64,
    refused: AtomicU64,
    memory: UnsafeCell<u64>,
}

fn apply(ring: &Ring) {
    // SAFETY: the caller has the word, which excludes the other side; loom reports any concurrent
    // access.
    ring.memory.with_mut(|memory| unsafe { *memory += 1 });
}

/// The owner handles the records up to the number of those that are published.
fn handle(ring: &Ring, taking: &mut Taking, mut handled: u64) -> u64 {
    while handled < ring.published.load(Ordering::Acquire) {
        match taking.begin(&ring.word) {
            Turn::Apply => {
                apply(ring);
                taking.applied(&ring.word, &ring.refused, false);
            }
            Turn::PassOver => {}
            Turn::Wait => break,
        }
        handled += 1;
    }
    handled
}

#[test]
fn each_write_in_the_ring_is_applied_once_by_one_of_the_two() {
    model(3, || {
        let ring = Arc::new(Ring {
            published: AtomicU64::new(0),
            word: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            memory: UnsafeCell::new(0),
        });
        let there = ring.clone();
        let initiator = thread::spawn(move || {
            let (mut giving, mut left) = (Giving::default(), 0);
            for number in 1..=2 {
                there.published.store(number, Ordering::Release);
                giving.posted();
                left += 1;
                let (applied, is_taken) = giving.take(&there.word).unwrap();
                left -= applied;
                if is_taken {
                    (0..left).for_each(|_| apply(&there));
                    giving.give_back(&there.word, left);
                    left = 0;
                }
            }
        });
        let mut taking = Taking::default();
        let handled = handle(&ring, &mut taking, 0);
        initiator.join().unwrap();
        assert_eq!(handle(&ring, &mut taking, handled), 2);
        // SAFETY: the other thread has ended.
        ring.memory.with(|memory| assert_eq!(unsafe { *memory }, 2));
    });
}
