//! Two hosts with a simulated device each. The calls of RDMA CM on one host are carried to the other,
//! in order.

use std::collections::{HashMap, VecDeque};

use fabric_abi::{FI_CONNECTED, FI_SHUTDOWN};
use prov_base::sync::LockKind;
use prov_device::link::Link;
use prov_util::eq::{ConnectionEvents, Eq, EventBody};
use prov_util::ffi::{Handle, Use};
use prov_util::wait::Attachment;

use super::super::*;
use super::PORT;
use crate::device::fake::xrc::{self as fake, Call, Kind};
use crate::device::{SharedQueue, Terms};
use crate::lane::tests::{lane, room, seats_over};
use crate::lane::{Lane, Shared};

/// An application's endpoint.
pub struct Endpoint {
    pub key: Option<EndKey>,
    pub pair: Arc<QueuePair>,
    pub seats: Seats,
    pub link: Arc<Link>,
    pub eq: Use<Eq>,
    /// The events that it has read.
    pub told: Vec<Told>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    Connected(Vec<u8>),
    ShutDown,
    Failed(Errno, Vec<u8>),
}

impl Endpoint {
    pub fn read(&mut self) -> &[Told] {
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

pub struct Host {
    pub state: State,
    pub context: Context,
    pub pd: Arc<ProtectionDomain>,
    pub domain: Arc<XrcDomain>,
    pub lane: Arc<Lane>,
    pub shared: Arc<Shared>,
    pub address: SocketAddress,
    pub endpoints: Vec<Endpoint>,
}

pub fn address(number: usize, port: u16) -> SocketAddress {
    SocketAddress::Internet(format!("10.0.0.{}:{port}", number + 1).parse().unwrap())
}

impl Host {
    pub fn new(number: usize) -> Self {
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
            shared: Shared::with_number(4, LockKind::Real).unwrap(),
            address: address(number, PORT),
            endpoints: Vec::new(),
        }
    }

    /// Creates an endpoint, and what it provides for a connection.
    pub fn endpoint(&mut self) -> (usize, EndParts, XrcEnd) {
        let (pd, domain) = (&self.pd, &self.domain);
        let receives = self
            .shared
            .complete_in(&self.lane, |queue, size| {
                SharedQueue::of_xrc(pd, domain, queue, size, 1)
            })
            .unwrap();
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

    pub fn receives(&self) -> u32 {
        self.shared.number().unwrap()
    }
}

/// The hosts, and the calls in transit.
pub struct World {
    pub hosts: [Host; 2],
    pub calls: VecDeque<(usize, Call)>,
    /// The listeners, by host and port.
    pub listeners: HashMap<(usize, u16, bool), u64>,
    /// The identifiers that send requests, by their address.
    pub askers: HashMap<SocketAddress, (usize, u64)>,
    /// Both ends of connections.
    pub ends: HashMap<(usize, u64), (usize, u64)>,
    /// The application's answer to requests: accept, or reject with data.
    pub answer: std::result::Result<Vec<u8>, Vec<u8>>,
    /// The data of requests to the application.
    pub asked: Vec<(Vec<u8>, bool)>,
    /// Number of answers that get lost.
    pub lost: usize,
}

impl World {
    pub fn new() -> Self {
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
    pub fn on<R>(&mut self, host: usize, act: impl FnOnce(&mut Host) -> R) -> R {
        fake::be_at(self.hosts[host].context);
        let done = act(&mut self.hosts[host]);
        self.calls
            .extend(fake::calls().into_iter().map(|call| (host, call)));
        done
    }

    /// Creates an endpoint that requests a connection with the other host.
    pub fn connect(&mut self, host: usize) -> usize {
        let peer = self.hosts[1 - host].address.clone();
        self.on(host, |host| {
            let (number, parts, end) = host.endpoint();
            let own = host.address.clone();
            let key = host.state.cross(parts, end, Some(&own), &peer, b"hello");
            host.endpoints[number].key = Some(key.unwrap());
            number
        })
    }

    pub fn event(&mut self, host: usize, kind: EventKind, key: u64, status: i32, call: &Call) {
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
    pub fn until(&mut self, enough: impl Fn(&Call) -> bool) {
        while let Some((host, call)) = self.calls.front() {
            if enough(call) {
                return;
            }
            let (host, call) = (*host, call.clone());
            self.calls.pop_front();
            self.carry(host, &call);
        }
    }

    pub fn run(&mut self) {
        self.until(|_| false);
    }

    pub fn carry(&mut self, host: usize, call: &Call) {
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
    pub fn incoming(&self, host: usize, call: &Call) -> Id {
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

    pub fn request(&mut self, host: usize, call: &Call) {
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
    pub fn rejected_unless_taken(&mut self, host: usize, call: &Call) {
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

    pub fn told(&mut self, host: usize, number: usize) -> Vec<Told> {
        self.hosts[host].endpoints[number].read().to_vec()
    }

    pub fn close(&mut self, host: usize, number: usize) {
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
    pub fn close_all(&mut self) {
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
