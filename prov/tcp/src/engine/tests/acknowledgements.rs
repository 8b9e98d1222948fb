//! Peers that acknowledge what has not come to them, and peers that ask for
//! acknowledgements which they do not read.

use fabric_abi::FI_DELIVERY_COMPLETE;
use slotmap::Key;

use super::c_peer::{Peer, side_and_peer};
use super::direct::Stranger;
use super::*;
use crate::engine::link::connection::Connection;
use crate::engine::link::keys::NameKey;
use crate::wire::header::{Header, Op};

/// More than sockets take, and less than what is announced.
const LEN: usize = 1 << 20;

/// A side with a peer of this library that reads nothing by itself.
fn side_and_stranger() -> (Side, Stranger) {
    let a = side();
    let stranger = Stranger::of(&a);
    a.knows(stranger.stream.local_addr().unwrap());
    (a, stranger)
}

fn only_connection(side: &Side) -> ConnKey {
    side.open_connections()[0]
}

/// Bytes that have not left.
fn queued(side: &Side) -> u64 {
    let key = only_connection(side);
    side.engine.core().conns[key].outbox.len()
}

/// Sends messages until the socket takes no more.
fn fill(side: &Side, bytes: &mut [u8]) {
    let mut tag = 0;
    while queued(side) == 0 {
        send(side, bytes, tag);
        side.drive();
        tag += 1;
    }
}

fn send_until_delivered(side: &Side, bytes: &mut [u8]) {
    let mut message = tagged(bytes, 1000);
    message.flags |= FI_DELIVERY_COMPLETE;
    side.engine.core().transmit(side.ep, &message).unwrap();
}

/// The names that acknowledgements are waited for by.
fn names(side: &Side) -> Vec<u64> {
    let key = only_connection(side);
    let core = side.engine.core();
    let names = core.conns[key].named.keys();
    names.map(|name: NameKey| name.data().as_ffi()).collect()
}

fn named_ack(name: u64) -> Header {
    Header {
        id: name,
        ..Header::new(Op::NamedAck)
    }
}

fn clear_to_send(name: u64, is_dropped: bool) -> Header {
    Header {
        id: name,
        op_data: u8::from(is_dropped),
        ..Header::new(Op::WideCts)
    }
}

/// The connection is lost, and with it everything that had not left. Nothing of
/// that is reported as done.
fn ends_in_errors(side: &Side) {
    let before = side.count();
    until([side, side], || side.open_connections().is_empty());
    until([side, side], || side.outstanding() == 0);
    assert_eq!(side.count(), before);
    assert!(!side.failed.borrow().is_empty());
}

#[test]
fn a_message_that_has_not_left_cannot_be_acknowledged_by_its_name() {
    for len in [LEN, 8] {
        let (a, mut peer) = side_and_stranger();
        let mut bytes = vec![7; LEN];
        fill(&a, &mut bytes);
        send_until_delivered(&a, &mut bytes[..len]);
        let names = names(&a);
        assert_eq!(names.len(), 1);
        peer.say(&named_ack(names[0]), &[], &[]);
        ends_in_errors(&a);
    }
}

#[test]
fn one_that_has_left_can() {
    let (a, mut peer) = side_and_stranger();
    let mut bytes = [7; 100];
    for len in [0, 8, 100] {
        send_until_delivered(&a, &mut bytes[..len]);
        a.drive();
        assert_eq!(queued(&a), 0);
        peer.say(&named_ack(names(&a)[0]), &[], &[]);
        until([&a, &a], || a.count() == 1);
        a.done.borrow_mut().clear();
    }
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn the_oldest_message_that_has_not_left_cannot_be_acknowledged_without_a_name() {
    let (a, mut peer): (Side, Peer) = side_and_peer(1);
    let mut bytes = vec![7; LEN];
    let mut fill = || {
        let mut message = tagged(&mut bytes, 0);
        message.tag = Tag::None;
        a.engine.core().transmit(a.ep, &message).unwrap();
        a.drive();
        queued(&a) != 0
    };
    while !fill() {}
    let mut message = tagged(&mut bytes, 0);
    message.tag = Tag::None;
    message.flags |= FI_DELIVERY_COMPLETE;
    a.engine.core().transmit(a.ep, &message).unwrap();
    peer.say(Header::ack(), &[]);
    ends_in_errors(&a);
}

#[test]
fn a_message_that_was_asked_for_cannot_be_acknowledged_before_it_has_left() {
    let (a, mut peer) = side_and_stranger();
    // Announced because of its length.
    let mut long = vec![8; 16 << 20];
    send_until_delivered(&a, &mut long);
    a.drive();
    assert_eq!(queued(&a), 0);
    let name = names(&a)[0];
    peer.say(&clear_to_send(name, false), &[], &[]);
    until([&a, &a], || queued(&a) != 0);
    peer.say(&named_ack(name), &[], &[]);
    ends_in_errors(&a);
}

#[test]
fn an_announcement_that_has_not_left_cannot_be_answered() {
    for is_dropped in [false, true] {
        let (a, mut peer) = side_and_stranger();
        let mut bytes = vec![7; LEN];
        fill(&a, &mut bytes);
        let mut long = vec![8; 3 << 20];
        send_until_delivered(&a, &mut long);
        peer.say(&clear_to_send(names(&a)[0], is_dropped), &[], &[]);
        ends_in_errors(&a);
    }
}

#[test]
fn a_message_is_not_done_while_the_kernel_may_read_its_memory() {
    let (a, mut peer) = side_and_stranger();
    let mut bytes = [7; 100];
    send_until_delivered(&a, &mut bytes);
    a.drive();
    let lent = |change: fn(&mut Connection)| {
        let key = only_connection(&a);
        change(&mut a.engine.core().conns[key]);
    };
    // As if it had been sent without a copy.
    lent(|conn| {
        conn.lent.enabled = true;
        conn.lent.note_sent();
    });
    let name = names(&a)[0];
    peer.say(&named_ack(name), &[], &[]);
    until([&a, &a], || names(&a).is_empty());
    assert_eq!((a.count(), a.outstanding()), (0, 1));
}
