//! A peer that violates the protocol, at every stage of a transfer.

use fabric_abi::{FI_SUM, FI_UINT64};
use prov_base::errno::Errno;
use prov_util::request::RemotePiece;

use super::super::keys::to_peer;
use super::super::queued::MOST_BYTES;
use super::{Params, Side, buffered_side, pair, side, until, with_addresses_exchanged};
use crate::wire::packet::{Elements, HEAD, Head, Kind, Operation, Position};
use crate::wire::part::{COUNTED_LIST, LIST, write_list, write_parts};

const KINDS: [Kind; 10] = [
    Kind::Eager,
    Kind::Segment,
    Kind::Announced,
    Kind::ReadDone,
    Kind::Atomic,
    Kind::AtomicResult,
    Kind::Credit,
    Kind::WriteTo,
    Kind::WriteDone,
    Kind::Leave,
];

/// The state between `a` and `b` before the violation.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// A part of a message has arrived.
    InParts,
    /// The peer has announced a message that is not received.
    Announced,
    /// A message to the peer is announced and not answered.
    Announcing,
}

/// Sends a packet directly to the peer of the only link.
fn inject(side: &Side, packet: &[u8]) {
    let core = side.engine.core();
    let link = core.links.values().find(|link| link.is_open()).unwrap();
    link.below.inject(packet).unwrap();
}

fn packet(side: &Side, kind: Kind, shape: usize) -> Vec<u8> {
    let core = side.engine.core();
    let link = core.links.values().find(|link| link.is_open()).unwrap();
    let numbers = [0, 1, u64::MAX, 1 << 32 | 1];
    let operations = [
        Operation::Message,
        Operation::TaggedMessage,
        Operation::Atomic,
        Operation::FetchAtomic,
        Operation::CompareAtomic,
    ];
    let positions = [Position::First, Position::Middle, Position::Last];
    let head = Head {
        kind,
        connection: link.far_id,
        message: numbers[shape % 4],
        operation: operations[shape % 5],
        len: [0, 8, 1 << 20, u64::MAX][shape / 4 % 4],
        data: None,
        tag: numbers[shape / 2 % 4],
        segment: Some(([0, 8, u16::MAX][shape % 3], 1, positions[shape / 3 % 3])),
    };
    let mut bytes = vec![0xff; HEAD + [0, 8, COUNTED_LIST, 300][shape % 4]];
    let (front, behind) = bytes.split_first_chunk_mut().unwrap();
    head.write(front);
    if let Some(count) = behind.get_mut(COUNTED_LIST - 8) {
        *count = [1, 0, 4, 200][shape / 5 % 4];
    }
    bytes
}

fn misbehave(phase: Phase, kind: Kind, shape: usize) {
    let [a, b] = pair(Params::default);
    let (mut warm, mut place) = ([1u8; 8], [0u8; 8]);
    b.receive(&mut place, 1);
    a.send(&mut warm, 1);
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    a.forget();
    b.forget();
    let (mut large, mut to) = (vec![2; 1 << 20], vec![0; 1 << 20]);
    match phase {
        Phase::Idle => {}
        Phase::InParts => {
            b.receive(&mut to, 5);
            let mut begin = Head {
                kind: Kind::Segment,
                connection: 0,
                message: 1,
                operation: Operation::TaggedMessage,
                len: 100,
                data: None,
                tag: 5,
                segment: Some((8, 0, Position::First)),
            };
            begin.connection = a.engine.core().links.values().next().unwrap().far_id;
            let mut bytes = [0; HEAD + 8];
            begin.write(bytes.first_chunk_mut().unwrap());
            inject(&a, &bytes);
        }
        Phase::Announced => a.send(&mut large, 5),
        Phase::Announcing => b.send(&mut large, 5),
    }
    for _ in 0..20 {
        a.drive();
        b.drive();
    }
    inject(&a, &packet(&a, kind, shape));
    for _ in 0..50 {
        a.drive();
        b.drive();
    }
    // Whatever happened, later messages arrive, if need be over a new link.
    a.forget();
    b.forget();
    let (mut last, mut last_place) = ([9u8; 300], [0u8; 300]);
    b.receive(&mut last_place, 9);
    let mut tries = 0;
    while last_place != last {
        tries += 1;
        assert!(tries < 5, "{phase:?} {kind:?} {shape}");
        until(&[&a, &b], || a.has_sent(&mut last, 9));
        // One that was on its way when the other side ended the link is lost with it.
        let is_lost = || !a.errors().is_empty() || a.engine.core().links.is_empty();
        until(&[&a, &b], || last_place == last || is_lost());
        a.forget();
    }
}

#[test]
fn a_peer_may_send_anything_at_any_time() {
    for phase in [
        Phase::Idle,
        Phase::InParts,
        Phase::Announced,
        Phase::Announcing,
    ] {
        for kind in KINDS {
            for shape in [0, 1, 6, 11, 15, 23, 38, 59] {
                misbehave(phase, kind, shape);
            }
        }
    }
}

/// The header of the segments of a message.
#[derive(Clone, Copy)]
pub struct Said {
    pub operation: Operation,
    pub len: u64,
    pub data: Option<u64>,
    pub tag: u64,
}

pub const SAID: Said = Said {
    operation: Operation::TaggedMessage,
    len: 20,
    data: Some(7),
    tag: 5,
};

/// Sends one of two segments of 10 bytes to the only link's peer.
pub fn inject_part(from: &Side, said: Said, position: Position) {
    let number = u32::from(position == Position::Last);
    let mut head = Head {
        kind: Kind::Segment,
        connection: 0,
        message: 1,
        operation: said.operation,
        len: said.len,
        data: said.data,
        tag: said.tag,
        segment: Some((10, number, position)),
    };
    head.connection = from.engine.core().links.values().next().unwrap().far_id;
    let mut bytes = [number as u8 + 1; HEAD + 10];
    head.write(bytes.first_chunk_mut().unwrap());
    inject(from, &bytes);
}

/// Two sides with a link; the second one is given.
pub fn linked(b: Side) -> [Side; 2] {
    let [a, b] = with_addresses_exchanged([side(Params::default()), b]);
    let mut warm = [1u8; 8];
    b.send(&mut warm, 1);
    let mut place = [0u8; 8];
    a.receive(&mut place, 1);
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    a.forget();
    b.forget();
    [a, b]
}

#[test]
fn a_message_has_the_properties_in_its_first_part() {
    let [a, b] = linked(buffered_side(Params::default(), 64));
    inject_part(&a, SAID, Position::First);
    inject_part(&a, SAID, Position::Last);
    until(&[&a, &b], || b.count() == 1);
    let told = b.seen.borrow()[0];
    assert_eq!((told.len, told.tag, told.data), (20, 5, 7));
    assert_eq!(b.links().len(), 1);
}

#[test]
fn parts_that_say_something_else_of_their_message_end_the_link() {
    let lies = [
        Said {
            len: 1 << 20,
            ..SAID
        },
        Said { len: 10, ..SAID },
        Said {
            len: u64::MAX,
            ..SAID
        },
        Said { tag: 6, ..SAID },
        Said { data: None, ..SAID },
        Said {
            data: Some(8),
            ..SAID
        },
        Said {
            operation: Operation::Message,
            ..SAID
        },
    ];
    for lie in lies {
        let [a, b] = linked(buffered_side(Params::default(), 64));
        inject_part(&a, SAID, Position::First);
        inject_part(&a, lie, Position::Last);
        until(&[&a, &b], || b.count() == 1 || b.links().is_empty());
        assert_eq!(b.count(), 0, "{:?}", b.seen);

        let [a, b] = linked(side(Params::default()));
        let mut place = [0; 20];
        b.receive(&mut place, 5);
        inject_part(&a, SAID, Position::First);
        inject_part(&a, lie, Position::Last);
        until(&[&a, &b], || b.count() == 1);
        assert_eq!((b.errors(), b.links()), (vec![Errno::EPROTO], vec![]));
    }
}

#[test]
fn a_send_ends_when_the_peer_has_no_room_for_it() {
    let [a, b] = linked(side(Params::default()));
    let key = b.links()[0];
    let mut large = vec![2; 1 << 20];
    b.send(&mut large, 5);
    let (name, connection) = {
        let (theirs, ours) = (a.engine.core(), b.engine.core());
        let name = ours.links[key].pending.keys().next().unwrap();
        let link = theirs.links.values().find(|link| link.is_open()).unwrap();
        (to_peer(name), link.far_id)
    };
    let mut bytes = [0; HEAD + COUNTED_LIST];
    let (front, behind) = bytes.split_first_chunk_mut().unwrap();
    Head::note(Kind::WriteTo, connection, name).write(front);
    write_list(&[RemotePiece::default()], behind);
    inject(&a, &bytes);
    until(&[&a, &b], || b.count() == 1);
    assert_eq!(b.errors(), []);
}

#[test]
fn a_peer_that_reads_no_answers_is_given_up_before_they_take_much_memory() {
    let [_a, b] = linked(side(Params::default()));
    let key = b.links()[0];
    let answer = vec![0; Params::default().buffer_size];
    let mut core = b.engine.core();
    let mut bytes = 0;
    while let Some(link) = core.links.get(key) {
        let head = Head::note(Kind::AtomicResult, link.far_id, 0);
        core.answer(key, &head, &answer);
        bytes += answer.len();
        assert!(bytes < 2 * MOST_BYTES);
    }
}

#[test]
fn an_atomic_operation_without_a_key_causes_no_completion() {
    let [a, b] = linked(side(Params::default()));
    let empty = RemotePiece {
        key: 77,
        ..RemotePiece::default()
    };
    for (operation, list, operands) in [
        (Operation::Atomic, &[][..], 0),
        (Operation::FetchAtomic, &[], 0),
        (Operation::Atomic, &[empty], 0),
        (Operation::CompareAtomic, &[empty], 0),
        (Operation::Atomic, &[RemotePiece { len: 1, ..empty }], 8),
    ] {
        let elements = Elements {
            datatype: FI_UINT64 as u8,
            op: FI_SUM as u8,
            parts: list.len() as u8,
        };
        let connection = a.engine.core().links.values().next().unwrap().far_id;
        let mut bytes = vec![0; HEAD + LIST + operands];
        let (front, behind) = bytes.split_first_chunk_mut().unwrap();
        write_parts(list, behind);
        let head = Head {
            operation,
            len: behind.len() as u64,
            data: Some(7),
            tag: elements.word(),
            ..Head::note(Kind::Atomic, connection, 0)
        };
        head.write(front);
        inject(&a, &bytes);
        (0..50).for_each(|_| b.drive());
        assert_eq!(b.count(), 0, "{operation:?} {list:?}");
    }
}
