//! Peers that an application waits for, although it has sent them nothing, and peers whose application
//! makes no calls after its last receive.

use prov_rxd::protocol::{Config, Endpoint, PeerId, Time};

use crate::host::{Kind, Leaving, Op, SimHost, name_of, request_of};
use crate::network::MS;
use crate::random::Random;
use crate::world;

/// Time after which silent peers are given up.
const GIVE_UP: Time = 8_000 * MS;

/// What the application of the awaited side does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It calls the library all the time.
    Calls,
    /// It computes: the library's thread does what needs no application.
    Computes,
    /// Its host is gone.
    IsGone,
}

struct Side {
    endpoint: Endpoint<SimHost>,
    host: SimHost,
}

/// Two endpoints with a connection, without faults between them.
struct Pair {
    now: Time,
    own: Side,
    other: Side,
    peer: PeerId,
    /// When the other side's application last called the library.
    driven: Time,
    /// Datagrams that wait for the other side's application.
    unread: Vec<Vec<u8>>,
    /// Datagrams of both sides.
    sent: usize,
    /// Whether what the other side sends is lost.
    loses: bool,
}

fn side(number: u32, extended: bool) -> Side {
    let mut random = Random::new(u64::from(number) + 1);
    let config: Config = world::config(number, 1, &mut random, extended, GIVE_UP);
    Side {
        endpoint: Endpoint::new(config),
        host: SimHost::new(random),
    }
}

impl Pair {
    /// After one message to the other side.
    fn new(extended: bool) -> Self {
        let (mut own, other) = (side(0, true), side(1, extended));
        let now = 1_000 * MS;
        let peer = own.endpoint.peer(&name_of(1), 1).unwrap();
        own.host.peers.insert(peer, 1);
        let mut pair = Pair {
            now,
            own,
            other,
            peer,
            driven: now,
            unread: Vec::new(),
            sent: 0,
            loses: false,
        };
        pair.send(1);
        pair.run(100 * MS, Other::Calls);
        assert!(pair.own.host.ops.is_empty());
        pair
    }

    /// Sends a message to the other side.
    fn send(&mut self, id: u64) {
        let op = Op {
            peer: self.peer,
            kind: Kind::Message,
            len: 8,
            is_wrong: false,
            got: 0,
        };
        let request = request_of(&op, id, &mut Random::new(id));
        let Side { endpoint, host } = &mut self.own;
        host.ops.insert(id, op);
        endpoint.submit(self.now, self.peer, id, &request).unwrap();
    }

    fn run(&mut self, time: Time, other: Other) {
        let end = self.now + time;
        while self.now < end {
            self.now += 10 * MS;
            for _ in 0..4 {
                self.turn(other);
            }
        }
    }

    fn turn(&mut self, doing: Other) {
        let Pair {
            now, own, other, ..
        } = self;
        own.endpoint.transmit(*now, &mut own.host);
        let to_other = own.host.outbox.drain(..).map(|leaving| leaving.bytes);
        let before = self.unread.len();
        self.unread.extend(to_other);
        self.sent += self.unread.len() - before;
        match doing {
            Other::Calls => {
                for bytes in self.unread.drain(..) {
                    other
                        .endpoint
                        .receive(*now, Some(0), &bytes, &mut other.host);
                }
                other.endpoint.transmit(*now, &mut other.host);
                self.driven = *now;
            }
            Other::Computes => {
                let driven = self.driven;
                if other.endpoint.may_be_asked(*now) {
                    let Side { endpoint, host } = &mut *other;
                    self.unread
                        .retain(|bytes| !endpoint.receive_meanwhile(*now, Some(0), bytes, host));
                }
                other.endpoint.show_life(*now, driven, &mut other.host);
                other.endpoint.acknowledge_all(*now, &mut other.host);
            }
            Other::IsGone => self.unread.clear(),
        }
        for Leaving { bytes, .. } in other.host.outbox.drain(..) {
            self.sent += 1;
            if self.loses {
                continue;
            }
            own.endpoint.receive(*now, Some(1), &bytes, &mut own.host);
        }
    }

    fn watch(&mut self) {
        self.own.endpoint.watch(self.now, self.peer, true);
        self.own.host.awaited.insert(self.peer);
    }

    /// Whether the other side was given up.
    fn is_given_up(&self) -> bool {
        self.own.host.awaited.is_empty()
    }
}

#[test]
fn a_peer_that_is_awaited_and_gone_is_given_up_in_time() {
    let mut pair = Pair::new(true);
    pair.watch();
    pair.run(GIVE_UP / 2, Other::IsGone);
    assert!(!pair.is_given_up());
    pair.run(GIVE_UP, Other::IsGone);
    assert!(pair.is_given_up());
}

#[test]
fn a_peer_that_calls_the_library_is_not_given_up() {
    let mut pair = Pair::new(true);
    pair.watch();
    pair.run(4 * GIVE_UP, Other::Calls);
    assert!(!pair.is_given_up());
}

#[test]
fn a_peer_that_computes_is_not_given_up_once_it_knows_that_it_is_awaited() {
    let mut pair = Pair::new(true);
    pair.watch();
    pair.run(GIVE_UP / 4, Other::Calls);
    pair.run(4 * GIVE_UP, Other::Computes);
    assert!(!pair.is_given_up());
    // It has not died meanwhile.
    pair.run(GIVE_UP / 4, Other::Calls);
    pair.run(2 * GIVE_UP, Other::IsGone);
    assert!(pair.is_given_up());
}

#[test]
fn a_peer_that_is_not_awaited_any_longer_is_left_alone() {
    let mut pair = Pair::new(true);
    pair.watch();
    pair.run(GIVE_UP / 4, Other::Calls);
    pair.own.endpoint.watch(pair.now, pair.peer, false);
    pair.run(GIVE_UP, Other::Calls);
    let sent = pair.sent;
    pair.run(4 * GIVE_UP, Other::IsGone);
    assert!(!pair.is_given_up());
    assert_eq!(pair.sent, sent, "nobody asks for signs of life");
}

#[test]
fn signs_of_life_are_few() {
    let mut pair = Pair::new(true);
    pair.watch();
    let before = pair.sent;
    pair.run(8 * GIVE_UP, Other::Calls);
    assert!(pair.sent - before <= 2 * 64 + 2, "{}", pair.sent - before);
}

#[test]
fn a_peer_of_the_c_library_is_not_awaited() {
    let mut pair = Pair::new(false);
    pair.watch();
    pair.run(4 * GIVE_UP, Other::IsGone);
    assert!(!pair.is_given_up());
}

#[test]
fn a_peer_that_is_sought_and_not_there_is_given_up_again() {
    let mut pair = Pair::new(true);
    pair.watch();
    pair.run(2 * GIVE_UP, Other::IsGone);
    pair.own.endpoint.seek(pair.now, pair.peer);
    pair.own.host.awaited.insert(pair.peer);
    pair.run(GIVE_UP / 2, Other::IsGone);
    assert!(!pair.is_given_up());
    pair.run(GIVE_UP, Other::IsGone);
    assert!(pair.is_given_up());
}

#[test]
fn a_peer_that_was_closed_is_waited_for_without_asking() {
    let mut pair = Pair::new(true);
    pair.other
        .endpoint
        .acknowledge_last(pair.now, &mut pair.other.host);
    pair.run(100 * MS, Other::IsGone);
    pair.watch();
    let sent = pair.sent;
    pair.run(4 * GIVE_UP, Other::IsGone);
    assert!(!pair.is_given_up(), "it may come back under its address");
    assert_eq!(pair.sent, sent, "nobody is there to answer");
}

/// The acknowledgement of the last message is lost, and the other side's application makes no calls
/// afterwards.
fn after_a_lost_acknowledgement(extended: bool) -> Pair {
    let mut pair = Pair::new(extended);
    pair.send(2);
    pair.loses = true;
    pair.run(10 * MS, Other::Calls);
    assert!(!pair.own.host.ops.is_empty());
    pair
}

#[test]
fn a_peer_that_repeats_is_answered_while_the_application_makes_no_calls() {
    for extended in [true, false] {
        let mut pair = after_a_lost_acknowledgement(extended);
        // The answers may be lost as well, for longer than the first time.
        pair.run(GIVE_UP - 100 * MS, Other::Computes);
        pair.loses = false;
        pair.run(4_000 * MS, Other::Computes);
        assert!(pair.own.host.ops.is_empty(), "{extended}");
    }
}

#[test]
fn what_is_new_waits_for_the_application() {
    for extended in [true, false] {
        let mut pair = after_a_lost_acknowledgement(extended);
        pair.loses = false;
        pair.send(3);
        pair.run(1_000 * MS, Other::Computes);
        let left: Vec<u64> = pair.own.host.ops.keys().copied().collect();
        assert_eq!(left, [3], "{extended}");
        assert!(!pair.other.host.delivered.contains(&3));
        pair.run(3_000 * MS, Other::Calls);
        assert!(pair.own.host.ops.is_empty());
        assert_eq!(pair.other.host.delivered, [1, 2, 3]);
    }
}

#[test]
fn nothing_is_sent_to_a_peer_that_does_not_ask() {
    for extended in [true, false] {
        let mut pair = Pair::new(extended);
        pair.send(2);
        pair.run(100 * MS, Other::Calls);
        assert!(pair.own.host.ops.is_empty());
        let sent = pair.sent;
        assert!(pair.other.endpoint.may_be_asked(pair.now));
        pair.run(GIVE_UP, Other::Computes);
        assert_eq!(pair.sent, sent);
        assert!(!pair.other.endpoint.may_be_asked(pair.now));
    }
}

/// What an endpoint keeps is bounded: debug assertions in `transmit` say so.
#[test]
fn times_at_which_an_awaited_peer_is_asked_do_not_pile_up_while_it_is_sent_messages() {
    let mut pair = Pair::new(true);
    for id in 2..1_000 {
        let (now, peer) = (pair.now, pair.peer);
        pair.own.endpoint.watch(now, peer, true);
        pair.own.host.awaited.insert(peer);
        pair.send(id);
        pair.run(10 * MS, Other::Calls);
    }
    assert!(pair.own.host.ops.is_empty());
}
