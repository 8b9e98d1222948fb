//! Contexts of scalable endpoints, which peers find by a name derived from their index.

use super::*;

/// Returns the address that `fi_rx_addr` makes of an address and an index.
fn of_context(number: u64, index: usize) -> u64 {
    number | (index as u64) << (u64::BITS - RX_CTX_BITS)
}

/// Creates the contexts of a scalable endpoint. Returns its name and these.
fn scalable(contexts: usize) -> (String, Vec<Side>) {
    let base = fresh_name();
    let name = |index| address::context_name(&base, index).unwrap();
    let sides = (0..contexts).map(|index| Side::named(name(index), Params::default()));
    let sides = sides.collect();
    (base, sides)
}

/// Returns the source of the next completion.
fn source(sides: &mut [&mut Side], of: usize) -> u64 {
    let mut found = None;
    until(sides, |sides| {
        let _ = sides[of]
            .cq
            .read(1, |one: &Completion| found = Some(one.src));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn all_contexts_reach_each_other_and_have_the_address_of_their_endpoint() {
    let ((name_a, mut all_a), (name_b, mut all_b)) = (scalable(2), scalable(3));
    let inserted = all_b.iter().map(|b| {
        // Another endpoint is inserted first, so that the addresses differ.
        b.insert(&fresh_name());
        b.insert(&name_a)
    });
    let from: Vec<u64> = inserted.collect();
    for a in &mut all_a {
        let to = a.insert(&name_b);
        for (index, b) in all_b.iter_mut().enumerate() {
            let (mut out, mut into) = (pattern(index, 8), vec![0; 8]);
            b.core.receive(b.ep, &mut buffer(7, &mut into, 1)).unwrap();
            let mut sent = message(of_context(to, index), 7, &mut out, 0);
            a.core.transmit(a.ep, &mut sent).unwrap();
            assert_eq!(source(&mut [&mut *a, &mut *b], 1), from[index]);
            assert_eq!(completed(&mut [&mut *a, &mut *b], 0, 1), [7]);
            assert_eq!(into, out);
        }
    }
}

#[test]
fn only_the_addressed_context_receives_a_message() {
    let (base, mut there) = scalable(1);
    let params = Params {
        connect_timeout: 100,
        ..Params::default()
    };
    let mut a = Side::new(params);
    let to = a.insert(&base);
    let (mut out, mut into) = ([7; 8], [0; 8]);
    let b = &mut there[0];
    b.core.receive(b.ep, &mut buffer(7, &mut into, 1)).unwrap();
    let mut sent = message(of_context(to, 1), 7, &mut out, 0);
    a.core.transmit(a.ep, &mut sent).unwrap();
    let mut error = None;
    until(&mut [&mut a, &mut *b], |sides| {
        error = error.or(sides[0].error());
        error.is_some()
    });
    assert!(b.completions().is_empty());
    // An index that no endpoint has is an error of the call.
    let mut beyond = message(u64::MAX - 1, 7, &mut out, 0);
    assert_eq!(a.core.transmit(a.ep, &mut beyond), Err(Errno::EINVAL));
}

#[test]
fn a_receive_that_names_a_context_takes_messages_of_all_of_its_endpoint() {
    let ((name_a, mut all_a), (name_b, mut all_b)) = (scalable(2), scalable(1));
    let b = &mut all_b[0];
    let from = b.insert(&name_a);
    for (index, a) in all_a.iter_mut().enumerate() {
        let to = a.insert(&name_b);
        let (mut out, mut into) = (pattern(index, 8), vec![0; 8]);
        let mut directed = Receive {
            peer: of_context(from, 1),
            ..buffer(7, &mut into, 1)
        };
        b.core.receive(b.ep, &mut directed).unwrap();
        a.core
            .transmit(a.ep, &mut message(to, 7, &mut out, 0))
            .unwrap();
        assert_eq!(completed(&mut [&mut *a, &mut *b], 1, 1), [1]);
        assert_eq!(into, out);
    }
}
