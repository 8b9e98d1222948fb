//! The limit of links of strangers.

use prov_message::strangers::{AllStrangers, Strangers};

use super::*;

/// The limit in these tests.
const LIMIT: usize = 17;

/// A side whose strangers are counted separately from those of other tests.
fn limited() -> Side {
    let side = side(Params {
        max_strangers: LIMIT,
        cm_progress_interval: 0,
        ..Params::default()
    });
    let all: &'static AllStrangers = Box::leak(Box::default());
    side.engine.core().strangers = Strangers::new(all);
    side
}

/// A peer that knows the side, and is not known there.
fn stranger(host: &Side) -> Side {
    let stranger = side(Params::default());
    stranger.knows(host);
    stranger
}

/// Sends a message and receives it.
fn send(from: &Side, to: &Side) {
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let (sent, received) = (from.count(), to.count());
    let looked = || to.engine.core().looked_at_events;
    let before = looked();
    until(&[to], || looked() > before);
    to.receive(&mut place, 1);
    from.send(&mut out, 1);
    until(&[from, to], || {
        from.count() == sent + 1 && to.count() == received + 1
    });
    assert_eq!(place, out);
    assert_eq!((from.errors(), to.errors()), (vec![], vec![]));
}

fn is_linked(side: &Side) -> bool {
    side.drive();
    !side.links().is_empty()
}

#[test]
fn the_stranger_idle_for_longest_is_disconnected_when_another_one_connects() {
    let host = limited();
    let mut guests = Vec::new();
    for _ in 0..LIMIT {
        guests.push(stranger(&host));
        send(guests.last().unwrap(), &host);
    }
    send(&guests[0], &host);
    assert_eq!(host.links().len(), LIMIT);
    guests.push(stranger(&host));
    send(guests.last().unwrap(), &host);
    assert_eq!(host.links().len(), LIMIT);
    until(&[&host], || !is_linked(&guests[1]));
    assert!(guests[2..].iter().all(is_linked) && is_linked(&guests[0]));
    // Its next message establishes a new link, for which another one is closed.
    send(&guests[1], &host);
    until(&[&host], || !is_linked(&guests[2]));
    assert_eq!(host.links().len(), LIMIT);
}

#[test]
fn strangers_with_a_pending_message_are_not_disconnected_and_known_peers_are_always_accepted() {
    let host = limited();
    let busy = [(); LIMIT].map(|()| stranger(&host));
    let mut announced = vec![1; 1 << 20];
    for guest in &busy {
        guest.send(&mut announced, 9);
        until(&[guest, &host], || is_linked(guest));
    }
    let newcomer = stranger(&host);
    let mut out = [7; 8];
    newcomer.send(&mut out, 1);
    until(&[&newcomer, &host], || newcomer.count() == 1);
    // The time may be over before the last refusal comes.
    let error = newcomer.errors()[0];
    assert!(
        matches!(error, Errno::ECONNREFUSED | Errno::ETIMEDOUT),
        "{error}"
    );
    let [known, host] = with_addresses_exchanged([side(Params::default()), host]);
    send(&known, &host);
    assert!(busy.iter().all(is_linked));
    let mut place = vec![0; 1 << 20];
    host.receive(&mut place, 9);
    let mut sides: Vec<&Side> = busy.iter().collect();
    sides.push(&host);
    until(&sides, || busy.iter().any(|guest| guest.count() == 1));
    assert_eq!(place, announced);
}

#[test]
fn a_peer_that_is_inserted_does_not_count_as_a_stranger() {
    let (host, guest) = (limited(), side(Params::default()));
    guest.knows(&host);
    send(&guest, &host);
    assert!(host.engine.core().strangers.oldest().is_some());
    host.knows(&guest);
    send(&host, &guest);
    assert!(host.engine.core().strangers.oldest().is_none());
}
