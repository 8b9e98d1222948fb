//! Tests of two endpoints in two engines, connected over loopback.

mod acknowledgements;
mod answers;
mod asking;
mod authentication;
mod c_peer;
mod contexts;
mod crossing;
mod direct;
mod ended;
mod endpoint_check_tests;
mod foreign;
mod hostile;
mod left;
mod lost;
mod nearby;
mod negotiated;
mod onesided;
mod peek;
mod refused;
mod requests;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;
mod sleepers;
mod strangers;
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
use crate::engine::link::socket;
use crate::params::Params;
use crate::wire::authentication::Key;
use crate::wire::handshake::Features;
use prov_util::av::Av;
use prov_util::cq::{Cq, ErrorCompletion};
use prov_util::ffi::{Handle, Use};

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
        self.engine.core().unreported.len()
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
    let params = Arc::new(params);
    let may_be_accessed = params.features().has(Features::REGIONS);
    let regions = may_be_accessed.then(|| RegionTable::new().unwrap());
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
    let cq = queue();
    let mut core = engine.core();
    let attributes = Attributes {
        tx_size: match params.tx_size {
            0 => 1024,
            size => size,
        },
        rx_size: 1024,
        directed: false,
        job: Job::NONE,
    };
    let part = OwnPart {
        kind: kind(addr, &params),
        auth_key: auth_key.clone(),
        msg_order: FI_ORDER_RAS | FI_ORDER_WAS,
        has_fences: false,
    };
    let ep = core.endpoints.add(attributes, part);
    let endpoint = core.endpoints.get_mut(ep).unwrap();
    endpoint.meets_strangers = true;
    let reports = &mut endpoint.reports;
    reports.tx_cq = Some(cq.clone());
    reports.rx_cq = Some(cq.clone());
    let listener = core
        .add_listener(socket, listener_kind(ep), auth_key, 128)
        .unwrap();
    if let Some(rdm) = core.rdm(ep) {
        rdm.listener = Some(listener);
    }
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
    let message = tagged(bytes, tag);
    side.engine.core().transmit(side.ep, &message).unwrap();
}

fn receive(side: &Side, bytes: &mut [u8], tag: u64) {
    let receive = Receive {
        select: Select::Tagged { tag, ignore: 0 },
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: FI_COMPLETION,
        context: std::ptr::without_provenance_mut(tag as usize),
    };
    side.engine.core().receive(side.ep, &receive).unwrap();
}

fn until(sides: [&Side; 2], mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        for side in sides {
            side.drive();
        }
        assert!(Instant::now() < deadline, "nothing happens any more");
    }
}

#[test]
fn a_connection_with_small_messages_leaves_bulk_mode() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut place) = (vec![1; 1 << 20], vec![0; 1 << 20]);
    let is_bulk = || {
        b.engine
            .core()
            .conns
            .values()
            .any(|conn| conn.detours.has(Detour::Bulk))
    };
    receive(&b, &mut place, 1);
    send(&a, &mut out, 1);
    until([&a, &b], || b.count() == 1);
    assert!(is_bulk());
    for message in 2..40 {
        receive(&b, &mut place, 1);
        send(&a, &mut out[..8], 1);
        until([&a, &b], || b.count() == message);
    }
    assert!(!is_bulk());
}

#[test]
fn messages_of_all_sizes_arrive_expected_or_not() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    for (round, len) in [0, 1, 8, 100, 5000, 70_000, 3 << 20]
        .into_iter()
        .enumerate()
    {
        for expected in [true, false] {
            let tag = (round * 2 + usize::from(expected)) as u64;
            let mut out: Vec<u8> = (0..len).map(|i| (i * 31 + round) as u8).collect();
            let mut place = vec![0; len];
            if expected {
                receive(&b, &mut place, tag);
            }
            send(&a, &mut out, tag);
            if !expected {
                for _ in 0..100 {
                    a.engine.progress();
                    b.engine.progress();
                }
                receive(&b, &mut place, tag);
            }
            until([&a, &b], || a.count() > 0 && b.count() > 0);
            assert!(out == place, "{len} bytes, expected {expected}");
            let done = b.done.borrow_mut().pop().unwrap();
            assert_eq!((done.len, done.tag, done.src), (len, tag, 0));
            a.done.borrow_mut().clear();
        }
    }
    assert_eq!(a.failed.borrow().len(), 0);
}

#[test]
fn both_sides_connecting_simultaneously_end_with_one_connection() {
    for _ in 0..50 {
        let (a, b) = (side(), side());
        a.knows(b.addr);
        b.knows(a.addr);
        let (mut x, mut y) = ([1u8; 8], [2u8; 8]);
        let (mut from_a, mut from_b) = ([0u8; 8], [0u8; 8]);
        receive(&a, &mut from_b, 7);
        receive(&b, &mut from_a, 7);
        send(&a, &mut x, 7);
        send(&b, &mut y, 7);
        until([&a, &b], || a.count() == 2 && b.count() == 2);
        assert_eq!((from_a, from_b), (x, y));
        for side in [&a, &b] {
            assert_eq!(side.open_connections().len(), 1);
        }
    }
}

#[test]
fn an_endpoint_sends_to_itself() {
    let a = side();
    a.knows(a.addr);
    let (mut x, mut place) = ([1u8; 8], [0u8; 8]);
    receive(&a, &mut place, 7);
    send(&a, &mut x, 7);
    until([&a, &a], || a.count() == 2);
    assert_eq!(place, x);
}

#[test]
fn a_burst_leaves_without_another_call() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut places = vec![[0u8; 8]; 65];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
    }
    let mut first = [9; 8];
    send(&a, &mut first, 64);
    until([&a, &b], || b.count() == 1);
    let mut out = [[5u8; 8]; 64];
    for (tag, bytes) in out.iter_mut().enumerate() {
        send(&a, bytes, tag as u64);
    }
    // Only the receiver is driven from here on.
    until([&b, &b], || b.count() == 65);
    assert!(places[..64].iter().all(|place| place == &[5; 8]));
}

#[test]
fn nothing_is_left_of_an_engine_that_ends_in_a_burst() {
    for round in 0..200 {
        let (a, b) = (side(), side());
        a.knows(b.addr);
        let (mut out, mut place) = ([9; 8], [0; 8]);
        receive(&b, &mut place, 0);
        send(&a, &mut out, 0);
        until([&a, &b], || b.count() == 1);
        send(&a, &mut out, 1);
        send(&a, &mut out, 2);
        // The thread that ends the burst may not have begun, be running, or be done.
        std::thread::sleep(Duration::from_micros(round));
        a.engine.retire();
        let engine = Arc::downgrade(&a.engine);
        drop(a);
        assert_eq!(engine.strong_count(), 0);
    }
}

#[test]
fn two_peers_that_connect_simultaneously_and_repeatedly_have_one_connection() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let mut places = [[0u8; 8]; 2];
    for round in 1..=1000 {
        let mut out = [[round as u8; 8], [!round as u8; 8]];
        let [x, y] = &mut out;
        let [at_b, at_a] = &mut places;
        receive(&a, at_a, round);
        receive(&b, at_b, round);
        send(&a, x, round);
        // The other side's request has sometimes arrived already, or half of it.
        for _ in 0..round % 4 {
            a.drive();
        }
        send(&b, y, round);
        for _ in 0..round % 3 {
            b.drive();
        }
        until([&a, &b], || a.count() == 2 && b.count() == 2);
        assert_eq!(places, out, "round {round}");
        for side in [&a, &b] {
            side.done.borrow_mut().clear();
            assert_eq!(side.failed.borrow().len(), 0);
            assert_eq!(side.open_connections().len(), 1);
        }
        // Either side ends the connection, and both know that before the next round.
        let ends = [&a, &b][round as usize % 2];
        let conn = ends.open_connections()[0];
        ends.engine.core().break_connection(conn, Errno::ESHUTDOWN);
        until([&a, &b], || {
            [&a, &b].iter().all(|s| s.open_connections().is_empty())
        });
    }
    // The other attempts leave nothing behind.
    until([&a, &b], || [&a, &b].iter().all(|s| s.connections() == 0));
}

#[test]
fn operations_for_a_peer_that_is_not_there_fail() {
    let a = side_with(Params {
        connect_timeout: 300,
        ..Params::default()
    });
    let gone = side();
    let addr = gone.addr;
    gone.engine.close(gone.ep);
    a.knows(addr);
    let mut x = [1u8; 8];
    send(&a, &mut x, 7);
    until([&a, &a], || a.failed.borrow().len() == 1);
}

#[test]
fn messages_received_in_the_opposite_order_all_arrive() {
    const COUNT: usize = 60;
    const LEN: usize = 1 << 20;
    let (a, b) = (
        side(),
        side_with(Params {
            max_unexpected: 24 << 20,
            ..Params::default()
        }),
    );
    a.knows(b.addr);
    let mut out: Vec<Vec<u8>> = (0..COUNT).map(|i| vec![i as u8 + 1; LEN]).collect();
    for (tag, bytes) in out.iter_mut().enumerate() {
        send(&a, bytes, tag as u64);
    }
    for tag in (0..COUNT).rev() {
        let mut place = vec![0; LEN];
        let before = b.count();
        receive(&b, &mut place, tag as u64);
        until([&a, &b], || b.count() > before);
        assert!(place == out[tag], "message {tag}");
    }
    until([&a, &b], || a.count() == COUNT);
    assert_eq!(b.kept(), 0);
}

#[test]
fn a_receiver_that_keeps_much_has_messages_announced_until_it_keeps_little() {
    const LEN: usize = 1000;
    let (a, b) = (
        side(),
        side_with(Params {
            max_unexpected: 64 << 10,
            ..Params::default()
        }),
    );
    a.knows(b.addr);
    let mut out = [7u8; LEN];
    for tag in 0..1000 {
        send(&a, &mut out, tag);
        a.drive();
        b.drive();
    }
    assert_eq!(b.throttled(), 1);
    let mut places = vec![[0u8; LEN]; 1000];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
    }
    until([&a, &b], || a.count() == 1000 && b.count() == 1000);
    assert!(places.iter().all(|place| place == &out));
    assert_eq!((b.throttled(), b.kept()), (0, 0));
}

#[test]
fn a_sender_that_makes_no_other_calls_receives_the_request_to_announce() {
    const LEN: usize = 64 << 10;
    const COUNT: u64 = 700;
    let (a, b) = (
        side(),
        side_with(Params {
            max_unexpected: 1 << 20,
            ..Params::default()
        }),
    );
    a.knows(b.addr);
    let (mut out, mut place) = (vec![7; LEN], vec![0; LEN]);
    receive(&b, &mut place, 0);
    send(&a, &mut out, 0);
    until([&a, &b], || a.count() == 1 && b.count() == 1);
    for tag in 1..=COUNT {
        send(&a, &mut out, tag);
        b.drive();
    }
    // More than could be buffered; the last one is received first nevertheless.
    receive(&b, &mut place, COUNT);
    until([&a, &b], || b.count() == 2);
    for tag in 1..COUNT {
        receive(&b, &mut place, tag);
    }
    until([&a, &b], || a.count() == COUNT as usize + 1);
}

#[test]
fn a_send_does_not_wake_an_application_that_reads_its_queues() {
    const LEN: usize = 64 << 10;
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut word, mut place) = (vec![7; LEN], vec![1; 8], vec![0; LEN]);
    receive(&b, &mut place, 0);
    send(&a, &mut out, 0);
    until([&a, &b], || a.count() == 1 && b.count() == 1);
    send(&b, &mut word, 0);
    until([&a, &b], || a.kept() != 0);
    for tag in 1..=64 {
        a.drive();
        send(&b, &mut word, tag);
        b.drive();
        let before = a.kept();
        send(&a, &mut out, tag);
        assert_eq!(a.kept(), before, "at message {tag}");
    }
    for tag in 1..=64 {
        let before = b.count();
        receive(&b, &mut place, tag);
        until([&a, &b], || b.count() > before);
    }
}

#[test]
fn a_message_after_one_that_is_too_large_to_buffer_is_received_first() {
    for sizes in [[8 << 20, 100], [1 << 20, 3000], [4000, 0], [3000, 6 << 20]] {
        let (a, b) = (
            side(),
            side_with(Params {
                max_unexpected: 2000,
                ..Params::default()
            }),
        );
        a.knows(b.addr);
        let mut out = sizes.map(|len| vec![5u8; len]);
        let mut places = sizes.map(|len| vec![0u8; len]);
        for (tag, bytes) in out.iter_mut().enumerate() {
            send(&a, bytes, tag as u64);
        }
        for _ in 0..100 {
            a.drive();
            b.drive();
        }
        for (tag, place) in places.iter_mut().enumerate().rev() {
            let before = b.count();
            receive(&b, place, tag as u64);
            until([&a, &b], || b.count() > before);
        }
        assert!(places == out, "{sizes:?}");
        until([&a, &b], || a.count() == 2);
        assert_eq!(b.kept(), 0);
    }
}

#[test]
fn large_messages_name_a_source_that_the_address_vector_has_learnt() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut out = vec![5; 3 << 20];
    let mut place = vec![0; 3 << 20];
    for (tag, src) in [(1, u64::MAX), (2, 0)] {
        receive(&b, &mut place, tag);
        send(&a, &mut out, tag);
        until([&a, &b], || a.count() == 1 && b.count() == 1);
        a.done.borrow_mut().clear();
        assert_eq!(b.done.borrow_mut().pop().unwrap().src, src);
        if src != 0 {
            b.knows(a.addr);
        }
    }
}

#[test]
fn messages_sent_without_a_copy_complete_when_the_kernel_lets_go() {
    let (a, b) = (
        side_with(Params {
            zerocopy_size: 32 << 10,
            ..Params::default()
        }),
        side(),
    );
    a.knows(b.addr);
    for len in [8, 32 << 10, 1 << 20, 8, 5 << 20] {
        let mut out: Vec<u8> = (0..len).map(|i| (i * 13 / 7) as u8).collect();
        let mut place = vec![0; len];
        receive(&b, &mut place, 1);
        send(&a, &mut out, 1);
        until([&a, &b], || a.count() == 1 && b.count() == 1);
        assert!(out == place, "{len} bytes");
        a.done.borrow_mut().clear();
        b.done.borrow_mut().clear();
    }
    assert!(a.engine.core().conns.values().all(|conn| conn.lent.enabled));
}

#[test]
fn an_idle_connection_costs_little_memory() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut places = vec![[0u8; 100]; 500];
    let mut out = [1; 100];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
        send(&a, &mut out, tag as u64);
    }
    until([&a, &b], || a.count() == 500 && b.count() == 500);
    let core = a.engine.core();
    let own: usize = core.conns.values().map(|conn| conn.outbox.memory()).sum();
    let fixed = size_of::<super::link::connection::Connection>();
    assert!(own + fixed < 8 << 10, "{own} and {fixed} bytes");
}
