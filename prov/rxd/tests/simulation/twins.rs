//! An application that sends to one endpoint under two of its addresses.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use prov_rxd::protocol::{PeerId, Time};

use crate::host::{Kind, Leaving, Op, name_of, request_of};
use crate::network::MS;
use crate::random::Random;
use crate::side::{Side, side};

/// Time after which silent peers are given up.
const GIVE_UP: Time = 8_000 * MS;
/// The other address of the second endpoint.
const OTHER: u32 = 11;

/// A datagram on its way: when it arrives, in which order it was sent, and the number of its sender.
type Underway = (Time, u64, usize, Vec<u8>);

/// Two endpoints. The second one is reached under two addresses, and always answers from the first of
/// them.
struct Pair {
    now: Time,
    sides: [Side; 2],
    random: Random,
    /// Parts of a million that are lost, and the longest delay.
    loss: u64,
    delay: Time,
    wire: BinaryHeap<Reverse<Underway>>,
    count: u64,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut random = Random::new(seed);
        Pair {
            now: 1_000 * MS,
            sides: [
                side(0, random.next(), GIVE_UP),
                side(1, random.next(), GIVE_UP),
            ],
            loss: 0,
            delay: 1,
            random,
            wire: BinaryHeap::new(),
            count: 0,
        }
    }

    fn send(&mut self, from: usize, to: u32) {
        self.count += 1;
        let (id, now) = (self.count, self.now);
        let Side { endpoint, host } = &mut self.sides[from];
        let peer: PeerId = endpoint.peer(&name_of(to), to).unwrap();
        host.peers.insert(peer, to);
        let op = Op {
            peer,
            kind: Kind::Message,
            len: 8 + self.random.below(4_000) as usize,
            is_wrong: false,
            got: 0,
        };
        let request = request_of(&op, id, &mut self.random);
        host.ops.insert(id, op);
        endpoint.submit(now, peer, id, &request).unwrap();
    }

    fn run(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end {
            for from in 0..2 {
                let Side { endpoint, host } = &mut self.sides[from];
                endpoint.transmit(self.now, host);
                for Leaving { bytes, .. } in host.outbox.drain(..) {
                    self.count += 1;
                    if self.random.below(1_000_000) >= self.loss {
                        let at = self.now + self.random.below(self.delay);
                        self.wire.push(Reverse((at, self.count, from, bytes)));
                    }
                }
            }
            self.now += MS / 4;
            while let Some(Reverse((at, ..))) = self.wire.peek()
                && *at <= self.now
                && let Some(Reverse((_, _, from, bytes))) = self.wire.pop()
            {
                let Side { endpoint, host } = &mut self.sides[1 - from];
                endpoint.receive(self.now, Some(from as u32), &bytes, host);
            }
        }
    }

    /// Sends messages under both addresses, and from the other side, in any order.
    fn exchange(&mut self, messages: u32) {
        for _ in 0..messages {
            match self.random.below(3) {
                0 => self.send(0, 1),
                1 => self.send(0, OTHER),
                _ => self.send(1, 0),
            }
            let pause = self.random.below(4) * MS;
            self.run(pause);
        }
    }

    /// The number of operations that have succeeded and failed; all have ended.
    fn outcomes(&mut self) -> (usize, usize) {
        let mut outcomes = (0, 0);
        for Side { host, .. } in &mut self.sides {
            assert!(host.ops.is_empty());
            for outcome in host.done.drain(..) {
                match outcome.result {
                    Ok(()) => outcomes.0 += 1,
                    Err(_) => outcomes.1 += 1,
                }
            }
        }
        outcomes
    }

    /// The number of messages that have arrived, each once.
    fn arrived(&self) -> usize {
        let all = self.sides.iter().flat_map(|side| &side.host.delivered);
        let once: HashSet<u64> = all.clone().copied().collect();
        assert_eq!(once.len(), all.count());
        once.len()
    }
}

#[test]
fn messages_under_both_addresses_of_an_endpoint_arrive() {
    for seed in 0..200 {
        let mut pair = Pair::new(seed);
        pair.loss = [0, 50_000, 200_000][seed as usize % 3];
        pair.delay = [1, 3 * MS, 20 * MS][seed as usize / 3 % 3];
        pair.exchange(30);
        pair.run(6_000 * MS);
        assert_eq!(pair.outcomes(), (30, 0), "seed {seed}");
        assert_eq!(pair.arrived(), 30);
    }
}

#[test]
fn both_addresses_work_again_when_the_endpoint_is_back() {
    for (seed, restarts) in (0..40).map(|seed| (seed, seed % 2 == 0)) {
        let mut pair = Pair::new(seed);
        pair.exchange(10);
        pair.run(1_000 * MS);
        assert_eq!(pair.outcomes(), (10, 0));
        // Nobody hears of the other side until it is given up.
        pair.loss = 1_000_000;
        pair.send(0, OTHER);
        pair.send(0, 1);
        pair.run(2 * GIVE_UP);
        assert_eq!(pair.outcomes(), (0, 2));
        pair.loss = 0;
        if restarts {
            pair.sides[1] = side(1, seed + 1_000, GIVE_UP);
        }
        let before = pair.arrived();
        pair.send(0, OTHER);
        pair.send(0, 1);
        pair.send(0, OTHER);
        pair.run(4_000 * MS);
        assert_eq!(pair.outcomes(), (3, 0), "seed {seed}");
        assert_eq!(pair.arrived(), before + 3);
    }
}
