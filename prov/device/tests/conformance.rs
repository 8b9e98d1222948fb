//! The conformance kit on the mock device: connected endpoints, each a queue pair.

#![allow(clippy::unwrap_used, reason = "tests, which end with a panic")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fabric_abi::{FI_MR_LOCAL, FI_MR_PROV_KEY, FI_READ, FI_RECV, FI_SEND, FI_WRITE};
use prov_base::buffer::AppIov;
use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_device::connected::Parts;
use prov_device::lanes::{Membership, Sides};
use prov_device::link::EndKey;
use prov_device::mock::{
    Adapter, Bound, Connector, Incomer, Lent, Listener, Mock, NoEvents, Pair, PairConfig, Queue,
    Registering,
};
use prov_device::{Connections as _, Lane, Link, Local as _, Registrar, Seats, Sizes};
use prov_kit::{Bench, Connecting, Objects, Opened, Property, Setting, Side};
use prov_message::sources::Known;
use prov_message::{
    Action, Core, Endpoints, EpKey, Idling, Member, NoErrand, Reports, RmaTarget, Within, names,
};
use prov_util::attr::Info;
use prov_util::av::{self, format::Format};
use prov_util::desc::Descs;
use prov_util::eq::ConnectionEvents;
use prov_util::mr::{self, Memory, MrTable, Region};
use prov_util::progress::Progress as _;
use prov_util::request::{Atomic, AtomicKind, Receive, RemoteAccess, Transmit};

prov_base::stand_in!();

/// An endpoint on a queue pair, as the engine of a lane of its own.
struct Endpoint {
    /// What the kit binds to queues.
    endpoints: Endpoints<Within>,
    lane: Arc<Lane<Mock>>,
    pair: Option<Arc<Pair>>,
    seats: Seats<Mock>,
    link: Arc<Link>,
    events: ConnectionEvents,
    /// Its connection, which it has had to ask for.
    connector: Arc<Connector>,
    key: Option<EndKey>,
    sizes: Sizes,
    table: Arc<MrTable>,
    /// The memory of its operations.
    regions: Vec<Arc<Region>>,
}

impl Endpoint {
    fn new(bench: &Connected, objects: &Objects) -> Self {
        let (adapter, setting) = (&bench.adapter, bench.setting);
        let ear = NoEvents::new().unwrap();
        let make = |size, wake: &[std::os::fd::BorrowedFd<'_>]| Queue::new(adapter, size, wake);
        let lane = Lane::<Mock>::new(LockKind::Real, 16, 1 << 20, ear, make).unwrap();
        let sizes = Sizes {
            sends: setting.tx_size,
            receives: 1 << 12,
            send_pieces: 4,
            receive_pieces: 4,
            inline: 64,
            longest: 1 << 30,
        };
        let pair = Pair::new(
            adapter,
            &PairConfig {
                send_queue: lane.queue(),
                receive_queue: lane.queue(),
                shared: None,
                sends: sizes.sends,
                receives: sizes.receives,
            },
        );
        let link = Arc::<Link>::default();
        let sides = Sides {
            send: Some(lane.clone()),
            receive: Some(lane.clone()),
            any: lane.clone(),
        };
        let reports = Reports {
            tx_cq: Some(objects.cq.clone()),
            rx_cq: Some(objects.cq.clone()),
            ..Reports::default()
        };
        let member = Membership {
            pair: &pair,
            sizes: &sizes,
            shared: None,
            link: Some(link.clone()),
            receive_link: Some(link.clone()),
            skipped: 0,
            is_shared_pair: false,
        };
        let table = MrTable::new(&mr::Config {
            mr_mode: FI_MR_PROV_KEY | FI_MR_LOCAL,
            key_size: size_of::<u32>(),
            registrar: mr::Registrar::Device(Arc::new(Registrar::new(Registering(
                adapter.clone(),
            )))),
            ..mr::Config::default()
        });
        Endpoint {
            endpoints: Endpoints::default(),
            seats: sides.join(&reports, member).unwrap(),
            lane,
            pair: Some(pair),
            link,
            events: ConnectionEvents::new(objects.eq.handle().named(), objects.eq.clone()),
            connector: bench.connector.clone(),
            key: None,
            sizes,
            table: Arc::new(table),
            regions: Vec::new(),
        }
    }

    /// Registers the memory of an operation, as an application has to (`FI_MR_LOCAL`).
    fn describe(&mut self, memory: &AppIov) -> Descs {
        let all = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
        let descs: Vec<_> = memory
            .pieces()
            .iter()
            .map(|piece| {
                // SAFETY: the memory of the kit's places is never freed.
                let memory = unsafe { Memory::new(&[*piece]) }.unwrap();
                let region = self.table.register(mr::Request::new(memory, all, 0));
                let region = region.unwrap();
                let desc = std::ptr::without_provenance_mut(region.desc());
                self.regions.push(region);
                desc
            })
            .collect();
        Descs::each(descs.into_iter())
    }
}

impl Core for Endpoint {
    type Transport = Within;
    type Errand = NoErrand;
    type Sources = Known;

    fn endpoints(&mut self) -> &mut Endpoints<Within> {
        &mut self.endpoints
    }

    fn transmit(&mut self, _: EpKey, message: &mut Transmit) -> Result {
        // What is short is sent inline.
        if message.buffers.len() > self.sizes.inline {
            message.desc = self.describe(&message.buffers);
        }
        self.seats.transmit(&self.sizes, message)
    }

    fn receive(&mut self, _: EpKey, receive: &mut Receive) -> Result {
        receive.desc = self.describe(&receive.buffers);
        self.seats.receive(&self.sizes, receive)
    }

    fn access(&mut self, _: EpKey, access: &mut RemoteAccess) -> Result {
        access.desc = self.describe(&access.local);
        self.seats.access(&self.sizes, access)
    }

    fn atomic(&mut self, _: EpKey, atomic: &mut Atomic) -> Result {
        atomic.desc = self.describe(&atomic.operand);
        if let AtomicKind::Fetch {
            result,
            result_desc,
        }
        | AtomicKind::Compare {
            result,
            result_desc,
            ..
        } = &mut atomic.kind
        {
            *result_desc = self.describe(result);
        }
        self.seats.atomic(atomic, || Ok(Lent::empty()))
    }

    fn act(&mut self, _: Action<Within>) {}

    fn progress(&mut self) -> Idling {
        self.lane.progress();
        self.connector.progress();
        Idling::No
    }

    fn close(&mut self, ep: EpKey) {
        self.endpoints.close(ep);
        if let Some(key) = self.key.take() {
            self.connector.remove(key);
        }
        let pair = self.pair.take();
        self.seats.leave(|| drop(pair));
    }
}

struct Connected {
    adapter: Arc<Adapter>,
    connector: Arc<Connector>,
    setting: Setting,
    bound: Option<Bound>,
    requests: Sink,
}

/// The requests of peers.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<VecDeque<Request>>>);

/// A request, with its data.
type Request = (Incomer, Vec<u8>);

impl Listener for Sink {
    fn has_room(&self) -> bool {
        true
    }

    fn request(&self, incomer: Incomer, _: &[u8], data: &[u8]) {
        let mut requests = self.0.lock().unwrap();
        requests.push_back((incomer, data.to_vec()));
    }
}

/// What an endpoint provides for a connection.
fn parts(endpoint: &Endpoint) -> Parts<Arc<Pair>> {
    Parts {
        end: endpoint.pair.clone().unwrap(),
        link: endpoint.link.clone(),
        events: endpoint.events.clone(),
    }
}

impl Bench for Connected {
    type Core = Endpoint;
    /// A device does not match, and a failure ends the connection.
    const LACKS: &'static [Property] = &[
        Property::Peers,
        Property::Matching,
        Property::Recovery,
        Property::Lingering,
        Property::Causes,
        Property::WideData,
    ];
    /// The largest inline message.
    const STEPS: &'static [usize] = &[64];

    fn new(setting: Setting) -> Self {
        Connected {
            adapter: Adapter::new().unwrap(),
            connector: Connector::new().unwrap(),
            setting,
            bound: None,
            requests: Sink::default(),
        }
    }

    fn vector(&self) -> av::Config<'static> {
        av::Config {
            format: Format::text(16),
            ..av::Config::default()
        }
    }

    fn open(&mut self, objects: &Objects) -> Opened<Endpoint> {
        let endpoint = Endpoint::new(self, objects);
        let table = endpoint.table.clone();
        let lane = prov_message::Lane::start(LockKind::Real, |_| Ok(endpoint)).unwrap();
        let member = Member {
            names: names::Names::new(objects.av.clone()),
            target: RmaTarget::new(&table),
        };
        let ep = lane.core().endpoints().add(objects.attributes, member);
        Opened {
            lane,
            ep,
            name: b"mock".to_vec(),
            table,
        }
    }

    fn introduce(&mut self, sides: &[&Side<Self>]) {
        prov_kit::connect(self, sides);
    }
}

impl Connecting for Connected {
    type Request = Incomer;
    const DATA_LIMIT: usize = 256;

    fn listen(&mut self) -> Vec<u8> {
        let bound = self.bound.insert(any_address(&self.connector));
        bound.listen(self.requests.clone());
        bound.name()
    }

    fn stop_listening(&mut self) {
        self.bound = None;
    }

    fn nobody(&mut self) -> Vec<u8> {
        any_address(&self.connector).name()
    }

    fn next_request(&self) -> Option<(Incomer, Vec<u8>)> {
        self.requests.0.lock().unwrap().pop_front()
    }

    fn connect(&self, from: &Opened<Endpoint>, to: &[u8], data: &[u8]) -> Result {
        let mut core = from.lane.core();
        let (parts, info) = (parts(&core), Info::default());
        let key = (self.connector).connect(parts, &info, &mut None, to, data)?;
        core.key = Some(key);
        Ok(())
    }

    fn accept(&self, at: &Opened<Endpoint>, request: Incomer, data: &[u8]) -> Result {
        let mut core = at.lane.core();
        let accepted = self.connector.accept(parts(&core), request, data);
        core.key = Some(accepted.map_err(|(error, _)| error)?);
        Ok(())
    }

    fn reject(&self, request: Incomer, data: &[u8]) {
        request.refuse(data);
    }

    fn shut_down(&self, at: &Opened<Endpoint>) {
        let key = at.lane.core().key.unwrap();
        self.connector.shut_down(key).unwrap();
    }
}

fn any_address(connector: &Connector) -> Bound {
    let any = prov_base::sockaddr::encode(&"127.0.0.1:0".parse().unwrap());
    connector.bind_to(any.as_bytes()).unwrap()
}

prov_kit::conformance!(Connected);

mod connections {
    prov_kit::conformance!(connecting super::Connected);
}
