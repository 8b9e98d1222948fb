//! Models of a transfer in parts: RUSTFLAGS="--cfg loom" cargo test -p prov-local --lib loom_tests

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// A record, and slots that contain one number each.
struct Shared {
    record: Record,
    slots: [UnsafeCell<u64>; SLOTS as usize],
}

// SAFETY: the protocol gives each slot to one thread at a time; loom reports a violation.
unsafe impl Sync for Shared {}
// SAFETY: all parts of the value may be used by any thread.
unsafe impl Send for Shared {}

fn shared() -> Arc<Shared> {
    let word = || AtomicU64::new(0);
    Arc::new(Shared {
        record: Record {
            request: Line([word(), word(), word(), word()]),
            taken: Line(word()),
            filled: Line(word()),
        },
        slots: std::array::from_fn(|_| UnsafeCell::new(0)),
    })
}

impl Shared {
    /// Acts once as the sender. A slot gets the name of the payload and the offset of the part.
    fn send(&self, sending: &mut Sending) {
        if let Some(found) = sending.find(&self.record) {
            sending.begin(&self.record, found);
        }
        if let Some((name, part)) = sending.next_part(&self.record) {
            let slot = &self.slots[part.slot as usize];
            // SAFETY: the record says that the slot is the sender's; loom reports a concurrent
            // access.
            slot.with_mut(|slot| unsafe { *slot = name << 32 | part.at });
            sending.publish(&self.record);
        }
    }

    /// Receives the next part, if it has arrived. Returns its name and offset.
    fn receive(&self, receiving: &mut Receiving) -> Option<(u64, u64)> {
        let Ok(Arrived::Part(part)) = receiving.look(&self.record) else {
            return None;
        };
        let slot = &self.slots[part.slot as usize];
        // SAFETY: the record says that the slot is the receiver's; loom reports a concurrent
        // access.
        let found = slot.with(|slot| unsafe { *slot });
        receiving.took(&self.record);
        Some((found >> 32, found & u64::from(u32::MAX)))
    }
}

fn request(name: u64, parts: u64) -> Request {
    let len = parts * PART as u64;
    Request { name, at: 0, len }
}

#[test]
fn a_slot_is_filled_again_only_when_it_was_read() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let here = shared();
        let there = here.clone();
        let mut receiving = Receiving::default();
        // The number is one more than there are slots, so that one slot is used twice.
        assert!(receiving.open(&here.record, request(3, SLOTS + 1)));
        let sender = thread::spawn(move || {
            let mut sending = Sending::default();
            (0..SLOTS + 1).for_each(|_| there.send(&mut sending));
        });
        let mut next = 0;
        for _ in 0..3 {
            if let Some(part) = here.receive(&mut receiving) {
                assert_eq!(part, (3, next * PART as u64));
                next += 1;
            }
        }
        sender.join().unwrap();
        while let Some(part) = here.receive(&mut receiving) {
            assert_eq!(part, (3, next * PART as u64));
            next += 1;
        }
    });
}

#[test]
fn no_part_of_a_withdrawn_request_is_taken_for_one_of_the_next() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let here = shared();
        let there = here.clone();
        let mut receiving = Receiving::default();
        assert!(receiving.open(&here.record, request(3, 2)));
        let sender = thread::spawn(move || {
            let mut sending = Sending::default();
            (0..3).for_each(|_| there.send(&mut sending));
        });
        assert!(
            here.receive(&mut receiving)
                .is_none_or(|part| part == (3, 0))
        );
        receiving.close(&here.record);
        assert!(receiving.open(&here.record, request(5, 2)));
        let mut next = 0;
        for _ in 0..2 {
            if let Some(part) = here.receive(&mut receiving) {
                assert_eq!(part, (5, next * PART as u64));
                next += 1;
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_request_is_found_whole_or_not_at_all() {
    loom::model(|| {
        let here = shared();
        let there = here.clone();
        let sender = thread::spawn(move || {
            let sending = Sending::default();
            for _ in 0..2 {
                if let Some((_, found)) = sending.find(&there.record) {
                    assert!([request(3, 1), request(5, 2)].contains(&found));
                }
            }
        });
        let mut receiving = Receiving::default();
        assert!(receiving.open(&here.record, request(3, 1)));
        receiving.close(&here.record);
        assert!(receiving.open(&here.record, request(5, 2)));
        sender.join().unwrap();
    });
}
