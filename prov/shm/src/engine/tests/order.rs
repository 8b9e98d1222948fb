//! The order of operations at the target (`fi_tx_attr::msg_order`): operations after a read do not
//! change the data that it returns.

use super::*;

/// Reads a whole region, and then writes to its end, or sends a message after which its owner
/// writes there. The read returns the previous contents.
fn read_and_change(params: fn() -> Params, len: usize, by_message: bool) {
    let (mut a, mut b) = (Side::new(params()), Side::new(params()));
    let to = a.insert(&b.name);
    let before = pattern(1, len);
    let mut region = before.clone();
    b.register(3, &mut region);
    let (mut word, mut received) = (*b"changed!", [0; 8]);
    b.core
        .receive(b.ep, &mut buffer(2, &mut received, 9))
        .unwrap();
    // The first access opens the link.
    let mut first = [0; 8];
    let mut read = access(Access::Read, to, 3, &mut first, 1);
    a.core.access(a.ep, &mut read).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);

    let mut found = vec![0; len];
    let mut read = access(Access::Read, to, 3, &mut found, 1);
    a.core.access(a.ep, &mut read).unwrap();
    let end = len - word.len();
    let mut write = access(Access::Write, to, 3, &mut word, 2);
    write.remote = RemoteIov::default();
    write.remote.push(RemotePiece {
        addr: end as u64,
        len: 8,
        key: 3,
    });
    let mut is_posted = false;
    let mut done = Vec::new();
    until(&mut [&mut a, &mut b], |sides| {
        if !is_posted {
            let side = &mut *sides[0];
            let posted = match by_message {
                true => side
                    .core
                    .transmit(side.ep, &mut message(to, 2, &mut word, 0)),
                false => side.core.access(side.ep, &mut write),
            };
            is_posted = posted != Err(Errno::EAGAIN);
            assert!(!is_posted || posted == Ok(()));
        }
        done.extend(sides[0].completions());
        if by_message && sides[1].completions() == [9] {
            b"changed!"
                .iter()
                .zip(&mut region[end..])
                .for_each(|(from, to)| *to = *from);
        }
        done.len() == 2 && region.ends_with(b"changed!")
    });
    assert!(found == before, "{len} bytes, by a message: {by_message}");
}

#[test]
fn operations_after_a_read_do_not_change_its_data() {
    for params in [Params::default, without_cma] {
        for len in [64, 8 << 10, 1 << 20] {
            read_and_change(params, len, false);
            read_and_change(params, len, true);
        }
    }
}

/// Creates two sides with a link; the first has this order. Returns its index of the second, which
/// is not driven from then on, unless a test does so, and has reported that it has received
/// everything.
fn ordered_pair(msg_order: u64) -> (Side, Side, u64) {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    a.core.endpoints.get_mut(a.ep).unwrap().own.rules.msg_order = msg_order;
    let to = a.insert(&b.name);
    b.insert(&a.name);
    let mut out = [0; 8];
    let mut first = message(to, 1, &mut out, FI_DELIVERY_COMPLETE);
    a.core.transmit(a.ep, &mut first).unwrap();
    let mut into = [0; 8];
    b.core.receive(b.ep, &mut buffer(1, &mut into, 2)).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [1]);
    assert_eq!(b.completions(), [2]);
    (0..10).for_each(|_| b.drive());
    (a, b, to)
}

#[test]
fn an_access_follows_earlier_messages_if_the_application_has_that_order() {
    for (kind, msg_order) in [
        (Access::Write, FI_ORDER_WAS),
        (Access::Read, FI_ORDER_RAS),
        (Access::Write, FI_ORDER_WAS | FI_ORDER_RAS | FI_ORDER_SAS),
    ] {
        // One that is in the channel as a whole, in a slot or the area, and one that is offered.
        for len in [8, 1000, 1 << 20] {
            let (mut a, mut b, to) = ordered_pair(msg_order);
            let mut region = *b"region's";
            b.register(3, &mut region);
            let (mut out, mut into) = (pattern(1, len), vec![0; len]);
            a.core
                .transmit(a.ep, &mut message(to, 5, &mut out, 0))
                .unwrap();
            let mut bytes = *b"accessed";
            let mut access = access(kind, to, 3, &mut bytes, 6);
            a.core.access(a.ep, &mut access).unwrap();
            (0..10).for_each(|_| a.drive());
            assert!(!a.completions().contains(&6));
            assert_eq!((region, bytes), (*b"region's", *b"accessed"));
            b.core.receive(b.ep, &mut buffer(5, &mut into, 7)).unwrap();
            let (mut done, mut received) = (false, false);
            until(&mut [&mut a, &mut b], |sides| {
                done |= sides[0].completions().contains(&6);
                received |= sides[1].completions() == [7];
                done && received
            });
            assert_eq!(region, bytes);
            assert!(into == out);
        }
    }
}

#[test]
fn an_access_without_that_order_does_not_need_the_owner_whatever_was_sent_before() {
    for (kind, msg_order) in [
        (Access::Write, 0),
        (Access::Write, FI_ORDER_RAS | FI_ORDER_SAS),
        (Access::Read, FI_ORDER_WAS | FI_ORDER_SAS),
    ] {
        let (mut a, b, to) = ordered_pair(msg_order);
        let mut region = *b"region's";
        b.register(3, &mut region);
        let mut out = [1; 8];
        a.core
            .transmit(a.ep, &mut message(to, 5, &mut out, 0))
            .unwrap();
        let mut bytes = *b"accessed";
        a.core
            .access(a.ep, &mut access(kind, to, 3, &mut bytes, 6))
            .unwrap();
        assert_eq!(a.completions(), [5, 6]);
        assert_eq!(region, bytes);
    }
}

#[test]
fn an_access_with_that_order_does_not_need_the_owner_if_all_messages_were_received() {
    let (mut a, mut b, to) = ordered_pair(FI_ORDER_WAS | FI_ORDER_RAS);
    let mut region = [0; 8];
    b.register(3, &mut region);
    for round in 1..100 {
        // The notification of an access is not one of these messages.
        let (mut bytes, mut back) = ([round; 8], [0; 8]);
        let mut write = access(Access::Write, to, 3, &mut bytes, 1);
        write.flags |= FI_REMOTE_CQ_DATA;
        a.core.access(a.ep, &mut write).unwrap();
        let mut read = access(Access::Read, to, 3, &mut back, 2);
        a.core.access(a.ep, &mut read).unwrap();
        assert_eq!((a.completions(), back), (vec![1, 2], bytes));
    }
    // A message after them counts again, until it is received.
    let (mut out, mut bytes, mut into) = ([1; 8], *b"accessed", [0; 8]);
    a.core
        .transmit(a.ep, &mut message(to, 5, &mut out, 0))
        .unwrap();
    a.core
        .access(a.ep, &mut access(Access::Write, to, 3, &mut bytes, 6))
        .unwrap();
    assert_eq!((a.completions(), region), (vec![5], [99; 8]));
    b.core.receive(b.ep, &mut buffer(5, &mut into, 7)).unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [6]);
    until(&mut [&mut b], |sides| sides[0].completions().contains(&7));
    (0..10).for_each(|_| b.drive());
    let mut bytes = *b"at once.";
    a.core
        .access(a.ep, &mut access(Access::Write, to, 3, &mut bytes, 8))
        .unwrap();
    assert_eq!((a.completions(), region), (vec![8], bytes));
}

#[test]
fn what_an_endpoint_has_sent_to_itself_precedes_what_a_peer_sends_later() {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let itself = a.insert(&a.name.clone());
    b.insert(&a.name);
    let to = 0;
    // Sends are not reported.
    let quiet = |to, tag, bytes: &mut [u8]| Transmit {
        flags: 0,
        ..message(to, tag, bytes, 0)
    };
    let (mut own, mut others) = (*b"own word", *b"the peer");
    let (mut into, mut fifth) = ([[0; 8]; 4], [0; 8]);
    let [first, second, third, fourth] = &mut into;
    // The peer's link is the older one.
    for (round, rooms) in [(1, [first, second]), (2, [third, fourth])] {
        for (context, room) in [10, 20].into_iter().zip(rooms) {
            a.core
                .receive(a.ep, &mut buffer(context as u64, room, context))
                .unwrap();
        }
        if round == 1 {
            let mut sent = quiet(to, 10, &mut others);
            b.core.transmit(b.ep, &mut sent).unwrap();
            assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [10]);
            let mut sent = quiet(itself, 20, &mut own);
            a.core.transmit(a.ep, &mut sent).unwrap();
            assert_eq!(completed(&mut [&mut a], 0, 1), [20]);
            continue;
        }
        a.core
            .receive(a.ep, &mut buffer(20, &mut fifth, 30))
            .unwrap();
        // After an unsuccessful turn, one message is received at a time.
        a.core.progress();
        for _ in 0..2 {
            let mut sent = quiet(itself, 20, &mut own);
            a.core.transmit(a.ep, &mut sent).unwrap();
        }
        let mut sent = quiet(to, 10, &mut others);
        b.core.transmit(b.ep, &mut sent).unwrap();
        assert_eq!(completed(&mut [&mut a], 0, 3), [20, 30, 10]);
    }
}
