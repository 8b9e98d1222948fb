use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// Parts of each copy in the models.
const PARTS: u16 = 2;

/// A record, and the memory that two copies go to, one after the other: a cell for
/// each part.
struct Shared {
    record: Record,
    parts: [[UnsafeCell<u64>; PARTS as usize]; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        let cells = || std::array::from_fn(|_| UnsafeCell::new(0));
        Arc::new(Shared {
            record: Record {
                what: Line(std::array::from_fn(|_| AtomicU64::new(0))),
                claim: Line(AtomicU64::new(0)),
                helped: Line(AtomicU64::new(0)),
                received: Line(AtomicU64::new(0)),
                witness: Line(std::array::from_fn(|_| AtomicU64::new(0))),
            },
            parts: [cells(), cells()],
        })
    }

    /// Copies a part of the copy of this number; the model says if anybody else is
    /// at it.
    fn copy(&self, copy: usize, part: u16) {
        // SAFETY: whose part it is, this model is to show.
        self.parts[copy][usize::from(part)].with_mut(|cell| unsafe { *cell += 1 });
    }

    /// Reads all of a copy that is over: all parts have been copied, and once.
    fn check(&self, copy: usize) {
        for part in &self.parts[copy] {
            // SAFETY: as above.
            assert_eq!(part.with(|cell| unsafe { *cell }), 1);
        }
    }

    /// What describes the copy of this number: no two have anything in common.
    fn what(copy: usize) -> What {
        let copy = copy as u64;
        What {
            name: 10 + copy,
            addr: 20 + copy,
            len: 30 + copy,
            first: 40 + copy,
            slots: 4,
        }
    }

    fn own(&self, copy: usize) {
        let what = Shared::what(copy);
        let mut open = Open::new(&self.record, copy as u32 + 1, &what, PARTS);
        loop {
            let parts = open.claim(&self.record, PARTS).unwrap();
            if parts.is_empty() {
                break;
            }
            parts.for_each(|part| self.copy(copy, part));
        }
        while open.helped(&self.record).unwrap() != Helped::All {
            thread::yield_now();
        }
        self.check(copy);
    }

    fn help(&self) {
        let Some(seen) = self.record.look() else {
            return;
        };
        let Some(parts) = self.record.claim(&seen, 1) else {
            return;
        };
        let copy = (0..2).find(|copy| Shared::what(*copy) == seen.what);
        let copy = copy.expect("what was seen is of one copy");
        self.copy(copy, parts.start);
        self.record.done(&seen, 1, true);
    }
}

#[test]
fn each_part_is_copied_once_before_the_copy_is_over_and_the_next_one_begins() {
    // All of the ways in which the two can take turns would take for ever.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new();
        let far = shared.clone();
        let helper = thread::spawn(move || {
            far.help();
            far.help();
        });
        shared.own(0);
        shared.own(1);
        helper.join().unwrap();
    });
}

#[test]
fn what_is_closed_is_not_helped_with_and_who_has_begun_is_waited_for() {
    loom::model(|| {
        let shared = Shared::new();
        let far = shared.clone();
        let helper = thread::spawn(move || far.help());
        let what = Shared::what(0);
        let mut open = Open::new(&shared.record, 1, &what, PARTS);
        open.close(&shared.record).unwrap();
        while open.helped(&shared.record).unwrap() != Helped::All {
            thread::yield_now();
        }
        for part in &shared.parts[0] {
            // SAFETY: as above.
            part.with_mut(|cell| unsafe { *cell += 1 });
        }
        helper.join().unwrap();
    });
}

/// Two slots are enough for the model: which of them a part goes into.
const CELLS: u64 = 2;

#[test]
fn what_is_in_a_slot_is_the_part_that_the_owner_takes_from_there() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new();
        let slots: Arc<[UnsafeCell<u64>; CELLS as usize]> =
            Arc::new(std::array::from_fn(|_| UnsafeCell::new(0)));
        let (far, filled) = (shared.clone(), slots.clone());
        let helper = thread::spawn(move || {
            for _ in 0..3 {
                let Some(seen) = far.record.look() else {
                    continue;
                };
                let Some(slot) = far.record.free_slot(&seen) else {
                    continue;
                };
                let Some(parts) = far.record.claim(&seen, 1) else {
                    continue;
                };
                let value = seen.what.name * 100 + u64::from(parts.start);
                // SAFETY: whose slot it is, this model is to show.
                filled[(slot % CELLS) as usize].with_mut(|cell| unsafe { *cell = value });
                far.record.bounced(&seen, true);
            }
        });
        let mut first = 0;
        for copy in 0..2 {
            let what = What {
                first,
                slots: CELLS,
                ..Shared::what(copy)
            };
            let record = &shared.record;
            let mut open = Open::new(record, copy as u32 + 1, &what, PARTS);
            let mut seen = 0;
            loop {
                if let Some((part, slot)) = open.in_slot(record).unwrap() {
                    // SAFETY: as above.
                    let value = slots[(slot % CELLS) as usize].with(|cell| unsafe { *cell });
                    assert_eq!(value, what.name * 100 + u64::from(part));
                    open.was_received(record);
                    seen += 1;
                    continue;
                }
                let own = open.claim(record, 1).unwrap();
                seen += own.len();
                if own.is_empty() && open.helped(record).unwrap() == Helped::All {
                    break;
                }
                thread::yield_now();
            }
            assert_eq!(seen, PARTS.into());
            first += u64::from(open.received());
        }
        helper.join().unwrap();
    });
}
