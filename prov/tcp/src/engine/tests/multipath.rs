//! A peer that adds subflows, and others that try to add some to its connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::*;
use crate::wire::ByteOrder;
use crate::wire::handshake::{self, Features, Kind as MessageKind, Message};
use crate::wire::header::{Header, MAX_HEADER, Op};
use crate::wire::multipath::{ASK, Join, MAX_SUBFLOWS, Offer, SWITCH};
use crate::wire::rdm::Identity;

/// Reads exactly this many bytes, while the side is driven.
fn read(side: &Side, stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    until([side, side], || {
        let mut part = vec![0; len - bytes.len()];
        match stream.read(&mut part) {
            Ok(0) => panic!("the connection has ended"),
            Ok(read) => bytes.extend(&part[..read]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        bytes.len() == len
    });
    bytes
}

fn connect(to: SocketAddr, message: &Message) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(&message.encode()).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// A message about subflows.
fn say(mut stream: &TcpStream, subject: u8) {
    let mut header = Header::new(Op::Multipath);
    header.op_data = subject;
    let mut bytes = [0; MAX_HEADER];
    let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
    stream.write_all(&bytes[..len]).unwrap();
}

/// Connects from another host as it seems, and asks for an offer.
fn offered(side: &Side, port: u16) -> (TcpStream, Offer) {
    let features = Features::OURS.without(Features::LOCAL.or(Features::DIRECT));
    let identity = Identity {
        version: 1,
        version_checked: false,
        behind_firewall: false,
        port,
        pid: 1,
    };
    let request = Message::new(MessageKind::Request, features, 9, &identity.encode());
    let mut stream = connect(side.addr, &request);
    read(
        side,
        &mut stream,
        handshake::HEADER + identity.encode().len(),
    );
    say(&stream, ASK);
    let header = read(side, &mut stream, 16);
    assert_eq!(header[1], Op::Multipath as u8);
    let total = u64::from_ne_bytes(header[8..16].try_into().unwrap()) as usize;
    let offer = read(side, &mut stream, total - 16);
    (stream, Offer::decode(&offer).unwrap())
}

fn join(offer: &Offer, number: u8) -> TcpStream {
    let join = Join {
        token: offer.token,
        number,
    };
    let message = Message::new(MessageKind::Join, Features::OURS, 0, &join.encode());
    connect(offer.addresses[0], &message)
}

fn has_ended(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0; 100]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn subflows(side: &Side) -> usize {
    let core = side.engine.core();
    let multipath = core
        .conns
        .values()
        .filter_map(|conn| conn.multipath.as_ref());
    multipath.map(|multipath| multipath.working().count()).sum()
}

#[test]
fn only_who_knows_the_token_adds_subflows() {
    let side = side();
    let (_stream, offer) = offered(&side, 1);
    assert_eq!(offer.addresses.len(), 1);
    for at in 0..offer.token.len() {
        let mut forged = offer.clone();
        forged.token[at] ^= 1;
        let stranger = join(&forged, 1);
        until([&side, &side], || has_ended(&stranger));
    }
    // Nor does who has another connection, or sends anything else.
    let (_other, other) = offered(&side, 2);
    assert_ne!(other.token, offer.token);
    let request = Message::new(MessageKind::Request, Features::OURS, 9, &[0; 8]);
    let stranger = connect(offer.addresses[0], &request);
    until([&side, &side], || has_ended(&stranger));
    assert_eq!(subflows(&side), 2);
    let mut second = join(&offer, 1);
    read(&side, &mut second, handshake::HEADER);
    assert_eq!(subflows(&side), 3);
}

#[test]
fn a_flood_of_subflows_replaces_earlier_ones() {
    let side = side();
    let (stream, offer) = offered(&side, 1);
    let mut kept = Vec::new();
    for turn in 0..5 * MAX_SUBFLOWS {
        let mut stream = join(&offer, (turn % MAX_SUBFLOWS) as u8);
        read(&side, &mut stream, handshake::HEADER);
        kept.push(stream);
    }
    let left = kept.iter().filter(|stream| !has_ended(stream)).count();
    assert!(subflows(&side) <= MAX_SUBFLOWS && left <= MAX_SUBFLOWS);
    drop(stream);
    drop(kept);
    until([&side, &side], || subflows(&side) == 0);
    assert_eq!(side.connections(), 0);
}

#[test]
fn a_peer_that_switches_twice_or_unasked_loses_its_connection() {
    let side = side();
    let (stream, offer) = offered(&side, 1);
    say(&stream, SWITCH);
    // Not a frame.
    say(&stream, SWITCH);
    let second = join(&offer, 1);
    until([&side, &side], || has_ended(&stream));
    until([&side, &side], || has_ended(&second));
    let (stream, _) = offered(&side, 1);
    say(&stream, 77);
    until([&side, &side], || has_ended(&stream));
}
