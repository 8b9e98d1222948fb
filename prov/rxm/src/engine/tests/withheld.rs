//! Strangers that send more than is kept of them are held back.

use prov_message::{StrangersKept, StrangersLimits};

use super::*;

/// Approximate number of messages of 8 bytes of all strangers that are kept; half of that for one
/// stranger.
const KEPT_MESSAGES: usize = 100;
/// Limit of announcements of all strangers.
const ANNOUNCEMENTS: usize = 8;
/// Number of messages sent in these tests: more than the packet buffers of a link.
const SENT: u64 = 300;

/// Two sides, of which the first is a stranger to the second, whose strangers are counted in
/// `kept`.
fn stranger_and_host(kept: &'static StrangersKept, params: impl Fn() -> Params) -> [Side; 2] {
    let sides = [side(params()), side(params())];
    let mut core = sides[1].engine.core();
    core.endpoints.limit_strangers(&StrangersLimits {
        of: kept,
        bytes: KEPT_MESSAGES * (1024 + 128 + 8),
        announcements: ANNOUNCEMENTS,
    });
    drop(core);
    sides[0].knows(&sides[1]);
    sides
}

fn quick() -> Params {
    Params {
        cm_progress_interval: 0,
        ..Params::default()
    }
}

fn is_held_back(side: &Side) -> bool {
    let core = side.engine.core();
    core.links.values().any(|link| link.hold.is_some())
}

/// Sends as many messages as there is room for, until the host holds the stranger back.
fn flood(sides: &[Side; 2], out: &mut [Vec<u8>]) -> usize {
    let [stranger, host] = sides;
    let mut sent = 0;
    until(&[stranger, host], || {
        while sent < out.len() && stranger.has_sent(&mut out[sent], sent as u64) {
            sent += 1;
        }
        is_held_back(host)
    });
    for _ in 0..100 {
        host.drive();
    }
    assert_eq!(host.links().len(), 1);
    sent
}

/// Receives all messages, in this order, while the rest of them is sent.
fn receive_all(
    sides: &[Side; 2],
    out: &mut [Vec<u8>],
    mut sent: usize,
    order: impl Iterator<Item = usize>,
) {
    let [stranger, host] = sides;
    let mut places: Vec<Vec<u8>> = out.iter().map(|bytes| vec![0; bytes.len()]).collect();
    for (received, number) in order.enumerate() {
        host.receive(&mut places[number], number as u64);
        until(&[stranger, host], || {
            while sent < out.len() && stranger.has_sent(&mut out[sent], sent as u64) {
                sent += 1;
            }
            host.count() == received + 1
        });
    }
    until(&[stranger, host], || stranger.count() == out.len());
    assert!(places == out);
    assert_eq!((host.errors(), stranger.errors()), (vec![], vec![]));
    assert_eq!((host.links().len(), is_held_back(host)), (1, false));
    assert_eq!(host.engine.core().endpoints.kept_bytes(), 0);
}

fn messages(count: u64, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8; len]).collect()
}

#[test]
fn a_stranger_that_floods_is_held_back_and_loses_nothing() {
    static KEPT: StrangersKept = StrangersKept::new();
    for use_srx in [None, Some(false)] {
        let sides = stranger_and_host(&KEPT, || Params { use_srx, ..quick() });
        let mut out = messages(SENT, 8);
        let sent = flood(&sides, &mut out);
        receive_all(&sides, &mut out, sent, 0..SENT as usize);
    }
}

#[test]
fn a_stranger_that_floods_with_messages_in_parts_is_held_back_and_loses_nothing() {
    static KEPT: StrangersKept = StrangersKept::new();
    let sides = stranger_and_host(&KEPT, quick);
    let mut out = messages(40, 40_000);
    let sent = flood(&sides, &mut out);
    receive_all(&sides, &mut out, sent, 0..40);
}

#[test]
fn a_stranger_that_announces_too_much_is_held_back_and_loses_nothing() {
    static KEPT: StrangersKept = StrangersKept::new();
    let sides = stranger_and_host(&KEPT, quick);
    let mut out = messages(20, 200_000);
    let sent = flood(&sides, &mut out);
    receive_all(&sides, &mut out, sent, 0..20);
}

#[test]
fn a_receive_takes_the_message_that_a_stranger_is_held_back_with() {
    static KEPT: StrangersKept = StrangersKept::new();
    for (len, count) in [(8, 60), (40_000, 10), (200_000, 6)] {
        let sides = stranger_and_host(&KEPT, quick);
        let mut out = messages(count, len);
        let sent = flood(&sides, &mut out);
        // The last ones first: each makes room for the next one.
        let first = sides[1]
            .engine
            .core()
            .endpoints
            .kept_bytes()
            .checked_div(len + 128);
        let first = match len {
            200_000 => ANNOUNCEMENTS / 2,
            _ => first.unwrap(),
        };
        let count = count as usize;
        receive_all(&sides, &mut out, sent, (first..count).chain(0..first));
    }
}

#[test]
fn a_stranger_resumes_when_it_is_inserted() {
    static KEPT: StrangersKept = StrangersKept::new();
    let sides = stranger_and_host(&KEPT, quick);
    let mut out = messages(SENT, 8);
    let sent = flood(&sides, &mut out);
    sides[1].knows(&sides[0]);
    until(&[&sides[1]], || !is_held_back(&sides[1]));
    receive_all(&sides, &mut out, sent, (0..SENT as usize).rev());
}

#[test]
fn messages_held_back_from_a_stranger_are_received_after_it_disconnects() {
    static KEPT: StrangersKept = StrangersKept::new();
    let [stranger, host] = stranger_and_host(&KEPT, quick);
    // Not more than the host has packet buffers for, held back or not.
    const COUNT: usize = 90;
    let mut out = messages(COUNT as u64, 8);
    for (tag, bytes) in (0..).zip(&mut out) {
        until(&[&stranger, &host], || stranger.has_sent(bytes, tag));
    }
    until(&[&stranger, &host], || {
        stranger.count() == COUNT && is_held_back(&host)
    });
    drop(stranger);
    let mut places = messages(COUNT as u64, 0);
    for (number, place) in places.iter_mut().enumerate() {
        place.resize(8, 0xee);
        host.receive(place, number as u64);
        until(&[&host], || host.count() == number + 1);
    }
    assert!(places == out);
    assert_eq!(host.errors(), []);
    until(&[&host], || host.links().is_empty());
}

#[test]
fn a_disconnected_stranger_that_is_held_back_counts_as_idle() {
    static KEPT: StrangersKept = StrangersKept::new();
    let [stranger, host] = stranger_and_host(&KEPT, quick);
    let mut out = messages(60, 8);
    let sides = [stranger, host];
    flood(&sides, &mut out);
    let [stranger, host] = sides;
    drop(stranger);
    let has_gone = || {
        let core = host.engine.core();
        core.links.values().all(|link| link.ending.is_some())
    };
    until(&[&host], has_gone);
    let mut core = host.engine.core();
    let key = core.links.keys().next().unwrap();
    let noted = Instant::now();
    let activity = prov_message::strangers::Hosting::look_at_stranger(&mut *core, key, noted);
    assert_eq!(activity, prov_message::strangers::Activity::Idle);
}
