//! Messages whose link has ended before they are received.

use super::*;

/// Returns the source of a message that `b` has left at `a` and that is received after `change` of
/// the address vector; `b` is in the vector before, or not.
fn source_after(is_known: bool, change: impl FnOnce(&Side, &str)) -> u64 {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    if is_known {
        a.insert(&b.name);
    }
    let to = b.insert(&a.name);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    let mut sent = message(to, 1, &mut out, 0);
    b.core.transmit(b.ep, &mut sent).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [1]);
    until(&mut [&mut a, &mut b], |sides| {
        sides[0].core.endpoints.kept_bytes() != 0
    });
    b.core.close(b.ep);
    until(&mut [&mut a], |sides| sides[0].core.links.is_empty());
    change(&a, &b.name);
    let mut received = buffer(1, &mut place, 5);
    a.core.receive(a.ep, &mut received).unwrap();
    let mut source = None;
    until(&mut [&mut a], |sides| {
        let _ = sides[0].cq.read(1, |one| source = Some(one.src));
        source.is_some()
    });
    assert_eq!(place, out);
    source.unwrap()
}

#[test]
fn a_message_has_the_number_that_its_peer_has_when_it_is_received() {
    let removed = |a: &Side, _: &str| a.av.remove(&[0]).unwrap();
    let inserted = |a: &Side, name: &str| _ = a.insert(name);
    assert_eq!(source_after(true, |_, _| {}), 0);
    assert_eq!(source_after(true, removed), u64::MAX);
    assert_eq!(source_after(false, |_, _| {}), u64::MAX);
    assert_eq!(source_after(false, inserted), 0);
}
