//! Endpoints in lanes of their own, tested without the C interface.

mod conformance;
mod contexts;
mod faults;
mod hostile;
mod onesided;
mod order;
mod parts;
mod peek;
mod remote;
mod ringed;
mod unreported;
mod withheld;

use std::ffi::c_int;
use std::ptr::{null_mut, without_provenance_mut};
use std::time::Duration;

use crate::listener::Listener;
use fabric_abi::*;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::sync::LockKind;
use prov_local::onesided::table::RegionTable;
use prov_local::parts::PART;
use prov_message::lane::Errand as _;
use prov_message::objects::Provider as _;
use prov_message::{Attributes, Core as _};
use prov_util::av::{self, Av, Insertion};
use prov_util::cq::{Completion, Cq, CqConfig};
use prov_util::desc::Descs;
use prov_util::ffi::{Class, Handle, Use};
use prov_util::mr::publish::Publisher;
use prov_util::mr::{self, Job, Memory, Region};
use prov_util::request::*;

use super::endpoint::Rdm;
use super::*;
use crate::address;
use crate::domain::Local;
use prov_local::switch_points::{EAGER, WIDE};

prov_base::stand_in!();

/// Time that an operation may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Number of upper bits of an address that select a context.
const RX_CTX_BITS: u32 = 4;

struct Side {
    core: Core,
    ep: EpKey,
    name: String,
    av: Use<Av>,
    cq: Use<Cq>,
    table: Arc<MrTable>,
}

fn open<T: Class>(object: T) -> Use<T> {
    Use::of(&Handle::new(object, null_mut(), Vec::new()))
}

/// Returns a name that no other test has.
fn fresh_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("test:{}:{number}", std::process::id())
}

impl Side {
    fn new(params: Params) -> Side {
        Side::named(fresh_name(), params)
    }

    fn named(name: String, params: Params) -> Side {
        let regions = (!params.disable_cma).then(|| RegionTable::new("test").unwrap());
        let publisher = regions.clone().map(|regions| regions as Arc<dyn Publisher>);
        let table = Arc::new(MrTable::new(&mr::Config {
            publisher,
            ..mr::Config::default()
        }));
        let format = Local::address_format(FI_ADDR_STR).unwrap();
        let config = av::Config {
            format,
            rx_ctx_bits: RX_CTX_BITS,
            ..av::Config::default()
        };
        let av = open(Av::open(&config).unwrap());
        let cq = open(Cq::new(CqConfig::default()).unwrap());
        let attributes = Attributes {
            tx_size: 1 << 16,
            most_receives: 1 << 16,
            directed: true,
            job: Job::NONE,
        };
        let mut core = Core::new(Arc::new(params), &table, regions, Arc::default()).unwrap();
        let rdm = Rdm::new(av.clone(), name.clone(), &core.params);
        let ep = core.endpoints.add(attributes, Box::new(rdm));
        let endpoint = core.endpoints.get_mut(ep).unwrap();
        endpoint.meets_strangers = true;
        let reports = &mut endpoint.reports;
        reports.tx_cq = Some(cq.clone());
        reports.rx_cq = Some(cq.clone());
        core.open_listener(ep, Listener::new(SERVICE, &name).unwrap())
            .unwrap();
        Side {
            core,
            ep,
            name,
            av,
            cq,
            table,
        }
    }

    fn insert(&self, name: &str) -> u64 {
        let address = address::of_name(name);
        let mut number = Err(Errno::EINVAL);
        let inserted = self
            .av
            .insert([Insertion::from(&address[..])], |_, outcome| {
                number = outcome
            });
        assert_eq!(inserted, Ok(1));
        number.unwrap()
    }

    /// Makes the owners of memory carry out this side's reads and writes.
    fn asks(&mut self) {
        let links = self.core.links.values_mut();
        links.for_each(|link| link.window = None);
    }

    /// Makes progress, as the application's reads of queues do.
    fn drive(&mut self) {
        self.core.progress();
        while let Some(mut errand) = self.core.next_errand() {
            errand.run();
            self.core.errand_done(errand);
        }
    }

    fn completions(&self) -> Vec<usize> {
        let mut list = Vec::new();
        let _ = self
            .cq
            .read(1000, |one: &Completion| list.push(one.context.addr()));
        list
    }

    fn error(&self) -> Option<Errno> {
        match self.cq.read(1, |_| {}) {
            Err(Errno::EAVAIL) => Some(self.cq.read_error().unwrap().err),
            _ => None,
        }
    }

    fn register(&self, key: u64, bytes: &mut [u8]) -> Arc<Region> {
        self.register_memory(key, &memory(bytes))
    }

    fn register_memory(&self, key: u64, bytes: &AppIov) -> Arc<Region> {
        // SAFETY: the tests keep the bytes as long as the table that refers to them.
        let memory = unsafe { Memory::new(bytes.pieces()) }.unwrap();
        let request = mr::Request::new(memory, FI_REMOTE_READ | FI_REMOTE_WRITE, key);
        self.table.register(request).unwrap()
    }
}

/// Makes progress on all sides until a condition holds.
fn until(sides: &mut [&mut Side], mut holds: impl FnMut(&mut [&mut Side]) -> bool) {
    let deadline = std::time::Instant::now() + LONG;
    while !holds(sides) {
        assert!(std::time::Instant::now() < deadline, "it never comes about");
        sides.iter_mut().for_each(|side| side.drive());
        std::thread::yield_now();
    }
}

/// Returns the next `count` completions of a side.
fn completed(sides: &mut [&mut Side], of: usize, count: usize) -> Vec<usize> {
    let mut all = Vec::new();
    until(sides, |sides| {
        all.extend(sides[of].completions());
        all.len() >= count
    });
    assert_eq!(all.len(), count);
    all
}

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes, and access them otherwise only when the operation is
    // complete.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn message(to: u64, tag: u64, bytes: &mut [u8], flags: u64) -> Transmit {
    Transmit {
        tag: Tag::Value(tag),
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: to,
        data: tag,
        flags: FI_COMPLETION | flags,
        context: without_provenance_mut(tag as usize),
    }
}

fn buffer(tag: u64, bytes: &mut [u8], context: usize) -> Receive {
    Receive {
        select: Select::Tagged { tag, ignore: 0 },
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: FI_COMPLETION,
        context: without_provenance_mut(context),
    }
}

fn access(access: Access, to: u64, key: u64, bytes: &mut [u8], context: usize) -> RemoteAccess {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0,
        len: bytes.len() as u64,
        key,
    });
    RemoteAccess {
        access,
        local: memory(bytes),
        remote,
        desc: Descs::NONE,
        peer: to,
        data: 0,
        flags: FI_COMPLETION,
        context: without_provenance_mut(context),
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed * 31 + at * 7) as u8).collect()
}

const LENGTHS: [usize; 11] = [
    0,
    8,
    96,
    97,
    4096,
    EAGER,
    EAGER + 1,
    WIDE,
    WIDE + 1,
    PART + 1000,
    300_000,
];

fn without_cma() -> Params {
    Params {
        disable_cma: true,
        ..Params::default()
    }
}

#[test]
fn a_peer_that_starts_late_is_found() {
    let mut a = Side::new(Params::default());
    let late = fresh_name();
    let to = a.insert(&late);
    let mut out = pattern(1, 20_000);
    for tag in 0..3 {
        a.core
            .transmit(a.ep, &mut message(to, tag, &mut out, 0))
            .unwrap();
    }
    for _ in 0..100 {
        a.drive();
    }
    assert_eq!(a.error(), None);
    let mut b = Side::named(late, Params::default());
    let mut into = vec![vec![0; 20_000]; 3];
    for (tag, into) in into.iter_mut().enumerate() {
        b.core
            .receive(b.ep, &mut buffer(tag as u64, into, tag))
            .unwrap();
    }
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 3), [0, 1, 2]);
    assert!(into.iter().all(|into| *into == out));
}

#[test]
fn a_peer_that_never_starts_is_an_error() {
    let mut a = Side::new(Params {
        connect_timeout: 50,
        ..Params::default()
    });
    let to = a.insert(&fresh_name());
    let mut out = [0; 8];
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    let mut error = None;
    until(&mut [&mut a], |sides| {
        error = sides[0].error();
        error.is_some()
    });
    assert_eq!(error, Some(Errno::ECONNREFUSED));
}

#[test]
fn two_peers_that_request_links_simultaneously_have_one_link() {
    for _ in 0..20 {
        let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
        let (to_b, to_a) = (a.insert(&b.name), b.insert(&a.name));
        let (mut out, mut at_a, mut at_b) = (*b"together", [0; 8], [0; 8]);
        a.core.receive(a.ep, &mut buffer(1, &mut at_a, 10)).unwrap();
        b.core.receive(b.ep, &mut buffer(1, &mut at_b, 20)).unwrap();
        a.core
            .transmit(a.ep, &mut message(to_b, 1, &mut out, 0))
            .unwrap();
        b.core
            .transmit(b.ep, &mut message(to_a, 1, &mut out, 0))
            .unwrap();
        let at = completed(&mut [&mut a, &mut b], 0, 2);
        assert!(at.contains(&1) && at.contains(&10));
        let at = completed(&mut [&mut a, &mut b], 1, 2);
        assert!(at.contains(&1) && at.contains(&20));
        assert_eq!((at_a, at_b), (out, out));
        until(&mut [&mut a, &mut b], |sides| {
            sides.iter().all(|side| side.core.links.len() == 1)
        });
    }
}

/// One side sends and ends; it has not received this number of packets that wake it.
fn last_words(calls: usize) {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    let mut out = pattern(5, 500);
    a.core
        .transmit(a.ep, &mut message(to, 0, &mut out, 0))
        .unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [0]);
    for tag in 1..100 {
        a.core
            .transmit(a.ep, &mut message(to, tag, &mut out, 0))
            .unwrap();
    }
    for _ in 0..calls {
        b.core.links.values().for_each(|link| link.wake_peer());
    }
    drop(a);
    let keys: Vec<_> = b.core.links.keys().collect();
    keys.into_iter().for_each(|key| b.core.read_wire(key));
    let mut into = vec![vec![0; 500]; 100];
    for (tag, into) in into.iter_mut().enumerate() {
        b.core
            .receive(b.ep, &mut buffer(tag as u64, into, tag))
            .unwrap();
    }
    assert_eq!(completed(&mut [&mut b], 0, 100).len(), 100);
    assert!(into.iter().all(|into| *into == out));
    until(&mut [&mut b], |sides| sides[0].core.links.is_empty());
}

#[test]
fn what_was_sent_before_the_end_is_received() {
    last_words(0);
}

#[test]
fn messages_sent_before_the_end_are_received_even_if_the_sender_was_woken() {
    last_words(3);
}

/// Whether a thread that sleeps at a side's poller would wake.
fn is_readable(side: &Side) -> bool {
    let fd = side.core.poller().unwrap();
    let mut polled = libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(&fd),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `polled` is one valid pollfd, and the timeout of 0 makes the call return at once.
    unsafe { libc::poll(&mut polled, 1, 0) == 1 }
}

#[test]
fn a_helper_is_not_woken_for_messages_that_the_application_receives() {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    let (mut out, mut into) = ([1; 8], [0; 8]);
    let mut exchange = |a: &mut Side, b: &mut Side, tag: u64| {
        let mut sent = message(to, tag, &mut out, 0);
        a.core.transmit(a.ep, &mut sent).unwrap();
        let mut posted = buffer(tag, &mut into, tag as usize);
        b.core.receive(b.ep, &mut posted).unwrap();
        let woken = is_readable(b);
        assert_eq!(completed(&mut [a, b], 1, 1), [tag as usize]);
        woken
    };
    exchange(&mut a, &mut b, 0);
    until(&mut [&mut b], |sides| {
        sides[0].core.prepare_wait(Sleeper::Helper)
    });
    assert!(exchange(&mut a, &mut b, 1));
    until(&mut [&mut b], |sides| !is_readable(sides[0]));
    assert!(!exchange(&mut a, &mut b, 2));
    // It watches again when the application does not make progress.
    until(&mut [&mut b], |sides| {
        sides[0].core.prepare_wait(Sleeper::Helper)
    });
    assert!(exchange(&mut a, &mut b, 3));
}

#[test]
fn a_sleeping_thread_is_woken_and_a_running_one_costs_no_packet() {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    let mut out = [1; 8];
    let mut send = |a: &mut Side, tag| {
        a.core
            .transmit(a.ep, &mut message(to, tag, &mut out, 0))
            .unwrap();
    };
    send(&mut a, 0);
    assert_eq!(completed(&mut [&mut a, &mut b], 0, 1), [0]);
    let mut into = [0; 8];
    let mut receive = |b: &mut Side, tag| {
        b.core
            .receive(b.ep, &mut buffer(tag, &mut into, tag as usize))
            .unwrap();
        completed(&mut [b], 0, 1)
    };
    receive(&mut b, 0);
    for tag in 1..4 {
        until(&mut [&mut b], |sides| {
            sides[0].core.prepare_wait(Sleeper::Thread)
        });
        assert!(!is_readable(&b));
        send(&mut a, tag);
        assert!(is_readable(&b), "nobody woke it for {tag}");
        assert!(!b.core.prepare_wait(Sleeper::Thread));
        assert_eq!(receive(&mut b, tag), [tag as usize]);
    }
}

#[test]
fn messages_of_all_peers_are_received_whoever_sends_most() {
    const MANY: usize = 40;
    let mut one = Side::new(Params::default());
    let mut many: Vec<Side> = (0..MANY).map(|_| Side::new(Params::default())).collect();
    let mut out = [5; 8];
    let mut into = [0; 8];
    let mut heard = [0; MANY];
    for round in 0..30 {
        for (number, side) in many.iter_mut().enumerate() {
            let to = side.insert(&one.name);
            // The first few sides send more messages than the others.
            let times = if number < 10 { 5 } else { 1 };
            for _ in 0..times {
                let mut posted = buffer(number as u64, &mut into, number);
                one.core.receive(one.ep, &mut posted).unwrap();
                let mut sent = message(to, number as u64, &mut out, 0);
                side.core.transmit(side.ep, &mut sent).unwrap();
            }
        }
        let expected = 10 * 5 + (MANY - 10);
        let mut count = 0;
        let deadline = std::time::Instant::now() + LONG;
        while count < expected {
            assert!(
                std::time::Instant::now() < deadline,
                "{count} in round {round}"
            );
            one.drive();
            many.iter_mut().for_each(Side::drive);
            for from in one.completions() {
                heard[from] += 1;
                count += 1;
            }
        }
        many.iter().for_each(|side| _ = side.completions());
    }
    assert!(heard[..10].iter().all(|times| *times == 150));
    assert!(heard[10..].iter().all(|times| *times == 30));
}
