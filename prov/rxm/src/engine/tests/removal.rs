//! Connections of peers whose addresses are removed (`FI_AV_REMOVE_CLEANUP`).

use super::super::removal::Closer;
use super::*;

/// Two sides that have exchanged a message; the first one has removed the other's address since.
fn removed(closes: bool, mut before: impl FnMut(&[Side; 2])) -> ([Side; 2], Arc<Closer>) {
    let sides = pair(Params::default);
    let [a, b] = &sides;
    a.engine
        .core()
        .below
        .as_mut()
        .unwrap()
        .setting
        .closes_removed = closes;
    let closer = Closer::watch(&a.engine, a.ep);
    exchange(a, b);
    before(&sides);
    a.av.remove(&[0]).unwrap();
    (sides, closer)
}

fn exchange(a: &Side, b: &Side) {
    let (mut out, mut place) = ([7; 8], [0; 8]);
    b.receive(&mut place, 1);
    a.send(&mut out, 1);
    until(&[a, b], || a.count() == 1 && b.count() == 1);
    assert_eq!((place, a.errors()), (out, vec![]));
    a.forget();
    b.forget();
}

#[test]
fn the_connection_of_a_removed_address_is_closed_at_once_and_made_again() {
    let ([a, b], _closer) = removed(true, |_| {});
    assert_eq!(a.links(), []);
    until(&[&b], || b.links().is_empty());
    a.knows(&b);
    exchange(&a, &b);
}

#[test]
fn a_peer_that_is_inserted_again_before_it_has_noticed_gets_a_new_connection() {
    let ([a, b], _closer) = removed(true, |_| {});
    a.knows(&b);
    exchange(&a, &b);
}

#[test]
fn operations_to_a_removed_address_are_cancelled() {
    let mut long = vec![1; 1 << 20];
    let ([a, b], _closer) = removed(true, |[a, b]| {
        a.send(&mut long, 9);
        for side in [a, b] {
            side.drive();
        }
    });
    a.read();
    assert_eq!(a.errors(), [Errno::ECANCELED]);
    assert_eq!(a.outstanding(), 0);
    until(&[&b], || b.links().is_empty());
}

#[test]
fn messages_that_have_arrived_from_a_removed_address_are_received() {
    let (mut out, mut place) = ([5; 8], [0; 8]);
    let ([a, b], _closer) = removed(true, |[a, b]| {
        b.send(&mut out, 2);
        let kept = || a.engine.core().endpoints.kept_bytes();
        until(&[a, b], || kept() != 0 && b.count() == 1);
    });
    assert_eq!(a.links(), []);
    a.receive(&mut place, 2);
    until(&[&a, &b], || a.count() == 1);
    assert_eq!((place, a.errors()), (out, vec![]));
}

#[test]
fn connections_stay_unless_the_user_wants_them_closed() {
    let ([a, b], _closer) = removed(false, |_| {});
    for side in [&a, &b] {
        side.drive();
        assert_eq!(side.links().len(), 1);
    }
}
