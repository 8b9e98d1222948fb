//! Endpoints in one lane, without the C interface.

mod conformance;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use fabric_abi::*;
use prov_base::buffer::AppIov;
use prov_message::{Attributes, Core, EpKey};
use prov_util::attr::Request;
use prov_util::av::{self, Av, Insertion};
use prov_util::cq::{Completion, Cq, CqConfig};
use prov_util::desc::Descs;
use prov_util::ffi::{Class, Use};
use prov_util::mr::{self, Job, Memory};
use prov_util::provider::Provider as _;
use prov_util::request::*;

use super::*;

// The framework's functions, since there is no framework here: no value has a name.

#[unsafe(no_mangle)]
extern "C" fn fi_tostr_r(_: *mut c_char, _: usize, _: *const c_void, _: fi_type) -> *mut c_char {
    null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn fi_strerror(_: c_int) -> *const c_char {
    c"an error".as_ptr()
}

struct Side {
    ep: EpKey,
    av: Use<Av>,
    cq: Use<Cq>,
    table: MrTable,
}

fn open<T: Class>(object: T) -> Use<T> {
    Use::of(&prov_util::ffi::Handle::new(object, null_mut(), Vec::new()))
}

impl Side {
    /// Creates an endpoint in the lane, with an empty address vector.
    fn new(network: &mut Network, directed: bool) -> Side {
        let table = MrTable::new(&mr::Config::default());
        let format = Joined::address_format(FI_ADDR_STR).unwrap();
        let av = av::Config {
            format,
            ..av::Config::default()
        };
        let av = open(Av::open(&av).unwrap());
        let cq = CqConfig::default();
        let cq = open(Cq::new(cq).unwrap());
        let attributes = Attributes {
            tx_size: 1 << 16,
            most_receives: 16,
            directed,
            job: Job::NONE,
        };
        let member = Member {
            names: Names::new(av.clone()),
            target: RmaTarget::new(&table),
        };
        let ep = network.endpoints().add(attributes, member);
        let reports = &mut network.endpoints().get_mut(ep).unwrap().reports;
        reports.tx_cq = Some(cq.clone());
        reports.rx_cq = Some(cq.clone());
        Side { ep, av, cq, table }
    }

    fn knows(&self, other: EpKey) -> u64 {
        let name = network::address(other);
        let mut number = Err(Errno::EINVAL);
        let insertion = Insertion::from(name.as_bytes());
        let inserted = self.av.insert([insertion], |_, outcome| number = outcome);
        assert_eq!(inserted, Ok(1));
        number.unwrap()
    }

    fn completions(&self) -> Vec<Completion> {
        let mut list = Vec::new();
        let _ = self.cq.read(100, |completion| list.push(*completion));
        list
    }

    fn contexts(&self) -> Vec<usize> {
        let list = self.completions();
        list.iter().map(|one| one.context.addr()).collect()
    }

    fn error(&self) -> Errno {
        let nothing = |_: &Completion| panic!("a completion without an error");
        assert_eq!(self.cq.read(1, nothing), Err(Errno::EAVAIL));
        self.cq.read_error().unwrap().err
    }

    fn register(&self, key: u64, bytes: &mut [u8], access: u64) {
        // SAFETY: the tests keep the bytes as long as the table that refers to them.
        let memory = unsafe { Memory::new(memory(bytes).pieces()) }.unwrap();
        let request = mr::Request::new(memory, access, key);
        self.table.register(request).unwrap();
    }
}

/// Creates two endpoints; the first refers to the second by 0.
fn pair(directed: bool) -> (Network, Side, Side) {
    let mut network = Network::default();
    let a = Side::new(&mut network, directed);
    let b = Side::new(&mut network, directed);
    assert_eq!(a.knows(b.ep), 0);
    (network, a, b)
}

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes, and access them otherwise only when the operation is
    // complete.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn message(bytes: &mut [u8], context: usize, flags: u64) -> Transmit {
    Transmit {
        tag: Tag::Value(7),
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION | flags,
        context: without_provenance_mut(context),
    }
}

fn buffer(bytes: &mut [u8], context: usize, peer: u64) -> Receive {
    Receive {
        select: Select::Tagged { tag: 7, ignore: 0 },
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer,
        flags: FI_COMPLETION,
        context: without_provenance_mut(context),
    }
}

fn write(bytes: &mut [u8], key: u64) -> RemoteAccess {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0,
        len: bytes.len() as u64,
        key,
    });
    RemoteAccess {
        access: Access::Write,
        local: memory(bytes),
        remote,
        desc: Descs::NONE,
        peer: 0,
        data: 9,
        flags: FI_COMPLETION | FI_REMOTE_CQ_DATA,
        context: without_provenance_mut(5),
    }
}

#[test]
fn it_offers_reliable_datagrams_at_addresses_that_it_gives_out() {
    let ask = |node| {
        Loopback::default().getinfo(&Request {
            version: version(2, 0),
            node,
            ..Request::default()
        })
    };
    let infos = ask(None).unwrap();
    let kinds = infos
        .iter()
        .map(|info| (info.ep.ep_type, info.ep.rx_ctx_cnt));
    let expected = [(FI_EP_RDM, 1), (FI_EP_RDM, FI_SHARED_CONTEXT)];
    assert!(kinds.eq(expected));
    let infos = ask(Some(c"fi_loopback://17")).unwrap();
    assert_eq!(infos[0].dest_addr, b"fi_loopback://17\0");
    for node in [
        c"fi_loopback://",
        c"fi_loopback://me",
        c"fi_shm://17",
        c"localhost",
    ] {
        assert_eq!(ask(Some(node)).err(), Some(Errno::ENODATA), "{node:?}");
    }
}

#[test]
fn a_short_message_is_kept_and_a_long_one_stays_with_its_sender() {
    let (mut network, a, b) = pair(false);
    let (mut short, mut long) = (vec![1; 100], vec![2; 1 << 20]);
    network
        .transmit(a.ep, &mut message(&mut short, 1, 0))
        .unwrap();
    network
        .transmit(a.ep, &mut message(&mut long, 2, 0))
        .unwrap();
    assert_eq!(a.contexts(), [1]);
    short.fill(0);
    let (mut first, mut second) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    network
        .receive(b.ep, &mut buffer(&mut first, 3, FI_ADDR_UNSPEC))
        .unwrap();
    network
        .receive(b.ep, &mut buffer(&mut second, 4, FI_ADDR_UNSPEC))
        .unwrap();
    assert_eq!((a.contexts(), b.contexts()), (vec![2], vec![3, 4]));
    assert_eq!((first[99], first[100]), (1, 0));
    assert_eq!(second, long);
}

#[test]
fn a_delivered_message_completes_when_it_is_received_injected_or_not() {
    let (mut network, a, b) = pair(false);
    let mut out = [1; 8];
    for flags in [0, FI_INJECT] {
        let flags = FI_DELIVERY_COMPLETE | flags;
        network
            .transmit(a.ep, &mut message(&mut out, 1, flags))
            .unwrap();
        assert!(a.contexts().is_empty());
        let mut into = [0; 8];
        network
            .receive(b.ep, &mut buffer(&mut into, 2, FI_ADDR_UNSPEC))
            .unwrap();
        assert_eq!((a.contexts(), b.contexts()), (vec![1], vec![2]));
    }
}

#[test]
fn a_message_that_is_thrown_away_completes_at_its_sender() {
    let (mut network, a, b) = pair(false);
    let mut out = vec![1; 1 << 20];
    network
        .transmit(a.ep, &mut message(&mut out, 1, 0))
        .unwrap();
    let mut peek = buffer(&mut [], 2, FI_ADDR_UNSPEC);
    peek.flags |= FI_PEEK | FI_DISCARD;
    network.receive(b.ep, &mut peek).unwrap();
    assert_eq!((a.contexts(), b.contexts()), (vec![1], vec![2]));
    network.receive(b.ep, &mut peek).unwrap();
    assert_eq!(b.error(), Errno::ENOMSG);
}

#[test]
fn injected_messages_wait_with_the_application_once_much_is_kept() {
    let (mut network, a, b) = pair(false);
    let mut out = vec![1; SIZES.inject];
    let mut injected = message(&mut out, 1, FI_INJECT);
    injected.flags &= !FI_COMPLETION;
    let mut kept = 0;
    while network.transmit(a.ep, &mut injected) == Ok(()) {
        kept += 1;
    }
    assert!(kept > 1000);
    assert_eq!(network.transmit(a.ep, &mut injected), Err(Errno::EAGAIN));
    let mut into = vec![0; SIZES.inject];
    network
        .receive(b.ep, &mut buffer(&mut into, 2, FI_ADDR_UNSPEC))
        .unwrap();
    assert_eq!(network.transmit(a.ep, &mut injected), Ok(()));
    let mut longer = vec![1; SIZES.inject + 1];
    let mut longer = message(&mut longer, 1, FI_INJECT);
    assert_eq!(network.transmit(a.ep, &mut longer), Err(Errno::EINVAL));
}

#[test]
fn operations_that_wait_for_an_endpoint_fail_when_it_closes_and_so_do_later_ones() {
    let (mut network, a, b) = pair(false);
    let mut out = vec![1; 1 << 20];
    network
        .transmit(a.ep, &mut message(&mut out, 1, 0))
        .unwrap();
    network.close(b.ep);
    assert_eq!(a.error(), Errno::ECONNRESET);
    network
        .transmit(a.ep, &mut message(&mut out, 2, 0))
        .unwrap();
    assert_eq!(a.error(), Errno::EHOSTUNREACH);
    network.access(a.ep, &mut write(&mut out, 1)).unwrap();
    assert_eq!(a.error(), Errno::EHOSTUNREACH);
    let mut strange = message(&mut out, 3, 0);
    strange.peer = 1;
    assert_eq!(network.transmit(a.ep, &mut strange), Err(Errno::EINVAL));
}

#[test]
fn unsent_messages_of_an_endpoint_are_dropped_when_it_closes() {
    let (mut network, a, b) = pair(false);
    let mut out = vec![1; 1 << 20];
    network
        .transmit(a.ep, &mut message(&mut out, 1, 0))
        .unwrap();
    network
        .transmit(a.ep, &mut message(&mut out[..8], 2, 0))
        .unwrap();
    network.close(a.ep);
    let mut into = vec![0; 1 << 20];
    network
        .receive(b.ep, &mut buffer(&mut into, 3, FI_ADDR_UNSPEC))
        .unwrap();
    let received = b.completions();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].len, into[0]), (8, 1));
}

#[test]
fn a_directed_receive_finds_a_message_whose_sender_became_known_later() {
    let (mut network, a, b) = pair(true);
    let mut out = [1; 8];
    network
        .transmit(a.ep, &mut message(&mut out, 1, 0))
        .unwrap();
    let other = b.knows(b.ep);
    let from_a = b.knows(a.ep);
    let mut into = [0; 8];
    network
        .receive(b.ep, &mut buffer(&mut into, 2, other))
        .unwrap();
    network
        .receive(b.ep, &mut buffer(&mut into, 3, from_a))
        .unwrap();
    let received = b.completions();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].context.addr(), received[0].src), (3, from_a));
}

#[test]
fn an_access_to_more_memory_than_it_has_locally_is_invalid() {
    let (mut network, a, b) = pair(false);
    let (mut out, mut region) = ([3; 16], [0; 16]);
    b.register(1, &mut region, FI_REMOTE_WRITE);
    let mut uneven = write(&mut out, 1);
    uneven.local = memory(&mut out[..8]);
    assert_eq!(network.access(a.ep, &mut uneven), Err(Errno::EINVAL));
}
