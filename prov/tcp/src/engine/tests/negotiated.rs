//! Operations that not every peer supports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use prov_util::desc::Descs;
use prov_util::request::{Atomic, AtomicKind, RemoteIov, RemotePiece};

use super::*;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::rdm::Identity;

fn add(side: &Side, operand: &mut [u8; 8], flags: u64) -> prov_base::errno::Result {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0,
        len: 8,
        key: 1,
    });
    let mut atomic = Atomic {
        kind: AtomicKind::Base,
        datatype: fabric_abi::FI_UINT64,
        op: fabric_abi::FI_SUM,
        operand: memory(operand),
        remote,
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags,
        context: std::ptr::null_mut(),
    };
    side.engine.core().atomic(side.ep, &mut atomic)
}

/// Repeats the operation until it does not return `-FI_EAGAIN`.
fn add_in_the_end(side: &Side, flags: u64) -> prov_base::errno::Result {
    let mut operand = [1; 8];
    let mut outcome = Err(Errno::EAGAIN);
    until([side, side], || {
        outcome = add(side, &mut operand, flags);
        outcome != Err(Errno::EAGAIN)
    });
    outcome
}

fn accept_as_the_c_library_does(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = [0; 40];
    stream.read_exact(&mut request).unwrap();
    let identity = Identity {
        version: 1,
        version_checked: true,
        behind_firewall: false,
        port: 0,
        pid: 1,
    };
    let answer = Message::new(
        MessageKind::Accept,
        Features::default(),
        0,
        &identity.encode(),
    );
    stream.write_all(&answer.encode()).unwrap();
    stream
}

#[test]
fn a_peer_without_atomics_is_refused_them_at_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = side();
    a.knows(listener.local_addr().unwrap());
    assert_eq!(add(&a, &mut [1; 8], 0), Err(Errno::EAGAIN));
    let peer = std::thread::spawn(move || accept_as_the_c_library_does(&listener));
    for flags in [FI_COMPLETION, fabric_abi::FI_INJECT] {
        assert_eq!(add_in_the_end(&a, flags), Err(Errno::EOPNOTSUPP));
        assert_eq!(add(&a, &mut [1; 8], flags), Err(Errno::EOPNOTSUPP));
    }
    a.drive();
    assert_eq!((a.count(), a.failed.borrow().len()), (0, 0));
    // The connection can be used for operations that the peer supports.
    let mut out = [7; 8];
    send(&a, &mut out, 1);
    until([&a, &a], || a.count() == 1);
    drop(peer.join().unwrap());
}

#[test]
fn an_unreachable_peer_is_an_error_in_the_end_and_may_be_tried_again() {
    let refusing = socket::bound(&"127.0.0.1:0".parse().unwrap(), &Params::default()).unwrap();
    let a = side_with(Params {
        // Refused attempts are repeated for a fifteenth of it; a busy machine may take all of it.
        connect_timeout: 3000,
        ..Params::default()
    });
    a.knows(socket::name(refusing.as_fd()).unwrap());
    for _ in 0..2 {
        assert_eq!(add(&a, &mut [1; 8], 0), Err(Errno::EAGAIN));
        assert_eq!(add_in_the_end(&a, 0), Err(Errno::ECONNREFUSED));
    }
    a.drive();
    assert!(a.failed.borrow().is_empty());
    // A message does not get the failure of another operation.
    assert_eq!(add(&a, &mut [1; 8], 0), Err(Errno::EAGAIN));
    let mut out = [7; 8];
    send(&a, &mut out, 1);
    until([&a, &a], || a.failed.borrow().len() == 1);
    assert_eq!(a.failed.borrow()[0].err, Errno::ECONNREFUSED);
}

#[test]
fn a_peer_of_this_library_gets_the_operation_once_it_is_connected() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut operand = [1; 8];
    assert_eq!(add(&a, &mut operand, 0), Err(Errno::EAGAIN));
    until([&a, &b], || add(&a, &mut operand, 0) == Ok(()));
}
