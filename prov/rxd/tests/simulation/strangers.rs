//! Peers that come by themselves: how many an endpoint has, and who gives way to whom.

use prov_rxd::protocol::{Endpoint, Time};

use crate::c_peer::CPeer;
use crate::host::{Kind, Leaving, Op, SimHost, name_of, request_of};
use crate::network::MS;
use crate::random::Random;
use crate::world;

/// An endpoint and its application.
struct Node {
    endpoint: Endpoint<SimHost>,
    host: SimHost,
}

impl Node {
    fn new(number: u32) -> Node {
        let mut random = Random::new(u64::from(number));
        let mut config = world::config(number, 16, &mut random, true, 120_000 * MS);
        (config.max_strangers, config.max_guests) = (STRANGERS, GUESTS);
        Node {
            endpoint: Endpoint::new(config),
            host: SimHost::new(random),
        }
    }

    /// Sends a message with this number to the first node.
    fn send(&mut self, now: Time, id: u64) {
        let peer = self.endpoint.peer(&name_of(0), 0).unwrap();
        let op = Op {
            peer,
            kind: Kind::Message,
            len: 100,
            is_wrong: false,
            got: 0,
        };
        let request = request_of(&op, id, &mut self.host.random);
        self.host.ops.insert(id, op);
        self.endpoint.submit(now, peer, id, &request).unwrap();
    }

    fn transmit(&mut self, now: Time) -> Vec<Leaving> {
        self.endpoint.transmit(now, &mut self.host);
        std::mem::take(&mut self.host.outbox)
    }
}

const STRANGERS: usize = 4;
const GUESTS: usize = 4;
/// A host's share of the guests.
const SHARE: u32 = 1;

/// The first node, and others who send to it and whom it does not know.
struct Crowd {
    now: Time,
    nodes: Vec<Node>,
    count: u64,
}

impl Crowd {
    fn new(nodes: u32) -> Crowd {
        Crowd {
            now: 1_000 * MS,
            nodes: (0..nodes).map(Node::new).collect(),
            count: 0,
        }
    }

    /// One of the others sends a message. Returns whether it has arrived within a second: the sender knows
    /// in either case.
    fn arrives(&mut self, from: u32) -> bool {
        self.count += 1;
        let (id, now) = (self.count, self.now);
        self.nodes[from as usize].send(now, id);
        self.wait(1_000 * MS);
        let has_come = self.nodes[0].host.delivered.contains(&id);
        let outcome = self.nodes[from as usize].host.done.pop().unwrap();
        assert_eq!((outcome.id, outcome.result.is_ok()), (id, has_come));
        has_come
    }

    fn wait(&mut self, time: Time) {
        let end = self.now + time;
        while self.now < end {
            let (first, others) = self.nodes.split_first_mut().unwrap();
            for (number, other) in (1..).zip(&mut *others) {
                for Leaving { bytes, .. } in other.transmit(self.now) {
                    let from = Some(number);
                    first
                        .endpoint
                        .receive(self.now, from, &bytes, &mut first.host);
                }
            }
            for Leaving { to, bytes, .. } in first.transmit(self.now) {
                if let Some(to) = others.get_mut(to as usize - 1) {
                    to.endpoint.receive(self.now, Some(0), &bytes, &mut to.host);
                }
            }
            self.now += 10 * MS;
        }
    }
}

#[test]
fn the_guest_that_has_been_idle_longest_gives_way_at_once_and_may_come_again() {
    let mut crowd = Crowd::new(3 * GUESTS as u32 + 1);
    for _ in 0..3 {
        for guest in 1..=3 * GUESTS as u32 {
            assert!(crowd.arrives(guest));
            assert!(crowd.nodes[0].host.peers.len() <= GUESTS);
        }
    }
    // Those that came last have their places.
    let gone = crowd.nodes[0].host.strangers_gone;
    for guest in 2 * GUESTS as u32 + 1..=3 * GUESTS as u32 {
        assert!(crowd.arrives(guest));
    }
    assert_eq!(crowd.nodes[0].host.strangers_gone, gone);
}

/// A first node to which the nodes from 1 on have sent messages for which there is no room.
fn busy_with(guests: u32, hosts_of: u32) -> Crowd {
    let mut crowd = Crowd::new(2 * hosts_of);
    crowd.nodes[0].host.per_host = hosts_of;
    crowd.nodes[0].host.holds = 1_000_000;
    for guest in 1..=guests {
        let now = crowd.now;
        crowd.nodes[guest as usize].send(now, u64::from(guest));
        crowd.wait(1_000 * MS);
    }
    assert_eq!(crowd.nodes[0].host.held.len(), guests as usize);
    crowd.nodes[0].host.holds = 0;
    crowd
}

#[test]
fn many_guests_of_one_host_shut_nobody_else_out() {
    let hosts_of = 2 * GUESTS as u32;
    let mut crowd = busy_with(GUESTS as u32, hosts_of);
    // Nobody is idle, and the others are of another host.
    for newcomer in hosts_of..hosts_of + SHARE {
        assert!(crowd.arrives(newcomer), "{newcomer}");
        assert_eq!(crowd.nodes[0].host.peers.len(), GUESTS);
    }
}

#[test]
fn a_busy_guest_does_not_give_way_to_one_of_its_own_host() {
    let mut crowd = busy_with(GUESTS as u32, 2 * GUESTS as u32);
    let own = GUESTS as u32 + 1;
    assert!(!crowd.arrives(own));
    assert_eq!(crowd.nodes[0].host.held.len(), GUESTS);
}

#[test]
fn requests_that_are_forged_cost_little_and_nobody_a_place() {
    let mut crowd = Crowd::new(GUESTS as u32 + 1);
    for guest in 1..=GUESTS as u32 {
        assert!(crowd.arrives(guest));
    }
    crowd.wait(120_000 * MS);
    for number in 100..3_000 {
        let mut forger = Node::new(number);
        forger.send(crowd.now, 1 << 40);
        for Leaving { bytes, .. } in forger.transmit(crowd.now) {
            let (now, first) = (crowd.now, &mut crowd.nodes[0]);
            first
                .endpoint
                .receive(now, Some(number), &bytes, &mut first.host);
        }
        let first = &mut crowd.nodes[0];
        first.transmit(crowd.now);
        assert!(first.host.peers.len() <= GUESTS + STRANGERS);
        crowd.now += 100 * MS;
    }
    for guest in 1..=GUESTS as u32 {
        let (id, now) = (1_000 + u64::from(guest), crowd.now);
        crowd.nodes[guest as usize].send(now, id);
        crowd.wait(10 * MS);
        let delivered = &crowd.nodes[0].host.delivered;
        assert!(delivered.contains(&id), "it has lost its place");
    }
}

/// A request that a forger sends in the name of a node that does not exist.
fn forged(number: u32, extended: bool) -> Vec<u8> {
    let mut forger = Node::new(number);
    forger.send(1_000 * MS, 1);
    let mut request = forger.transmit(1_000 * MS).remove(0).bytes;
    if !extended {
        // What the C library sends is shorter.
        request.truncate(16 + 8 + 64);
    }
    request
}

/// Delivers everything for a second, as [`Crowd::wait`] does, but with many forged requests before all
/// else. Returns whether the message with this number has come.
fn comes_in_a_flood(crowd: &mut Crowd, flood: &[Vec<u8>], id: u64) -> bool {
    let mut forged = (1_000..).zip(flood).cycle();
    for _ in 0..100 {
        for (number, request) in forged.by_ref().take(4 * STRANGERS) {
            let (now, first) = (crowd.now, &mut crowd.nodes[0]);
            first
                .endpoint
                .receive(now, Some(number), request, &mut first.host);
        }
        crowd.wait(10 * MS);
        let first = &crowd.nodes[0];
        assert!(first.host.peers.len() <= GUESTS + 2 * STRANGERS);
        assert!(first.host.paths <= GUESTS + 2 * STRANGERS + 32);
    }
    crowd.nodes[0].host.delivered.contains(&id)
}

#[test]
fn a_flood_of_forged_requests_locks_nobody_out_who_returns_a_cookie() {
    for extended in [true, false] {
        let flood: Vec<_> = (1_000..1_500)
            .map(|number| forged(number, extended))
            .collect();
        let mut crowd = Crowd::new(3);
        assert!(!comes_in_a_flood(&mut crowd, &flood, 1));
        for id in [1, 2] {
            let now = crowd.now;
            crowd.nodes[id as usize].send(now, id);
            assert!(comes_in_a_flood(&mut crowd, &flood, id), "{extended} {id}");
        }
    }
}

#[test]
fn a_flood_of_forged_requests_locks_no_peer_out_that_the_application_knows() {
    let flood: Vec<_> = (1_000..1_500).map(|number| forged(number, true)).collect();
    let mut crowd = Crowd::new(2);
    crowd.nodes[0].host.expected.insert(1);
    assert!(!comes_in_a_flood(&mut crowd, &flood, 1));
    // It does not return cookies, as a peer of the C library does not.
    let mut config = crowd.nodes[1].endpoint.config().clone();
    config.extended = false;
    crowd.nodes[1].endpoint = Endpoint::new(config);
    let now = crowd.now;
    crowd.nodes[1].send(now, 1);
    assert!(comes_in_a_flood(&mut crowd, &flood, 1));
}

#[test]
fn cookies_leave_nothing_behind() {
    let mut crowd = Crowd::new(1);
    let now = crowd.now;
    for number in 1_000..1_500 {
        let first = &mut crowd.nodes[0];
        let request = forged(number, true);
        first
            .endpoint
            .receive(now, Some(number), &request, &mut first.host);
        let cookies = first.host.outbox.iter();
        for Leaving { to, bytes, .. } in cookies {
            assert_eq!(*to, number);
            assert!(bytes.len() <= request.len(), "nothing is amplified");
        }
        first.host.outbox.clear();
        assert!(first.host.paths <= STRANGERS + 32);
    }
}

/// A peer of the C library that sends a message to the first node, amid forged requests until `flood_ends`.
/// Returns the time that it took.
fn c_peer_in_a_flood(is_known: bool, flood_ends: Time) -> Time {
    let flood: Vec<_> = (1_000..1_500).map(|number| forged(number, false)).collect();
    let mut forged = (1_000..).zip(&flood).cycle();
    let mut crowd = Crowd::new(1);
    let begin = crowd.now;
    let first = &mut crowd.nodes[0];
    if is_known {
        first.host.expected.insert(1);
    }
    let mut c_peer = CPeer::new(name_of(1));
    c_peer.send(begin, 7, 100);
    let mut now = begin;
    while !c_peer.is_idle() {
        if now < begin + flood_ends {
            for (number, request) in forged.by_ref().take(STRANGERS) {
                first
                    .endpoint
                    .receive(now, Some(number), request, &mut first.host);
            }
        }
        c_peer.tick(now);
        for bytes in c_peer.outbox.drain(..) {
            first
                .endpoint
                .receive(now, Some(1), &bytes, &mut first.host);
        }
        for Leaving { to, bytes, .. } in first.transmit(now) {
            if to == 1 {
                c_peer.receive(now, &bytes);
            }
        }
        assert!(first.host.peers.len() <= GUESTS + 2 * STRANGERS);
        assert!(first.host.paths <= GUESTS + 2 * STRANGERS + 32);
        now += MS;
    }
    assert_eq!(first.host.delivered, [7]);
    now - begin
}

#[test]
fn a_flood_does_not_delay_a_peer_of_the_c_library_that_the_application_knows() {
    assert!(c_peer_in_a_flood(true, 60_000 * MS) < 10 * MS);
}

#[test]
fn a_stranger_of_the_c_library_is_served_when_a_flood_is_over() {
    let flood_ends = 60_000 * MS;
    let took = c_peer_in_a_flood(false, flood_ends);
    // Strangers give way after a second, and the C library repeats requests every 4.1 s at last.
    assert!(took < flood_ends + 6_000 * MS, "{took}");
}
