use std::os::fd::AsFd;

use prov_base::buffer::Iov;

use super::*;
use crate::barrier;
use crate::doorbell::Doorbell;
use crate::ring::lap;

fn pair() -> (Channel, Channel) {
    let (here, fd) = Channel::create().unwrap();
    let there = Channel::attach(fd.as_fd()).unwrap();
    (here, there)
}

/// As [`pair`]; each side knows the doorbell of the other one, which is returned with it.
fn pair_with_bells() -> [(Channel, Doorbell); 2] {
    let (mut here, mut there) = pair();
    let bells = [(); 2].map(|()| Doorbell::create().unwrap());
    here.rings(bells[1].of_peer());
    there.rings(bells[0].of_peer());
    let [bell_here, bell_there] = bells;
    [(here, bell_here), (there, bell_there)]
}

fn head(tag: u64) -> Head {
    Head {
        kind: 3,
        flags: 5,
        words: [tag, !tag, 7],
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed * 31 + at) as u8).collect()
}

/// Sends a message, every other one by the fast path where that is possible. Returns whether there
/// was space.
fn send(from: &mut Channel, tag: u64, bytes: &[u8]) -> bool {
    let (len, head) = (bytes.len(), head(tag));
    let fill = |space: Piece| assert_eq!(space.write(bytes), len);
    let is_sent = tag.is_multiple_of(2)
        && match len <= INLINE {
            true => from.sender.send_short(head, len, fill, || ()),
            false => from.send_long(head, len, |at, space| part(at, space, bytes), || ()),
        };
    if is_sent {
        return true;
    }
    let Some(space) = from.space(bytes.len()).unwrap() else {
        return false;
    };
    assert_eq!(space.bytes().write_at(0, bytes), len);
    let _ = space.publish(head);
    true
}

/// Writes the bytes of a message that belong into a part of its space.
fn part(at: usize, space: Piece<'_>, bytes: &[u8]) {
    let bytes = &bytes[at..at + space.len()];
    assert_eq!(space.write(bytes), bytes.len());
}

fn receive(at: &mut Channel) -> Option<(u64, Vec<u8>)> {
    let record = at.receiver.next().unwrap()?;
    let tag = record.head.words[0];
    assert_eq!(record.head, head(tag));
    let mut bytes = Vec::new();
    Iov::from(at.receiver.bytes(&record)).append_to(&mut bytes);
    let _ = at.receiver.take(bytes.len());
    Some((tag, bytes))
}

#[test]
fn messages_of_any_length_arrive_as_they_were_sent() {
    let (mut here, mut there) = pair();
    let lengths = [
        0,
        1,
        8,
        32,
        INLINE,
        INLINE + 1,
        511,
        513,
        1000,
        3333,
        4096,
        MODERATE,
    ];
    let (mut sent, mut received) = (0usize, 0usize);
    while received < 5000 {
        let len = lengths[sent * 7 % lengths.len()];
        if sent < 5000 && send(&mut here, sent as u64, &pattern(sent, len)) {
            sent += 1;
            continue;
        }
        // There is no space, or nothing left to send: the messages that have arrived are received.
        let before = received;
        while let Some((tag, bytes)) = receive(&mut there) {
            let len = lengths[received * 7 % lengths.len()];
            assert_eq!(tag, received as u64);
            assert_eq!(bytes, pattern(received, len));
            received += 1;
        }
        assert!(received > before);
        let _ = there.receiver.tell();
    }
}

#[test]
fn the_next_message_is_read_from_its_slot_or_by_the_slow_path() {
    let (mut here, mut there) = pair();
    assert!(there.receiver.peek().is_none());
    let bytes: Vec<u8> = (0..20).collect();
    assert!(send(&mut here, 2, &bytes));
    let next = there.receiver.peek().unwrap();
    assert!(next.is(3, 5) && next.is(3, 7) && !next.is(3, 4) && !next.is(2, 5));
    assert!(next.has(1) && next.has(4) && !next.has(2));
    assert_eq!([next.word(0), next.word(1), next.word(2)], head(2).words);
    let eight = |number: usize| Some(u64::from_ne_bytes(*bytes[number * 8..].first_chunk()?));
    assert_eq!((next.eight(0), next.eight(1)), (eight(0), eight(1)));
    assert_eq!((next.eight(2), next.eight(usize::MAX / 8)), (None, None));
    assert_eq!(next.bytes().map(|bytes| bytes.len()), Some(20));
    let _ = there.receiver.take(20);
    assert!(send(&mut here, 4, &pattern(0, INLINE + 1)));
    let next = there.receiver.peek().unwrap();
    assert!(next.bytes().is_none() && next.eight(0).is_none());
    let bytes = there.receiver.far_bytes(&next);
    assert_eq!(bytes.map(|bytes| bytes.len()), Some(INLINE + 1));
}

#[test]
fn a_send_on_the_fast_path_wakes_a_sleeping_peer() {
    let [(mut here, _), (mut there, bell)] = pair_with_bells();
    let mut wakes = |bytes: &[u8]| {
        let mut wakes = false;
        let fill = |space: Piece| _ = space.write(bytes);
        let is_sent = here.sender.send_bytes(bytes.len(), fill, || wakes = true);
        (is_sent, wakes)
    };
    assert_eq!(wakes(&[1; INLINE + 1]), (false, false));
    assert_eq!(wakes(b"bytes"), (true, false));
    bell.arm();
    barrier::heavy();
    assert_eq!(wakes(b"bytes"), (true, true));
    assert_eq!(wakes(b"bytes"), (true, false));
    for _ in 0..3 {
        assert!(there.receiver.peek().is_some_and(|next| next.is(0, 0)));
        let _ = there.receiver.take(5);
    }
    assert!(there.receiver.has_untold());
    let _ = there.receiver.tell();
    assert!(!there.receiver.has_untold());
}

#[test]
fn a_quarter_of_the_space_is_reported_without_a_request() {
    for len in [8, INLINE + 1, MODERATE / 2, MODERATE] {
        // Number of slots' shares that a message takes, of the slots and of the area.
        let each = match len <= INLINE {
            true => 1,
            false => 1 + len * SLOTS / NEAR,
        };
        let count = (SLOTS / 4).div_ceil(each);
        let (mut here, mut there) = pair();
        for number in 1..=count {
            assert!(!there.receiver.has_untold() || number > 1);
            assert!(send(&mut here, 0, &pattern(0, len)));
            assert!(receive(&mut there).is_some());
            assert_eq!(
                there.receiver.has_untold(),
                number < count,
                "{len} {number}"
            );
        }
    }
}

#[test]
fn long_messages_report_what_their_sender_has_received() {
    let (mut here, mut there) = pair();
    // Returns whether all of the area was free when the message was sent.
    let sends = |at: &mut Channel, tag: u64| {
        assert!(at.space(4096).unwrap().is_some());
        let is_free = at.sender.area.given == at.sender.area.free;
        assert!(send(at, tag, &pattern(tag as usize, 4096)));
        is_free
    };
    assert!(sends(&mut here, 0));
    for tag in 0..10 {
        assert_eq!(
            receive(&mut there),
            Some((tag, pattern(tag as usize, 4096)))
        );
        assert!(sends(&mut there, 77));
        assert!(receive(&mut here).is_some());
        assert!(sends(&mut here, tag + 1), "{tag}");
    }
    // A reply to another message reports nothing about this one.
    assert!(send(&mut there, 1, &pattern(1, 4096)));
    assert!(receive(&mut here).is_some());
    assert!(!sends(&mut here, 11));
}

#[test]
fn the_first_bytes_of_a_long_message_are_prefetched_before_it_is_published() {
    let (mut here, mut there) = pair();
    for (round, len) in [INLINE + 1, LONG - 1, LONG, MODERATE]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(round, len);
        // Reads which space is free.
        assert!(here.space(len).unwrap().is_some());
        let watched = std::cell::RefCell::new(&mut there.receiver);
        let is_sent = here.send_long(
            head(0),
            len,
            |at, space| {
                // The first call is before any byte is written, the second one after the first
                // bytes.
                let mut watched = watched.borrow_mut();
                assert!(!watched.has_next());
                watched.fetch_ahead();
                assert_eq!(watched.fetched == Some(round as u64), at != 0);
                part(at, space, &bytes);
            },
            || (),
        );
        assert!(is_sent && there.receiver.has_next());
        assert_eq!(there.receiver.fetched == Some(round as u64), len >= LONG);
        assert!(receive(&mut there) == Some((0, bytes)));
        let _ = there.receiver.tell();
    }
}

#[test]
fn bytes_that_are_being_written_are_not_read_before_they_are_published() {
    let (mut here, mut there) = pair();
    // In each word what would announce a long message, in the first lap and at the area's start.
    let announced = u64::from(lap::<Direction>(0)) << 32;
    let bytes = [announced.to_ne_bytes(); INLINE / 8].concat();
    let space = here.space(INLINE).unwrap().unwrap();
    assert_eq!(space.bytes().write_at(0, &bytes), INLINE);
    there.receiver.fetch_ahead();
    assert_eq!(there.receiver.fetched, None);
    let _ = space.publish(head(0));
    assert!(receive(&mut there) == Some((0, bytes)));
}

/// Both sides use one mapping, so that the thread sanitizer sees that their accesses are to the same
/// memory.
#[test]
fn a_thread_that_looks_for_messages_races_with_none_that_sends() {
    const MESSAGES: u64 = 300;
    let (mut here, _fd) = Channel::create().unwrap();
    let mut there = Channel::new(&here.sender.way.segment, 1);
    let len_of = |tag: u64| [8, INLINE, LONG, 40, INLINE + 1][tag as usize % 5];
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for tag in 0..MESSAGES {
                let bytes = pattern(tag as usize, len_of(tag));
                while !send(&mut here, tag, &bytes) {
                    std::thread::yield_now();
                }
            }
        });
        for tag in 0..MESSAGES {
            let bytes = loop {
                there.receiver.fetch_ahead();
                if let Some((number, bytes)) = receive(&mut there) {
                    assert_eq!(number, tag);
                    break bytes;
                }
                std::thread::yield_now();
            };
            assert!(bytes == pattern(tag as usize, len_of(tag)));
            let _ = there.receiver.tell();
        }
    });
}

#[test]
fn a_consumer_that_has_read_more_than_was_sent_is_broken() {
    let (mut here, mut there) = pair();
    assert!(send(&mut here, 1, b"one"));
    assert!(receive(&mut there).is_some());
    assert!(receive(&mut there).is_none());
    assert!(send(&mut there, 1, &pattern(1, 4096)));
    there.sender.way.slot(0).put_place(0, 4096, 2);
    assert!(receive(&mut here).is_some());
    assert!(!here.send_long(head(0), 1000, |_, _| (), || ()));
    assert!(here.space(1000).is_err());
}

#[test]
fn a_full_ring_keeps_messages_that_were_not_read() {
    for len in [100, 200, 256] {
        let (mut here, mut there) = pair();
        let (mut sent, mut received) = (0usize, 0usize);
        while received < 20 * SLOTS {
            while send(&mut here, sent as u64, &pattern(sent, len)) {
                sent += 1;
            }
            // A caller that waits tries again and again.
            assert!(here.space(len).unwrap().is_none());
            for _ in 0..SLOTS / 4 {
                let (tag, bytes) = receive(&mut there).unwrap();
                assert_eq!(tag, received as u64);
                assert!(bytes == pattern(received, len), "{len} {received}");
                received += 1;
            }
            let _ = there.receiver.tell();
        }
    }
}

#[test]
fn both_directions_are_apart() {
    let (mut here, mut there) = pair();
    assert!(send(&mut here, 1, b"there"));
    assert!(send(&mut there, 2, b"here"));
    assert_eq!(receive(&mut here), Some((2, b"here".to_vec())));
    assert_eq!(receive(&mut there), Some((1, b"there".to_vec())));
    assert_eq!((receive(&mut here), receive(&mut there)), (None, None));
}

#[test]
fn a_sleeping_peer_is_woken_once_and_a_running_one_is_not() {
    let [(mut here, _), (mut there, bell)] = pair_with_bells();
    let wakes = |here: &mut Channel| {
        let space = here.space(0).unwrap().unwrap();
        space.publish(head(0))
    };
    assert!(!wakes(&mut here));
    for _ in 0..3 {
        bell.arm();
        barrier::heavy();
        assert!(wakes(&mut here));
        assert!(!wakes(&mut here));
        while receive(&mut there).is_some() {}
        let _ = there.receiver.tell();
    }
}

#[test]
fn a_side_that_waits_for_space_is_woken_when_there_is_some() {
    let [(mut here, bell), (mut there, _)] = pair_with_bells();
    while send(&mut here, 0, &pattern(0, MODERATE)) {}
    assert!(here.is_starved_unknown());
    here.sleep();
    bell.arm();
    assert!(!here.is_starved_unknown());
    let record = there.receiver.next().unwrap().unwrap();
    let len = record.len();
    let woken = there.receiver.take(len) || there.receiver.tell();
    assert!(woken && !bell.is_armed());
    assert!(send(&mut here, 0, &pattern(0, MODERATE)));
    // A side that has nothing to send is not woken for space.
    assert!(!here.is_starved_unknown());
    here.sleep();
    bell.arm();
    let _ = there.receiver.take(len);
    assert!(!there.receiver.tell());
    assert!(bell.is_armed());
}

/// Sends messages of the longest kind until there is no space. Returns their number.
fn fill(from: &mut Channel, sent: &mut u64) -> usize {
    let first = *sent;
    while send(from, *sent, &pattern(*sent as usize, MODERATE)) {
        *sent += 1;
    }
    (*sent - first) as usize
}

fn take_all(at: &mut Channel, taken: &mut u64) {
    while let Some((tag, bytes)) = receive(at) {
        assert_eq!(tag, *taken);
        assert!(bytes == pattern(tag as usize, MODERATE));
        *taken += 1;
    }
    let _ = at.receiver.tell();
}

#[test]
fn of_a_receiver_that_takes_nothing_the_sender_is_far_ahead() {
    let (mut here, mut there) = pair();
    let (mut sent, mut taken) = (0, 0);
    for round in 0..3 {
        let ahead = fill(&mut here, &mut sent);
        assert_eq!(ahead, NEAR / MODERATE, "in round {round}");
        for _ in 0..2 * NEAR / MODERATE {
            let (tag, bytes) = receive(&mut there).unwrap();
            assert!(tag == taken && bytes == pattern(tag as usize, MODERATE));
            taken += 1;
            let _ = there.receiver.tell();
            assert_eq!(fill(&mut here, &mut sent), 1);
        }
        take_all(&mut there, &mut taken);
    }
    assert_eq!(taken, sent);
}

#[test]
fn a_segment_of_another_kind_is_refused() {
    let (segment, fd) = Segment::create(SEGMENT, &[]).unwrap();
    assert_eq!(Channel::attach(fd.as_fd()).err(), Some(Errno::EPROTO));
    magic(&segment).store(MAGIC + 1, Ordering::Relaxed);
    assert_eq!(Channel::attach(fd.as_fd()).err(), Some(Errno::EPROTO));
}

#[test]
fn whatever_the_other_side_writes_is_an_error_or_bytes() {
    let (mut here, fd) = Channel::create().unwrap();
    let far = Segment::attach(fd.as_fd(), SEGMENT).unwrap();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (mut errors, mut records, mut taken) = (0, 0, 0);
    for round in 0..20_000u64 {
        // An arbitrary value anywhere, or a value like that of the next message.
        let (at, word) = match round % 3 {
            0 => (
                CONTROL + (next() as usize % (TABLES - CONTROL)) / 8 * 8,
                next(),
            ),
            1 => {
                let at = [0, HEAD, HEAD + 8, HEAD + 16][next() as usize % 4];
                let at = taken % SLOTS * SLOT + at;
                (RINGS + RING + at, next() % (2 * AREA as u64))
            }
            _ => {
                let lap = (taken / SLOTS + 1) as u64;
                let half = next() & u64::from(u32::MAX);
                (RINGS + RING + taken % SLOTS * SLOT, lap << 32 | half)
            }
        };
        // SAFETY: `at` is below `TABLES` and a multiple of 8, so the word is inside the segment and
        // aligned; both sides access it atomically.
        unsafe { AtomicU64::from_ptr(far.base().add(at).cast().as_ptr()) }
            .store(word, Ordering::Relaxed);
        if let Some(next) = here.receiver.peek() {
            let len = next.bytes().map(|bytes| bytes.len());
            assert!(len.is_none_or(|len| len <= INLINE));
            for number in 0..SLOT {
                let is_there = len.is_some_and(|len| (number + 1) * 8 <= len);
                assert_eq!(next.eight(number).is_some(), is_there);
            }
        }
        here.receiver.fetch_ahead();
        match here.receiver.next() {
            Ok(Some(record)) => {
                let mut bytes = Vec::new();
                Iov::from(here.receiver.bytes(&record)).append_to(&mut bytes);
                let _ = here.receiver.take(bytes.len());
                records += 1;
                taken += 1;
            }
            Ok(None) => {}
            Err(_) => {
                errors += 1;
                taken += 1;
                let _ = here.receiver.take(0);
            }
        }
        match here.space(next() as usize % MODERATE) {
            Ok(Some(space)) => {
                space.bytes().fill(1);
                let _ = space.publish(head(round));
            }
            Ok(None) => {}
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 0 && records > 0, "{errors} {records}");
}

#[test]
fn a_side_that_ends_the_channel_is_seen_to_have_done_so_after_its_messages() {
    let (mut here, mut there) = pair();
    assert!(send(&mut here, 1, b"last"));
    assert_eq!((here.end_there(), there.end_there()), (None, None));
    here.end(true);
    // An end without good order, afterwards, takes nothing back.
    here.end(false);
    assert_eq!(there.end_there(), Some(End { has_left: true }));
    assert_eq!(here.end_there(), None);
    assert_eq!(receive(&mut there).unwrap().1, b"last");
    there.end(false);
    assert_eq!(here.end_there(), Some(End { has_left: false }));
}
