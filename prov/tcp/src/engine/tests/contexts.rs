//! Contexts of scalable endpoints: the context that an index reaches, and the source address of a
//! context's messages.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::rdm::Identity;

const BITS: u32 = 4;

/// The number that `fi_rx_addr` makes of the address with number 0.
fn context(index: u64) -> u64 {
    index << (u64::BITS - BITS)
}

fn vector_with_contexts() -> Use<Av> {
    let config = prov_util::av::Config {
        format: prov_util::av::format::Format::IN,
        rx_ctx_bits: BITS,
        ..prov_util::av::Config::default()
    };
    open(Av::open(&config).unwrap())
}

/// An endpoint that is this context of a scalable endpoint.
fn side_of_context(index: u8) -> Side {
    let params = Params {
        connect_timeout: 500,
        ..Params::default()
    };
    let side = rdm_side(params, None, vector_with_contexts());
    side.engine.core().rdm(side.ep).unwrap().context = index;
    side
}

/// Returns the address of the scalable endpoint to which this side, its context of this index,
/// belongs.
fn base(side: &Side, index: u16) -> SocketAddr {
    let mut addr = side.addr;
    addr.set_port(addr.port() - index);
    addr
}

fn send_to(side: &Side, bytes: &mut [u8], tag: u64, peer: u64) {
    let mut message = Transmit {
        peer,
        ..tagged(bytes, tag)
    };
    side.engine.core().transmit(side.ep, &mut message).unwrap();
}

/// The source of the message with this tag that a side receives.
fn source(sides: [&Side; 2], at: &Side, tag: u64) -> u64 {
    let is_it = |done: &Done| done.tag == tag;
    until(sides, || at.done.borrow().iter().any(is_it));
    let found = at.done.borrow_mut().drain(..).find(is_it);
    found.unwrap().src
}

#[test]
fn a_context_is_reached_by_its_index_and_known_by_the_number_of_its_endpoint() {
    let (a, b) = (side_of_context(2), side_of_context(1));
    a.knows(base(&b, 1));
    b.knows(base(&a, 2));
    let (mut out, mut place) = ([7; 8], [0; 8]);
    for tag in 1..4 {
        receive(&b, &mut place, tag);
        send_to(&a, &mut out, tag, context(1));
        assert_eq!(source([&a, &b], &b, tag), 0);
        receive(&a, &mut place, 100 + tag);
        send_to(&b, &mut out, 100 + tag, context(2));
        assert_eq!(source([&a, &b], &a, 100 + tag), 0);
    }
    // One connection serves both directions.
    assert_eq!(a.open_connections().len(), 1);
}

#[test]
fn only_the_addressed_context_receives_a_message() {
    // Who listens there: a plain endpoint, or another context.
    for there in [0, 2] {
        let (a, b) = (side_of_context(0), side_of_context(there));
        a.knows(base(&b, 1));
        let (mut out, mut place) = ([7; 8], [0; 8]);
        receive(&b, &mut place, 1);
        send_to(&a, &mut out, 1, context(1));
        until([&a, &b], || !a.failed.borrow().is_empty());
        assert_eq!(a.failed.borrow()[0].err, Errno::ECONNREFUSED);
        assert_eq!((b.count(), b.kept(), a.outstanding()), (0, 0, 0));
        assert!(b.engine.core().rdm(b.ep).unwrap().peers.is_empty());
    }
}

#[test]
fn a_context_refuses_connections_that_are_for_a_plain_endpoint() {
    let (a, b) = (side_of_context(0), side_of_context(3));
    a.knows(b.addr);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive(&b, &mut place, 1);
    send_to(&a, &mut out, 1, 0);
    until([&a, &b], || !a.failed.borrow().is_empty());
    assert_eq!(a.failed.borrow()[0].err, Errno::ECONNREFUSED);
    assert_eq!((b.count(), b.kept()), (0, 0));
}

#[test]
fn an_index_without_a_context_is_an_error_of_the_call() {
    let a = rdm_side(Params::default(), None, {
        let config = prov_util::av::Config {
            format: prov_util::av::format::Format::IN,
            rx_ctx_bits: 32,
            ..prov_util::av::Config::default()
        };
        open(Av::open(&config).unwrap())
    });
    a.knows("127.0.0.1:5000".parse().unwrap());
    for beyond in [64, 255, 256, u64::from(u32::MAX)] {
        let mut message = Transmit {
            peer: beyond << 32,
            ..tagged(&mut [7; 8], 1)
        };
        let posted = a.engine.core().transmit(a.ep, &mut message);
        assert_eq!(posted, Err(Errno::EINVAL));
    }
    assert!(a.engine.core().rdm(a.ep).unwrap().peers.is_empty());
}

/// Accepts the request that a peer, which the test plays, receives.
fn request(side: &Side, listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 41];
    let mut done = 0;
    until([side, side], || {
        if let Ok(n) = stream.read(&mut bytes[done..]) {
            done += n;
        }
        done >= 40 && (bytes[1] == 0 || done == 41)
    });
    bytes.truncate(done);
    (stream, bytes)
}

#[test]
fn a_peer_of_the_c_library_gets_no_request_that_it_would_accept_for_a_context() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = side_of_context(0);
    let mut addr = listener.local_addr().unwrap();
    addr.set_port(addr.port() - 1);
    a.knows(addr);
    let mut out = [7; 8];
    send_to(&a, &mut out, 1, context(1));
    let (stream, bytes) = request(&a, &listener);
    // The peer supports type 0 only, and closes the connection for any other.
    assert_eq!((bytes[1], bytes[3], bytes[40]), (0x23, 9, 1));
    drop((stream, listener));
    until([&a, &a], || !a.failed.borrow().is_empty());
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn a_context_is_an_endpoint_of_its_own_to_a_peer_of_the_c_library() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = side_of_context(3);
    a.knows(listener.local_addr().unwrap());
    let mut out = [7; 8];
    send_to(&a, &mut out, 1, 0);
    let (_stream, bytes) = request(&a, &listener);
    assert_eq!((bytes[1], bytes.len()), (0, 40));
    let identity = Identity::decode(&bytes[32..]).unwrap();
    assert_eq!(identity.port, a.addr.port());
}

#[test]
fn a_request_from_a_context_that_cannot_be_ends_the_connection() {
    let a = side_of_context(0);
    for (index, port) in [(5, 5), (5, 3), (64, 5000), (255, 5000)] {
        let identity = Identity {
            version: 1,
            version_checked: false,
            behind_firewall: false,
            port,
            pid: 1,
        };
        let request = Message::new(MessageKind::Request, Features::OURS, 1, &identity.encode());
        let mut stream = TcpStream::connect(a.addr).unwrap();
        let request = request.from_context(index).encode();
        stream.write_all(&request).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0; 1];
        let mut ended = false;
        until([&a, &a], || {
            ended |= match stream.read(&mut byte) {
                Ok(n) => n == 0,
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            };
            ended
        });
    }
    assert!(a.engine.core().rdm(a.ep).unwrap().peers.is_empty());
}
