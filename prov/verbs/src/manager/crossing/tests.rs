//! Two hosts with a simulated device each. The calls of RDMA CM on one host are carried to the
//! other, in order.

use std::collections::VecDeque;

use fabric_abi::{FI_CONNECTED, FI_SHUTDOWN};
use prov_base::sync::LockKind;
use prov_util::eq::{ConnectionEvents, Eq, EventBody};
use prov_util::ffi::{Handle, Use};
use prov_util::wait::Attachment;

use super::*;
use crate::device::Terms;
use crate::device::fake::xrc::{self as fake, Call, Kind};
use crate::lane::tests::{complete_oldest, fail_oldest, lane, room, seats_over, send};
use crate::lane::{Lane, Shared};
use crate::link::Link;

const PORT: u16 = 7471;

/// An application's endpoint.
struct Endpoint {
    key: Option<EndKey>,
    pair: Arc<QueuePair>,
    seats: Seats,
    link: Arc<Link>,
    eq: Use<Eq>,
    /// The events that it has read.
    told: Vec<Told>,
}

#[derive(Clone, Debug, PartialEq)]
enum Told {
    Connected(Vec<u8>),
    ShutDown,
    Failed(Errno, Vec<u8>),
}

impl Endpoint {
    fn read(&mut self) -> &[Told] {
        loop {
            let told = &mut self.told;
            let read = self.eq.read(usize::MAX, false, |event| {
                let EventBody::Connection { data, .. } = &event.body else {
                    panic!("{event:?}");
                };
                told.push(match event.kind {
                    FI_CONNECTED => Told::Connected(data.clone()),
                    FI_SHUTDOWN => Told::ShutDown,
                    other => panic!("{other}"),
                });
            });
            if read.is_ok() {
                continue;
            }
            match self.eq.read_error(false) {
                Ok(error) => self
                    .told
                    .push(Told::Failed(error.err, error.err_data.to_vec())),
                Err(_) => return &self.told,
            }
        }
    }
}

struct Host {
    state: State,
    context: Context,
    pd: Arc<ProtectionDomain>,
    domain: Arc<XrcDomain>,
    lane: Arc<Lane>,
    shared: Arc<Shared>,
    address: SocketAddress,
    endpoints: Vec<Endpoint>,
}

fn address(number: usize, port: u16) -> SocketAddress {
    SocketAddress::Internet(format!("10.0.0.{}:{port}", number + 1).parse().unwrap())
}

impl Host {
    fn new(number: usize) -> Self {
        let context = fake::context("fake");
        let pd = ProtectionDomain::new(context).unwrap();
        Host {
            state: State {
                ends: SlotMap::new(),
                enabled: Enabled::default(),
                initiators: Initiators::default(),
                lost: Arc::new(Lost::new().unwrap()),
                channel: Channel::fake(context),
            },
            context,
            pd,
            domain: XrcDomain::open(context, None).unwrap(),
            lane: lane(context),
            shared: Shared::of_xrc(4, LockKind::Real).unwrap(),
            address: address(number, PORT),
            endpoints: Vec::new(),
        }
    }

    /// Creates an endpoint, and what it provides for a connection.
    fn endpoint(&mut self) -> (usize, EndParts, XrcEnd) {
        let (pd, domain) = (&self.pd, &self.domain);
        let receives = self.shared.complete_in(&self.lane, pd, domain, 1).unwrap();
        let pair = Arc::new(QueuePair::path(&self.pd, 8));
        let link = Arc::<Link>::default();
        let seats = seats_over(&self.lane, &pair, &link, &self.shared);
        let eq = Eq::new(Attachment::None, fabric_abi::FI_VERSION(2, 0));
        let eq = Use::of(&Handle::new(eq, std::ptr::null_mut(), Vec::new()));
        let parts = EndParts {
            pair: pair.clone(),
            seats: seats.clone(),
            link: link.clone(),
            events: ConnectionEvents::new(eq.handle().named(), eq.clone()),
            config: EndConfig {
                context: self.context,
                is_shared: true,
                terms: Terms {
                    reads_as_target: 1,
                    reads_as_initiator: 1,
                    receiver_timer: 12,
                },
            },
        };
        let end = XrcEnd {
            domain: self.domain.clone(),
            pd: self.pd.clone(),
            queue: self.lane.queue().clone(),
            receives,
            sends: 8,
            send_pieces: 1,
            inline: 8,
        };
        self.endpoints.push(Endpoint {
            key: None,
            pair,
            seats,
            link,
            eq,
            told: Vec::new(),
        });
        (self.endpoints.len() - 1, parts, end)
    }

    fn receives(&self) -> u32 {
        self.shared.number().unwrap()
    }
}

/// The hosts, and the calls in transit.
struct World {
    hosts: [Host; 2],
    calls: VecDeque<(usize, Call)>,
    /// The listeners, by host and port.
    listeners: HashMap<(usize, u16, bool), u64>,
    /// The identifiers that send requests, by their address.
    askers: HashMap<SocketAddress, (usize, u64)>,
    /// Both ends of connections.
    ends: HashMap<(usize, u64), (usize, u64)>,
    /// The application's answer to requests: accept, or reject with data.
    answer: std::result::Result<Vec<u8>, Vec<u8>>,
    /// The data of requests to the application.
    asked: Vec<(Vec<u8>, bool)>,
    /// Number of answers that get lost.
    lost: usize,
}

impl World {
    fn new() -> Self {
        World {
            hosts: [0, 1].map(Host::new),
            calls: VecDeque::new(),
            listeners: HashMap::new(),
            askers: HashMap::new(),
            ends: HashMap::new(),
            answer: Ok(b"welcome".to_vec()),
            asked: Vec::new(),
            lost: 0,
        }
    }

    /// Executes a function on a host.
    fn on<R>(&mut self, host: usize, act: impl FnOnce(&mut Host) -> R) -> R {
        fake::be_at(self.hosts[host].context);
        let done = act(&mut self.hosts[host]);
        self.calls
            .extend(fake::calls().into_iter().map(|call| (host, call)));
        done
    }

    /// Creates an endpoint that requests a connection with the other host.
    fn connect(&mut self, host: usize) -> usize {
        let peer = self.hosts[1 - host].address.clone();
        self.on(host, |host| {
            let (number, parts, end) = host.endpoint();
            let own = host.address.clone();
            let key = host.state.cross(parts, end, Some(&own), &peer, b"hello");
            host.endpoints[number].key = Some(key.unwrap());
            number
        })
    }

    fn event(&mut self, host: usize, kind: EventKind, key: u64, status: i32, call: &Call) {
        let mut data = call.data.clone();
        if !data.is_empty() {
            data.resize(148, 0);
        }
        let event = Event {
            kind,
            key,
            status,
            data,
            pair: call.pair,
            incoming: None,
        };
        self.on(host, |host| host.state.happened(event));
    }

    /// Carries over the calls in transit, until `enough`.
    fn until(&mut self, enough: impl Fn(&Call) -> bool) {
        while let Some((host, call)) = self.calls.front() {
            if enough(call) {
                return;
            }
            let (host, call) = (*host, call.clone());
            self.calls.pop_front();
            self.carry(host, &call);
        }
    }

    fn run(&mut self) {
        self.until(|_| false);
    }

    fn carry(&mut self, host: usize, call: &Call) {
        let other = self.ends.get(&(host, call.key)).copied();
        match call.kind {
            Kind::Resolve => self.event(host, EventKind::AddressResolved, call.key, 0, call),
            Kind::Route => self.event(host, EventKind::RouteResolved, call.key, 0, call),
            Kind::Listen => {
                let listener = (host, port_of(call.own.clone()), call.is_datagram);
                self.listeners.insert(listener, call.key);
            }
            Kind::Connect => {
                self.request(host, call);
                self.rejected_unless_taken(host, call);
            }
            Kind::Accept if self.lost != 0 => self.lost -= 1,
            Kind::Accept => {
                let (asker, key) = self.askers[call.peer.as_ref().unwrap()];
                self.ends.insert((asker, key), (host, call.key));
                self.ends.insert((host, call.key), (asker, key));
                let kind = match call.is_datagram {
                    true => EventKind::Established,
                    false => EventKind::Answered,
                };
                self.event(asker, kind, key, 0, call);
            }
            Kind::Reject => {
                let (asker, key) = self.askers[call.peer.as_ref().unwrap()];
                match call.is_datagram {
                    true => self.event(asker, EventKind::Failed, key, 2, call),
                    false => self.event(asker, EventKind::Rejected, key, 28, call),
                }
            }
            Kind::Establish => {
                let (host, key) = other.unwrap();
                self.event(host, EventKind::Established, key, 0, call);
            }
            Kind::Disconnect => {
                if let Some((host, key)) = other {
                    self.event(host, EventKind::Disconnected, key, 0, call);
                }
            }
            Kind::Destroy => {
                self.ends.remove(&(host, call.key));
            }
        }
    }

    /// Returns an identifier as RDMA CM creates it for a request.
    fn incoming(&self, host: usize, call: &Call) -> Id {
        let Host { state, context, .. } = &self.hosts[host];
        fake::be_at(*context);
        let space = match call.is_datagram {
            true => PortSpace::Udp,
            false => PortSpace::Tcp,
        };
        let mut id = Id::new(&state.channel, space, 0).unwrap();
        id.bind(call.peer.as_ref().unwrap()).unwrap();
        id.resolve(None, call.own.as_ref().unwrap(), 0).unwrap();
        fake::calls();
        id
    }

    fn request(&mut self, host: usize, call: &Call) {
        let own = call.own.clone().unwrap();
        self.askers.insert(own, (host, call.key));
        let there = 1 - host;
        let port = port_of(call.peer.clone());
        let id = self.incoming(there, call);
        if let Some(&key) = self.listeners.get(&(there, port, call.is_datagram)) {
            let event = Event {
                kind: EventKind::Requested,
                key,
                status: 0,
                data: call.data.clone(),
                pair: call.pair,
                incoming: Some(id),
            };
            return self.on(there, |host| host.state.happened(event));
        }
        assert_eq!(port, PORT);
        let mut id = id;
        let (asked, data) = Asked::of(&call.data, call.is_datagram).unwrap();
        assert!(!asked.hello.is_reciprocal);
        if self.on(there, |host| host.state.answer_again(&mut id, &asked)) {
            return self.on(there, |_| drop(id));
        }
        self.asked.push((data.to_vec(), call.is_datagram));
        match self.answer.clone() {
            Ok(data) => self.on(there, |host| {
                let (number, parts, end) = host.endpoint();
                let key = host.state.cross_back(parts, end, id, asked, &data);
                host.endpoints[number].key = key.ok();
            }),
            Err(data) => self.on(there, |_| {
                let hello = Hello {
                    target: 0,
                    queue: 0,
                    ..asked.hello
                };
                id.reject(&hello.with(&data)).unwrap();
            }),
        }
    }

    /// RDMA CM rejects a request whose identifier was destroyed.
    fn rejected_unless_taken(&mut self, host: usize, call: &Call) {
        let is_gone = |(_, made): &(usize, Call)| {
            made.kind == Kind::Destroy && made.key == 0 && made.peer == call.own
        };
        let is_taken = |(_, made): &(usize, Call)| {
            matches!(made.kind, Kind::Accept | Kind::Reject) && made.peer == call.own
        };
        if self.calls.iter().any(is_gone) && !self.calls.iter().any(is_taken) {
            let told = Call {
                data: Vec::new(),
                ..call.clone()
            };
            match call.is_datagram {
                true => self.event(host, EventKind::Failed, call.key, 2, &told),
                false => self.event(host, EventKind::Rejected, call.key, 28, &told),
            }
        }
    }

    fn told(&mut self, host: usize, number: usize) -> Vec<Told> {
        self.hosts[host].endpoints[number].read().to_vec()
    }

    fn close(&mut self, host: usize, number: usize) {
        self.on(host, |host| {
            let endpoint = &mut host.endpoints[number];
            if let Some(key) = endpoint.key.take()
                && let Some(End::Crossing(crossing)) = host.state.ends.remove(key)
            {
                host.state.leave(crossing);
            }
            let gone = Arc::new(QueuePair::path(&host.pd, 0));
            let pair = std::mem::replace(&mut endpoint.pair, gone);
            match pair.initiator() {
                Some(initiator) => endpoint.seats.leave_initiator(&initiator, || drop(pair)),
                None => endpoint.seats.leave(|| drop(pair)),
            }
        });
    }

    /// Closes all endpoints; nothing is left.
    fn close_all(&mut self) {
        // Requests in transit may cause others.
        for _ in 0..3 {
            for host in [0, 1] {
                for number in 0..self.hosts[host].endpoints.len() {
                    self.close(host, number);
                }
            }
            self.run();
        }
        for host in &self.hosts {
            assert_eq!(host.state.ends.len(), 0);
            assert!(host.state.initiators.answered.is_empty());
            assert!(host.state.initiators.ready.is_empty());
            let (room, size) = room(&host.lane);
            assert_eq!(
                room,
                size - host.shared.number().map_or(0, |_| host.shared.size())
            );
        }
        assert_eq!(fake::targets(), []);
    }
}

fn connected(data: &[u8]) -> Vec<Told> {
    vec![Told::Connected(data.to_vec())]
}

fn refused(data: &[u8]) -> Vec<Told> {
    vec![Told::Failed(Errno::ECONNREFUSED, data.to_vec())]
}

/// Returns the destination of a message of an endpoint.
fn post(world: &World, host: usize, number: usize) -> fake::Post {
    fake::posts();
    send(&world.hosts[host].endpoints[number].seats).unwrap();
    fake::posts()[0]
}

#[test]
fn connections_between_two_hosts_share_their_initiators() {
    let mut world = World::new();
    for number in 0..3 {
        world.connect(0);
        world.run();
        assert_eq!(world.told(0, number), connected(b"welcome"));
        assert_eq!(world.told(1, number), connected(b""));
        assert_eq!(world.asked[number], (b"hello".to_vec(), number != 0));
    }
    for host in [0, 1] {
        let (pair, queue) = post(&world, host, 0);
        assert_eq!(queue, world.hosts[1 - host].receives());
        for number in [1, 2] {
            assert_eq!(post(&world, host, number), (pair, queue));
        }
    }
    // Each connection has both targets open, of which there are two.
    let mut targets = fake::targets();
    assert_eq!(targets.len(), 6);
    targets.sort_unstable();
    targets.dedup();
    assert_eq!(targets.len(), 2);
    // The first one leaves, which does not affect the others.
    world.close(0, 0);
    world.close(1, 0);
    world.run();
    assert_eq!(world.told(0, 1), connected(b"welcome"));
    post(&world, 0, 1);
    world.connect(1);
    world.run();
    assert_eq!(world.told(1, 3), connected(b"welcome"));
    assert!(world.asked[3].1);
    world.close_all();
}

#[test]
fn a_connection_waits_for_an_initiator_that_is_being_connected() {
    let mut world = World::new();
    let numbers = [0, 0, 0].map(|host| world.connect(host));
    // The same from the other side.
    world.connect(1);
    world.run();
    for number in numbers {
        assert_eq!(world.told(0, number), connected(b"welcome"));
    }
    assert_eq!(world.told(1, 0), connected(b"welcome"));
    let requests = world.asked.iter().filter(|(_, is_datagram)| !is_datagram);
    assert!(requests.count() <= 2);
    world.close_all();
}

#[test]
fn a_refusal_has_its_data_and_the_next_one_tries_itself() {
    let mut world = World::new();
    world.answer = Err(b"no".to_vec());
    let numbers = [0, 0].map(|host| world.connect(host));
    world.run();
    for number in numbers {
        assert_eq!(world.told(0, number), refused(b"no"));
    }
    assert_eq!(world.asked.len(), 2);
    assert!(world.asked.iter().all(|(_, is_datagram)| !is_datagram));
    // A request over a shared initiator is rejected, too.
    world.answer = Ok(Vec::new());
    let first = world.connect(0);
    world.run();
    assert_eq!(world.told(0, first), connected(b""));
    world.answer = Err(b"full".to_vec());
    let second = world.connect(0);
    world.run();
    assert_eq!(world.told(0, second), refused(b"full"));
    assert_eq!(world.told(0, first), connected(b""));
    // It can still be shared.
    world.answer = Ok(Vec::new());
    let third = world.connect(0);
    world.run();
    assert_eq!(world.told(0, third), connected(b""));
    assert_eq!(post(&world, 0, third), post(&world, 0, first));
    world.close_all();
}

#[test]
fn an_answer_that_is_lost_is_given_again() {
    let mut world = World::new();
    world.connect(0);
    world.run();
    world.connect(0);
    world.until(|call| call.kind == Kind::Connect);
    let (host, call) = world.calls.front().cloned().unwrap();
    assert!(call.is_datagram);
    world.lost = 1;
    world.until(|call| call.kind == Kind::Accept);
    world.calls.retain(|(_, call)| call.kind != Kind::Accept);
    world.lost = 0;
    // RDMA CM repeats the request.
    world.calls.push_front((host, call));
    world.run();
    assert_eq!(world.told(0, 1), connected(b"welcome"));
    assert_eq!(world.told(1, 1), connected(b""));
    assert_eq!(world.asked.len(), 2);
    world.close_all();
}

#[test]
fn answers_that_are_none_end_the_attempt() {
    let damages: [fn(&mut Call); 5] = [
        |call| call.data.truncate(15),
        |call| call.data[0] = 1,
        |call| call.data[1] ^= 1,
        |call| call.data[15] ^= 1,
        |call| call.pair = 1 << 24,
    ];
    for damage in damages {
        let mut world = World::new();
        world.connect(0);
        world.until(|call| call.kind == Kind::Accept);
        let call = &mut world.calls.front_mut().unwrap().1;
        damage(call);
        world.lost = 0;
        let (host, call) = world.calls.pop_front().unwrap();
        let (asker, key) = world.askers[call.peer.as_ref().unwrap()];
        let event = Event {
            kind: EventKind::Answered,
            key,
            status: 0,
            data: call.data,
            pair: call.pair,
            incoming: None,
        };
        world.on(asker, |host| host.state.happened(event));
        let expected = vec![Told::Failed(Errno::EPROTO, Vec::new())];
        assert_eq!(world.told(asker, 0), expected);
        assert_ne!(asker, host);
        world.close_all();
    }
}

#[test]
fn nobody_else_gets_in_by_the_way_back() {
    let damages: [fn(&mut Call); 5] = [
        |call| call.data[15] ^= 1,
        |call| call.data[1] = 0,
        |call| call.data[0] = 3,
        |call| call.data[6] ^= 1,
        |call| call.own = Some(address(7, 1)),
    ];
    for damage in damages {
        let mut world = World::new();
        world.connect(0);
        // The other side requests the way back.
        world.until(|call| call.kind == Kind::Connect && call.data[1] == 1);
        let (host, call) = world.calls.pop_front().unwrap();
        let mut false_one = call.clone();
        damage(&mut false_one);
        let targets = fake::targets();
        world.request(host, &false_one);
        assert_eq!(fake::targets(), targets);
        assert_eq!(world.told(0, 0), []);
        // The genuine request is still accepted.
        world.calls.push_front((host, call));
        world.run();
        assert_eq!(world.told(0, 0), connected(b"welcome"));
        world.close_all();
    }
}

#[test]
fn an_end_that_is_closed_at_any_time_leaves_nothing() {
    for is_second in [false, true] {
        for closing in [0, 1] {
            for steps in 0..40 {
                let mut world = World::new();
                if is_second {
                    world.connect(0);
                    world.run();
                }
                world.connect(0);
                for _ in 0..steps {
                    if let Some((host, call)) = world.calls.pop_front() {
                        world.carry(host, &call);
                    }
                }
                let last = world.hosts[closing].endpoints.len();
                if last > usize::from(is_second) {
                    world.close(closing, last - 1);
                }
                world.close_all();
            }
        }
    }
}

#[test]
fn an_endpoint_that_shuts_down_gets_an_event_and_sends_no_more() {
    let mut world = World::new();
    world.connect(0);
    world.run();
    let key = world.hosts[0].endpoints[0].key.unwrap();
    assert_eq!(world.on(0, |host| host.state.uncross(key)), Ok(()));
    assert_eq!(world.told(0, 0)[1..], [Told::ShutDown]);
    assert!(!world.hosts[0].endpoints[0].link.is_connected());
    assert_eq!(
        send(&world.hosts[0].endpoints[0].seats),
        Err(Errno::ENOTCONN)
    );
    assert_eq!(world.on(0, |host| host.state.uncross(key)), Ok(()));
    world.run();
    world.close_all();
}

#[test]
fn a_device_takes_its_connections_along_and_a_queue_pair_those_that_use_it() {
    for event in [DeviceEvent::Failed, DeviceEvent::PairFailed(0)] {
        let mut world = World::new();
        world.connect(0);
        world.connect(0);
        world.run();
        let (pair, _) = post(&world, 0, 0);
        let event = match event {
            DeviceEvent::PairFailed(_) => DeviceEvent::PairFailed(pair),
            other => other,
        };
        world.on(0, |host| {
            let context = host.context;
            host.state.device_says_to_crossings(context, event);
        });
        for number in [0, 1] {
            assert_eq!(world.told(0, number)[1..], [Told::ShutDown], "{event:?}");
        }
        if matches!(event, DeviceEvent::PairFailed(_)) {
            // The next one has another.
            let next = world.connect(0);
            world.run();
            assert_eq!(world.told(0, next), connected(b"welcome"));
            assert_ne!(post(&world, 0, next).0, pair);
        }
        world.close_all();
    }
}

#[test]
fn a_request_that_fails_ends_all_users_of_its_initiator() {
    let mut world = World::new();
    let numbers = [0, 0].map(|host| world.connect(host));
    world.run();
    let (pair, _) = post(&world, 0, 0);
    let name = world.hosts[0].endpoints[0]
        .seats
        .send
        .as_ref()
        .unwrap()
        .name;
    fail_oldest(&world.hosts[0].lane, name, 0);
    world.on(0, |host| host.state.end_lost());
    for number in numbers {
        assert_eq!(world.told(0, number)[1..], [Told::ShutDown]);
    }
    let next = world.connect(0);
    world.run();
    assert_eq!(world.told(0, next), connected(b"welcome"));
    assert_ne!(post(&world, 0, next).0, pair);
    world.close_all();
}

#[test]
fn requests_of_an_endpoint_that_has_left_keep_their_space_until_they_complete() {
    let mut world = World::new();
    world.connect(0);
    world.connect(0);
    world.run();
    let (all, _) = room(&world.hosts[0].lane);
    for _ in 0..3 {
        post(&world, 0, 0);
    }
    let name = world.hosts[0].endpoints[0]
        .seats
        .send
        .as_ref()
        .unwrap()
        .name;
    assert_eq!(room(&world.hosts[0].lane).0, all - 3);
    world.close(0, 0);
    assert_eq!(room(&world.hosts[0].lane).0, all - 3);
    complete_oldest(&world.hosts[0].lane, name, 0);
    assert_eq!(room(&world.hosts[0].lane).0, all - 2);
    // The initiator is destroyed with the last one, and with it the rest.
    world.close(0, 1);
    assert_eq!(room(&world.hosts[0].lane).0, all);
    world.close_all();
}

#[test]
fn a_shared_queue_completes_in_one_lane() {
    let mut world = World::new();
    world.connect(0);
    let Host {
        shared,
        pd,
        domain,
        context,
        ..
    } = &world.hosts[0];
    let other = lane(*context);
    let refused = shared.complete_in(&other, pd, domain, 1);
    assert_eq!(refused, Err(Errno::EINVAL));
    world.run();
    world.close_all();
}
