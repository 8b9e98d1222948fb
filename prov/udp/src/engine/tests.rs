//! Endpoints with sockets of the loopback interface, without the C interface. Nobody helps
//! their lanes, so that the second message after a call is held back.

use std::os::fd::AsFd;
use std::ptr::{null_mut, without_provenance_mut};
use std::time::{Duration, Instant};

use fabric_abi::*;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_base::sockaddr;
use prov_message::{Attributes, Core as _};
use prov_util::av::{self, Av};
use prov_util::cntr::{Cntr, CntrEvents};
use prov_util::cq::{Completion, Cq, CqConfig, ErrorCompletion};
use prov_util::desc::Descs;
use prov_util::ffi::{Class, Use};
use prov_util::mr::Job;
use prov_util::request::{Receive, Select, Tag, Transmit};
use prov_util::wait::Attachment;

use super::port::Senders;
use super::*;

fn open<T: Class>(object: T) -> Use<T> {
    Use::of(&prov_util::ffi::Handle::new(object, null_mut(), Vec::new()))
}

struct Side {
    core: Core,
    ep: EpKey,
    av: Use<Av>,
    cq: Use<Cq>,
    addr: std::net::SocketAddr,
}

impl Side {
    fn new(ip: &str, senders: Senders) -> Side {
        let mut core = Core::new(Arc::default()).unwrap();
        let av = open(Av::open(&av::Config::default()).unwrap());
        let cq = open(Cq::new(CqConfig::default()).unwrap());
        let (ep, addr) = add(&mut core, ip, &av, &cq, senders);
        Side {
            core,
            ep,
            av,
            cq,
            addr,
        }
    }

    fn knows(&self, other: &Side) -> u64 {
        let mut number = Err(Errno::EINVAL);
        let inserted = self
            .av
            .insert([other.addr.into()], |_, outcome| number = outcome);
        assert_eq!(inserted, Ok(1));
        number.unwrap()
    }

    fn send(&mut self, bytes: &mut [u8], peer: u64, context: usize) -> Result {
        self.core
            .transmit(self.ep, &mut message(bytes, peer, context))
    }

    fn receive(&mut self, room: &mut [u8], context: usize, flags: u64) {
        let mut receive = Receive {
            select: Select::Untagged,
            buffers: memory(room),
            desc: Descs::NONE,
            peer: FI_ADDR_UNSPEC,
            flags: FI_COMPLETION | flags,
            context: without_provenance_mut(context),
        };
        if !self.core.receive_fast(self.ep, &mut receive) {
            self.core.receive(self.ep, &mut receive).unwrap();
        }
    }

    /// As a read of a queue does.
    fn drive(&mut self) {
        self.core.signals.driven();
        self.core.progress();
    }

    fn completions(&self) -> Vec<Completion> {
        let mut list = Vec::new();
        let _ = self.cq.take(100, |completion| list.push(*completion));
        list
    }

    fn contexts(&self) -> Vec<usize> {
        let list = self.completions();
        list.iter().map(|one| one.context.addr()).collect()
    }

    /// Drives until `count` completions have come.
    fn wait(&mut self, count: usize) -> Vec<Completion> {
        let mut list = Vec::new();
        drive_until(&mut self.core, |_| {
            let _ = self.cq.take(100, |completion| list.push(*completion));
            list.len() >= count
        });
        list
    }

    fn wait_for_error(&mut self) -> ErrorCompletion {
        let mut error = None;
        drive_until(&mut self.core, |_| {
            error = self.cq.read_error().ok();
            error.is_some()
        });
        error.unwrap()
    }
}

fn add(
    core: &mut Core,
    ip: &str,
    av: &Use<Av>,
    cq: &Use<Cq>,
    senders: Senders,
) -> (EpKey, std::net::SocketAddr) {
    let attributes = Attributes {
        tx_size: 1024,
        most_receives: 1024,
        directed: false,
        job: Job::NONE,
    };
    let ep = core.endpoints().add(attributes, ());
    let reports = &mut core.endpoints().get_mut(ep).unwrap().reports;
    reports.tx_cq = Some(cq.clone());
    reports.rx_cq = Some(cq.clone());
    let at = std::net::SocketAddr::new(ip.parse().unwrap(), 0);
    let socket = socket::udp::bound(&at).unwrap();
    let addr = socket::name(socket.as_fd()).unwrap();
    let port = Port::new(Arc::new(socket), av.clone(), senders);
    core.add_port(ep, port).unwrap();
    (ep, addr)
}

fn drive_until(core: &mut Core, mut is_done: impl FnMut(&mut Core) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done(core) {
        assert!(Instant::now() < deadline, "nothing comes");
        core.progress();
    }
}

/// Two endpoints that know each other as 0.
fn pair(ip: &str) -> (Side, Side) {
    let (a, b) = (Side::new(ip, Senders::Known), Side::new(ip, Senders::Known));
    assert_eq!((a.knows(&b), b.knows(&a)), (0, 0));
    (a, b)
}

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the tests keep the bytes until the operation is done.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

fn message(bytes: &mut [u8], peer: u64, context: usize) -> Transmit {
    Transmit {
        tag: Tag::None,
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer,
        data: 0,
        flags: FI_COMPLETION,
        context: without_provenance_mut(context),
    }
}

#[test]
fn a_message_comes_with_its_length_and_its_source() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut a, mut b) = pair(ip);
        let mut room = [0; 16];
        b.receive(&mut room, 5, 0);
        a.send(&mut b"datagram".to_vec(), 0, 7).unwrap();
        assert_eq!(a.contexts(), [7], "it has left");
        let came = b.wait(1);
        assert_eq!(
            (came[0].context.addr(), came[0].len, came[0].src),
            (5, 8, 0)
        );
        assert_eq!(came[0].flags, FI_RECV | FI_MSG);
        assert_eq!(&room[..9], b"datagram\0");
    }
}

#[test]
fn the_source_of_a_message_is_looked_up_when_it_is_received() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut rooms = [[0; 8]; 3];
    let [first, second, third] = &mut rooms;
    b.receive(first, 1, 0);
    a.send(&mut [1], 0, 1).unwrap();
    assert_eq!(b.wait(1)[0].src, 0);
    b.av.remove(&[0]).unwrap();
    b.receive(second, 2, 0);
    a.drive();
    a.send(&mut [2], 0, 2).unwrap();
    assert_eq!(b.wait(1)[0].src, FI_ADDR_NOTAVAIL);
    assert_eq!(b.knows(&a), 0);
    b.receive(third, 3, 0);
    a.drive();
    a.send(&mut [3], 0, 3).unwrap();
    assert_eq!(b.wait(1)[0].src, 0);
}

#[test]
fn an_unknown_sender_is_an_error_with_its_address_where_that_is_asked_for() {
    let mut a = Side::new("127.0.0.1", Senders::None);
    let mut b = Side::new("127.0.0.1", Senders::All);
    assert_eq!(a.knows(&b), 0);
    let mut room = [0; 8];
    b.receive(&mut room, 1, 0);
    a.send(&mut [9; 3], 0, 1).unwrap();
    let error = b.wait_for_error();
    assert_eq!(error.err, Errno::EADDRNOTAVAIL);
    assert_eq!(&error.err_data[..], sockaddr::encode(&a.addr).as_bytes());
    assert_eq!(
        (error.completion.context.addr(), error.completion.len),
        (1, 3)
    );
    assert_eq!(room[..4], [9, 9, 9, 0], "the message was received");
    // What it says is an address to insert.
    let named = sockaddr::decode(&error.err_data).unwrap();
    b.av.insert([named.into()], |_, outcome| assert_eq!(outcome, Ok(0)))
        .unwrap();
    b.receive(&mut room, 2, 0);
    a.drive();
    a.send(&mut [8], 0, 2).unwrap();
    assert_eq!(b.wait(1)[0].src, 0);
}

#[test]
fn a_message_that_is_too_long_for_its_receive_is_an_error_with_the_rest() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut room = [0; 4];
    b.receive(&mut room, 1, 0);
    a.send(&mut b"datagram".to_vec(), 0, 1).unwrap();
    let error = b.wait_for_error();
    assert_eq!((error.err, error.olen), (Errno::ETRUNC, 4));
    assert_eq!((error.completion.len, &room), (4, b"data"));
}

#[test]
fn a_message_that_cannot_be_sent_is_an_error_of_the_call() {
    let (mut a, b) = pair("127.0.0.1");
    let mut bytes = vec![0; 65_508];
    assert_eq!(a.send(&mut bytes, 0, 1), Err(Errno::EMSGSIZE));
    assert_eq!(a.send(&mut bytes[..1], 1, 1), Err(Errno::EINVAL));
    let mut with_data = message(&mut bytes[..1], 0, 1);
    with_data.flags |= FI_REMOTE_CQ_DATA;
    assert_eq!(a.core.transmit(a.ep, &mut with_data), Err(Errno::ENOSYS));
    assert!(a.contexts().is_empty());
    // More than is promised is sent all the same.
    assert_eq!(a.send(&mut bytes[..65_507], 0, 2), Ok(()));
    drop(b);
}

#[test]
fn messages_after_the_first_one_are_sent_in_batches_and_in_order() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut rooms = vec![[0; 1500]; 100];
    for (number, room) in rooms.iter_mut().enumerate() {
        b.receive(room, number, 0);
    }
    let len = |number| {
        if number % 10 == 3 {
            1400
        } else {
            8 + number / 50
        }
    };
    for number in 0..100 {
        a.send(&mut vec![number as u8; len(number)], 0, number)
            .unwrap();
    }
    // The first one at once; so many of the others as make a piece.
    let left = a.contexts();
    assert!(
        left.len() > 1 && left.len() < 100 && left.is_sorted(),
        "{left:?}"
    );
    a.drive();
    assert_eq!(left.len() + a.contexts().len(), 100);
    let came = b.wait(100);
    for (number, came) in came.iter().enumerate() {
        assert_eq!((came.context.addr(), came.len), (number, len(number)));
        assert_eq!(rooms[number][0], number as u8);
    }
}

#[test]
fn a_long_message_is_sent_after_the_batched_messages_before_it() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut rooms = vec![[0; 10_000]; 3];
    for (number, room) in rooms.iter_mut().enumerate() {
        b.receive(room, number, 0);
    }
    a.send(&mut [0], 0, 0).unwrap();
    a.send(&mut [1], 0, 1).unwrap();
    assert_eq!(a.contexts(), [0]);
    a.send(&mut vec![2; 10_000], 0, 2).unwrap();
    assert_eq!(a.contexts(), [1, 2]);
    b.wait(3);
    assert_eq!([0, 1, 2].map(|number| rooms[number][0]), [0, 1, 2]);
}

#[test]
fn messages_sent_by_the_helper_thread_complete_in_the_applications_next_call() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut rooms = [[0; 8]; 2];
    for (number, room) in rooms.iter_mut().enumerate() {
        b.receive(room, number, 0);
    }
    a.send(&mut [1], 0, 1).unwrap();
    a.send(&mut [2], 0, 2).unwrap();
    assert_eq!(a.contexts(), [1]);
    assert!(a.core.end_burst());
    assert!(a.contexts().is_empty());
    b.wait(2);
    a.drive();
    assert_eq!(a.contexts(), [2]);
    assert!(!a.core.end_burst());
}

#[test]
fn batched_messages_are_sent_before_a_thread_sleeps_and_before_the_endpoint_closes() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut rooms = [[0; 8]; 4];
    for (number, room) in rooms.iter_mut().enumerate() {
        b.receive(room, number, 0);
    }
    a.send(&mut [1], 0, 1).unwrap();
    a.send(&mut [2], 0, 2).unwrap();
    a.core.prepare_wait(Sleeper::Thread);
    assert_eq!(a.contexts(), [1, 2]);
    a.send(&mut [3], 0, 3).unwrap();
    a.send(&mut [4], 0, 4).unwrap();
    assert!(a.core.send_last(a.ep).is_none());
    a.core.close(a.ep);
    b.wait(4);
}

#[test]
fn batched_messages_of_an_endpoint_closed_without_flushing_are_dropped() {
    let (mut a, _b) = pair("127.0.0.1");
    a.send(&mut [1], 0, 1).unwrap();
    a.send(&mut [2], 0, 2).unwrap();
    // A ticket that is lost is noticed.
    a.core.close(a.ep);
    assert_eq!(a.contexts(), [1]);
}

#[test]
fn datagrams_wait_in_the_socket_for_a_receive() {
    let (mut a, mut b) = pair("127.0.0.1");
    a.send(&mut [1], 0, 1).unwrap();
    for _ in 0..10 {
        assert_eq!(b.core.progress(), Idling::No);
    }
    assert!(b.core.port(b.ep).unwrap().arrivals.is_empty());
    let mut room = [0; 8];
    b.receive(&mut room, 1, 0);
    b.wait(1);
    assert_eq!(room[0], 1);
}

#[test]
fn a_receive_takes_what_came_before_it_while_a_thread_sleeps() {
    let (mut a, mut b) = pair("127.0.0.1");
    a.send(&mut [1], 0, 1).unwrap();
    // The event is taken, and then nothing more is told.
    let deadline = Instant::now() + Duration::from_secs(60);
    while b.core.prepare_wait(Sleeper::Thread) {
        assert!(Instant::now() < deadline);
    }
    assert!(b.core.prepare_wait(Sleeper::Thread));
    let mut room = [0; 8];
    b.receive(&mut room, 1, 0);
    assert_eq!(b.contexts(), [1]);
}

#[test]
fn a_multi_receive_buffer_is_released_when_less_than_the_minimum_is_free() {
    let (mut a, mut b) = pair("127.0.0.1");
    let mut room = [0; LONGEST + 20];
    b.receive(&mut room, 1, FI_MULTI_RECV);
    for number in 0..3 {
        a.send(&mut [number + 1; 8], 0, 1).unwrap();
    }
    a.drive();
    let came = b.wait(3);
    let base = room.as_ptr().addr();
    let places: Vec<_> = came.iter().map(|one| one.buf.addr() - base).collect();
    assert_eq!(places, [0, 8, 16]);
    let released: Vec<_> = came
        .iter()
        .map(|one| one.flags & FI_MULTI_RECV != 0)
        .collect();
    assert_eq!(released, [false, false, true]);
    assert_eq!([room[0], room[8], room[16]], [1, 2, 3]);
}

#[test]
fn completed_sends_and_receives_increment_their_counters() {
    let (mut a, mut b) = pair("127.0.0.1");
    let counter = || open(Cntr::new(CntrEvents::Completions, Attachment::None, None));
    let (sent, received) = (counter(), counter());
    let state = a.core.endpoints().get_mut(a.ep).unwrap();
    state.reports.counters.send = Some(sent.clone());
    let state = b.core.endpoints().get_mut(b.ep).unwrap();
    state.reports.counters.recv = Some(received.clone());
    let mut rooms = [[0; 8]; 3];
    for room in &mut rooms {
        b.receive(room, 1, 0);
    }
    for _ in 0..3 {
        a.send(&mut [1], 0, 1).unwrap();
    }
    assert_eq!(sent.read(), 1);
    a.drive();
    assert_eq!(sent.read(), 3);
    b.wait(3);
    assert_eq!(received.read(), 3);
}

#[test]
fn a_receive_is_given_back_when_it_is_cancelled() {
    let (_, mut b) = pair("127.0.0.1");
    let mut room = [0; 8];
    b.receive(&mut room, 5, 0);
    let poster = b.core.endpoints().poster(b.ep).unwrap();
    let cancelled = b.core.endpoints().cancel(poster, prov_message::Context(5));
    assert_eq!(cancelled, Ok(()));
    assert_eq!(b.wait_for_error().err, Errno::ECANCELED);
}

#[test]
fn a_group_is_a_destination_as_long_as_it_is_joined() {
    let (mut a, _b) = pair("127.0.0.1");
    let port = a.core.port(a.ep).unwrap();
    let group = "224.0.0.250:7".parse().unwrap();
    assert_eq!(port.destination(1 << 48).err(), Some(Errno::EINVAL));
    port.joined(1 << 48, &group);
    assert_eq!(port.destination(1 << 48), Ok(sockaddr::encode(&group)));
    port.left(1 << 48);
    assert_eq!(port.destination(1 << 48).err(), Some(Errno::EINVAL));
}

#[test]
fn several_endpoints_of_a_lane_receive_from_their_own_sockets() {
    let mut a = Side::new("127.0.0.1", Senders::None);
    let mut b = Side::new("127.0.0.1", Senders::None);
    let (other, addr) = add(&mut b.core, "127.0.0.1", &b.av, &b.cq, Senders::None);
    a.knows(&b);
    a.av.insert([addr.into()], |_, outcome| assert_eq!(outcome, Ok(1)))
        .unwrap();
    let mut rooms = [[0; 8]; 2];
    let [first, second] = &mut rooms;
    b.receive(first, 1, 0);
    let own = std::mem::replace(&mut b.ep, other);
    b.receive(second, 2, 0);
    a.send(&mut [1], 0, 1).unwrap();
    a.send(&mut [2], 1, 1).unwrap();
    a.drive();
    let mut came: Vec<_> = b.wait(2).iter().map(|one| one.context.addr()).collect();
    came.sort_unstable();
    assert_eq!((came, rooms[0][0], rooms[1][0]), (vec![1, 2], 1, 2));
    b.core.close(own);
    b.receive(&mut rooms[1], 3, 0);
    a.drive();
    a.send(&mut [3], 1, 1).unwrap();
    b.wait(1);
    assert_eq!(rooms[1][0], 3);
}
