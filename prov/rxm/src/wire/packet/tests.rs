use prov_util::request::RemotePiece;

use super::*;
use crate::wire::part::{COUNTED_LIST, LIST, write_list, write_parts};

fn head(kind: Kind) -> Head {
    Head {
        kind,
        connection: 0x11,
        message: 0x2_0000_0003,
        operation: Operation::TaggedMessage,
        len: 3,
        data: Some(5),
        tag: 6,
        segment: None,
    }
}

fn packet(head: &Head, behind: &[u8]) -> Vec<u8> {
    let mut bytes = [0; HEAD];
    head.write(&mut bytes);
    [&bytes, behind].concat()
}

fn piece(addr: u64, len: u64, key: u64) -> RemotePiece {
    RemotePiece { addr, len, key }
}

#[cfg(target_endian = "little")]
#[test]
fn a_head_is_laid_out_as_the_c_library_lays_it_out() {
    let segment = Some((0x0102, 0x0304, Position::Last));
    let bytes = packet(
        &Head {
            segment,
            ..head(Kind::Segment)
        },
        &[],
    );
    let mut expected = vec![4, 1, 2, 1, 4, 3, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    // FI_REMOTE_CQ_DATA is bit 17.
    expected.extend([2, 0, 1, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn a_message_is_read_as_it_was_written() {
    let bytes = packet(&head(Kind::Eager), b"abc and more");
    let read = Packet::read(&bytes).unwrap();
    assert_eq!((read.connection, read.message), (0x11, 0x2_0000_0003));
    let envelope = Envelope {
        tag: Some(6),
        data: Some(5),
        len: 3,
    };
    assert_eq!(read.body, Body::Eager(envelope, b"abc"));
}

#[test]
fn a_length_beyond_the_end_of_the_packet_is_refused() {
    let mut long = head(Kind::Eager);
    for len in [4, u64::MAX] {
        long.len = len;
        assert_eq!(Packet::read(&packet(&long, b"abc")), Err(SHORT));
    }
    let segment = Some((4, 0, Position::First));
    let segment = Head {
        segment,
        ..head(Kind::Segment)
    };
    assert_eq!(Packet::read(&packet(&segment, b"abc")), Err(SHORT));
    for len in 0..HEAD {
        assert!(Packet::read(&packet(&long, &[])[..len]).is_err());
    }
}

#[test]
fn a_rendezvous_packet_lists_the_memory_of_the_payload() {
    let parts = [piece(1, 2, 3), piece(4, 5, 6)];
    let mut list = [0; COUNTED_LIST];
    write_list(&parts, &mut list);
    let bytes = packet(&head(Kind::Announced), &list);
    match Packet::read(&bytes).unwrap().body {
        Body::Announced(envelope, list, _) => {
            assert_eq!((envelope.len, list.pieces()), (3, &parts[..]));
        }
        other => panic!("{other:?}"),
    }
    for count in [0, 5, 255] {
        list[LIST] = count;
        assert!(Packet::read(&packet(&head(Kind::Announced), &list)).is_err());
    }
}

#[test]
fn an_atomic_operation_is_read_as_it_was_written() {
    let elements = Elements {
        datatype: 7,
        op: 2,
        parts: 1,
    };
    let request = Head {
        operation: Operation::FetchAtomic,
        tag: elements.word(),
        ..head(Kind::Atomic)
    };
    let mut list = [0; LIST];
    write_parts(&[piece(1, 2, 3)], &mut list);
    let bytes = packet(&request, &[&list[..], b"operands"].concat());
    let Body::Atomic(atomic) = Packet::read(&bytes).unwrap().body else {
        panic!("no atomic operation");
    };
    assert_eq!(
        (atomic.operation, atomic.elements),
        (Operation::FetchAtomic, elements)
    );
    assert_eq!(atomic.memory.pieces(), [piece(1, 2, 3)]);
    assert_eq!(atomic.operands, b"operands");
    let more = Elements {
        parts: 5,
        ..elements
    };
    let request = Head {
        tag: more.word(),
        ..request
    };
    assert!(Packet::read(&packet(&request, &list)).is_err());
}

#[test]
fn the_result_of_an_atomic_operation_is_in_network_byte_order() {
    let front = result_head(-13, 2);
    assert_eq!(front, [0xff, 0xff, 0xff, 0xf3, 0, 0, 0, 2]);
    let bytes = packet(&head(Kind::AtomicResult), &[&front[..], b"ab"].concat());
    let body = Packet::read(&bytes).unwrap().body;
    assert_eq!(body, Body::AtomicResult(-13, b"ab"));
    let bytes = packet(&head(Kind::AtomicResult), &[&front[..], b"a"].concat());
    assert!(Packet::read(&bytes).is_err());
}
