//! The behaviour towards a peer of the C library, and its own behaviour, with messages that have no
//! receive.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA};

use prov_message::{StrangersKept, StrangersLimits};

use super::*;
use crate::engine::link::detours::Detour;
use crate::wire::ByteOrder;
use crate::wire::handshake::{Features, Kind as MessageKind, Message};
use crate::wire::header::{self, Header, MAX_HEADER, Op, RmaList};
use crate::wire::rdm::Identity;

/// Length in bytes from which on messages are announced in these tests.
const LONG: usize = 20_000;

/// A C peer whose messages are sent by the test.
pub(super) struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Lets an endpoint connect that knows the address.
    fn accepts(listener: &TcpListener, version: u8) -> Self {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = [0; 40];
        stream.read_exact(&mut request).unwrap();
        let identity = Identity {
            version,
            version_checked: version != 0,
            behind_firewall: false,
            port: 0,
            pid: 1,
        };
        let answer = Message::new(
            MessageKind::Accept,
            Features::default(),
            0,
            &identity.encode(),
        );
        stream.write_all(&answer.encode()).unwrap();
        Peer { stream }
    }

    /// Connects to an endpoint, claiming to listen at `port`.
    fn connects(side: &Side, port: u16) -> Self {
        let mut stream = TcpStream::connect(side.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        let identity = Identity {
            version: 1,
            version_checked: false,
            behind_firewall: false,
            port,
            pid: 1,
        };
        let request = Message::new(
            MessageKind::Request,
            Features::default(),
            0,
            &identity.encode(),
        );
        stream.write_all(&request.encode()).unwrap();
        let mut peer = Peer { stream };
        let mut answer = [0; 40];
        peer.read(side, &mut answer);
        assert_eq!(Identity::decode(&answer[32..]).unwrap().answered(), 1);
        peer
    }

    /// Fills `bytes` from the stream, while driving the endpoint.
    fn read(&mut self, side: &Side, bytes: &mut [u8]) {
        self.stream.set_nonblocking(true).unwrap();
        let mut done = 0;
        until([side, side], || {
            if let Ok(n) = self.stream.read(&mut bytes[done..]) {
                done += n;
            }
            done == bytes.len()
        });
        self.stream.set_nonblocking(false).unwrap();
    }

    /// Returns the stream, to send bytes that are not a header.
    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Returns the next header.
    pub(super) fn header(&mut self, side: &Side) -> Header {
        let mut bytes = vec![0; header::BASE];
        self.read(side, &mut bytes);
        let (base, len) = (bytes.len(), usize::from(bytes[6]));
        bytes.resize(len, 0);
        self.read(side, &mut bytes[base..]);
        let mut rma = RmaList::default();
        let features = Features::default();
        let decoded = Header::decode(&bytes, ByteOrder::Native, features, &mut rma);
        decoded.unwrap().0
    }

    /// Returns the payload after a header.
    pub(super) fn payload(&mut self, side: &Side, header: &Header) -> Vec<u8> {
        let mut bytes = vec![0; header.payload];
        self.read(side, &mut bytes);
        bytes
    }

    pub(super) fn say(&mut self, header: Header, payload: &[u8]) {
        let header = Header {
            payload: payload.len(),
            ..header
        };
        let mut bytes = [0; MAX_HEADER];
        let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
        self.stream.write_all(&bytes[..len]).unwrap();
        self.stream.write_all(payload).unwrap();
    }

    pub(super) fn asks_for(&mut self, name: u8) {
        let header = Header {
            op_data: name,
            ..Header::new(Op::Cts)
        };
        self.say(header, &[]);
    }
}

fn lowered() -> Params {
    Params {
        max_saved_size: LONG,
        ..Params::default()
    }
}

/// Creates a side that knows a listener, and a peer there that supports this version.
pub(super) fn side_and_peer(version: u8) -> (Side, Peer) {
    let a = side_with(lowered());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    a.knows(listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || Peer::accepts(&listener, version));
    let mut hello = [7; 8];
    send(&a, &mut hello, 0);
    until([&a, &a], || a.count() == 1);
    let mut peer = peer.join().unwrap();
    let first = peer.header(&a);
    peer.payload(&a, &first);
    a.done.borrow_mut().clear();
    (a, peer)
}

fn transmit(side: &Side, bytes: &mut [u8], tag: Tag, flags: u64) -> prov_base::errno::Result {
    let mut message = Transmit {
        tag,
        buffers: memory(bytes),
        desc: Descs::NONE,
        peer: 0,
        data: 0xda7a,
        flags: FI_COMPLETION | flags,
        context: std::ptr::null_mut(),
    };
    side.engine.core().transmit(side.ep, &mut message)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 / 3) as u8).collect()
}

#[test]
fn a_long_tagged_message_is_sent_when_the_peer_asks_for_it() {
    let (a, mut peer) = side_and_peer(1);
    let mut out = pattern(LONG + 1);
    transmit(&a, &mut out, Tag::Value(77), FI_REMOTE_CQ_DATA).unwrap();
    let announced = peer.header(&a);
    assert_eq!(
        announced,
        Header {
            op_data: 1,
            flags: header::REMOTE_CQ_DATA,
            data: 0xda7a,
            tag: 77,
            size: LONG as u64 + 1,
            ..Header::new(Op::TaggedRts)
        }
    );
    // Later messages do not wait for it.
    let mut short = pattern(LONG);
    transmit(&a, &mut short, Tag::Value(78), 0).unwrap();
    let next = peer.header(&a);
    assert_eq!((next.op, next.tag), (Op::Tagged, 78));
    assert!(peer.payload(&a, &next) == short);
    until([&a, &a], || a.count() == 1);
    peer.asks_for(1);
    let data = peer.header(&a);
    assert_eq!((data.op, data.op_data, data.flags), (Op::Data, 1, 0));
    assert!(peer.payload(&a, &data) == out);
    until([&a, &a], || a.count() == 2);
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn a_message_of_which_delivery_counts_is_done_when_its_data_are_acknowledged() {
    let (a, mut peer) = side_and_peer(1);
    let (mut long, mut short) = (pattern(LONG + 1), pattern(100));
    transmit(&a, &mut long, Tag::Value(1), FI_DELIVERY_COMPLETE).unwrap();
    transmit(&a, &mut short, Tag::Value(2), FI_DELIVERY_COMPLETE).unwrap();
    let announced = peer.header(&a);
    assert_eq!(announced.op, Op::TaggedRts);
    assert_eq!(announced.flags, header::DELIVERY_COMPLETE);
    let next = peer.header(&a);
    peer.payload(&a, &next);
    // The acknowledgement is for the message that has arrived, which was sent later.
    peer.say(Header::ack(), &[]);
    until([&a, &a], || a.count() == 1);
    assert_eq!(a.done.borrow()[0].len, 0);
    peer.asks_for(announced.op_data);
    let data = peer.header(&a);
    assert!(peer.payload(&a, &data) == long);
    for _ in 0..100 {
        a.drive();
    }
    assert_eq!((a.count(), a.outstanding()), (1, 1));
    peer.say(Header::ack(), &[]);
    until([&a, &a], || a.count() == 2);
}

#[test]
fn messages_that_the_peer_buffers_or_cannot_request_are_sent_eagerly() {
    for (version, tag, len) in [
        (1, Tag::Value(1), LONG),
        (1, Tag::None, LONG + 1),
        (0, Tag::Value(1), LONG + 1),
    ] {
        let (a, mut peer) = side_and_peer(version);
        let mut out = pattern(len);
        transmit(&a, &mut out, tag, 0).unwrap();
        let sent = peer.header(&a);
        assert_eq!(sent.payload, len, "{sent:?}");
        assert!(peer.payload(&a, &sent) == out);
    }
}

#[test]
fn where_all_names_are_in_use_the_message_is_to_be_tried_again() {
    let (a, mut peer) = side_and_peer(1);
    let mut out = pattern(LONG + 1);
    // Others would be complete before the peer ends, if that takes long.
    for _ in 0..254 {
        transmit(&a, &mut out, Tag::Value(1), FI_DELIVERY_COMPLETE).unwrap();
    }
    let mut names = Vec::new();
    for _ in 0..254 {
        names.push(peer.header(&a).op_data);
    }
    names.sort_unstable();
    assert!(names.iter().copied().eq(1..=254));
    let again = transmit(&a, &mut out, Tag::Value(2), FI_DELIVERY_COMPLETE);
    assert_eq!(again, Err(Errno::EAGAIN));
    // Other messages need none.
    transmit(&a, &mut out, Tag::None, 0).unwrap();
    let other = peer.header(&a);
    peer.payload(&a, &other);
    peer.asks_for(99);
    let data = peer.header(&a);
    peer.payload(&a, &data);
    transmit(&a, &mut out, Tag::Value(2), FI_DELIVERY_COMPLETE).unwrap();
    assert_eq!(peer.header(&a).op_data, 99);
    // All operations end with the connection.
    drop(peer);
    until([&a, &a], || a.failed.borrow().len() == 254);
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn a_peer_that_stops_reading_is_sent_to_as_long_as_operations_may_be_outstanding() {
    let (a, mut peer) = side_and_peer(1);
    let mut out = pattern(4000);
    let mut posted = 0;
    // More of them complete than the sockets buffer.
    until([&a, &a], || {
        match transmit(&a, &mut out, Tag::Value(1), 0) {
            Ok(()) => {
                posted += 1;
                false
            }
            Err(error) => {
                assert_eq!(error, Errno::EAGAIN);
                a.outstanding() == 1024
            }
        }
    });
    for _ in 0..posted {
        let header = peer.header(&a);
        assert!(peer.payload(&a, &header) == out);
    }
    until([&a, &a], || a.count() == posted);
}

#[test]
fn no_more_long_messages_wait_for_a_connection_than_there_are_names() {
    let a = side_with(lowered());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    a.knows(listener.local_addr().unwrap());
    let mut out = pattern(LONG + 1);
    for _ in 0..254 {
        transmit(&a, &mut out, Tag::Value(1), 0).unwrap();
    }
    let again = transmit(&a, &mut out, Tag::Value(1), 0);
    assert_eq!(again, Err(Errno::EAGAIN));
    let peer = std::thread::spawn(move || Peer::accepts(&listener, 1));
    until([&a, &a], || !a.open_connections().is_empty());
    let mut peer = peer.join().unwrap();
    for _ in 0..254 {
        assert_eq!(peer.header(&a).op, Op::TaggedRts);
    }
    for name in 1..=254 {
        peer.asks_for(name);
        let data = peer.header(&a);
        assert_eq!(data.op_data, name);
        peer.payload(&a, &data);
    }
    until([&a, &a], || a.count() == 254);
}

#[test]
fn a_peer_that_connects_has_messages_announced_too() {
    let a = side_with(lowered());
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = port.local_addr().unwrap();
    a.knows(addr);
    let mut peer = Peer::connects(&a, addr.port());
    let mut out = pattern(LONG + 1);
    transmit(&a, &mut out, Tag::Value(1), 0).unwrap();
    assert_eq!(peer.header(&a).op, Op::TaggedRts);
}

#[test]
fn a_request_for_a_message_that_was_not_announced_ends_the_connection() {
    let mut out = pattern(LONG + 1);
    for name in [0, 1, 2, 255] {
        let (a, mut peer) = side_and_peer(1);
        if name == 2 {
            transmit(&a, &mut out, Tag::Value(1), 0).unwrap();
            peer.asks_for(1);
            peer.asks_for(1);
        } else {
            peer.asks_for(name);
        }
        until([&a, &a], || a.open_connections().is_empty());
    }
}

#[test]
fn messages_that_the_c_library_would_keep_are_kept_beyond_every_limit() {
    const LEN: usize = 300_000;
    let a = side_with(Params {
        max_unexpected: 1000,
        max_unannounced: 1000,
        ..Params::default()
    });
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = port.local_addr().unwrap();
    a.knows(addr);
    let mut peer = Peer::connects(&a, addr.port());
    let out = pattern(LEN);
    let sender = std::thread::spawn(move || {
        for tag in 0..66 {
            let header = Header {
                tag,
                ..Header::new(Op::Tagged)
            };
            peer.say(header, &out);
        }
        (peer, out)
    });
    // 63 before this one are buffered, one after it, and the last one is not read.
    let mut place = vec![0; LEN];
    receive(&a, &mut place, 63);
    until([&a, &a], || a.count() == 1);
    until([&a, &a], || is_held_back(&a));
    for tag in (0..63).rev().chain([64, 65]) {
        let before = a.count();
        receive(&a, &mut place, tag);
        until([&a, &a], || a.count() > before);
    }
    let (_peer, out) = sender.join().unwrap();
    assert!(place == out);
    assert_eq!(a.kept(), 0);
}

#[test]
fn names_of_messages_mean_nothing_to_a_peer_that_has_not_agreed_to_them() {
    // On the fast path and on the slow path; acknowledgements, too.
    for (op, data) in [(Op::Tagged, 0), (Op::Tagged, 5), (Op::NamedAck, 0)] {
        let (a, mut peer) = side_and_peer(1);
        let mut place = [0; 8];
        receive(&a, &mut place, 1);
        let mut header = Header::new(op);
        header.id = 3;
        if op == Op::Tagged {
            header.tag = 1;
            header.flags = header::DELIVERY_COMPLETE | header::NAMED;
        }
        if data != 0 {
            header.flags |= header::REMOTE_CQ_DATA;
            header.data = data;
        }
        let payload: &[u8] = if op == Op::Tagged { &[9; 8] } else { &[] };
        peer.say(header, payload);
        until([&a, &a], || a.open_connections().is_empty());
        assert_eq!((a.count(), place), (0, [0; 8]));
    }
}

#[test]
fn a_stranger_may_leave_less_than_a_known_peer_until_the_address_vector_knows_it() {
    const LEN: usize = 100 << 20;
    let a = side();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = port.local_addr().unwrap();
    let mut peer = Peer::connects(&a, addr.port());
    let header = Header {
        payload: LEN,
        ..Header::new(Op::Msg)
    };
    let mut bytes = [0; MAX_HEADER];
    let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
    peer.stream.write_all(&bytes[..len]).unwrap();
    until([&a, &a], || is_held_back(&a));
    assert_eq!(a.kept(), 0);
    a.knows(addr);
    until([&a, &a], || !is_held_back(&a));
    assert!(a.kept() >= LEN);
}

/// Largest number of announcements of all strangers in these tests; one stranger may have half of
/// that.
const ANNOUNCEMENTS: usize = 100;

/// Creates a side whose strangers are counted apart from those of other tests.
fn counts_at(kept: &'static StrangersKept) -> Side {
    let side = side();
    side.engine
        .core()
        .endpoints
        .limit_strangers(&StrangersLimits {
            of: kept,
            bytes: 1 << 20,
            announcements: ANNOUNCEMENTS,
        });
    side
}

/// A stranger announces one message more than is accepted, with the tag 1 and that one with 2, and
/// sends one with 3 after them.
fn announces_too_much(side: &Side, addr: SocketAddr) -> Peer {
    let mut peer = Peer::connects(side, addr.port());
    for number in 0..=ANNOUNCEMENTS / 2 {
        let header = Header {
            tag: 1 + u64::from(number == ANNOUNCEMENTS / 2),
            size: 1 << 30,
            op_data: number as u8,
            ..Header::new(Op::TaggedRts)
        };
        peer.say(header, &[]);
    }
    let behind = Header {
        tag: 3,
        ..Header::new(Op::Tagged)
    };
    peer.say(behind, &[7; 8]);
    until([side, side], || is_held_back(side));
    peer
}

#[test]
fn a_stranger_that_announces_too_much_is_held_back_until_it_is_known() {
    static KEPT: StrangersKept = StrangersKept::new();
    let a = counts_at(&KEPT);
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = port.local_addr().unwrap();
    let mut place = [0; 8];
    receive(&a, &mut place, 3);
    let _peer = announces_too_much(&a, addr);
    for _ in 0..100 {
        a.drive();
    }
    assert_eq!((a.open_connections().len(), a.count()), (1, 0));
    a.knows(addr);
    until([&a, &a], || a.count() == 1);
    assert!(!is_held_back(&a));
    assert_eq!(place, [7; 8]);
}

#[test]
fn a_receive_takes_the_message_of_a_stranger_that_is_held_back_and_resumes_it() {
    static KEPT: StrangersKept = StrangersKept::new();
    let a = counts_at(&KEPT);
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut place, mut wanted) = ([0; 8], [0; 8]);
    receive(&a, &mut place, 3);
    let mut peer = announces_too_much(&a, port.local_addr().unwrap());
    receive(&a, &mut wanted, 2);
    until([&a, &a], || a.count() == 1);
    assert!(!is_held_back(&a));
    assert_eq!(place, [7; 8]);
    // The other message is requested.
    let asks = peer.header(&a);
    let name = (ANNOUNCEMENTS / 2) as u8;
    assert_eq!((asks.op, asks.op_data), (Op::Cts, name));
}

#[test]
fn an_announced_message_of_a_stranger_that_has_ended_is_not_waited_for() {
    static KEPT: StrangersKept = StrangersKept::new();
    let a = counts_at(&KEPT);
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    drop(announces_too_much(&a, port.local_addr().unwrap()));
    until([&a, &a], || a.open_connections().is_empty());
}

fn is_held_back(side: &Side) -> bool {
    let core = side.engine.core();
    let mut conns = core.conns.values();
    conns.any(|conn| conn.detours.has(Detour::HeldBack))
}
