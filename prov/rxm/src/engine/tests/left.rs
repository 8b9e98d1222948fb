//! Messages that are received after their link has ended.

use std::net::SocketAddr;

use super::*;

/// Returns the source of a message that `b` has left at `a`, received after a change of the address
/// vector; `b` is known before, or not.
fn source_after(is_known: bool, change: impl FnOnce(&Side, SocketAddr)) -> u64 {
    let [a, b] = [(); 2].map(|()| side(Params::default()));
    if is_known {
        a.knows(&b);
    }
    b.knows(&a);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    b.send(&mut out, 1);
    let kept = || a.engine.core().endpoints.kept_bytes();
    until(&[&a, &b], || kept() != 0 && b.count() == 1);
    let addr = b.engine.core().below.as_ref().unwrap().addr;
    b.engine.close(b.ep);
    until(&[&a], || a.links().is_empty());
    change(&a, addr);
    a.receive(&mut place, 1);
    until(&[&a], || a.count() == 1);
    assert_eq!((place, kept()), (out, 0));
    a.seen.borrow()[0].src
}

#[test]
fn a_message_has_the_number_that_its_peer_has_when_it_is_received() {
    let removed = |a: &Side, _| a.av.remove(&[0]).unwrap();
    assert_eq!(source_after(true, |_, _| {}), 0);
    assert_eq!(source_after(true, removed), u64::MAX);
    assert_eq!(source_after(false, |_, _| {}), u64::MAX);
    assert_eq!(source_after(false, Side::inserts), 0);
}
