//! A peer that is restarted and sends nothing by itself.

use prov_rxd::protocol::{Failure, PeerId, Time};

use crate::host::{Kind, Leaving, Op, name_of, request_of};
use crate::network::MS;
use crate::random::Random;
use crate::side::{Side, side};

/// Time after which silent peers are given up.
const GIVE_UP: Time = 120_000 * MS;
/// Time within which it is noticed that a peer was restarted.
const NOTICED: Time = 5_000 * MS;

/// Two endpoints, the second of which can be replaced.
struct Pair {
    now: Time,
    own: Side,
    other: Side,
    peer: PeerId,
    count: u64,
    /// Parts of a million of the datagrams to the second endpoint that are lost.
    loss: u64,
    random: Random,
}

impl Pair {
    /// After one message.
    fn new() -> Self {
        let mut own = side(0, 1, GIVE_UP);
        let peer = own.endpoint.peer(&name_of(1), 1).unwrap();
        own.host.peers.insert(peer, 1);
        let mut pair = Pair {
            now: 1_000 * MS,
            own,
            other: side(1, 2, GIVE_UP),
            peer,
            count: 0,
            loss: 0,
            random: Random::new(4),
        };
        pair.submit(Kind::Message, 8);
        pair.run(100 * MS);
        assert!(pair.own.host.done.pop().unwrap().result.is_ok());
        pair
    }

    fn submit(&mut self, kind: Kind, len: usize) -> u64 {
        self.count += 1;
        let (id, peer) = (self.count, self.peer);
        let op = Op {
            peer,
            kind,
            len,
            is_wrong: false,
            got: 0,
        };
        let request = request_of(&op, id, &mut Random::new(id));
        self.own.host.ops.insert(id, op);
        self.own
            .endpoint
            .submit(self.now, peer, id, &request)
            .unwrap();
        id
    }

    fn run(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end {
            self.turn();
            self.now += MS;
        }
    }

    fn turn(&mut self) {
        let Pair {
            now, own, other, ..
        } = self;
        own.endpoint.transmit(*now, &mut own.host);
        for Leaving { bytes, .. } in own.host.outbox.drain(..) {
            if !self.random.happens(self.loss) {
                other
                    .endpoint
                    .receive(*now, Some(0), &bytes, &mut other.host);
            }
        }
        other.endpoint.transmit(*now, &mut other.host);
        for Leaving { bytes, .. } in other.host.outbox.drain(..) {
            own.endpoint.receive(*now, Some(1), &bytes, &mut own.host);
        }
    }

    fn restart(&mut self) {
        self.other = side(1, 3, GIVE_UP);
    }

    /// Runs until an operation is done; returns how, and after what time.
    fn outcome(&mut self, id: u64) -> (Result<(), Failure>, Time) {
        let begin = self.now;
        loop {
            let done = &mut self.own.host.done;
            if let Some(place) = done.iter().position(|outcome| outcome.id == id) {
                return (done.remove(place).result, self.now - begin);
            }
            self.run(MS);
        }
    }

    fn check(&mut self, id: u64) {
        let (result, took) = self.outcome(id);
        assert_eq!(result, Err(Failure::Restarted));
        assert!(took < NOTICED, "{} ms", took / MS);
        // The next operation reaches the new one.
        let next = self.submit(Kind::Message, 5_000);
        let (result, took) = self.outcome(next);
        assert_eq!(result, Ok(()));
        assert!(took < NOTICED, "{} ms", took / MS);
        assert_eq!(self.other.host.delivered, [next]);
    }
}

#[test]
fn a_message_to_a_peer_that_was_restarted_fails_soon() {
    for len in [8, 100_000] {
        let mut pair = Pair::new();
        pair.restart();
        let id = pair.submit(Kind::Message, len);
        pair.check(id);
    }
}

#[test]
fn a_result_that_a_restarted_peer_has_forgotten_is_not_awaited() {
    let mut pair = Pair::new();
    let id = pair.submit(Kind::Read, 100);
    pair.own.endpoint.transmit(pair.now, &mut pair.own.host);
    // It has acknowledged the read, and is restarted before it sends the result.
    for Leaving { bytes, .. } in pair.own.host.outbox.drain(..) {
        let Side { endpoint, host } = &mut pair.other;
        endpoint.receive(pair.now, Some(0), &bytes, host);
        endpoint.transmit(pair.now, host);
    }
    let leaving = pair.other.host.outbox.drain(..);
    let ack = leaving
        .map(|leaving| leaving.bytes)
        .find(|bytes| bytes[1] == 11);
    if let Some(ack) = ack {
        let Side { endpoint, host } = &mut pair.own;
        endpoint.receive(pair.now, Some(1), &ack, host);
    }
    pair.restart();
    pair.check(id);
}

#[test]
fn a_restart_is_noticed_when_most_datagrams_are_lost() {
    let mut pair = Pair::new();
    pair.restart();
    pair.loss = 700_000;
    let id = pair.submit(Kind::Message, 3_000);
    let (result, took) = pair.outcome(id);
    assert_eq!(result, Err(Failure::Restarted));
    assert!(took < 30_000 * MS, "{} ms", took / MS);
}

#[test]
fn a_peer_that_does_not_call_the_library_for_a_while_was_not_restarted() {
    let mut pair = Pair::new();
    let id = pair.submit(Kind::Message, 100_000);
    pair.loss = 1_000_000;
    pair.run(60_000 * MS);
    pair.loss = 0;
    let (result, took) = pair.outcome(id);
    assert_eq!(result, Ok(()));
    assert!(took < NOTICED, "{} ms", took / MS);
}
