//! Messages whose connection has ended before they are received.

use super::*;

/// Returns the source of a message that `b` has left at `a` and that is received after `change` of
/// the address vector; `b` is in the vector before, or not.
fn source_after(is_known: bool, change: impl FnOnce(&Side, SocketAddr)) -> u64 {
    let (a, b) = (side(), side());
    if is_known {
        a.knows(b.addr);
    }
    b.knows(a.addr);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    send(&b, &mut out, 1);
    until([&a, &b], || a.kept() != 0 && b.count() == 1);
    b.engine.close(b.ep);
    until([&a, &a], || a.open_connections().is_empty());
    change(&a, b.addr);
    receive(&a, &mut place, 1);
    until([&a, &a], || a.count() == 1);
    assert_eq!((place, a.kept()), (out, 0));
    a.done.borrow()[0].src
}

#[test]
fn a_message_has_the_number_that_its_peer_has_when_it_is_received() {
    let removed = |a: &Side, _| a.av.remove(&[0]).unwrap();
    assert_eq!(source_after(true, |_, _| {}), 0);
    assert_eq!(source_after(true, removed), u64::MAX);
    assert_eq!(source_after(false, |_, _| {}), u64::MAX);
    assert_eq!(source_after(false, Side::knows), 0);
    // Opened before the peer ends; otherwise it could get the peer's port.
    let other = side();
    let has_another = |a: &Side, addr| {
        a.av.remove(&[0]).unwrap();
        a.knows(other.addr);
        a.knows(addr);
    };
    assert_eq!(source_after(true, has_another), 1);
}

#[test]
fn nothing_is_kept_of_connections_whose_messages_are_received() {
    let a = side();
    for round in 0..200 {
        let b = side();
        b.knows(a.addr);
        let (mut out, mut place) = ([round; 8], [0; 8]);
        send(&b, &mut out, 1);
        until([&a, &b], || a.kept() != 0 && b.count() == 1);
        b.engine.close(b.ep);
        until([&a, &a], || a.open_connections().is_empty());
        receive(&a, &mut place, 1);
        until([&a, &a], || a.count() == usize::from(round) + 1);
        assert_eq!(place, out);
    }
    let (all, peers) = {
        let mut core = a.engine.core();
        let all = core.endpoints.left_behind();
        (all, core.rdm(a.ep).unwrap().peers.left_behind())
    };
    assert!(all <= 64 && peers <= 64, "{all}, {peers}");
}
