//! Messages that are longer than any channel takes, and go at once where one does.

use std::time::Duration;

use prov_local::rota::Rounds;

use super::super::link::{Link, Pending};
use super::*;

/// Two sides, and the first one's link to the second, whose area has grown. Writes and
/// reads go through it.
fn pair() -> (Side, Side, u64) {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    for context in 0..200 {
        let (mut out, mut into) = (pattern(context, PUSHED), vec![0; PUSHED]);
        b.core
            .receive(b.ep, &buffer(1, &mut into, context))
            .unwrap();
        a.core.transmit(a.ep, &message(to, 1, &mut out, 0)).unwrap();
        assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [context]);
        assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
        assert!(into == out);
        // Whatever has kept this test.
        have_quick_slots([&a, &b]);
    }
    a.asks();
    b.asks();
    (a, b, to)
}

fn have_quick_slots(sides: [&Side; 2]) {
    for link in sides.iter().flat_map(|side| side.core.links.values()) {
        let pace = &link.channel.as_ref().unwrap().joint().own.bounce.pace;
        (0..100).for_each(|_| pace.has_copied(64 << 10, Duration::from_millis(1)));
    }
}

#[test]
fn what_was_sent_at_once_is_the_applications_again() {
    let (mut a, mut b, to) = pair();
    let mut out = pattern(7, PUSHED);
    let sent = out.clone();
    a.core.transmit(a.ep, &message(to, 2, &mut out, 0)).unwrap();
    assert_eq!(a.completions(), [2]);
    out.fill(0);
    let mut into = vec![0; PUSHED];
    b.core.receive(b.ep, &buffer(2, &mut into, 3)).unwrap();
    assert_eq!(completed(&mut [&mut b], 0, 1), [3]);
    assert!(into == sent);
}

#[test]
fn delivery_is_told_of_what_was_sent_at_once() {
    let (mut a, mut b, to) = pair();
    let mut out = pattern(7, PUSHED);
    let flags = FI_DELIVERY_COMPLETE;
    a.core
        .transmit(a.ep, &message(to, 2, &mut out, flags))
        .unwrap();
    assert!(!has_offers(&a));
    (0..10).for_each(|_| [&mut a, &mut b].into_iter().for_each(Side::drive));
    assert_eq!(a.completions(), []);
    let mut into = vec![0; PUSHED];
    b.core.receive(b.ep, &buffer(2, &mut into, 3)).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [2]);
    assert!(into == out);
}

#[test]
fn where_there_is_no_room_they_wait_for_it() {
    let (mut a, mut b, to) = pair();
    let (mut out, mut into) = (pattern(1, PUSHED), Vec::new());
    let mut sent = 0;
    for _ in 0..2 {
        let before = sent;
        let refused = loop {
            have_quick_slots([&a, &b]);
            match a.core.transmit(a.ep, &message(to, sent, &mut out, 0)) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Errno::EAGAIN);
        assert!(sent - before >= 3 && !has_offers(&a), "{sent}");
        // Who waits for room may sleep until there is some, for so long a message.
        let link = a.core.links.keys().next().unwrap();
        assert!(!a.core.has_work(link));
        assert!(a.core.links.get_mut(link).unwrap().has_room());
        assert_eq!(a.completions().len() as u64, sent - before);
        for tag in before..sent {
            into = vec![0; PUSHED];
            b.core.receive(b.ep, &buffer(tag, &mut into, 3)).unwrap();
            assert_eq!(completed(&mut [&mut b], 0, 1), [3]);
            assert!(into == out);
        }
    }
    assert!(!into.is_empty());
}

fn has_offers(side: &Side) -> bool {
    let mut links = side.core.links.values();
    links.any(|link| {
        let mut pending = link.pending.values();
        pending.any(|pending| matches!(pending, Pending::Offer { .. }))
    })
}

#[test]
fn who_breaks_the_channel_is_not_waited_for() {
    let (mut a, mut b, to) = pair();
    let key = a.core.links.keys().next().unwrap();
    let link = b.core.links.values_mut().next().unwrap();
    let receiver = &mut link.channel.as_mut().unwrap().receiver;
    // What was never sent.
    for _ in 0..10_000 {
        let _ = receiver.take_short();
    }
    let _ = receiver.tell();
    let mut out = pattern(1, PUSHED);
    until(&mut [], |_| {
        if a.core.links.contains_key(key) {
            have_quick_slots([&a, &b]);
            let _ = a.core.transmit(a.ep, &message(to, 1, &mut out, 0));
            a.core.progress();
        }
        !a.core.links.contains_key(key)
    });
}

/// Bytes that go in parts.
const LONG: usize = (1 << 20) + 100;

/// The next completions of the first side, for which nothing was offered, to be copied by
/// the side that is to have it.
fn completed_without_copies(a: &mut Side, b: &mut Side, count: usize) -> Vec<usize> {
    let mut done = Vec::new();
    until(&mut [], |_| {
        for side in [&mut *a, &mut *b] {
            side.core.progress();
            assert!(side.core.next_errand().is_none());
        }
        done.extend(a.completions());
        done.len() == count
    });
    done
}

#[test]
fn long_writes_go_in_parts_one_after_the_other_and_nothing_overtakes_them() {
    let (mut a, mut b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    let mut outs: Vec<_> = (0..5).map(|seed| pattern(seed, LONG)).collect();
    for (context, out) in outs.iter_mut().enumerate() {
        let write = access(Access::Write, to, 3, out, context);
        a.core.access(a.ep, &write).unwrap();
    }
    // A short one waits for its turn, and others for theirs.
    let (mut short, mut other) = (*b"the last", [0; 8]);
    let write = access(Access::Write, to, 3, &mut short, 5);
    a.core.access(a.ep, &write).unwrap();
    let read = access(Access::Read, to, 3, &mut other, 6);
    assert_eq!(a.core.access(a.ep, &read), Err(Errno::EAGAIN));
    let sent = message(to, 7, &mut other, 0);
    assert_eq!(a.core.transmit(a.ep, &sent), Err(Errno::EAGAIN));
    let done = completed_without_copies(&mut a, &mut b, 6);
    assert_eq!(done, [0, 1, 2, 3, 4, 5]);
    assert!(region[..8] == short && region[8..] == outs[4][8..]);
    a.core
        .transmit(a.ep, &message(to, 7, &mut other, 0))
        .unwrap();
}

#[test]
fn what_is_read_comes_in_parts() {
    let (mut a, mut b, to) = pair();
    let (mut region, mut back) = (pattern(4, LONG), vec![0; LONG]);
    b.register(3, &mut region);
    for round in 0..10 {
        back.fill(0);
        let read = access(Access::Read, to, 3, &mut back, round);
        a.core.access(a.ep, &read).unwrap();
        assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [round]);
        assert!(back == region);
    }
    // The way back has grown by now.
    let mut backs: Vec<_> = (0..5).map(|_| vec![0; LONG]).collect();
    for (context, back) in backs.iter_mut().enumerate() {
        let read = access(Access::Read, to, 3, back, context);
        a.core.access(a.ep, &read).unwrap();
    }
    // One that is short need not wait for them.
    let mut short = [0; 8];
    let read = access(Access::Read, to, 3, &mut short, 5);
    a.core.access(a.ep, &read).unwrap();
    let done = completed_without_copies(&mut a, &mut b, 6);
    assert_eq!(done, [5, 0, 1, 2, 3, 4]);
    assert!(backs.iter().all(|back| *back == region) && short == region[..8]);
    assert!(!has_offers(&b), "nothing is left of them");
}

#[test]
fn writes_on_their_way_end_with_their_link() {
    let (mut a, b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    let mut out = pattern(1, LONG);
    for context in 0..3 {
        let write = access(Access::Write, to, 3, &mut out, context);
        a.core.access(a.ep, &write).unwrap();
    }
    drop(b);
    let mut errors = 0;
    until(&mut [&mut a], |sides| {
        errors += usize::from(sides[0].error().is_some());
        errors == 3
    });
    assert_eq!(a.completions(), []);
}

#[test]
fn a_queued_write_of_no_bytes_is_told_of_once() {
    let (mut a, mut b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    let mut out = pattern(1, LONG);
    for (context, len) in [(0, LONG), (1, 0), (2, LONG), (3, 0), (4, 8)] {
        let write = access(Access::Write, to, 3, &mut out[..len], context);
        let write = RemoteAccess {
            data: 70 + context as u64,
            flags: write.flags | FI_REMOTE_CQ_DATA,
            ..write
        };
        a.core.access(a.ep, &write).unwrap();
    }
    let (mut told, mut done) = (Vec::new(), Vec::new());
    until(&mut [], |_| {
        // The peer is in no hurry to answer.
        (0..20).for_each(|_| _ = a.core.progress());
        b.core.progress();
        let _ = b.cq.read(1000, |one| told.push((one.len, one.data)));
        done.extend(a.completions());
        done.len() == 5
    });
    assert_eq!(done, [0, 1, 2, 3, 4]);
    assert_eq!(told, [(LONG, 70), (0, 71), (LONG, 72), (0, 73), (8, 74)]);
}

#[test]
fn an_injected_write_that_waits_is_the_applications_again() {
    let (mut a, mut b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    let (mut out, mut short) = (pattern(1, LONG), *b"injected");
    let write = access(Access::Write, to, 3, &mut out, 1);
    a.core.access(a.ep, &write).unwrap();
    let write = access(Access::Write, to, 3, &mut short, 2);
    let write = RemoteAccess {
        flags: write.flags | FI_INJECT,
        ..write
    };
    a.core.access(a.ep, &write).unwrap();
    short.fill(0);
    let mut done = Vec::new();
    until(&mut [&mut a, &mut b], |sides| {
        done.extend(sides[0].completions());
        done.len() == 2
    });
    assert_eq!(&region[..8], b"injected");
}

#[test]
fn who_sleeps_sends_the_rest_of_a_write_that_another_thread_posts() {
    let (mut a, mut b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    a.sleeps();
    let mut out = pattern(1, LONG);
    let write = access(Access::Write, to, 3, &mut out, 1);
    a.core.access(a.ep, &write).unwrap();
    assert!(a.wakes(), "not all of it has left");
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert!(region == out);
}

#[test]
fn who_sleeps_sends_the_rest_of_what_a_peer_reads_when_there_is_room() {
    let (mut a, mut b, to) = pair();
    // Which room is left differs.
    for number in 0..12 {
        let (key, len) = (3 + number, LONG + number as usize * 4000);
        let (mut region, mut back) = (pattern(4, len), vec![0; len]);
        b.register(key, &mut region);
        for context in 0..4 {
            let read = access(Access::Read, to, key, &mut back, context);
            a.core.access(a.ep, &read).unwrap();
        }
        let mut done = 0;
        while done < 4 {
            b.sleeps();
            let is_sent = !b.core.links.values().any(Link::has_something_to_send);
            until(&mut [], |_| {
                (0..64).for_each(|_| a.drive());
                done += a.completions().len();
                a.core.links.values().all(|link| {
                    let channel = link.channel.as_ref().unwrap();
                    !channel.receiver.has_next()
                })
            });
            assert!(is_sent || b.wakes(), "there is room again");
        }
        assert!(back == region);
    }
}
