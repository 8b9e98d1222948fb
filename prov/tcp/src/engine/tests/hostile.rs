//! Strangers that send arbitrary bytes to an endpoint, while two peers exchange messages.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::wire::handshake::{Features, Kind, Message};
use crate::wire::rdm::Identity;

/// Number of connections that strangers keep open at a time without sending.
const KEPT_OPEN: usize = 300;

/// A reproducible random number generator.
struct Chance(u64);

impl Chance {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.bits() as u8).collect()
    }

    fn one_of<'a>(&mut self, all: &'a [Vec<u8>]) -> &'a [u8] {
        &all[self.below(all.len())]
    }

    /// Changes a few bytes, and perhaps cuts the end off.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if !bytes.is_empty() {
                let at = self.below(bytes.len());
                bytes[at] = self.bits() as u8;
            }
        }
        if self.below(3) == 0 {
            bytes.truncate(self.below(bytes.len() + 1));
        }
    }
}

/// The messages of strangers.
struct Stranger {
    chance: Chance,
    handshakes: Vec<Vec<u8>>,
    streams: Vec<Vec<u8>>,
    /// Ports that a stranger must not claim to listen at: it would be mistaken for a restarted peer
    /// there.
    taken: [u16; 2],
}

impl Stranger {
    /// Returns a valid request.
    fn request(&mut self) -> Vec<u8> {
        let mut port = self.chance.bits() as u16;
        while self.taken.contains(&port) {
            port = port.wrapping_add(1);
        }
        let identity = Identity {
            version: self.chance.below(3) as u8,
            version_checked: false,
            behind_firewall: self.chance.below(4) == 0,
            port,
            pid: self.chance.bits() as u32,
        };
        let features = match self.chance.below(2) {
            0 => Features::OURS,
            _ => Features::default(),
        };
        Message::new(
            Kind::Request,
            features,
            self.chance.bits(),
            &identity.encode(),
        )
        .encode()
    }

    fn speech(&mut self) -> Vec<u8> {
        match self.chance.below(6) {
            0 => Vec::new(),
            1 => self.chance.bytes(400),
            2 => {
                let mut bytes = self.chance.one_of(&self.handshakes)[1..].to_vec();
                // Only the port has to stay unchanged.
                let identity = bytes.split_off(bytes.len().min(32));
                self.chance.damage(&mut bytes);
                bytes.extend(identity);
                bytes
            }
            3 => {
                let mut bytes = self.request();
                bytes.truncate(self.chance.below(bytes.len()));
                bytes
            }
            4 => {
                let mut bytes = self.request();
                bytes.extend(self.chance.bytes(400));
                bytes
            }
            _ => {
                let mut bytes = self.request();
                for _ in 0..=self.chance.below(3) {
                    let mut stream = self.chance.one_of(&self.streams)[2..].to_vec();
                    self.chance.damage(&mut stream);
                    bytes.extend(stream);
                }
                bytes
            }
        }
    }

    /// Connects, sends and perhaps stays connected.
    fn visit(&mut self, target: SocketAddr) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(target).unwrap();
        stream.set_nonblocking(true).unwrap();
        let speech = self.speech();
        let cut = self.chance.below(speech.len() + 1);
        // The connection may have been closed already.
        let _ = stream.write(&speech[..cut]);
        let _ = stream.write(&speech[cut..]);
        let _ = stream.read(&mut [0; 64]);
        match self.chance.below(4) {
            0 => {
                let at_once = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&stream, at_once).unwrap();
                None
            }
            1 => None,
            _ => Some(stream),
        }
    }
}

/// Exchanges one message in each direction, and checks the contents.
fn talk(a: &Side, b: &Side, round: u64) {
    let tag = 0x7a11_0000_0000_0000 | round;
    let mut there: Vec<u8> = (0..100 + round % 5000).map(|i| (i ^ round) as u8).collect();
    let mut back: Vec<u8> = there.iter().map(|byte| !byte).collect();
    let (mut at_a, mut at_b) = (vec![0; there.len()], vec![0; there.len()]);
    receive(a, &mut at_a, tag);
    receive(b, &mut at_b, tag);
    send(a, &mut there, tag);
    send(b, &mut back, tag);
    until([a, b], || a.count() == 2 && b.count() == 2);
    assert!(at_b == there && at_a == back, "round {round}");
    for side in [a, b] {
        side.done.borrow_mut().clear();
        assert_eq!(side.failed.borrow().len(), 0);
    }
}

/// `HOSTILE_VISITS` sets the number of connections.
#[test]
fn strangers_do_not_disturb_two_peers_that_communicate() {
    let visits = std::env::var("HOSTILE_VISITS").map_or(1000, |n| n.parse().unwrap());
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let mut stranger = Stranger {
        chance: Chance(1),
        handshakes: seeds::handshakes(),
        streams: seeds::streams(),
        taken: [a.addr.port(), b.addr.port()],
    };
    let mut open = Vec::new();
    for round in 0..visits {
        if let Some(stream) = stranger.visit(a.addr) {
            open.push(stream);
        }
        if open.len() > KEPT_OPEN {
            let leaves = stranger.chance.below(open.len());
            open.swap_remove(leaves);
        }
        a.drive();
        if round % 10 == 0 {
            talk(&a, &b, round);
        }
    }
    drop(open);
    talk(&a, &b, visits);
    // Connections of those that left are gone.
    until([&a, &b], || a.connections() == 1);
}
