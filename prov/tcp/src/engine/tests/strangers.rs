//! Limits of the connections of strangers.

use prov_message::strangers::{AllStrangers, Strangers};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use super::*;
use crate::params::Local;
use crate::wire::ByteOrder;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::header::{Header, MAX_HEADER, Op};
use crate::wire::rdm::Identity;

/// Connections that strangers may have in these tests.
const LIMIT: usize = 20;

/// Creates a side whose strangers are counted apart from those of other tests.
fn limited() -> Side {
    limited_to(LIMIT)
}

fn limited_to(limit: usize) -> Side {
    let side = side_with(Params {
        max_strangers: limit,
        local: Local::Off,
        ..Params::default()
    });
    count_at(&side, count(), count());
    side
}

/// Counts a side's strangers, and its connections without a request, in these counts.
fn count_at(side: &Side, all: &'static AllStrangers, half_open: &'static AllStrangers) {
    let mut core = side.engine.core();
    core.strangers = Strangers::new(all);
    core.half_open = Strangers::new(half_open);
}

/// Creates a count. A list refers to it, so that it is not reported as a leak.
fn count() -> &'static AllStrangers {
    static ALL: Mutex<Vec<&AllStrangers>> = Mutex::new(Vec::new());
    let count = Box::leak(Box::default());
    ALL.lock().unwrap().push(count);
    count
}

/// Connects and sends a valid request.
fn request(side: &Side) -> TcpStream {
    let mut stream = TcpStream::connect(side.addr).unwrap();
    let identity = Identity {
        version: 1,
        version_checked: false,
        behind_firewall: false,
        port: stream.local_addr().unwrap().port(),
        pid: std::process::id(),
    };
    let request = Message::new(MessageKind::Request, Features::OURS, 9, &identity.encode());
    stream.write_all(&request.encode()).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// Whether a request is accepted; otherwise the connection ends.
fn is_accepted(side: &Side, stream: &TcpStream) -> bool {
    let mut heard = None;
    until([side, side], || {
        heard = match stream.peek(&mut [0]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Ok(len) => Some(len != 0),
            Err(_) => Some(false),
        };
        heard.is_some()
    });
    heard.unwrap()
}

fn stranger(side: &Side) -> TcpStream {
    let stream = request(side);
    assert!(is_accepted(side, &stream));
    stream
}

/// Whether the side has closed a connection on which it has sent something.
fn has_ended(mut stream: &TcpStream) -> bool {
    let mut said = [0; 256];
    loop {
        match stream.read(&mut said) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Sends a message with a tag and one byte, or everything except that byte.
fn say(mut stream: &TcpStream, with_payload: bool) {
    let mut header = Header::new(Op::Tagged);
    (header.payload, header.word) = (1, 3);
    let mut bytes = [0; MAX_HEADER];
    let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
    let end = len + usize::from(with_payload);
    stream.write_all(&bytes[..end]).unwrap();
}

/// Waits longer than the differences between the times that the kernel reports for the same moment.
fn a_moment_later() {
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn the_stranger_idle_for_longest_is_disconnected_when_another_one_connects() {
    let a = limited();
    let first = stranger(&a);
    let second = stranger(&a);
    a_moment_later();
    let mut others: Vec<TcpStream> = (2..LIMIT).map(|_| stranger(&a)).collect();
    a_moment_later();
    say(&first, true);
    a.drive();
    assert_eq!(a.connections(), LIMIT);
    others.push(stranger(&a));
    assert_eq!(a.connections(), LIMIT);
    assert!(has_ended(&second) && !has_ended(&first));
    for _ in 0..3 * LIMIT {
        others.push(stranger(&a));
        assert!(a.connections() <= LIMIT);
    }
    assert!(has_ended(&first));
}

#[test]
fn the_least_recently_used_connection_is_closed_whichever_lane_it_is_in() {
    const MANY: usize = 60;
    const LATER: usize = 30;
    let [all, half_open] = [count(), count()];
    let [a, b] = [(); 2].map(|()| {
        let side = limited_to(MANY);
        count_at(&side, all, half_open);
        side
    });
    let old: Vec<TcpStream> = (0..MANY).map(|_| stranger(&a)).collect();
    a_moment_later();
    let mut new = Vec::new();
    for _ in 0..LATER {
        new.push(stranger(&b));
        // The other lane finds the request to close when it is driven.
        until([&a, &a], || !a.engine.core().strangers.has_orders());
    }
    assert_eq!((a.connections(), b.connections()), (MANY - LATER, LATER));
    assert!(old[..LATER].iter().all(has_ended));
    assert!(!old[LATER..].iter().chain(&new).any(has_ended));
}

#[test]
fn a_stranger_with_a_message_in_progress_stays_and_known_peers_are_always_admitted() {
    let (a, b) = (limited(), side());
    let busy: Vec<TcpStream> = (0..LIMIT).map(|_| stranger(&a)).collect();
    for stream in &busy {
        say(stream, false);
    }
    for _ in 0..LIMIT {
        assert!(!is_accepted(&a, &request(&a)));
    }
    assert_eq!(a.connections(), LIMIT);
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive(&a, &mut place, 1);
    send(&b, &mut out, 1);
    until([&a, &b], || a.count() == 1);
    assert_eq!(place, out);
    assert!(!busy.iter().any(has_ended));
}

#[test]
fn a_peer_whose_connection_was_closed_for_others_is_back_with_its_next_message() {
    let (a, b) = (limited(), side());
    b.knows(a.addr);
    let mut place = [0; 8];
    for round in 1..4 {
        let mut out = [round; 8];
        receive(&a, &mut place, 1);
        send(&b, &mut out, 1);
        until([&a, &b], || a.count() == usize::from(round));
        assert_eq!(place, out);
        a_moment_later();
        let _others: Vec<TcpStream> = (0..LIMIT).map(|_| stranger(&a)).collect();
        until([&a, &b], || b.connections() == 0);
    }
    assert_eq!(b.failed.borrow().len(), 0);
}

#[test]
fn a_peer_that_is_inserted_does_not_count_as_a_stranger() {
    let (a, b) = (limited(), side());
    b.knows(a.addr);
    let (mut out, mut place) = ([7; 8], [0; 8]);
    receive(&a, &mut place, 1);
    send(&b, &mut out, 1);
    until([&a, &b], || a.count() == 1);
    assert!(a.engine.core().strangers.oldest().is_some());
    a.knows(b.addr);
    receive(&b, &mut place, 2);
    send(&a, &mut out, 2);
    until([&a, &b], || b.count() == 2);
    assert!(a.engine.core().strangers.oldest().is_none());
}

#[test]
fn the_oldest_of_the_connections_without_a_request_is_closed() {
    let a = limited();
    let mut silent = Vec::new();
    for _ in 0..4 * LIMIT {
        silent.push(TcpStream::connect(a.addr).unwrap());
        silent.last().unwrap().set_nonblocking(true).unwrap();
        a.drive();
        assert!(a.connections() <= LIMIT);
    }
    until([&a, &a], || has_ended(&silent[3 * LIMIT - 1]));
    assert!(silent[..3 * LIMIT].iter().all(has_ended));
    assert!(!silent[3 * LIMIT..].iter().any(has_ended));
    stranger(&a);
}
