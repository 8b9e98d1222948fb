//! Endpoints of another type, and of providers that are layered over tcp.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::wire::handshake::{Decoded, Features, Kind as MessageKind, Message, decode};

fn handshake(kind: MessageKind, data: &[u8]) -> Vec<u8> {
    Message::new(kind, Features::default(), 0, data).encode()
}

#[test]
fn a_request_of_another_kind_of_endpoint_is_rejected() {
    let a = side();
    for len in [0, 7, 24, 256] {
        let mut other = TcpStream::connect(a.addr).unwrap();
        other
            .write_all(&handshake(MessageKind::Request, &vec![1; len]))
            .unwrap();
        let reader = std::thread::spawn(move || {
            let mut answer = Vec::new();
            other.read_to_end(&mut answer).map(|_| answer)
        });
        until([&a, &a], || reader.is_finished());
        let answer = reader.join().unwrap().unwrap();
        match decode(&answer, &[MessageKind::Reject]) {
            Ok(Decoded::Complete(message)) => assert!(message.data.is_empty()),
            _ => panic!("{answer:?}"),
        }
        assert_eq!(a.connections(), 0);
    }
}

/// Answers every request with the same bytes, and counts them.
fn answering(answer: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; 40]).unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            stream.write_all(&answer).unwrap();
        }
    });
    (addr, count)
}

#[test]
fn an_answer_of_another_kind_of_endpoint_is_an_immediate_error() {
    for (kind, data) in [
        (MessageKind::Reject, &[1, 0][..]),
        (MessageKind::Accept, &[0; 24]),
        (MessageKind::Accept, &[]),
    ] {
        let (addr, count) = answering(handshake(kind, data));
        let a = side();
        a.knows(addr);
        let mut out = [7; 8];
        send(&a, &mut out, 1);
        until([&a, &a], || a.failed.borrow().len() == 1);
        assert_eq!(a.failed.borrow()[0].err, Errno::ECONNREFUSED);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}
