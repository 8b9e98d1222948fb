//! Peers that acknowledge messages which they have not received, and peers that request
//! acknowledgements which they do not read.

use std::io::{Read, Write};

use fabric_abi::FI_DELIVERY_COMPLETE;
use slotmap::Key;

use super::c_peer::{Peer, side_and_peer};
use super::direct::{Stranger, read, register, remote};
use super::*;
use crate::engine::link::connection::Connection;
use crate::engine::link::keys::NameKey;
use crate::wire::ByteOrder;
use crate::wire::header::{BASE, DELIVERY_COMPLETE, Header, MAX_HEADER, NAMED, Op, RmaIov};

/// More than sockets buffer, and less than the length from which on messages are announced.
const LEN: usize = 1 << 20;

/// Creates a side with a peer of this library's protocol that reads nothing by itself.
fn side_and_stranger() -> (Side, Stranger) {
    // It sends nothing by itself.
    let a = side_with(Params {
        local: crate::params::Local::Off,
        ..Params::default()
    });
    let stranger = Stranger::of(&a);
    a.knows(stranger.stream.local_addr().unwrap());
    (a, stranger)
}

fn only_connection(side: &Side) -> ConnKey {
    side.open_connections()[0]
}

/// Sends messages until the socket accepts no more.
fn fill(side: &Side, bytes: &mut [u8]) {
    let mut tag = 0;
    while side.queued() == 0 {
        send(side, bytes, tag);
        side.drive();
        tag += 1;
    }
}

/// The context of a message that is to be delivered.
const DELIVERED: usize = 1 << 20;

fn send_until_delivered(side: &Side, bytes: &mut [u8]) {
    let mut message = tagged(bytes, DELIVERED as u64);
    message.flags |= FI_DELIVERY_COMPLETE;
    side.engine.core().transmit(side.ep, &mut message).unwrap();
}

/// Returns the names for which acknowledgements are awaited.
fn names(side: &Side) -> Vec<u64> {
    let key = only_connection(side);
    let core = side.engine.core();
    let names = core.conns[key].ops.named.keys();
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

/// The connection is lost, and the message that was to be delivered is not reported as completed.
/// Those before it are if the peer takes nothing for long enough.
fn ends_in_errors(side: &Side) {
    until([side, side], || side.open_connections().is_empty());
    until([side, side], || side.outstanding() == 0);
    let failed = side.failed.borrow();
    let mut contexts = failed.iter().map(|failed| failed.completion.context.addr());
    assert!(contexts.any(|context| context == DELIVERED));
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
        assert_eq!(a.queued(), 0);
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
        a.engine.core().transmit(a.ep, &mut message).unwrap();
        a.drive();
        a.queued() != 0
    };
    while !fill() {}
    let mut message = tagged(&mut bytes, DELIVERED as u64);
    message.tag = Tag::None;
    message.flags |= FI_DELIVERY_COMPLETE;
    a.engine.core().transmit(a.ep, &mut message).unwrap();
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
    assert_eq!(a.queued(), 0);
    let name = names(&a)[0];
    peer.say(&clear_to_send(name, false), &[], &[]);
    until([&a, &a], || a.queued() != 0);
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

/// A request that a peer repeats, and the length of its answer.
struct Question {
    header: Header,
    remote: RmaIov,
    answer: usize,
}

impl Question {
    fn encode(&self) -> Vec<u8> {
        let mut header = self.header;
        header.rma_count = 1;
        let mut bytes = [0; MAX_HEADER];
        let len = header.encode(&[self.remote], ByteOrder::Native, 0, &mut bytes);
        bytes[..len].to_vec()
    }
}

/// Has a peer that reads nothing send up to `most` requests, and returns the memory that the
/// answers take. Then the peer reads, and gets all of them.
fn room_for_answers(question: &Question, most: usize) -> usize {
    let mut place = vec![0; 1 << 16];
    let (a, mut peer) = side_and_stranger();
    register(&a, &mut place);
    let question_bytes = question.encode();
    let many = question_bytes.repeat(1000);
    let mut room = 0;
    let (mut asked, mut vain_calls) = (0, 0);
    while asked < most * question_bytes.len() && vain_calls < 100 {
        match peer.stream.write(&many[asked % many.len()..]) {
            Ok(n) => (asked, vain_calls) = (asked + n, 0),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                vain_calls += 1;
            }
        }
        a.drive();
        let key = only_connection(&a);
        room = room.max(a.engine.core().conns[key].outbox.memory());
    }
    // Up to the end of a request.
    let count = asked.div_ceil(question_bytes.len());
    let mut rest = &question_bytes[question_bytes.len() - (count * question_bytes.len() - asked)..];
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 20];
    until([&a, &a], || {
        if let Ok(n) = peer.stream.write(rest) {
            rest = &rest[n..];
        }
        while let Ok(n @ 1..) = peer.stream.read(&mut buffer) {
            heard += n;
        }
        heard >= count * question.answer
    });
    assert_eq!(heard, count * question.answer);
    assert_eq!((rest.len(), a.queued()), (0, 0));
    room
}

/// Largest memory in bytes that a peer which requests and does not read may cost.
const ROOM: usize = 4 << 20;

#[test]
fn a_peer_that_reads_no_acknowledgements_is_not_read_from() {
    let mut header = Header::new(Op::Write);
    header.flags = DELIVERY_COMPLETE | NAMED;
    let question = Question {
        header,
        remote: remote(0, 0),
        answer: BASE + 8,
    };
    let room = room_for_answers(&question, 600_000);
    assert!(room < ROOM, "{room} bytes");
}

#[test]
fn nor_is_one_that_reads_no_other_answers() {
    // Answers that are copied, and answers sent from registered memory.
    for (len, most) in [(8, 600_000), (4096, 10_000), (4097, 60_000)] {
        let question = Question {
            header: Header::new(Op::ReadRequest),
            remote: remote(0, len),
            answer: BASE + len,
        };
        let room = room_for_answers(&question, most);
        assert!(room < ROOM, "{room} bytes for answers of {len}");
    }
}

#[test]
fn two_peers_with_many_unsent_answers_do_not_deadlock() {
    const COUNT: usize = 20_000;
    let params = || Params {
        tx_size: COUNT,
        ..Params::default()
    };
    let (a, b) = (side_with(params()), side_with(params()));
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut from_a, mut from_b) = ([1; 4096], [2; 4096]);
    register(&a, &mut from_a);
    register(&b, &mut from_b);
    let mut places = [[0; 4096]; 2];
    // Both are connected before either posts much.
    let [at_a, at_b] = &mut places;
    read(&a, at_a);
    until([&a, &b], || a.count() == 1);
    b.drive();
    // Neither processes received data until everything is posted.
    for _ in 1..COUNT {
        read(&a, at_a);
        read(&b, at_b);
    }
    read(&b, at_b);
    until([&a, &b], || a.count() == COUNT && b.count() == COUNT);
    assert_eq!(places, [[2; 4096], [1; 4096]]);
}
