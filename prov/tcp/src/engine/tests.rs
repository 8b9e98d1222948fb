//! Two endpoints in two engines, connected over loopback, and the tests that use them.

mod acknowledgements;
mod answers;
mod asking;
mod authentication;
mod c_peer;
mod conformance;
mod connections;
mod contexts;
mod crossing;
mod direct;
mod endpoint_check_tests;
mod foreign;
mod hostile;
mod left;
mod lost;
mod messages;
mod multipath;
mod nearby;
mod negotiated;
mod onesided;
mod overtaking;
mod peek;
mod refused;
mod requests;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;
mod sleepers;
mod strangers;
mod subflows_check_tests;
mod unmapped;
mod unreported;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_abi::{FI_ADDR_UNSPEC, FI_COMPLETION, FI_ORDER_RAS, FI_ORDER_WAS};
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::sync::LockKind;
use prov_local::onesided::table::RegionTable;
use prov_message::{Attributes, Core as _};
use prov_util::av::Insertion;
use prov_util::cq::CqConfig;
use prov_util::desc::Descs;
use prov_util::drive::Helper;
use prov_util::mr::publish::Publisher;
use prov_util::mr::{Job, MrTable};
use prov_util::progress::Progress;
use prov_util::request::{Receive, Select, Tag, Transmit};
use prov_util::wait::Attachment;

use super::{Core, Lane};
use crate::engine::link::detours::Detour;
use crate::engine::link::endpoint::{Kind, OwnPart};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::listener::ListenerKind;
use crate::engine::link::rdm::Rdm;
use crate::engine::link::ready::Why;
use crate::engine::link::socket;
use crate::params::Params;
use crate::wire::authentication::Key;
use crate::wire::handshake::Features;
use prov_util::av::Av;
use prov_util::cq::{Cq, ErrorCompletion};
use prov_util::ffi::{Handle, Use};

thread_local! {
    /// Whether endpoints are opened for accesses to memory (`FI_RMA`): their processes get to know each
    /// other at once.
    static IS_FOR_RMA: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
    /// Whether only for announced messages ([`OPT_ONLY_RENDEZVOUS`](prov_util::endpoint::OPT_ONLY_RENDEZVOUS)).
    static ONLY_RENDEZVOUS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct Side {
    engine: Arc<Lane>,
    ep: EpKey,
    addr: SocketAddr,
    memory: Arc<MrTable>,
    av: Use<Av>,
    cq: Use<Cq>,
    done: RefCell<Vec<Done>>,
    failed: RefCell<Vec<ErrorCompletion>>,
}

#[derive(Debug)]
struct Done {
    len: usize,
    tag: u64,
    src: u64,
}

impl Drop for Side {
    /// A queue that is read with [`Cq::add_source`](prov_util::cq::Cq) refers to the engine, whose
    /// endpoint refers to the queue: a cycle.
    fn drop(&mut self) {
        if let Some(endpoint) = self.engine.core().endpoints.get_mut(self.ep) {
            endpoint.reports.rx_cq = None;
        }
    }
}

impl Side {
    fn knows(&self, addr: SocketAddr) {
        let inserted = self.av.insert([Insertion::from(addr)], |_, outcome| {
            outcome.unwrap();
        });
        assert_eq!(inserted, Ok(1));
    }

    fn drive(&self) {
        self.engine.progress();
        let read = self.cq.read(1000, |completion| {
            self.done.borrow_mut().push(Done {
                len: completion.len,
                tag: completion.tag,
                src: completion.src,
            });
        });
        if read == Err(Errno::EAVAIL) {
            self.failed.borrow_mut().push(self.cq.read_error().unwrap());
        }
    }

    fn open_connections(&self) -> Vec<ConnKey> {
        let core = self.engine.core();
        let open = core.conns.iter().filter(|(_, conn)| conn.is_open());
        open.map(|(key, _)| key).collect()
    }

    /// Connections, open or not.
    fn connections(&self) -> usize {
        self.engine.core().conns.len()
    }

    /// Bytes that wait to leave on the oldest open connection.
    fn queued(&self) -> u64 {
        let key = self.open_connections()[0];
        self.engine.core().conns[key].outbox.len()
    }

    /// Connections that wait until the application has read completions.
    fn held_back(&self) -> usize {
        self.engine.core().ready.of(Why::Unreported).len()
    }

    /// Peers that are asked to announce their messages.
    fn throttled(&self) -> usize {
        self.engine.core().endpoints.throttled().count()
    }

    fn outstanding(&self) -> usize {
        let core = self.engine.core();
        core.endpoints.get(self.ep).unwrap().ledger.outstanding()
    }

    fn count(&self) -> usize {
        self.done.borrow().len()
    }

    /// Returns the bytes of unexpected messages, with the overhead of buffering them.
    fn kept(&self) -> usize {
        self.engine.core().endpoints.kept_bytes()
    }
}

fn open<T: prov_util::ffi::Class>(object: T) -> Use<T> {
    Use::of(&Handle::new(object, std::ptr::null_mut(), Vec::new()))
}

fn side() -> Side {
    side_with(Params::default())
}

fn side_with(params: Params) -> Side {
    keyed_side(params, None)
}

fn keyed_side(params: Params, auth_key: Option<Key>) -> Side {
    rdm_side(params, auth_key, vector(None))
}

fn rdm_side(params: Params, auth_key: Option<Key>, av: Use<Av>) -> Side {
    let kind = |addr, params: &Params| Kind::Rdm(Box::new(Rdm::new(av.clone(), addr, params)));
    side_of(params, auth_key, av.clone(), kind, ListenerKind::Rdm)
}

/// An address vector, which may be shared under a name.
fn vector(shared: Option<prov_util::av::Name<'_>>) -> Use<Av> {
    let config = prov_util::av::Config {
        format: prov_util::av::format::Format::IN,
        shared,
        ..prov_util::av::Config::default()
    };
    open(Av::open(&config).unwrap())
}

fn queue() -> Use<Cq> {
    let config = CqConfig::default();
    open(Cq::new(config).unwrap())
}

fn side_of(
    params: Params,
    auth_key: Option<Key>,
    av: Use<Av>,
    kind: impl FnOnce(SocketAddr, &Params) -> Kind,
    listener_kind: impl FnOnce(EpKey) -> ListenerKind,
) -> Side {
    let cq = queue();
    let attributes = Attributes {
        tx_size: match params.tx_size {
            0 => 1024,
            size => size,
        },
        most_receives: 1024,
        directed: false,
        job: Job::NONE,
    };
    let Begun {
        engine,
        ep,
        addr,
        memory,
    } = begin(params, auth_key, attributes, kind, listener_kind);
    let mut core = engine.core();
    let endpoint = core.endpoints.get_mut(ep).unwrap();
    endpoint.meets_strangers = true;
    let reports = &mut endpoint.reports;
    reports.tx_cq = Some(cq.clone());
    reports.rx_cq = Some(cq.clone());
    drop(core);
    Side {
        engine,
        ep,
        addr,
        memory,
        av,
        cq,
        done: RefCell::default(),
        failed: RefCell::default(),
    }
}

/// An endpoint that is bound to no queues yet.
struct Begun {
    engine: Arc<Lane>,
    ep: EpKey,
    addr: SocketAddr,
    memory: Arc<MrTable>,
}

fn begin(
    params: Params,
    auth_key: Option<Key>,
    attributes: Attributes,
    kind: impl FnOnce(SocketAddr, &Params) -> Kind,
    listener_kind: impl FnOnce(EpKey) -> ListenerKind,
) -> Begun {
    let params = Arc::new(params);
    let may_be_accessed = params.features().has(Features::REGIONS);
    let regions = may_be_accessed.then(|| RegionTable::new("test").unwrap());
    let publisher = regions.clone().map(|regions| regions as Arc<dyn Publisher>);
    let memory = Arc::new(MrTable::new(&prov_util::mr::Config {
        publisher,
        ..prov_util::mr::Config::default()
    }));
    let engine = Lane::start(LockKind::Real, |signals| {
        let (params, memory) = (params.clone(), Some(memory.clone()));
        Core::new(params, memory, regions.clone(), signals.clone())
    })
    .unwrap();
    engine.help(&Helper::new("tests"));
    let socket = socket::bound(&"127.0.0.1:0".parse().unwrap(), &params).unwrap();
    let addr = socket::name(socket.as_fd()).unwrap();
    let mut core = engine.core();
    let part = OwnPart {
        kind: kind(addr, &params),
        auth_key: auth_key.clone(),
        msg_order: FI_ORDER_RAS | FI_ORDER_WAS,
        is_for_rma: IS_FOR_RMA.get(),
        only_rendezvous: ONLY_RENDEZVOUS.get(),
        has_fences: false,
    };
    let ep = core.endpoints.add(attributes, part);
    let listener = core
        .add_listener(socket, listener_kind(ep), auth_key, 128)
        .unwrap();
    if let Some(rdm) = core.rdm(ep) {
        rdm.listener = Some(listener);
    }
    drop(core);
    Begun {
        engine,
        ep,
        addr,
        memory,
    }
}

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes, and access them otherwise only when the operation is
    // complete.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn tagged(bytes: &mut [u8], tag: u64) -> Transmit {
    Transmit {
        tag: Tag::Value(tag),
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(tag as usize),
    }
}

fn send(side: &Side, bytes: &mut [u8], tag: u64) {
    let mut message = tagged(bytes, tag);
    side.engine.core().transmit(side.ep, &mut message).unwrap();
}

fn receive(side: &Side, bytes: &mut [u8], tag: u64) {
    let mut receive = Receive {
        select: Select::Tagged { tag, ignore: 0 },
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(tag as usize),
    };
    side.engine.core().receive(side.ep, &mut receive).unwrap();
}

/// How long nothing may complete before a test fails: a machine that is busy otherwise is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Drives both sides until `done`.
fn until(sides: [&Side; 2], mut done: impl FnMut() -> bool) {
    let completed = || sides.map(Side::count);
    let (mut before, mut since) = (completed(), Instant::now());
    while !done() {
        for side in sides {
            side.drive();
        }
        if completed() != before {
            (before, since) = (completed(), Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "nothing happens any more");
    }
}
