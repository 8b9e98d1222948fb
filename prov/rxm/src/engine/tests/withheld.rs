//! Strangers that send more than is kept of them are held back.

use prov_message::{StrangersKept, StrangersLimits};

use super::*;

/// Approximate number of messages of 8 bytes of all strangers that are kept; half of that for one
/// stranger.
const KEPT_MESSAGES: usize = 100;
/// Limit of announcements of all strangers.
const ANNOUNCEMENTS: usize = 8;

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

fn messages(count: u64, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8; len]).collect()
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
