//! Tests with two endpoints in one process, over the tcp provider.

mod conformance;
mod contexts;
mod framework;
mod hostile;
mod in_place;
mod lost;
mod registering;
mod removal;
mod strangers;
mod unreported;
mod withheld;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric_abi::{FI_ADDR_UNSPEC, FI_COMPLETION, FI_MR_LOCAL, FI_REMOTE_READ, FI_SEND, FI_WRITE};
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::sync::LockKind;
use prov_message::{Attributes, Core as _, EpKey, Lane};
use prov_util::attr::{Info, version};
use prov_util::av::{Av, Insertion};
use prov_util::below::{Batch, Domain, Eq, Fabric, PassiveEndpoint, Size};
use prov_util::cq::{Completion, Cq, CqConfig, ErrorCompletion};
use prov_util::desc::Descs;
use prov_util::ffi::{Handle, Use};
use prov_util::mr::{Job, MrTable, Registrar};
use prov_util::progress::Progress;
use prov_util::request::{Receive, Select, Tag, Transmit};

use self::framework::IS_LOCAL;
use super::Core;
use super::below::{Below, QueueSide, Setting};
use super::buffered::{Bounds, Buffered};
use super::endpoint::Rdm;
use super::keys::LinkKey;
use crate::params::Params;
use crate::{address, memory, offer};

struct Side {
    engine: Arc<Lane<Core>>,
    ep: EpKey,
    av: Use<Av>,
    cq: Use<Cq>,
    done: RefCell<Vec<(u64, usize)>>,
    failed: RefCell<Vec<ErrorCompletion>>,
    /// The complete entries of `done`.
    seen: RefCell<Vec<Completion>>,
}

impl Drop for Side {
    fn drop(&mut self) {
        self.engine.close(self.ep);
    }
}

fn open<T: prov_util::ffi::Class>(object: T) -> Use<T> {
    Use::of(&Handle::new(object, std::ptr::null_mut(), Vec::new()))
}

fn side(params: Params) -> Side {
    side_of(params, None, false)
}

/// A side that reads messages in place, with these limits.
fn buffered_side(params: Params, least: usize) -> Side {
    let most = params.buffer_size;
    side_of(params, Some(Bounds { least, most }), false)
}

/// A side that reads messages in place if there are limits; with or without sleeping threads.
fn side_of(params: Params, bounds: Option<Bounds>, has_sleepers: bool) -> Side {
    let config = prov_util::av::Config {
        format: prov_util::av::format::Format::IN,
        ..prov_util::av::Config::default()
    };
    let av = open(Av::open(&config).unwrap());
    side_with(av, params, bounds, has_sleepers)
}

/// The same with this address vector.
fn side_with(av: Use<Av>, params: Params, bounds: Option<Bounds>, has_sleepers: bool) -> Side {
    let params = Arc::new(params);
    let Prepared { below, engine, .. } = prepare(&params, has_sleepers);
    let handle = Handle::new(
        Cq::new(CqConfig::default()).unwrap(),
        std::ptr::null_mut(),
        Vec::new(),
    );
    let cq = Use::of(&handle);
    // Any object can take the place of the endpoint.
    let buffered = bounds.map(|bounds| Box::new(Buffered::new(handle.named(), bounds)));
    let mut core = engine.core();
    let attributes = Attributes {
        tx_size: 1024,
        most_receives: 1024,
        directed: false,
        job: Job::NONE,
    };
    let part = Box::new(Rdm::new(av.clone(), 0, &params));
    let ep = core.endpoints().add(attributes, part);
    let endpoint = core.endpoints().get_mut(ep).unwrap();
    endpoint.meets_strangers = true;
    let reports = &mut endpoint.reports;
    reports.tx_cq = Some(cq.clone());
    reports.rx_cq = Some(cq.clone());
    core.start(ep, below, buffered).unwrap();
    drop(core);
    Side {
        engine,
        ep,
        av,
        cq,
        done: RefCell::default(),
        failed: RefCell::default(),
        seen: RefCell::default(),
    }
}

/// What an endpoint needs before it can be started.
struct Prepared {
    below: Below,
    table: Arc<MrTable>,
    engine: Arc<Lane<Core>>,
}

fn prepare(params: &Arc<Params>, has_sleepers: bool) -> Prepared {
    let mut info = Info {
        src_addr: address::bytes(&"127.0.0.1:0".parse().unwrap()),
        addr_format: fabric_abi::FI_SOCKADDR_IN,
        ..Info::default()
    };
    info.domain.mr_mode = FI_MR_LOCAL;
    let api = version(2, 0);
    let mut core = offer::below(api, &info, Some("tcp"), params).unwrap();
    core.fabric.api_version = api;
    let fabric = Arc::new(Fabric::open(&core).unwrap());
    let domain = Domain::open(&fabric, &core).unwrap();
    let eq = Eq::open(&fabric).unwrap();
    let passive = Arc::new(PassiveEndpoint::open(&fabric, &core, &eq).unwrap());
    let is_local = core.domain.mr_mode & FI_MR_LOCAL != 0;
    assert_eq!(is_local, IS_LOCAL.get());
    let memory = memory::Below::new(domain.clone(), false);
    let setting = Setting {
        memory: memory.clone(),
        domain,
        sizes: offer::sizes(&core, params),
        core,
        is_local,
        has_descs: false,
        has_sleepers,
        closes_removed: false,
        is_target: true,
        accesses: None,
    };
    let below = Below::open(setting, eq, passive, params).unwrap();
    let table = Arc::new(MrTable::new(&prov_util::mr::Config {
        registrar: Registrar::Both(memory),
        ..prov_util::mr::Config::default()
    }));
    let engine = Lane::start(LockKind::Real, |signals| {
        Core::new(params.clone(), &table, signals.clone())
    })
    .unwrap();
    Prepared {
        below,
        table,
        engine,
    }
}

/// Two sides that know each other.
fn pair(params: impl Fn() -> Params) -> [Side; 2] {
    with_addresses_exchanged([side(params()), side(params())])
}

fn with_addresses_exchanged(sides: [Side; 2]) -> [Side; 2] {
    sides[0].knows(&sides[1]);
    sides[1].knows(&sides[0]);
    sides
}

impl Side {
    fn knows(&self, other: &Side) {
        let addr = other.engine.core().below.as_ref().unwrap().addr;
        self.inserts(addr);
    }

    fn inserts(&self, addr: SocketAddr) {
        let inserted = self.av.insert([Insertion::from(addr)], |_, outcome| {
            outcome.unwrap();
        });
        assert_eq!(inserted, Ok(1));
    }

    fn drive(&self) {
        self.engine.progress();
        self.read();
    }

    fn read(&self) {
        let read = self.cq.read(1000, |completion| {
            // Contexts are tags; sends have none.
            let entry = (completion.context.addr() as u64, completion.len);
            self.done.borrow_mut().push(entry);
            self.seen.borrow_mut().push(*completion);
        });
        if read == Err(Errno::EAVAIL) {
            self.failed.borrow_mut().push(self.cq.read_error().unwrap());
        }
    }

    /// Number of completions and errors.
    fn count(&self) -> usize {
        self.done.borrow().len() + self.failed.borrow().len()
    }

    fn errors(&self) -> Vec<Errno> {
        self.failed.borrow().iter().map(|error| error.err).collect()
    }

    fn forget(&self) {
        self.done.borrow_mut().clear();
        self.seen.borrow_mut().clear();
        self.failed.borrow_mut().clear();
    }

    fn links(&self) -> Vec<LinkKey> {
        let core = self.engine.core();
        let open = core.links.iter().filter(|(_, link)| link.is_open());
        open.map(|(key, _)| key).collect()
    }

    fn outstanding(&self) -> usize {
        let mut core = self.engine.core();
        let state = core.endpoints().get(self.ep).unwrap();
        state.ledger.outstanding()
    }

    fn send(&self, bytes: &mut [u8], tag: u64) {
        assert!(self.has_sent(bytes, tag), "there is room");
    }

    /// Returns whether there was room for a message.
    fn has_sent(&self, bytes: &mut [u8], tag: u64) -> bool {
        match self.post(bytes, tag) {
            Err(Errno::EAGAIN) => false,
            posted => {
                posted.unwrap();
                true
            }
        }
    }

    fn post(&self, bytes: &mut [u8], tag: u64) -> Result<(), Errno> {
        let mut message = transmit(memory_of(bytes), tag);
        self.engine.core().transmit(self.ep, &mut message)
    }

    fn receive(&self, bytes: &mut [u8], tag: u64) {
        let mut receive = Receive {
            select: Select::Tagged { tag, ignore: 0 },
            buffers: memory_of(bytes),
            desc: Descs::NONE,
            peer: FI_ADDR_UNSPEC,
            flags: FI_COMPLETION,
            context: std::ptr::without_provenance_mut(tag as usize),
        };
        self.engine.core().receive(self.ep, &mut receive).unwrap();
    }
}

/// A message to the only peer.
fn transmit(buffers: AppIov, tag: u64) -> Transmit {
    Transmit {
        tag: Tag::Value(tag),
        buffers,
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(tag as usize),
    }
}

fn memory_of(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes until the operation is done.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

#[track_caller]
fn until(sides: &[&Side], mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        for side in sides {
            side.drive();
        }
        assert!(Instant::now() < deadline, "nothing happens any more");
    }
}

/// Sizes that are sent in one packet, in several, and by rendezvous.
const SIZES: [usize; 7] = [0, 8, 300, 10_000, 70_000, 200_000, 3 << 20];

#[test]
fn both_sides_connecting_simultaneously_end_with_one_connection() {
    for _ in 0..20 {
        let [a, b] = pair(Params::default);
        let (mut x, mut y) = ([1u8; 8], [2u8; 8]);
        let (mut from_a, mut from_b) = ([0u8; 8], [0u8; 8]);
        a.receive(&mut from_b, 7);
        b.receive(&mut from_a, 7);
        a.send(&mut x, 7);
        b.send(&mut y, 7);
        until(&[&a, &b], || a.count() == 2 && b.count() == 2);
        assert_eq!((from_a, from_b), (x, y));
        for side in [&a, &b] {
            assert_eq!((side.errors(), side.links().len()), (vec![], 1));
        }
    }
}

#[test]
fn a_read_drives_the_lane_where_packets_may_be_held_back() {
    let [a, b] = pair(Params::default);
    let mut place = [0u8; 8];
    let mut out = [1u8; 8];
    // The first one waits for the link, and the second one uses it.
    for count in 1..3 {
        b.receive(&mut place, 1);
        a.send(&mut out, 1);
        until(&[&a, &b], || a.count() == count && b.count() == count);
    }
    let is_due = || Progress::signals(&*a.engine).is_due();
    a.drive();
    a.send(&mut out, 1);
    assert!(!is_due(), "the first leaves");
    a.send(&mut out, 1);
    assert!(is_due());
    a.drive();
    assert!(!is_due());
}

#[test]
fn a_write_that_takes_a_receive_gives_it_back() {
    for use_srx in [true, false] {
        let [a, b] = pair(|| Params {
            use_srx: Some(use_srx),
            ..Params::default()
        });
        let (mut out, mut place) = ([1u8; 8], [0u8; 8]);
        a.receive(&mut place, 1);
        b.send(&mut out, 1);
        until(&[&a, &b], || a.count() == 1 && b.count() == 1);
        // tcp uses no receive for a write, so a packet's buffer stands for that of a write.
        a.send(&mut out, 1);
        let mut core = b.engine.core();
        let below = core.below.as_mut().unwrap();
        let mut batch = Batch::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        while below.read(QueueSide::In, &mut batch).is_err() {
            a.drive();
            assert!(Instant::now() < deadline);
        }
        let slot = batch.next(&mut below.slots).unwrap().slot;
        let number = format!("{:?}", slot.as_ref().unwrap());
        core.remote_write(slot, 0, Some(7));
        // The slot is not free, since it was posted.
        let slots = &mut core.below.as_mut().unwrap().slots;
        let other = slots.take(Size::Large).unwrap();
        assert_ne!(format!("{other:?}"), number, "use_srx: {use_srx}");
        slots.give_back(other);
    }
}

#[test]
fn no_more_is_under_way_than_the_queue_below_has_room_for() {
    let [a, b] = pair(Params::default);
    let (mut out, mut place) = ([1u8; 3000], [0u8; 3000]);
    b.receive(&mut place, 0);
    a.send(&mut out, 0);
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    let sent = || a.engine.core().below.as_ref().unwrap().slots.sent();
    let limit = 2;
    a.engine.core().below.as_mut().unwrap().slots.limit(limit);
    let mut places = vec![[0u8; 3000]; 99];
    (1..100)
        .zip(&mut places)
        .for_each(|(tag, place)| b.receive(place, tag));
    let mut refused = 0;
    for tag in 1..100 {
        while !a.has_sent(&mut out, tag) {
            refused += 1;
            a.drive();
            b.drive();
        }
        assert!(sent() <= limit);
    }
    assert_ne!(refused, 0);
    until(&[&a, &b], || {
        assert!(sent() <= limit);
        a.count() == 100 && b.count() == 100
    });
    assert!(places.iter().all(|place| *place == out));
}

#[test]
fn receive_buffers_are_posted_again_while_the_send_queue_is_full() {
    let [a, b] = pair(|| Params {
        use_srx: Some(false),
        ..Params::default()
    });
    let (mut out, mut place) = ([1u8; 8], [0u8; 8]);
    a.receive(&mut place, 0);
    b.send(&mut out, 0);
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    a.engine.core().below.as_mut().unwrap().slots.limit(0);
    // More messages than buffers are posted for a peer.
    for tag in 1..300 {
        a.receive(&mut place, tag);
        b.send(&mut out, tag);
        until(&[&a, &b], || a.count() == tag as usize + 1);
    }
}

#[test]
fn short_messages_to_a_peer_complete_in_order() {
    let [a, b] = pair(Params::default);
    let mut outs: Vec<Vec<u8>> = [8, 1000, 8, 300, 1000, 8].map(|len| vec![1; len]).into();
    let mut places = vec![vec![0; 1000]; outs.len()];
    // The first time the messages wait for the link.
    for _ in 0..3 {
        for ((tag, out), place) in (0..).zip(&mut outs).zip(&mut places) {
            b.receive(place, tag);
            until(&[&b], || a.has_sent(out, tag));
        }
        until(&[&a, &b], || a.count() == 6 && b.count() == 6);
        for side in [&a, &b] {
            let done = side.done.take().into_iter();
            assert_eq!(
                done.map(|(tag, _)| tag).collect::<Vec<_>>(),
                [0, 1, 2, 3, 4, 5]
            );
        }
    }
}

#[test]
fn a_message_received_before_the_connection_event_is_delivered() {
    let [a, b] = {
        let mut sides = [side(Params::default()), side(Params::default())];
        // Of two crossing requests, that of the larger address wins.
        sides.sort_by_key(|side| side.engine.core().below.as_ref().unwrap().addr);
        with_addresses_exchanged(sides)
    };
    let (mut short, mut long) = ([1; 8], vec![2; 3 << 20]);
    b.send(&mut short, 1);
    a.send(&mut long, 2);
    // The message is not wanted, which the sender is told.
    b.receive(&mut [], 2);
    let deadline = Instant::now() + Duration::from_secs(60);
    while b.count() == 0 {
        a.drive();
        b.engine.core().take_in_all();
        b.read();
        assert!(Instant::now() < deadline, "the message does not come");
    }
    assert!(b.links().is_empty(), "it knows of none");
    until(&[&a, &b], || a.count() == 1);
    assert_eq!((a.errors(), a.outstanding()), (vec![], 0));
}

#[test]
fn a_message_that_is_too_long_below_is_refused_without_other_effects() {
    let [a, b] = pair(Params::default);
    let mut core = a.engine.core();
    core.below.as_mut().unwrap().setting.sizes.message = 1 << 20;
    drop(core);
    let mut out = vec![1; (1 << 20) + 1];
    assert_eq!(a.post(&mut out, 1), Err(Errno::EMSGSIZE));
    let mut place = vec![0; 1 << 20];
    b.receive(&mut place, 1);
    a.send(&mut out[1..], 1);
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    assert_eq!((a.errors(), b.errors()), (vec![], vec![]));
}

#[test]
fn each_part_of_a_message_is_described_as_the_application_has_registered_it() {
    IS_LOCAL.set(true);
    let [a, b] = pair(Params::default);
    IS_LOCAL.set(false);
    let mut outs = [vec![1; 20_000], vec![2; 20_000]];
    let mut core = a.engine.core();
    let below = core.below.as_mut().unwrap();
    below.has_descs();
    let regions = outs.each_mut().map(|out| {
        let access = FI_SEND | FI_WRITE | FI_REMOTE_READ;
        below.register(&memory_of(out), access).unwrap().remove(0)
    });
    drop(core);
    let pieces = outs.each_mut().map(|out| libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    });
    let mut message = Transmit {
        // SAFETY: the bytes outlive the operation.
        buffers: unsafe { AppIov::from_iov(pieces.as_ptr(), pieces.len()) }.unwrap(),
        desc: Descs::each(regions.iter().map(|region| region.desc())),
        ..transmit(AppIov::EMPTY, 1)
    };
    let mut place = vec![0; 40_000];
    b.receive(&mut place, 1);
    let posted = a.engine.core().transmit(a.ep, &mut message);
    assert_eq!(posted, Ok(()));
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    assert!(place == outs.concat());
}
