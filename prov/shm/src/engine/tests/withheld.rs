//! Messages for which there is no memory stay with their senders.

use prov_message::{StrangersKept, StrangersLimits};

use super::*;

/// Largest number of announcements of all strangers in these tests; one of them may have half of
/// that.
const ANNOUNCEMENTS: usize = 8;

#[test]
fn messages_without_a_receive_stay_with_their_sender() {
    let params = || Params {
        max_unexpected: 64 << 10,
        tx_size: 1 << 16,
        ..Params::default()
    };
    let (mut a, mut b) = (Side::new(params()), Side::new(params()));
    let to = a.insert(&b.name);
    const COUNT: u64 = 5000;
    let mut out = pattern(1, 100);
    let mut sent = 0;
    until(&mut [&mut a, &mut b], |sides| {
        while sent < COUNT {
            // Injected messages have to be copied then.
            let flags = if sent % 2 == 0 { 0 } else { FI_INJECT };
            let mut posted = message(to, sent, &mut out, flags);
            match sides[0].core.transmit(sides[0].ep, &mut posted) {
                Ok(()) => sent += 1,
                Err(error) => {
                    assert_eq!(error, Errno::EAGAIN);
                    break;
                }
            }
        }
        sent == COUNT
    });
    (0..100).for_each(|_| [&mut a, &mut b].into_iter().for_each(Side::drive));
    let mut into = [0; 100];
    for tag in (0..COUNT).rev() {
        b.core
            .receive(b.ep, &mut buffer(tag, &mut into, 5))
            .unwrap();
        assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [5]);
        assert!(into[..] == out);
    }
}

/// Makes a stranger post messages that are left in its memory, more than the receiver accepts
/// announcements of; returns what it has posted.
fn offer_too_many(a: &mut Side, b: &mut Side, kept: &'static StrangersKept) -> Vec<Vec<u8>> {
    b.core.endpoints.limit_strangers(&StrangersLimits {
        of: kept,
        bytes: 1 << 20,
        announcements: ANNOUNCEMENTS,
    });
    let to = a.insert(&b.name);
    let mut out: Vec<Vec<u8>> = (0..20).map(|number| pattern(number, 300_000)).collect();
    for (tag, bytes) in (0..).zip(&mut out) {
        a.core
            .transmit(a.ep, &mut message(to, tag, bytes, 0))
            .unwrap();
    }
    until(&mut [a, b], |sides| {
        let core = &sides[1].core;
        core.links.values().any(|link| link.is_stalled)
    });
    (0..100).for_each(|_| [&mut *a, &mut *b].into_iter().for_each(Side::drive));
    assert_eq!(b.core.links.len(), 1);
    out
}

/// Drives a side until its thread may sleep.
fn may_sleep(side: &mut Side) {
    until(&mut [side], |sides| {
        sides[0].core.prepare_wait(Sleeper::Thread)
    });
}

/// Receives this message at a side whose only thread sleeps when the receive is posted.
fn receive_asleep(a: &mut Side, b: &mut Side, out: &[Vec<u8>], number: usize) {
    let mut into = vec![0; 300_000];
    let mut posted = buffer(number as u64, &mut into, 5);
    b.core.receive(b.ep, &mut posted).unwrap();
    let deadline = std::time::Instant::now() + LONG;
    while b.completions().is_empty() {
        assert!(std::time::Instant::now() < deadline, "nobody wakes it");
        a.drive();
        if is_readable(b) {
            may_sleep(b);
        }
        std::thread::yield_now();
    }
    assert!(into == out[number]);
}

/// Holds a stranger back, and lets the receiver's thread fall asleep.
fn fall_asleep(a: &mut Side, b: &mut Side, kept: &'static StrangersKept) -> Vec<Vec<u8>> {
    let out = offer_too_many(a, b, kept);
    // That of the new link would wake the thread, once.
    b.core.poller.forget_timers();
    may_sleep(b);
    out
}

#[test]
fn a_sleeping_thread_receives_the_message_that_another_one_posts_a_receive_for() {
    static KEPT: StrangersKept = StrangersKept::new();
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let out = fall_asleep(&mut a, &mut b, &KEPT);
    receive_asleep(&mut a, &mut b, &out, ANNOUNCEMENTS / 2);
}

#[test]
fn a_sleeping_thread_receives_all_of_a_stranger_that_another_one_inserts() {
    static KEPT: StrangersKept = StrangersKept::new();
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let out = fall_asleep(&mut a, &mut b, &KEPT);
    b.insert(&a.name);
    receive_asleep(&mut a, &mut b, &out, out.len() - 1);
}
