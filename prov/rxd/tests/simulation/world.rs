//! The endpoints, the time, and what is true in the end.

mod application;
mod ledger;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use prov_rxd::protocol::{Config, Endpoint, Time};

use self::ledger::Ledger;
use crate::host::{Failing, Kind, Leaving, Op, SimHost, name_of};
use crate::network::{Faults, MS, Network, US, corrupt};
use crate::random::Random;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: u32,
    /// Operations of each node.
    pub operations: u64,
    pub faults: Faults,
    pub extended: bool,
    /// Number of times that the network is divided, or a node is restarted.
    pub partitions: u64,
    pub restarts: u64,
    /// Longest message.
    pub longest: usize,
    /// Parts of a million of messages that find no room.
    pub holds: u64,
    pub failing: Failing,
    /// Time after which peers are given up.
    pub give_up: Time,
    pub load: Load,
    /// Whether nodes do nothing for some milliseconds now and then, as on a busy machine.
    pub is_busy: bool,
    /// Whether applications make no calls for some time now and then. What needs no application is done
    /// for them meanwhile.
    pub has_absences: bool,
}

/// What the applications do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Operations of all kinds to all nodes.
    Mixed,
    /// The nodes of the first half send messages of the longest size to those of the second half, each
    /// to one of them, which send nothing.
    Bulk,
    /// The first node sends messages to the second one, which closes its endpoint when it has so many.
    UntilClosed(u64),
    /// Two nodes answer each other's messages of the longest size; with `true`, each waits until its own last
    /// message is complete, too.
    PingPong(bool),
}

impl Plan {
    /// Without partitions and restarts.
    pub fn quiet(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        Plan {
            seed,
            nodes: 2 + random.below(4) as u32,
            operations: 300,
            faults: Faults::NONE,
            extended: true,
            partitions: 0,
            restarts: 0,
            longest: 100_000,
            holds: 20_000,
            failing: Failing::default(),
            give_up: 60_000 * MS,
            load: Load::Mixed,
            is_busy: false,
            has_absences: false,
        }
    }

    /// Everything that can happen.
    pub fn of_seed(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let disturbed = random.below(2) == 0;
        let count = |random: &mut Random| match disturbed {
            true => random.below(4),
            false => 0,
        };
        let extended = random.below(4) != 0;
        Plan {
            seed,
            nodes: 2 + random.below(7) as u32,
            operations: 2_000,
            faults: Faults::random(&mut random, extended),
            extended,
            partitions: count(&mut random),
            // A peer of the C library does not notice that the other one is new.
            restarts: if extended { count(&mut random) } else { 0 },
            longest: [64, 5_000, 50_000][random.below(3) as usize],
            holds: [0, 10_000][random.below(2) as usize],
            failing: Failing::default(),
            give_up: if extended { 8_000 * MS } else { 600_000 * MS },
            load: Load::Mixed,
            is_busy: false,
            has_absences: random.below(2) == 0,
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { to: u32, from: u32, bytes: Vec<u8> },
    Poll { node: u32 },
    Divide,
    Heal,
    Restart,
}

struct Node {
    endpoint: Endpoint<SimHost>,
    host: SimHost,
    incarnation: u64,
    inbox: Vec<(u32, Vec<u8>)>,
    polls_at: Time,
    /// Until when its application makes no calls.
    is_away_until: Time,
    /// Operations that are still to be submitted.
    left: u64,
    count: u64,
    /// Messages that have come.
    received: u64,
    /// Since when it is being closed, and how often it has said so.
    closes: Option<(Time, u32)>,
    is_alive: bool,
}

pub struct World {
    plan: Plan,
    random: Random,
    now: Time,
    nodes: Vec<Node>,
    network: Network,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    order: u64,
    ledger: Ledger,
    /// A node that everybody sends to, and nobody has heard of.
    ghost: Option<u32>,
}

/// Settings of a node.
pub fn config(
    number: u32,
    buffered: usize,
    random: &mut Random,
    extended: bool,
    give_up: Time,
) -> Config {
    Config {
        name: name_of(number),
        mtu: 1472,
        max_unacked: 128,
        retry: true,
        extended,
        give_up,
        max_strangers: 64,
        max_guests: 64,
        max_buffered: buffered << 20,
        secret: [random.next(), random.next()],
    }
}

/// Number of times that the provider acknowledges before it closes an endpoint.
const LAST_ACKS: u32 = 8;
/// Most operations of a node that are outstanding.
const OUTSTANDING: usize = 64;

impl World {
    pub fn new(plan: Plan) -> Self {
        let mut world = World {
            random: Random::new(plan.seed ^ 0x5eed),
            now: 1_000 * MS,
            nodes: Vec::new(),
            network: Network::new(plan.faults),
            events: BinaryHeap::new(),
            order: 0,
            ledger: Ledger::default(),
            ghost: None,
            plan,
        };
        for node in 0..plan.nodes {
            let operations = match plan.load {
                Load::Bulk if node >= plan.nodes / 2 => 0,
                Load::UntilClosed(_) if node != 0 => 0,
                _ => plan.operations,
            };
            let made = world.node(node, 0, operations);
            world.nodes.push(made);
            world.poll_at(node, world.now);
        }
        for _ in 0..plan.partitions {
            let at = world.now + world.random.below(2_000) * MS;
            world.push(at, Event::Divide);
        }
        for _ in 0..plan.restarts {
            let at = world.now + world.random.below(2_000) * MS;
            world.push(at, Event::Restart);
        }
        world
    }

    fn node(&mut self, number: u32, incarnation: u64, left: u64) -> Node {
        let (extended, give_up) = (self.plan.extended, self.plan.give_up);
        let config = config(number, 16, &mut self.random, extended, give_up);
        let mut host = SimHost::new(Random::new(self.random.next()));
        host.holds = self.plan.holds;
        host.failing = self.plan.failing;
        host.takes_early = self.random.below(2) == 0;
        host.knows_sources = true;
        Node {
            endpoint: Endpoint::new(config),
            host,
            incarnation,
            inbox: Vec::new(),
            polls_at: Time::MAX,
            is_away_until: 0,
            left,
            count: 0,
            received: 0,
            closes: None,
            is_alive: true,
        }
    }

    /// Adds a node that does not exist, to which all others send one message.
    pub fn kill_one_more(&mut self) {
        let number = self.nodes.len() as u32;
        let mut ghost = self.node(number, 0, 0);
        ghost.is_alive = false;
        self.nodes.push(ghost);
        self.ghost = Some(number);
        for node in 0..number {
            for _ in 0..10 {
                self.submit(node, number, Kind::Message, 5_000, false);
            }
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn poll_at(&mut self, number: u32, at: Time) {
        let node = &mut self.nodes[number as usize];
        if node.is_alive && at < node.polls_at {
            node.polls_at = at;
            self.push(at, Event::Poll { node: number });
        }
    }

    /// How long something that has arrived waits for the application.
    fn pause(&mut self) -> Time {
        match self.plan.is_busy && self.random.below(4) == 0 {
            true => self.random.below(8 * MS),
            false => self.random.below(20 * US),
        }
    }

    /// Runs until everything is done; returns the number of operations.
    pub fn run(&mut self) -> u64 {
        self.run_to_end();
        self.check()
    }

    /// Runs until the first node has nothing left to do; returns how many operations each has completed.
    pub fn run_until_one_is_done(&mut self) -> Vec<u64> {
        let is_done = |node: &Node| node.left == 0 && node.count != 0 && node.host.ops.is_empty();
        while !self.nodes.iter().any(is_done) {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                panic!("nothing happens any more");
            };
            self.now = at;
            self.happens(event);
        }
        let nodes = self.nodes.iter();
        nodes
            .map(|node| node.count - node.host.ops.len() as u64)
            .collect()
    }

    /// Runs for so long; returns how many operations have been completed meanwhile, by any node.
    pub fn run_for(&mut self, time: Time) -> usize {
        let before = self.succeeded();
        let end = self.now + time;
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= end
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = at;
            self.happens(event);
        }
        self.now = end;
        self.succeeded() - before
    }

    /// Has datagrams that are sent from now on be underway for so long.
    pub fn change_delay(&mut self, delay: Time) {
        self.network.faults.delay = delay;
    }

    /// Separates the first node from the others for so long.
    pub fn separate_first(&mut self, time: Time) {
        let sides = (0..self.nodes.len()).map(|number| number == 0);
        self.network.sides = Some(sides.collect());
        self.push(self.now + time, Event::Heal);
    }

    /// Has the nodes submit so many more operations each, and then no more.
    pub fn leave(&mut self, operations: u64) {
        for node in &mut self.nodes {
            node.left = node.left.min(operations);
        }
    }

    /// Has a node begin later.
    pub fn delay(&mut self, node: u32, by: Time) {
        self.nodes[node as usize].polls_at = Time::MAX;
        self.poll_at(node, self.now + by);
    }

    /// Runs until everything is done; returns the time it took.
    pub fn run_timed(&mut self) -> Time {
        let begin = self.now;
        self.run_to_end();
        self.now - begin
    }

    /// Number of operations that have succeeded.
    pub fn succeeded(&self) -> usize {
        let outcomes = self.ledger.sent.values();
        outcomes.filter(|outcome| **outcome == Some(true)).count()
    }

    /// Number of operations that were refused since a device did not copy.
    pub fn not_copied(&self) -> usize {
        self.ledger.not_copied
    }

    /// Datagrams sent so far.
    pub fn datagrams(&self) -> u64 {
        self.network.sent
    }

    fn run_to_end(&mut self) {
        let limit = self.now + 3_600_000 * MS;
        while !self.is_done() {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                panic!("nothing happens any more, and not everything is done");
            };
            assert!(at >= self.now);
            assert!(at < limit, "it takes too long: {}", self.left());
            self.now = at;
            self.happens(event);
        }
    }

    fn left(&self) -> String {
        let nodes = self.nodes.iter().enumerate();
        let text = nodes.map(|(number, node)| {
            let ops = node
                .host
                .ops
                .iter()
                .map(|(id, op)| format!("{id:x} {:?}", op.kind));
            let ops: Vec<_> = ops.take(5).collect();
            format!("{number}: {} left, {ops:?}; ", node.left)
        });
        text.collect()
    }

    fn is_done(&self) -> bool {
        let to_ghost = |op: &Op, node: &Node| {
            let path = node.host.peers.get(&op.peer);
            self.ghost.is_some() && path.copied() == self.ghost
        };
        self.nodes.iter().all(|node| {
            let ops = &node.host.ops;
            node.left == 0 && ops.values().all(|op| to_ghost(op, node))
        })
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrival { to, from, bytes } => {
                let node = &mut self.nodes[to as usize];
                if node.is_alive {
                    node.inbox.push((from, bytes));
                    let at = self.now + self.pause();
                    self.poll_at(to, at);
                }
            }
            Event::Poll { node } => {
                if self.nodes[node as usize].polls_at == self.now {
                    self.poll(node);
                }
            }
            Event::Divide => {
                let sides = self.nodes.iter().map(|_| self.random.below(2) == 0);
                self.network.sides = Some(sides.collect());
                // Sometimes so long that peers are given up.
                let long = self.random.below(3) == 0;
                let time = match long && self.plan.extended {
                    true => 2 * self.plan.give_up,
                    false => self.random.below(3_000) * MS,
                };
                self.push(self.now + time, Event::Heal);
            }
            Event::Heal => self.network.sides = None,
            Event::Restart => self.restart(),
        }
    }

    fn restart(&mut self) {
        let number = self.random.below(u64::from(self.plan.nodes)) as u32;
        let old = &self.nodes[number as usize];
        let (incarnation, left) = (old.incarnation + 1, old.left);
        let fresh = self.node(number, incarnation, left);
        let old = std::mem::replace(&mut self.nodes[number as usize], fresh);
        // Nobody is told of its operations.
        for id in old.host.ops.keys() {
            self.ledger.sent.insert(*id, Some(false));
        }
        let at = self.now + self.random.below(100) * MS;
        self.poll_at(number, at);
    }

    fn poll(&mut self, number: u32) {
        let now = self.now;
        let node = &mut self.nodes[number as usize];
        node.polls_at = Time::MAX;
        let had_room = match now < node.is_away_until {
            true => self.help(number),
            false => self.call(number),
        };
        let node = &mut self.nodes[number as usize];
        let next = node.endpoint.next_timeout();
        self.carry(number);
        self.note(number);
        let node = &self.nodes[number as usize];
        let is_answering = matches!(self.plan.load, Load::PingPong(_));
        let is_waiting = !node.host.held.is_empty() || (node.left != 0 && !is_answering);
        if now < node.is_away_until {
            self.poll_at(number, node.is_away_until);
        }
        if !had_room {
            self.poll_at(number, now + 10 * US);
        }
        if is_waiting {
            let pause = self.random.below(2 * MS);
            self.poll_at(number, now + 10 * US + pause);
        }
        if let Some(next) = next {
            let pause = match self.plan.is_busy {
                true => self.pause(),
                false => 1,
            };
            self.poll_at(number, next.max(now + pause));
        }
    }

    /// The application of a node calls the library. Returns whether there was room for what it sends.
    fn call(&mut self, number: u32) -> bool {
        let now = self.now;
        let node = &mut self.nodes[number as usize];
        for (from, bytes) in std::mem::take(&mut node.inbox) {
            let from = (from % 2 == 0).then_some(from);
            node.endpoint.receive(now, from, &bytes, &mut node.host);
        }
        for peer in std::mem::take(&mut node.host.held) {
            match self.random.below(2) {
                0 => node.host.held.push(peer),
                _ => node.endpoint.resume(now, peer, &mut node.host),
            }
        }
        self.note(number);
        self.act(number);
        let node = &mut self.nodes[number as usize];
        node.host.room = match self.random.below(8) {
            0 => self.random.below(4) as usize,
            _ => usize::MAX,
        };
        let had_room = node.endpoint.transmit(now, &mut node.host);
        if self.plan.has_absences && self.random.below(16) == 0 {
            node.is_away_until = now + self.random.below(20 * MS);
        }
        self.close(number);
        had_room
    }

    /// The application of a node makes no calls: what does not need it is done for it.
    fn help(&mut self, number: u32) -> bool {
        let now = self.now;
        let node = &mut self.nodes[number as usize];
        let (delivered, held) = (node.host.delivered.len(), node.host.held.len());
        node.inbox.retain(|(from, bytes)| {
            let from = (from % 2 == 0).then_some(*from);
            !node
                .endpoint
                .receive_meanwhile(now, from, bytes, &mut node.host)
        });
        assert_eq!(node.host.delivered.len(), delivered);
        assert_eq!(node.host.held.len(), held);
        node.endpoint.acknowledge_all(now, &mut node.host)
    }

    /// Gives what a node has sent to the network.
    fn carry(&mut self, number: u32) {
        let now = self.now;
        let node = &mut self.nodes[number as usize];
        let outbox = std::mem::take(&mut node.host.outbox);
        for Leaving { to, header, bytes } in outbox {
            if to as usize >= self.nodes.len() {
                // A damaged packet can look like a request of the C library in the name of anybody.
                continue;
            }
            let mut times = [(0, false); 2];
            let mut count = 0;
            let len = bytes.len();
            self.network
                .send(now, &mut self.random, number, to, len, |at, is_corrupt| {
                    times[count] = (at, is_corrupt);
                    count += 1;
                });
            for (at, is_corrupt) in &times[..count] {
                let mut bytes = bytes.clone();
                if *is_corrupt {
                    corrupt(&mut self.random, &mut bytes[..header]);
                }
                let from = number;
                self.push(*at, Event::Arrival { to, from, bytes });
            }
        }
    }

    /// Closes the endpoint of a node step by step, if it is to be closed, as the provider does it.
    fn close(&mut self, number: u32) {
        let now = self.now;
        let node = &mut self.nodes[number as usize];
        if matches!(self.plan.load, Load::UntilClosed(most) if number != 0 && node.received >= most)
        {
            node.closes.get_or_insert((now, 0));
        }
        let Some((since, times)) = &mut node.closes else {
            return;
        };
        let waits = node.endpoint.unfinished() != 0 && now - *since < 2_000 * MS;
        if !waits && *times < LAST_ACKS {
            node.endpoint.acknowledge_last(now, &mut node.host);
            *times += 1;
        }
        let is_over = *times == LAST_ACKS;
        self.poll_at(number, now + 50 * US);
        self.nodes[number as usize].is_alive = !is_over;
    }
}
