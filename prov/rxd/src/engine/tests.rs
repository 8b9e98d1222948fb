//! Tests with endpoints in one process, over the udp provider.

mod absent;
mod addresses;
mod bounds;
mod conformance;

use std::net::Ipv4Addr;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_abi::*;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::sync::LockKind;
use prov_message::{Attributes, Core as _, EpKey, Lane};
use prov_util::attr::{Info, version};
use prov_util::av::{self, Av, Insertion};
use prov_util::below::{DatagramEndpoint, Domain, Fabric};
use prov_util::cq::{Completion, Cq, CqConfig, ErrorCompletion};
use prov_util::desc::Descs;
use prov_util::ffi::{Class, Handle, Use};
use prov_util::mr::{self, Job, Memory, MrTable, Region};
use prov_util::progress::Progress;
use prov_util::request::{
    Access, Receive, RemoteAccess, RemoteIov, RemotePiece, Select, Tag, Transmit,
};

use super::Core;
use super::below::{Below, Setting};
use super::link::Rdm;
use crate::address::Vector;
use crate::offer;
use crate::params::Params;
use crate::protocol::{Config, Endpoint};

// The framework has only udp here.
prov_util::stand_in_below!(prov_udp::provider(), "udp");

/// Time that an operation may take on a busy machine.
const LONG: Duration = Duration::from_secs(100);
/// A key with which memory may be accessed.
const KEY: u64 = 7;

fn open<T: Class>(object: T) -> Use<T> {
    Use::of(&Handle::new(object, null_mut(), Vec::new()))
}

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes until the operation is done.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

struct Side {
    lane: Arc<Lane<Core>>,
    ep: EpKey,
    av: Use<Av>,
    cq: Use<Cq>,
    table: Arc<MrTable>,
    name: Vec<u8>,
}

impl Drop for Side {
    fn drop(&mut self) {
        self.lane.close(self.ep);
    }
}

/// Opens an endpoint with a lane of its own at this address; returns its regions and its name, too.
fn begin(
    ip: Ipv4Addr,
    params: Params,
    av: &Use<Av>,
    attributes: Attributes,
) -> (Arc<Lane<Core>>, EpKey, Arc<MrTable>, Vec<u8>) {
    let params = Arc::new(params);
    let addr = std::net::SocketAddr::from((ip, 0));
    let info = Info {
        src_addr: prov_base::sockaddr::encode(&addr).as_bytes().to_vec(),
        addr_format: FI_SOCKADDR_IN,
        ..Info::default()
    };
    let api = version(2, 0);
    let mut core = offer::below(api, &info, Some("udp")).unwrap();
    core.fabric.api_version = api;
    // The framework names providers.
    core.fabric.prov_name = Some("udp".into());
    core.src_addr = info.src_addr.clone();
    let fabric = Arc::new(Fabric::open(&core).unwrap());
    let domain = Domain::open(&fabric, &core).unwrap();
    let endpoint = DatagramEndpoint::open(&domain, &core).unwrap();
    let setting = Setting {
        domain,
        core,
        has_sleepers: true,
    };
    let below = Below::open(setting, endpoint).unwrap();
    let table = Arc::new(MrTable::new(&mr::Config::default()));
    let lane = Lane::start(LockKind::Real, |signals| {
        Core::new(params.clone(), &table, signals.clone())
    })
    .unwrap();
    let mut core = lane.core();
    let own = Box::new(Rdm::new(Vector(av.clone()), &params));
    let ep = core.endpoints().add(attributes, own);
    let name = below.name.told.clone();
    core.start(ep, below).unwrap();
    drop(core);
    (lane, ep, table, name)
}

impl Side {
    fn new(params: Params) -> Side {
        Side::at(Ipv4Addr::LOCALHOST, params)
    }

    /// One that is bound to this address.
    fn at(ip: Ipv4Addr, params: Params) -> Side {
        let config = av::Config {
            format: av::format::Format::IN,
            ..av::Config::default()
        };
        let av = open(Av::open(&config).unwrap());
        let cq = open(Cq::new(CqConfig::default()).unwrap());
        let attributes = Attributes {
            tx_size: 1024,
            most_receives: 1024,
            directed: true,
            job: Job::NONE,
        };
        let (lane, ep, table, name) = begin(ip, params, &av, attributes);
        let mut core = lane.core();
        let state = core.endpoints().get_mut(ep).unwrap();
        state.meets_strangers = true;
        state.reports.tx_cq = Some(cq.clone());
        state.reports.rx_cq = Some(cq.clone());
        drop(core);
        Side {
            lane,
            ep,
            av,
            cq,
            table,
            name,
        }
    }

    /// Forgets its connection to its only peer, as after a restart at the same address.
    fn restart(&self) {
        let mut core = self.lane.core();
        let config = Config {
            secret: [5, 6],
            ..core.protocol.take().unwrap().config().clone()
        };
        let mut protocol = Box::new(Endpoint::new(config));
        let link = core.links.values().next().unwrap();
        let path = core.below.as_ref().unwrap().path(&link.addr).unwrap();
        assert_eq!(protocol.peer(&link.addr.0, path), Some(link.id));
        core.protocol = Some(protocol);
    }

    fn knows(&self, name: &[u8]) {
        let addr = prov_base::sockaddr::decode(name).unwrap();
        let inserted = self.av.insert([Insertion::from(addr)], |_, outcome| {
            outcome.unwrap();
        });
        assert_eq!(inserted, Ok(1));
    }

    fn register(&self, bytes: &mut [u8], key: u64) -> Arc<Region> {
        // SAFETY: the tests keep the bytes as long as the table that refers to them.
        let memory = unsafe { Memory::new(memory(bytes).pieces()) }.unwrap();
        let request = mr::Request::new(memory, FI_REMOTE_READ | FI_REMOTE_WRITE, key);
        self.table.register(request).unwrap()
    }

    fn send(&self, bytes: &mut [u8], tag: u64, flags: u64) {
        self.send_to(0, bytes, tag, flags);
    }

    fn send_to(&self, peer: u64, bytes: &mut [u8], tag: u64, flags: u64) {
        let mut message = Transmit {
            tag: Tag::Value(tag),
            buffers: memory(bytes),
            desc: Descs::NONE,
            peer,
            data: 0,
            flags: FI_COMPLETION | flags,
            context: without_provenance_mut(tag as usize),
        };
        self.lane.core().transmit(self.ep, &mut message).unwrap();
    }

    fn receive(&self, bytes: &mut [u8], tag: u64, peer: u64) {
        let mut receive = Receive {
            select: Select::Tagged { tag, ignore: 0 },
            buffers: memory(bytes),
            desc: Descs::NONE,
            peer,
            flags: FI_COMPLETION,
            context: without_provenance_mut(tag as usize),
        };
        self.lane.core().receive(self.ep, &mut receive).unwrap();
    }

    fn access(&self, access: Access, bytes: &mut [u8], remote: RemoteIov) {
        let mut access = RemoteAccess {
            access,
            local: memory(bytes),
            desc: Descs::NONE,
            remote,
            peer: 0,
            data: 0,
            flags: FI_COMPLETION,
            context: without_provenance_mut(1),
        };
        self.lane.core().access(self.ep, &mut access).unwrap();
    }

    /// The operations and lengths of what has completed.
    fn completions(&self) -> Vec<Completion> {
        let mut list = Vec::new();
        let _ = self.cq.take(100, |completion| list.push(*completion));
        list
    }

    fn error(&self) -> Option<ErrorCompletion> {
        self.cq.read_error().ok()
    }
}

fn pair(params: impl Fn() -> Params) -> [Side; 2] {
    let sides = [Side::new(params()), Side::new(params())];
    sides[0].knows(&sides[1].name);
    sides[1].knows(&sides[0].name);
    sides
}

/// Makes progress on these sides until there is a result.
fn until<R>(sides: &[&Side], mut result: impl FnMut() -> Option<R>) -> R {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(result) = result() {
            return result;
        }
        assert!(Instant::now() < deadline, "it never comes about");
        sides.iter().for_each(|side| side.lane.progress());
        std::thread::yield_now();
    }
}

/// Waits for as many completions of the first side.
fn completed(sides: &[&Side], count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    until(sides, || {
        all.extend(sides[0].completions());
        (all.len() >= count).then_some(())
    });
    assert_eq!(all.len(), count);
    all
}

fn remote(len: usize, key: u64) -> RemoteIov {
    let mut remote = RemoteIov::default();
    // The default table expects offsets from a region's start.
    let (addr, len) = (0, len as u64);
    assert!(remote.push(RemotePiece { addr, len, key }));
    remote
}

#[test]
fn a_write_that_arrives_after_its_region_is_closed_fails_alone() {
    let [a, b] = pair(Params::default);
    let (mut closed, mut open) = ([0; 8], [0; 8]);
    let region = b.register(&mut closed, KEY);
    let _other = b.register(&mut open, KEY + 1);
    let mut bytes = [3; 8];
    a.access(Access::Write, &mut bytes, remote(8, KEY));
    completed(&[&a, &b], 1);
    let mut late = [4; 8];
    a.access(Access::Write, &mut late, remote(8, KEY));
    b.table.close(&region).unwrap();
    a.access(Access::Write, &mut late, remote(8, KEY + 1));
    let error = until(&[&a, &b], || a.error());
    assert_eq!(error.err, Errno::EACCES);
    completed(&[&a, &b], 1);
    assert_eq!((closed, open), (bytes, late));
}

/// Gives peers up soon.
fn impatient() -> Params {
    Params {
        timeout: 300,
        ..Params::default()
    }
}

#[test]
fn a_receive_from_a_peer_that_is_gone_ends() {
    let [a, b] = pair(impatient);
    let mut room = [0; 8];
    a.receive(&mut room, 1, 0);
    let mut sent = [1; 8];
    b.send(&mut sent, 1, 0);
    completed(&[&a, &b], 1);
    completed(&[&b, &a], 1);
    a.receive(&mut room, 2, 0);
    let mut other = [0; 8];
    a.receive(&mut other, 3, FI_ADDR_UNSPEC);
    drop(b);
    let error = until(&[&a], || a.error());
    assert_eq!(
        (error.err, error.completion.context.addr()),
        (Errno::ECANCELED, 2)
    );
    // It is not back for the next one either.
    a.receive(&mut room, 4, 0);
    let error = until(&[&a], || a.error());
    assert_eq!(
        (error.err, error.completion.context.addr()),
        (Errno::ECANCELED, 4)
    );
    assert!(a.completions().is_empty() && a.error().is_none());
}

#[test]
fn operations_for_a_peer_that_is_not_there_fail_and_others_do_not() {
    let [a, b] = pair(impatient);
    let absent = Side::new(impatient());
    a.knows(&absent.name);
    drop(absent);
    let mut bytes = [1; 8];
    let mut message = Transmit {
        tag: Tag::Value(9),
        buffers: memory(&mut bytes),
        desc: Descs::NONE,
        peer: 1,
        data: 0,
        flags: FI_COMPLETION,
        context: without_provenance_mut(9),
    };
    a.lane.core().transmit(a.ep, &mut message).unwrap();
    let mut failed = None;
    until(&[&a, &b], || {
        a.send(&mut [2; 8], 1, FI_INJECT);
        let mut room = [0; 8];
        b.receive(&mut room, 1, FI_ADDR_UNSPEC);
        completed(&[&b, &a], 1);
        a.completions();
        failed = failed.take().or_else(|| a.error());
        failed.as_ref().map(|_| ())
    });
    let error = failed.unwrap();
    assert_eq!(
        (error.err, error.completion.context.addr()),
        (Errno::ETIMEDOUT, 9)
    );
}

#[test]
fn operations_completed_by_the_helper_thread_are_reported_by_the_next_call() {
    let [a, b] = pair(Params::default);
    let mut room = [0; 8];
    b.receive(&mut room, 1, FI_ADDR_UNSPEC);
    let mut sent = [1; 8];
    a.send(&mut sent, 1, 0);
    completed(&[&b, &a], 1);
    // Sends an acknowledgement that is still delayed.
    b.lane.core().end_burst();
    assert!(b.completions().is_empty());
    completed(&[&a], 1);
}

#[test]
fn the_first_message_of_a_restarted_peer_is_received() {
    let [a, b] = pair(Params::default);
    let mut room = [0; 8];
    a.receive(&mut room, 1, FI_ADDR_UNSPEC);
    let mut sent = [1; 8];
    b.send(&mut sent, 1, 0);
    completed(&[&b, &a], 1);
    completed(&[&a, &b], 1);
    // The link ends with this operation, in the call in which the message begins to arrive.
    let mut lost = vec![2; 100_000];
    b.send(&mut lost, 2, 0);
    a.restart();
    let (mut bytes, mut place) = (vec![3; 5_000], vec![0; 5_000]);
    b.receive(&mut place, 3, FI_ADDR_UNSPEC);
    a.send(&mut bytes, 3, 0);
    let error = until(&[&b, &a], || b.error());
    assert_eq!(
        (error.err, error.completion.context.addr()),
        (Errno::ECONNRESET, 2)
    );
    let received = completed(&[&b, &a], 1);
    assert_eq!(received[0].context.addr(), 3);
    assert_eq!(place, bytes);
    completed(&[&a, &b], 1);
}
