//! Requests that somebody forges in the name of the two sides, while they set up a connection.

use prov_rxd::protocol::{Endpoint, Time};

use crate::host::{Kind, Leaving, Op, SimHost, name_of, request_of};
use crate::network::MS;
use crate::random::Random;
use crate::side::{Side, side};
use crate::world;

/// Time after which silent peers are given up.
const GIVE_UP: Time = 120_000 * MS;
/// Time that a datagram takes.
const DELAY: Time = 20 * MS;
/// Time within which everything arrives, however many requests are forged.
const SOON: Time = 10_000 * MS;
/// Bytes of a request of the C library.
const C_REQUEST: usize = 16 + 8 + 64;

/// What forged requests look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// Those of the C library.
    C,
    /// Those of this library.
    Own,
    /// Those of the very endpoint that they pretend to be from: its number is no secret to its peers.
    Same,
}

/// Requests in the name of a node.
struct Forger {
    requests: Vec<Vec<u8>>,
    look: Look,
    next: usize,
}

impl Forger {
    fn new(as_node: u32, to: u32, look: Look) -> Forger {
        let request = |seed| {
            let mut random = Random::new(seed);
            let config = world::config(as_node, 1, &mut random, true, GIVE_UP);
            let (mut endpoint, mut host) = (Endpoint::new(config), SimHost::new(random));
            send(&mut endpoint, &mut host, 0, to, 1);
            endpoint.transmit(0, &mut host);
            let mut bytes = host.outbox.remove(0).bytes;
            if look == Look::C {
                bytes.truncate(C_REQUEST);
            }
            bytes
        };
        Forger {
            requests: (1_000..1_020).map(request).collect(),
            look,
            next: 0,
        }
    }

    /// The next one, with the number of the endpoint that sent `genuine`.
    fn forge(&mut self, genuine: Option<&[u8]>) -> Vec<u8> {
        self.next += 1;
        let mut bytes = self.requests[self.next % self.requests.len()].clone();
        if let Some(genuine) = genuine.filter(|_| self.look == Look::Same) {
            let instance = C_REQUEST + 32..C_REQUEST + 36;
            bytes[instance.clone()].copy_from_slice(&genuine[instance]);
            let sum = crc32c::crc32c(&bytes[..C_REQUEST + 36]);
            bytes[C_REQUEST + 36..].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
}

fn send(endpoint: &mut Endpoint<SimHost>, host: &mut SimHost, now: Time, to: u32, id: u64) {
    let peer = endpoint.peer(&name_of(to), to).unwrap();
    host.peers.insert(peer, to);
    let op = Op {
        peer,
        kind: Kind::Message,
        len: 8 + (id as usize * 577) % 4_000,
        is_wrong: false,
        got: 0,
    };
    let request = request_of(&op, id, &mut Random::new(id));
    host.ops.insert(id, op);
    endpoint.submit(now, peer, id, &request).unwrap();
}

/// A case: which sides send, what is forged, when it begins and ends, how many at a time and where to.
#[derive(Clone, Copy, Debug)]
struct Case {
    senders: [bool; 2],
    look: Look,
    begin: Time,
    end: Time,
    at_a_time: usize,
    victims: [bool; 2],
}

/// Each sender sends a few messages, and all of them arrive once.
fn check(case: Case) {
    let mut sides: [Side; 2] = [side(0, 1, GIVE_UP), side(1, 2, GIVE_UP)];
    let mut forgers = [0, 1].map(|victim| Forger::new(1 - victim, victim, case.look));
    // The last request of each side, from which the other one's number is known.
    let mut genuine: [Option<Vec<u8>>; 2] = [None, None];
    let mut wire: Vec<(Time, usize, Vec<u8>)> = Vec::new();
    let begin = 1_000 * MS;
    let mut now = begin;
    let mut count = [0, 0];
    while now < begin + SOON {
        for from in [0, 1] {
            let Side { endpoint, host } = &mut sides[from];
            if case.senders[from] && count[from] < 5 && (now - begin).is_multiple_of(7 * MS) {
                count[from] += 1;
                let id = (from as u64 + 1) * 1_000 + count[from];
                send(endpoint, host, now, 1 - from as u32, id);
            }
            endpoint.transmit(now, host);
            for Leaving { bytes, .. } in host.outbox.drain(..) {
                if bytes[1] == 9 {
                    genuine[from] = Some(bytes.clone());
                }
                wire.push((now + DELAY, 1 - from, bytes));
            }
        }
        let (arrived, later): (Vec<_>, Vec<_>) = wire.drain(..).partition(|(at, ..)| *at <= now);
        wire = later;
        for (_, to, bytes) in arrived {
            let Side { endpoint, host } = &mut sides[to];
            endpoint.receive(now, Some(1 - to as u32), &bytes, host);
        }
        for victim in [0, 1] {
            let is_on = (case.begin..case.end).contains(&(now - begin));
            if is_on && case.victims[victim] {
                for _ in 0..case.at_a_time {
                    let bytes = forgers[victim].forge(genuine[1 - victim].as_deref());
                    let Side { endpoint, host } = &mut sides[victim];
                    endpoint.receive(now, Some(1 - victim as u32), &bytes, host);
                }
            }
        }
        now += MS;
        let is_over = |from: usize| match case.senders[from] {
            true => sides[from].host.done.len() == 5 && sides[1 - from].host.delivered.len() >= 5,
            false => true,
        };
        if is_over(0) && is_over(1) && wire.is_empty() {
            break;
        }
    }
    for (from, other) in [(0, 1), (1, 0)] {
        let sent: Vec<u64> = (1..=count[from])
            .map(|count| (from as u64 + 1) * 1_000 + count)
            .collect();
        let done = &sides[from].host.done;
        for outcome in done {
            assert_eq!(outcome.result, Ok(()), "{case:?} {outcome:?}");
        }
        assert_eq!(done.len(), sent.len(), "{case:?} from {from}");
        assert_eq!(sides[other].host.delivered, sent, "{case:?} from {from}");
    }
}

#[test]
fn requests_forged_while_a_connection_is_set_up_do_not_end_it() {
    let both = [[true, false], [false, true], [true, true]];
    for look in [Look::C, Look::Own, Look::Same] {
        for (senders, victims) in both.iter().flat_map(|a| both.iter().map(move |b| (*a, *b))) {
            for (begin, end) in [(0, SOON), (0, 1), (25, 26), (45, 46), (45, SOON)] {
                check(Case {
                    senders,
                    look,
                    begin: begin * MS,
                    end: if end == SOON { SOON } else { end * MS },
                    at_a_time: 3,
                    victims,
                });
            }
        }
    }
}
