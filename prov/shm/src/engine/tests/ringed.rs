//! Long writes and reads that go through the ring in parts, where the initiator cannot copy
//! directly, and the operations that are posted after them.

use super::*;
use prov_local::link::pending::Pending;

/// Creates two sides with a link, on which the owner of memory carries out writes and reads.
fn pair() -> (Side, Side, u64) {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    let (mut out, mut into) = ([1; 8], [0; 8]);
    b.core.receive(b.ep, &mut buffer(1, &mut into, 2)).unwrap();
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [2]);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    a.asks();
    b.asks();
    (a, b, to)
}

fn has_offers(side: &Side) -> bool {
    let mut links = side.core.links.values();
    links.any(|link| {
        let mut pending = link.pending.values();
        pending.any(|pending| matches!(pending, Pending::Offer { .. }))
    })
}

#[test]
fn a_peer_that_breaks_the_channel_is_not_waited_for() {
    let (mut a, mut b, to) = pair();
    let key = a.core.links.keys().next().unwrap();
    let link = b.core.links.values_mut().next().unwrap();
    let receiver = &mut link.channel.as_mut().unwrap().receiver;
    // The receiver takes messages that were never sent.
    for _ in 0..10_000 {
        let _ = receiver.take_short();
    }
    let _ = receiver.tell();
    let mut out = pattern(1, EAGER);
    until(&mut [], |_| {
        if a.core.links.contains_key(key) {
            let _ = a.core.transmit(a.ep, &mut message(to, 1, &mut out, 0));
            a.core.progress();
        }
        !a.core.links.contains_key(key)
    });
}

/// Length in bytes of data that is sent in parts.
const LONG: usize = (1 << 20) + 100;

/// Returns the next completions of the first side; checks that no offer was made, from which the
/// other side would have copied.
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
        let mut write = access(Access::Write, to, 3, out, context);
        a.core.access(a.ep, &mut write).unwrap();
    }
    // Operations that are posted after them are accepted, and wait.
    let (mut short, mut back, mut other) = (*b"the last", [0; 8], *b"a letter");
    let mut at_b = [0; 8];
    let mut write = access(Access::Write, to, 3, &mut short, 5);
    a.core.access(a.ep, &mut write).unwrap();
    let mut read = access(Access::Read, to, 3, &mut back, 6);
    a.core.access(a.ep, &mut read).unwrap();
    b.core.receive(b.ep, &mut buffer(7, &mut at_b, 70)).unwrap();
    a.core
        .transmit(a.ep, &mut message(to, 7, &mut other, 0))
        .unwrap();
    let done = completed_without_copies(&mut a, &mut b, 8);
    let writes: Vec<_> = done.iter().filter(|done| **done < 6).collect();
    assert_eq!(writes, [&0, &1, &2, &3, &4, &5]);
    assert!(region[..8] == short && region[8..] == outs[4][8..]);
    assert_eq!((back, at_b), (short, other));
    assert_eq!(b.completions(), [70]);
}

#[test]
fn any_number_of_operations_may_be_posted_after_a_long_write_or_read() {
    let (mut a, mut b, to) = pair();
    let mut region = pattern(3, LONG);
    b.register(3, &mut region);
    let (mut out, mut back) = (pattern(1, LONG), vec![0; LONG]);
    for (kind, long) in [(Access::Write, &mut out), (Access::Read, &mut back)] {
        a.core
            .access(a.ep, &mut access(kind, to, 3, long, 1000))
            .unwrap();
        let mut shorts: Vec<_> = (0..500u64).map(|tag| tag.to_ne_bytes()).collect();
        let mut into = vec![[0; 8]; 500];
        for (tag, (short, into)) in shorts.iter_mut().zip(&mut into).enumerate() {
            b.core
                .receive(b.ep, &mut buffer(tag as u64, into, tag))
                .unwrap();
            // The application may reuse the buffers of injected messages when the call returns.
            let flags = [0, FI_INJECT, FI_DELIVERY_COMPLETE][tag % 3];
            let mut sent = message(to, tag as u64, short, flags);
            a.core.transmit(a.ep, &mut sent).unwrap();
            if flags == FI_INJECT {
                short.fill(0xff);
            }
        }
        let (mut done, mut received) = (0, Vec::new());
        until(&mut [&mut a, &mut b], |sides| {
            done += sides[0].completions().len();
            received.extend(sides[1].completions());
            done == 501 && received.len() == 500
        });
        assert!(received.is_sorted(), "in order");
        let tags = into.iter().map(|into| u64::from_ne_bytes(*into));
        assert!(tags.eq(0..500));
    }
    assert!(region == out && back == out);
}

#[test]
fn operations_that_wait_for_a_long_write_end_with_its_link() {
    let (mut a, b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    let (mut out, mut short) = (pattern(1, LONG), [0; 8]);
    a.core
        .access(a.ep, &mut access(Access::Write, to, 3, &mut out, 1))
        .unwrap();
    a.core
        .transmit(a.ep, &mut message(to, 2, &mut short, 0))
        .unwrap();
    drop(b);
    let mut errors = 0;
    until(&mut [&mut a], |sides| {
        errors += usize::from(sides[0].error().is_some());
        errors == 2
    });
    assert_eq!(a.completions(), []);
}

#[test]
fn data_of_a_long_read_arrives_in_parts() {
    let (mut a, mut b, to) = pair();
    let (mut region, mut back) = (pattern(4, LONG), vec![0; LONG]);
    b.register(3, &mut region);
    for round in 0..10 {
        back.fill(0);
        let mut read = access(Access::Read, to, 3, &mut back, round);
        a.core.access(a.ep, &mut read).unwrap();
        assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [round]);
        assert!(back == region);
    }
    // The area of the other direction has its full size by this time.
    let mut backs: Vec<_> = (0..5).map(|_| vec![0; LONG]).collect();
    for (context, back) in backs.iter_mut().enumerate() {
        let mut read = access(Access::Read, to, 3, back, context);
        a.core.access(a.ep, &mut read).unwrap();
    }
    // A short read need not wait for them.
    let mut short = [0; 8];
    let mut read = access(Access::Read, to, 3, &mut short, 5);
    a.core.access(a.ep, &mut read).unwrap();
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
        let mut write = access(Access::Write, to, 3, &mut out, context);
        a.core.access(a.ep, &mut write).unwrap();
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
fn a_queued_write_of_no_bytes_is_reported_once() {
    let (mut a, mut b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    let mut out = pattern(1, LONG);
    for (context, len) in [(0, LONG), (1, 0), (2, LONG), (3, 0), (4, 8)] {
        let write = access(Access::Write, to, 3, &mut out[..len], context);
        let mut write = RemoteAccess {
            data: 70 + context as u64,
            flags: write.flags | FI_REMOTE_CQ_DATA,
            ..write
        };
        a.core.access(a.ep, &mut write).unwrap();
    }
    let (mut told, mut done) = (Vec::new(), Vec::new());
    until(&mut [], |_| {
        // The peer answers late.
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
    let mut write = access(Access::Write, to, 3, &mut out, 1);
    a.core.access(a.ep, &mut write).unwrap();
    let write = access(Access::Write, to, 3, &mut short, 2);
    let mut write = RemoteAccess {
        flags: write.flags | FI_INJECT,
        ..write
    };
    a.core.access(a.ep, &mut write).unwrap();
    short.fill(0);
    let mut done = Vec::new();
    until(&mut [&mut a, &mut b], |sides| {
        done.extend(sides[0].completions());
        done.len() == 2
    });
    assert_eq!(&region[..8], b"injected");
}

#[test]
fn a_sleeping_thread_sends_the_rest_of_another_threads_write() {
    let (mut a, mut b, to) = pair();
    let mut region = vec![0; LONG];
    b.register(3, &mut region);
    a.sleeps();
    let mut out = pattern(1, LONG);
    let mut write = access(Access::Write, to, 3, &mut out, 1);
    a.core.access(a.ep, &mut write).unwrap();
    assert!(a.wakes(), "not all of it has left");
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert!(region == out);
}

#[test]
fn a_sleeping_thread_sends_the_rest_of_a_peers_read_when_there_is_space() {
    let (mut a, mut b, to) = pair();
    // The space that is left differs in each round.
    for number in 0..12 {
        let (key, len) = (3 + number, LONG + number as usize * 4000);
        let (mut region, mut back) = (pattern(4, len), vec![0; len]);
        b.register(key, &mut region);
        for context in 0..4 {
            let mut read = access(Access::Read, to, key, &mut back, context);
            a.core.access(a.ep, &mut read).unwrap();
        }
        let mut done = 0;
        while done < 4 {
            b.sleeps();
            let is_sent = !b
                .core
                .links
                .values()
                .any(|link| link.has_something_to_send());
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
