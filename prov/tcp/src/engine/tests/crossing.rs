//! Crossing requests of two endpoints.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use crate::engine::link::connection::Stage;
use crate::wire::handshake::{self, Decoded, Features, Kind as MessageKind, Message};
use crate::wire::rdm::Identity;

#[test]
fn a_request_that_meets_ours_is_accepted_once_ours_is_refused() {
    let a = side();
    // The higher address, whose request is accepted.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let addr = listener.local_addr().unwrap();
    a.knows(addr);
    let mut out = [7; 8];
    send(&a, &mut out, 1);
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    until([&a, &a], || {
        accepted = accepted.take().or_else(|| listener.accept().ok());
        accepted.is_some()
    });
    let mut ours = accepted.unwrap().0;
    ours.set_nonblocking(true).unwrap();
    let mut request = [0; handshake::HEADER + 8];
    until([&a, &a], || {
        ours.peek(&mut request)
            .is_ok_and(|len| len == request.len())
    });
    // As from the C library: no features, no instance.
    let identity = Identity {
        version: 0,
        version_checked: false,
        behind_firewall: false,
        port: addr.port(),
        pid: std::process::id() + 1,
    };
    let message = |kind| Message::new(kind, Features::default(), 0, &identity.encode()).encode();
    let source = SocketAddr::new(addr.ip(), 0);
    let theirs = socket::connect(Some(source), &a.addr, &Params::default()).unwrap();
    socket::wait_writable(&[theirs.as_fd()], Duration::from_secs(60));
    let mut theirs = std::net::TcpStream::from(theirs);
    theirs.write_all(&message(MessageKind::Request)).unwrap();
    let waits = || {
        let core = a.engine.core();
        let mut conns = core.conns.values();
        conns.any(|conn| match &conn.stage {
            Stage::Accepted(_) => conn.setup.heard.len() == handshake::HEADER + 8,
            _ => false,
        })
    };
    until([&a, &a], waits);
    let mut answer = [0; handshake::HEADER + 8];
    let early = theirs.read(&mut answer).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    ours.write_all(&message(MessageKind::Reject)).unwrap();
    until([&a, &a], || theirs.peek(&mut answer).is_ok());
    theirs.read_exact(&mut answer).unwrap();
    match handshake::decode(&answer, &[MessageKind::Accept]) {
        Ok(Decoded::Complete(_)) => {}
        other => panic!("{other:?}"),
    }
    until([&a, &a], || a.count() == 1);
    assert_eq!(a.connections(), 1);
}
