//! Access to memory that is not permitted fails alone.

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA, FI_SUM, FI_UINT64};
use prov_util::request::{Access, Atomic, AtomicKind, RemoteAccess, RemoteIov, RemotePiece};

use super::c_peer::side_and_peer;
use super::direct::{KEY, Stranger, register, remote};
use super::*;
use crate::params::Local;
use crate::wire::ByteOrder;
use crate::wire::header::refusal::{self, Refused};
use crate::wire::header::{self, Header, MAX_HEADER, Op, RmaIov};

/// A key without a region.
const UNKNOWN: u64 = KEY + 1;
/// More than one read receives.
const LONG: usize = 300_000;

fn place(key: u64, len: usize) -> RemoteIov {
    RemotePiece {
        addr: 0,
        len: len as u64,
        key,
    }
    .into()
}

fn access(side: &Side, access: Access, bytes: &mut [u8], key: u64, flags: u64) {
    let mut access = RemoteAccess {
        access,
        remote: place(key, bytes.len()),
        local: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 3,
        flags: FI_COMPLETION | flags,
        context: std::ptr::null_mut(),
    };
    side.engine.core().access(side.ep, &mut access).unwrap();
}

fn add(side: &Side, bytes: &mut [u8], key: u64) {
    let mut atomic = Atomic {
        kind: AtomicKind::Base,
        datatype: FI_UINT64,
        op: FI_SUM,
        remote: place(key, bytes.len()),
        operand: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::null_mut(),
    };
    side.engine.core().atomic(side.ep, &mut atomic).unwrap();
}

/// Returns the next error, which must be the only one.
fn error(sides: [&Side; 2]) -> Errno {
    let [a, _] = sides;
    until(sides, || !a.failed.borrow().is_empty());
    let error = a.failed.borrow_mut().pop().unwrap().err;
    assert!(a.failed.borrow().is_empty());
    error
}

fn in_every_way(check: impl Fn(Params)) {
    check(Params::default());
    check(Params {
        local: Local::Off,
        ..Params::default()
    });
    // Neither process accesses the other one's memory.
    check(Params {
        local_message_size: usize::MAX,
        ..Params::default()
    });
}

#[test]
fn operations_after_a_refused_access_are_carried_out() {
    in_every_way(|params| {
        let (a, b) = (side_with(params.clone()), side_with(params));
        a.knows(b.addr);
        let mut region = [0; 64];
        let _region = register(&b, &mut region);
        let (mut out, mut back, mut one) = ([7; 8], [0; 8], [1; 8]);
        let mut beyond = [9; 65];
        let mut tag = 0;
        // Each message arrives, on the same connection.
        let mut talk = || {
            send(&a, &mut out, tag);
            receive(&b, &mut back, tag);
            tag += 1;
            until([&a, &b], || b.count() == tag as usize);
            b.open_connections()
        };
        let first = talk();
        for round in 0..20 {
            let mut bytes = vec![9; if round % 2 == 0 { 8 } else { LONG }];
            access(&a, Access::Write, &mut bytes, UNKNOWN, FI_DELIVERY_COMPLETE);
            assert_eq!(talk(), first);
            assert_eq!(error([&a, &b]), Errno::EACCES);
            let flags = FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA;
            access(&a, Access::Write, &mut beyond, KEY, flags);
            assert_eq!(error([&a, &b]), Errno::EACCES);
            access(&a, Access::Read, &mut bytes, UNKNOWN, 0);
            assert_eq!(talk(), first);
            assert_eq!(error([&a, &b]), Errno::EACCES);
            assert!(bytes.iter().all(|byte| *byte == 9));
            add(&a, &mut one, UNKNOWN);
            assert_eq!(talk(), first);
            assert_eq!(error([&a, &b]), Errno::EACCES);
            // Permitted accesses succeed, before and after.
            let before = a.count();
            access(&a, Access::Read, &mut bytes[..8], KEY, 0);
            until([&a, &b], || a.count() > before);
            assert_eq!(bytes[..8], [0; 8]);
        }
        assert_eq!((region, a.outstanding()), ([0; 64], 0));
    });
}

/// Its completion has been reported by then: it completes when it has been sent.
#[test]
fn a_refused_write_without_acknowledgement_is_dropped() {
    in_every_way(|params| {
        let (a, b) = (side_with(params.clone()), side_with(params));
        a.knows(b.addr);
        let (mut out, mut back) = ([7; 8], [0; 8]);
        for (tag, len) in [(1, 8), (2, LONG)] {
            let mut bytes = vec![9; len];
            access(&a, Access::Write, &mut bytes, UNKNOWN, 0);
            send(&a, &mut out, tag);
            receive(&b, &mut back, tag);
            until([&a, &b], || b.count() == tag as usize);
            until([&a, &b], || a.outstanding() == 0);
        }
        assert_eq!(b.open_connections().len(), 1);
    });
}

/// Reads are answered in order, refused or not.
#[test]
fn refused_reads_among_others_are_told_apart() {
    in_every_way(|params| {
        let (a, b) = (side_with(params.clone()), side_with(params));
        a.knows(b.addr);
        let mut region = vec![6; LONG];
        let _region = register(&b, &mut region);
        let mut places = vec![vec![0; LONG]; 10];
        for (number, place) in places.iter_mut().enumerate() {
            let key = if number % 2 == 0 { KEY } else { UNKNOWN };
            access(&a, Access::Read, place, key, 0);
        }
        until([&a, &b], || a.outstanding() == 0);
        until([&a, &b], || a.count() == 5 && a.failed.borrow().len() == 5);
        for (number, place) in places.iter().enumerate() {
            let expected = if number % 2 == 0 { 6 } else { 0 };
            assert!(place.iter().all(|byte| *byte == expected), "{number}");
        }
    });
}

fn says(peer: &mut std::net::TcpStream, header: Header, rma: &[RmaIov], payload: &[u8]) {
    use std::io::Write;
    let header = Header {
        payload: payload.len(),
        rma_count: rma.len() as u8,
        ..header
    };
    let mut bytes = [0; MAX_HEADER];
    let len = header.encode(rma, ByteOrder::Native, 0, &mut bytes);
    peer.write_all(&[&bytes[..len], payload].concat()).unwrap();
}

/// Its protocol has no refusals: operations that it does not wait for fail alone, and the others
/// end the connection.
#[test]
fn a_peer_of_the_c_library_loses_its_connection_for_a_refused_operation_that_it_waits_for() {
    let mut waited_for = Header::new(Op::Write);
    waited_for.flags = header::DELIVERY_COMPLETE;
    let bad = remote(0, 8);
    for (last, payload) in [
        (waited_for, &[1; 8][..]),
        (Header::new(Op::ReadRequest), &[]),
    ] {
        let (a, mut peer) = side_and_peer(1);
        let mut place = [0; 8];
        receive(&a, &mut place, 1);
        says(peer.stream(), Header::new(Op::Write), &[bad], &[1; 8]);
        let mut message = Header::new(Op::Tagged);
        message.tag = 1;
        says(peer.stream(), message, &[], &[5; 8]);
        until([&a, &a], || a.count() == 1);
        assert_eq!(place, [5; 8]);
        says(peer.stream(), last, &[bad], payload);
        until([&a, &a], || a.open_connections().is_empty());
    }
}

fn wants_ack(id: u64) -> Header {
    Header {
        id,
        flags: header::DELIVERY_COMPLETE | header::NAMED,
        ..Header::new(Op::Write)
    }
}

/// A refusal of a write that is not yet completely sent would end the connection at its sender.
#[test]
fn a_refusal_follows_the_end_of_its_write() {
    use std::io::Write;
    // It sends nothing by itself.
    let a = side_with(Params {
        local: Local::Off,
        ..Params::default()
    });
    let mut stranger = Stranger::of(&a);
    let mut header = wants_ack(77);
    (header.payload, header.rma_count) = (LONG, 1);
    let mut bytes = [0; MAX_HEADER];
    let len = header.encode(&[remote(0, LONG)], ByteOrder::Native, 0, &mut bytes);
    stranger.stream.write_all(&bytes[..len]).unwrap();
    stranger.stream.write_all(&[1; 100]).unwrap();
    assert_eq!(stranger.hear(&a), Some(Vec::new()));
    let mut rest = vec![1; LONG - 100];
    while !rest.is_empty() {
        let part = rest.split_off(rest.len().saturating_sub(20_000));
        stranger.stream.set_nonblocking(false).unwrap();
        stranger.stream.write_all(&part).unwrap();
        stranger.stream.set_nonblocking(true).unwrap();
        let heard = stranger.hear(&a).unwrap();
        match rest.is_empty() {
            false => assert_eq!(heard, []),
            true => {
                assert_eq!(heard.len(), 1);
                let said = refusal::read(&heard[0].0);
                assert_eq!(said, Ok((Refused::Named(77), Errno::EACCES)));
            }
        }
    }
}

#[test]
fn a_peer_that_refuses_an_operation_without_a_request_loses_the_connection() {
    for refused in [
        Refused::Read,
        Refused::Named(0),
        Refused::Named(1 << 32 | 1),
    ] {
        let a = side();
        let mut stranger = Stranger::of(&a);
        stranger.say(&refusal::header(refused, Errno::EACCES), &[], &[]);
        until([&a, &a], || a.open_connections().is_empty());
    }
}

/// As with answers of any kind.
#[test]
fn nothing_is_read_from_a_peer_that_reads_no_refusals() {
    use std::io::{ErrorKind, Write};
    let a = side_with(Params {
        local: Local::Off,
        ..Params::default()
    });
    let mut stranger = Stranger::of(&a);
    let mut bytes = [0; MAX_HEADER];
    let mut header = Header::new(Op::ReadRequest);
    header.rma_count = 1;
    let len = header.encode(&[remote(0, 8)], ByteOrder::Native, 0, &mut bytes);
    let requests = bytes[..len].repeat(1000);
    // It sends requests until no more of them are read.
    let (mut asked, mut is_taken) = (0, true);
    while is_taken {
        let before = a.queued();
        let wrote = stranger.stream.write(&requests[asked % requests.len()..]);
        match &wrote {
            Ok(bytes) => asked += bytes,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        for _ in 0..100 {
            a.drive();
        }
        is_taken = wrote.is_ok() || a.queued() != before;
        assert!(a.queued() < 8 << 20);
    }
    let key = a.open_connections()[0];
    assert!(a.engine.core().conns[key].detours.has(Detour::Overdue));
}
