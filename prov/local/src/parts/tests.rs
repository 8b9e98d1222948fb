use std::os::fd::AsFd as _;

use super::*;
use crate::channel::Channel;

fn record() -> Record {
    let words = || AtomicU64::new(0);
    Record {
        request: Line([words(), words(), words(), words()]),
        taken: Line(words()),
        filled: Line(words()),
    }
}

fn request(len: u64) -> Request {
    Request {
        name: 7,
        at: 100,
        len,
    }
}

#[test]
fn parts_arrive_in_order_no_further_ahead_than_there_are_slots() {
    let record = record();
    let (mut here, mut there) = (Receiving::default(), Sending::default());
    let len = 10 * PART as u64 + 5;
    assert!(here.open(&record, request(len)));
    assert!(!here.open(&record, request(len)), "one at a time");
    assert_eq!(here.look(&record), Ok(Arrived::NotBegun));
    let found = there.find(&record).unwrap();
    assert_eq!(found.1, request(len));
    there.begin(&record, found);
    assert_eq!(there.find(&record), None);
    assert_eq!(here.look(&record), Ok(Arrived::NotYet));
    let mut at = 100;
    for number in 0..11 {
        // The sender fills as many slots as are free.
        while let Some((name, part)) = there.next_part(&record) {
            assert_eq!(name, 7);
            assert!(part.slot < SLOTS && part.len <= PART);
            there.publish(&record);
        }
        assert_eq!(u64::from(there.filled), (number + SLOTS).min(11));
        let Ok(Arrived::Part(part)) = here.look(&record) else {
            panic!("part {number} has not come");
        };
        assert_eq!((part.at, part.slot), (at, number % SLOTS));
        at += part.len as u64;
        here.took(&record);
    }
    assert_eq!(at, 100 + len);
    assert_eq!(here.look(&record), Ok(Arrived::NotYet));
    here.close(&record);
    assert_eq!(there.next_part(&record), None);
}

#[test]
fn a_late_part_of_a_withdrawn_request_is_ignored() {
    let record = record();
    let (mut here, mut there) = (Receiving::default(), Sending::default());
    assert!(here.open(&record, request(1 << 20)));
    let found = there.find(&record).unwrap();
    there.begin(&record, found);
    here.close(&record);
    assert_eq!(there.next_part(&record), None);
    assert!(here.open(&record, request(PART as u64)));
    // The sender has filled this part of a request that was withdrawn meanwhile.
    there.publish(&record);
    assert_eq!(here.look(&record), Ok(Arrived::NotBegun));
    assert_eq!(there.next_part(&record), None, "of the old request");
    let found = there.find(&record).unwrap();
    there.begin(&record, found);
    assert!(there.next_part(&record).is_some());
    there.publish(&record);
    assert!(matches!(here.look(&record), Ok(Arrived::Part(part)) if part.at == 100));
}

#[test]
fn a_sender_without_slots_reports_that_once() {
    let record = record();
    let (mut here, mut there) = (Receiving::default(), Sending::default());
    assert!(here.open(&record, request(1 << 20)));
    let (generation, found) = there.find(&record).unwrap();
    there.refuse(&record, generation, found);
    assert_eq!(
        (there.find(&record), there.next_part(&record)),
        (None, None)
    );
    assert_eq!(here.look(&record), Ok(Arrived::Refused));
    here.close(&record);
    assert!(here.open(&record, request(1 << 20)));
    let found = there.find(&record).unwrap();
    there.begin(&record, found);
    there.publish(&record);
    there.give_up(&record);
    assert_eq!(here.look(&record), Ok(Arrived::Refused));
}

#[test]
fn whatever_the_sender_writes_is_an_error_or_a_part_of_the_request() {
    let record = record();
    let mut here = Receiving::default();
    let len = 3 * PART as u64 + 1;
    assert!(here.open(&record, request(len)));
    for filled in [5, 100, SLOTS as u32 + 1, u32::MAX - 1] {
        let word = pack(here.generation, filled);
        record.filled.0.store(word, Ordering::Relaxed);
        assert!(here.look(&record).is_err(), "{filled}");
    }
    // The sender writes a smaller number than the receiver has read.
    record
        .filled
        .0
        .store(pack(here.generation, 2), Ordering::Relaxed);
    here.took(&record);
    here.took(&record);
    record
        .filled
        .0
        .store(pack(here.generation, 1), Ordering::Relaxed);
    assert!(here.look(&record).is_err());
    for word in [0, u64::MAX, pack(here.generation + 2, 3)] {
        record.filled.0.store(word, Ordering::Relaxed);
        assert_eq!(here.look(&record), Ok(Arrived::NotBegun));
    }
    assert!(!Receiving::default().open(&record, request(u64::MAX)));
}

#[test]
fn whatever_the_receiver_writes_is_no_request_or_one_with_parts_in_slots() {
    let record = record();
    let [generation, name, at, len] = &record.request.0;
    for (number, words) in [
        [1, 0, 0, 0],
        [u64::MAX, 0, 0, 8],
        [3, u64::MAX, u64::MAX, u64::MAX],
        [5, 1, u64::MAX, 1 << 20],
    ]
    .into_iter()
    .enumerate()
    {
        for (place, word) in [generation, name, at, len].into_iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        let mut there = Sending::default();
        let Some(found) = there.find(&record) else {
            assert_eq!(number, 1);
            continue;
        };
        there.begin(&record, found);
        record.taken.0.store(u64::MAX, Ordering::Relaxed);
        if let Some((_, part)) = there.next_part(&record) {
            assert!(part.slot < SLOTS && part.len <= PART);
        }
        // The receiver writes a larger number than the sender has filled.
        record.taken.0.store(pack(found.0, 1), Ordering::Relaxed);
        assert_eq!(there.next_part(&record), None);
    }
}

#[test]
fn the_two_ends_of_a_channel_share_slots_and_directions_are_apart() {
    let (here, fd) = Channel::create().unwrap();
    let there = Channel::attach(fd.as_fd()).unwrap();
    let mut flows = [
        (here.outflow(), there.inflow(), 1u8),
        (there.outflow(), here.inflow(), 2u8),
    ];
    for (_, inflow, _) in &mut flows {
        assert!(inflow.open(request(2 * PART as u64)));
    }
    for (outflow, _, byte) in &mut flows {
        assert!(outflow.is_asked());
        while let Some((_, part)) = outflow.next_part() {
            outflow.slot(part).write(&vec![*byte; part.len]);
            outflow.publish();
        }
        assert!(!outflow.is_asked());
    }
    for (_, inflow, byte) in &mut flows {
        for _ in 0..2 {
            let Ok(Arrived::Part(part)) = inflow.look() else {
                panic!("no part");
            };
            let mut bytes = vec![0; part.len];
            prov_base::buffer::Iov::from(inflow.bytes(part)).read_at(0, &mut bytes);
            assert!(bytes.iter().all(|copied| copied == byte));
            inflow.took();
        }
        inflow.close();
    }
}
