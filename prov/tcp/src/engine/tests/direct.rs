//! Peers that read, or claim to read, each other's memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::local::far_end;
use crate::local::neighbour::Subject;
use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use libc::iovec;
use prov_base::process_memory::{OtherIov, OtherPiece, Seal, Token};
use prov_local::doorbell::Doorbell;
use prov_local::process::{Card, OtherFiles, OtherProcess, Reading};
use prov_message::lane::Errand;
use prov_util::desc::Descs;
use prov_util::mr::{Memory, Region, Request};
use prov_util::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

use super::*;
use crate::wire::ByteOrder;
use crate::wire::direct::MAX_LIST;
use crate::wire::handshake::{self, Features, Kind as MessageKind, Message};
use crate::wire::header::{Header, MAX_HEADER, Op, RmaIov};
use crate::wire::rdm::Identity;
use crate::wire::stream::{Event, Stream};

/// The key of the endpoint's memory.
pub(super) const KEY: u64 = 5;

/// A peer in this process that sends whatever the test tells it.
pub(super) struct Stranger {
    pub(super) stream: TcpStream,
    seal: Seal,
    bell: Doorbell,
    card: Option<Card>,
    heard: Stream,
    bytes: Vec<u8>,
}

impl Stranger {
    /// Connects to an endpoint.
    pub(super) fn of(side: &Side) -> Stranger {
        let mut stream = TcpStream::connect(side.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        let identity = Identity {
            version: 1,
            version_checked: false,
            behind_firewall: false,
            port: stream.local_addr().unwrap().port(),
            pid: std::process::id(),
        };
        let request = Message::new(MessageKind::Request, Features::OURS, 9, &identity.encode());
        stream.write_all(&request.encode()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut answer = [0; handshake::HEADER + 8];
        until([side, side], || {
            stream.peek(&mut answer).is_ok_and(|n| n == answer.len())
        });
        stream.read_exact(&mut answer).unwrap();
        Stranger {
            stream,
            seal: Seal::new().unwrap(),
            bell: Doorbell::create().unwrap(),
            card: None,
            heard: Stream::new(ByteOrder::Native, Features::OURS),
            bytes: Vec::new(),
        }
    }

    pub(super) fn say(&mut self, header: &Header, rma: &[RmaIov], payload: &[u8]) {
        let mut header = *header;
        header.payload = payload.len();
        header.rma_count = rma.len() as u8;
        let mut bytes = [0; MAX_HEADER];
        let len = header.encode(rma, ByteOrder::Native, 0, &mut bytes);
        self.stream
            .write_all(&[&bytes[..len], payload].concat())
            .unwrap();
    }

    pub(super) fn acquaint(&mut self, what: u8, id: u64, word: u64) {
        let mut header = Header::new(Op::Acquaint);
        (header.op_data, header.id, header.word) = (what, id, word);
        self.say(&header, &[], &[]);
    }

    /// Names its process, truthfully.
    pub(super) fn introduce(&mut self) {
        let number = self.stream.as_raw_fd() as u64;
        let what = Subject::Introduction.code();
        self.acquaint(what, u64::from(std::process::id()), number);
    }

    /// Offers a file of this process as shared memory.
    pub(super) fn offer_memory(&mut self, fd: std::os::fd::BorrowedFd<'_>) {
        let number = fd.as_raw_fd() as u64;
        self.acquaint(Subject::Memory.code(), number, 0);
    }

    /// Shows a valid card, and its doorbell.
    pub(super) fn show_card(&mut self) {
        let inode = far_end::inode(self.stream.as_fd()).unwrap();
        self.show_card_for(inode);
    }

    /// Shows a card for another socket.
    fn show_card_for(&mut self, inode: u64) {
        let card = Card::new(inode, self.seal.token()).unwrap();
        let bell = self.bell.descriptor().as_raw_fd() as u64;
        self.acquaint(Subject::Card.code(), card.number().into(), bell + 1);
        self.card = Some(card);
    }

    /// Sends a message that stays in its memory, by this name.
    fn offer(&mut self, id: u64, bytes: &mut [u8], seal: Option<Token>) {
        let mut offer = OtherIov::default();
        assert!(offer.push_own(&memory(bytes), seal));
        self.say(
            &direct(id, bytes.len()),
            &[],
            offer.write(&mut [0; MAX_LIST]),
        );
    }

    /// Returns what the endpoint has sent since; `None` if it has closed the connection.
    pub(super) fn hear(&mut self, side: &Side) -> Option<Vec<(Header, Vec<u8>)>> {
        let mut is_open = true;
        for _ in 0..100 {
            side.drive();
            let mut more = [0; 4096];
            match self.stream.read(&mut more) {
                Ok(0) => is_open = false,
                Ok(n) => self.bytes.extend(&more[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => is_open = false,
            }
        }
        let mut messages: Vec<(Header, Vec<u8>)> = Vec::new();
        let bytes = std::mem::take(&mut self.bytes);
        let mut rest = &bytes[..];
        loop {
            match self.heard.next(&mut rest).unwrap() {
                Event::Need => break,
                Event::Message(header) => messages.push((header, Vec::new())),
                Event::Payload(part) => messages.last_mut().unwrap().1.extend(part),
            }
        }
        is_open.then_some(messages)
    }

    /// Returns what the endpoint has sent about itself.
    pub(super) fn hear_acquaintance(&mut self, side: &Side) -> Vec<(u8, u64, u64)> {
        let heard = self.hear(side).unwrap();
        let what = |(header, _): (Header, _)| match header.op {
            Op::Acquaint => (header.op_data, header.id, header.word),
            other => panic!("{other:?}"),
        };
        heard.into_iter().map(what).collect()
    }
}

/// Makes progress on a side, without the copies, until a condition holds.
fn by_hand(side: &Side, mut holds: impl FnMut(&mut Core) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "nothing happens any more");
        let mut core = side.engine.core();
        core.do_what_is_ready();
        if holds(&mut core) {
            return;
        }
    }
}

/// Returns the header of a tagged message of this length, whose payload stays with the sender.
fn direct(id: u64, len: usize) -> Header {
    let mut header = Header::new(Op::DirectMsg);
    header.flags = crate::wire::header::TAGGED;
    (header.id, header.tag, header.size) = (id, id, len as u64);
    header
}

pub(super) fn register(side: &Side, bytes: &mut [u8]) -> Arc<Region> {
    let iov = iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the tests keep the bytes as long as the engine, whose table refers to them.
    let memory = unsafe { Memory::new(&[iov]) }.unwrap();
    let request = Request::new(memory, FI_REMOTE_READ | FI_REMOTE_WRITE, KEY);
    side.memory.register(request).unwrap()
}

pub(super) fn remote(addr: u64, len: usize) -> RmaIov {
    RmaIov {
        addr,
        len: len as u64,
        key: KEY,
    }
}

fn list(bytes: &mut [u8]) -> Vec<u8> {
    let mut list = OtherIov::default();
    assert!(list.push_own(&memory(bytes), None));
    list.write(&mut [0; MAX_LIST]).to_vec()
}

/// Returns the card that the endpoint has shown.
fn shown(heard: &[(u8, u64, u64)]) -> Reading {
    let card = heard.iter().find(|what| what.0 == Subject::Card.code());
    let files = OtherFiles::of(std::process::id().into()).unwrap();
    files.read_card(card.unwrap().1).unwrap()
}

/// Returns the secret next to the seal of a card.
fn secret_of(card: &Reading) -> u64 {
    let (_, secret) = OtherProcess::find(std::process::id(), card.seal).unwrap();
    secret
}

/// Creates a peer that has proved its identity; both sides can read each other's memory.
fn acquainted(side: &Side) -> Stranger {
    let mut stranger = Stranger::of(side);
    stranger.introduce();
    stranger.show_card();
    let heard = stranger.hear_acquaintance(side);
    let codes: Vec<u8> = heard.iter().map(|&(code, ..)| code).collect();
    assert_eq!(codes, [0, 1, 2]);
    // The endpoint has read the card.
    assert_eq!(heard[2].1, stranger.seal.secret());
    let secret = secret_of(&shown(&heard));
    stranger.acquaint(Subject::Ready.code(), secret, 0);
    stranger
}

#[test]
fn only_the_process_with_the_other_end_is_shown_the_card() {
    let a = side();
    let pid = u64::from(std::process::id());
    let other = TcpStream::connect(a.addr).unwrap();
    let claims = [
        (pid, other.as_raw_fd() as u64),
        (pid, 0),
        (pid, 1 << 40),
        (pid, u64::MAX),
        (0, 0),
        (1, 3),
        (u64::from(u32::MAX), 3),
        (u64::MAX, 3),
    ];
    for (pid, number) in claims {
        let mut liar = Stranger::of(&a);
        liar.acquaint(Subject::Introduction.code(), pid, number);
        liar.show_card();
        let heard = liar.hear_acquaintance(&a);
        // The endpoint's process id is no secret.
        assert_eq!(heard.len(), 1, "{pid} {number}");
        assert_eq!((heard[0].0, heard[0].1), (0, u64::from(std::process::id())));
    }
    let mut honest = Stranger::of(&a);
    honest.introduce();
    let reading = shown(&honest.hear_acquaintance(&a));
    secret_of(&reading);
}

/// As if through a forwarder: the process that is named has the other end, but another one sends,
/// which cannot read any card.
#[test]
fn a_peer_that_sends_through_another_process_is_not_mistaken_for_it() {
    let a = side();
    let mut place = vec![0; 64];
    receive(&a, &mut place, 1);
    for guess in [0, 1, u64::MAX] {
        let mut third = Stranger::of(&a);
        third.introduce();
        third.show_card();
        assert_eq!(third.hear_acquaintance(&a).len(), 3);
        third.acquaint(Subject::Ready.code(), guess, 0);
        assert_eq!(third.hear(&a), None);
    }
    let mut third = Stranger::of(&a);
    third.introduce();
    third.show_card();
    assert_eq!(third.hear_acquaintance(&a).len(), 3);
    third.say(&direct(1, 8), &[], &list(&mut [7; 8]));
    assert_eq!(third.hear(&a), None);
    assert!(place.iter().all(|&byte| byte == 0));
}

/// A third process that sends through a forwarder within the endpoint's process can show that
/// process its own cards, which are for other connections, but none for the socket of the
/// forwarder.
#[test]
fn a_card_for_another_socket_is_not_believed() {
    let a = side();
    let mut third = Stranger::of(&a);
    third.introduce();
    let heard = third.hear_acquaintance(&a);
    let card = heard[1];
    assert_eq!(card.0, Subject::Card.code());
    // Returned to the sender.
    third.acquaint(card.0, card.1, card.2);
    assert_eq!(third.hear_acquaintance(&a), []);
    let mut other = Stranger::of(&a);
    other.introduce();
    other.show_card_for(far_end::inode(third.stream.as_fd()).unwrap());
    assert_eq!(other.hear_acquaintance(&a).len(), 2);
}

#[test]
fn the_seal_of_a_connection_ends_with_it() {
    let a = side();
    let mut peer = Stranger::of(&a);
    peer.introduce();
    let reading = shown(&peer.hear_acquaintance(&a));
    let found = || OtherProcess::find(std::process::id(), reading.seal);
    assert!(found().is_ok());
    a.engine.close(a.ep);
    assert!(found().is_err());
}

#[test]
fn a_card_that_is_none_is_not_believed() {
    let a = side();
    let exe = std::fs::File::open("/proc/self/exe").unwrap();
    for number in [u64::MAX, 1 << 40, exe.as_raw_fd() as u64] {
        let mut liar = Stranger::of(&a);
        liar.introduce();
        liar.acquaint(Subject::Card.code(), number, 0);
        assert_eq!(liar.hear_acquaintance(&a).len(), 2, "{number}");
    }
    let mut liar = Stranger::of(&a);
    liar.introduce();
    let ended = Seal::new().unwrap().token();
    let inode = far_end::inode(liar.stream.as_fd()).unwrap();
    let card = Card::new(inode, ended).unwrap();
    liar.acquaint(Subject::Card.code(), card.number().into(), 0);
    assert_eq!(liar.hear_acquaintance(&a).len(), 2);
}

#[test]
fn a_peer_that_sends_such_messages_out_of_turn_loses_the_connection() {
    let a = side();
    let mut place = vec![0; 4096];
    register(&a, &mut place);
    let says: [&dyn Fn(&mut Stranger); 12] = [
        &|peer| peer.acquaint(7, 0, 0),
        &|peer| peer.acquaint(Subject::Moved.code(), 0, 0),
        &|peer| peer.acquaint(Subject::Stays.code(), 0, 0),
        &|peer| peer.acquaint(Subject::Ready.code(), 0, 0),
        &|peer| peer.show_card(),
        &|peer| {
            peer.introduce();
            peer.introduce();
        },
        &|peer| {
            peer.introduce();
            peer.show_card();
            peer.show_card();
        },
        &|peer| peer.say(&direct(1, 8), &[], &list(&mut [0; 8])),
        &|peer| peer.say(&direct(1, 0), &[], &[]),
        &|peer| peer.say(&direct(1, 8), &[], &[7; 1 << 16]),
        &|peer| peer.say(&direct(1, 8), &[], &[7; 129]),
        &|peer| peer.say(&direct(1, 9), &[], &list(&mut [0; 8])),
    ];
    for (i, say) in says.iter().enumerate() {
        let mut peer = Stranger::of(&a);
        say(&mut peer);
        assert_eq!(peer.hear(&a), None, "{i}");
        assert_eq!(a.open_connections().len(), 0);
    }
}

#[test]
fn accesses_wait_for_earlier_messages_and_messages_pass_each_other() {
    let a = side();
    let mut place = vec![0; 64];
    let region = register(&a, &mut place);
    let mut peer = acquainted(&a);
    a.knows(peer.stream.local_addr().unwrap());
    let (mut bytes, mut into) = (vec![7; 1 << 20], vec![0; 1 << 20]);
    let mut short = [0; 8];
    receive(&a, &mut into, 40);
    receive(&a, &mut short, 41);
    peer.offer(40, &mut bytes, None);
    let mut behind = Header::new(Op::Tagged);
    behind.tag = 41;
    peer.say(&behind, &[], b"a letter");
    let mut write = Header::new(Op::Write);
    write.flags = crate::wire::header::DELIVERY_COMPLETE | crate::wire::header::NAMED;
    write.id = 42;
    peer.say(&write, &[remote(0, 4)], b"last");
    // The copy is in progress, and the data after it is read.
    let mut copying = None;
    by_hand(&a, |core| {
        copying = copying.take().or_else(|| core.next_errand());
        let mut conns = core.conns.values();
        copying.is_some() && conns.any(|conn| conn.local.copies.waiting.is_some())
    });
    assert_eq!((&short, &place[..4]), (b"a letter", &[0; 4][..]));
    let mut copying = copying.unwrap();
    copying.run();
    a.engine.core().errand_done(copying);
    let heard = peer.hear(&a).unwrap();
    let acks: Vec<u64> = heard.iter().map(|(header, _)| header.id).collect();
    assert_eq!(acks, [40, 42]);
    assert!(into == bytes && &place[..4] == b"last");
    a.memory.close(&region).unwrap();
}

#[test]
fn memory_that_is_not_there_costs_its_peer_the_connection() {
    let a = side();
    for addr in [8, 0xffff_8000_0000_0000] {
        let mut nowhere = OtherIov::default();
        let (len, seal) = (8, None);
        nowhere.push(OtherPiece { addr, len, seal });
        let mut peer = acquainted(&a);
        let mut place = [0; 8];
        receive(&a, &mut place, 1);
        peer.say(&direct(1, 8), &[], nowhere.write(&mut [0; MAX_LIST]));
        assert_eq!(peer.hear(&a), None);
        assert_eq!(place, [0; 8]);
    }
}

/// Posts a read of this many bytes from the stranger's memory.
pub(super) fn read(side: &Side, place: &mut [u8]) {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0,
        len: place.len() as u64,
        key: KEY,
    });
    let mut access = RemoteAccess {
        access: Access::Read,
        local: memory(place),
        remote,
        desc: Descs::NONE,
        peer: 0,
        data: 0,
        flags: FI_COMPLETION,
        context: std::ptr::null_mut(),
    };
    side.engine.core().access(side.ep, &mut access).unwrap();
}

/// Returns the numbers of completions, error completions and outstanding operations.
fn outcome(side: &Side) -> (usize, usize, usize) {
    let outstanding = side.outstanding();
    (side.count(), side.failed.borrow().len(), outstanding)
}

#[test]
fn bytes_whose_seal_is_gone_are_not_taken_for_those_of_a_message() {
    for is_process in [true, false] {
        let a = side();
        let mut peer = acquainted(&a);
        let mut places = [vec![0; 1 << 20], vec![0; 64]];
        for (tag, place) in places.iter_mut().enumerate() {
            receive(&a, place, tag as u64);
        }
        let region = Seal::new().unwrap();
        let mut bytes = vec![1; 1 << 20];
        let token = region.token();
        match is_process {
            true => peer.seal.destroy(),
            false => region.destroy(),
        }
        bytes.fill(2);
        peer.offer(0, &mut bytes, Some(token));
        peer.offer(1, &mut bytes[..64], Some(token));
        assert_eq!(peer.hear(&a), None);
        let (done, ..) = outcome(&a);
        assert_eq!(done, 0);
    }
}

#[test]
fn a_sleeping_thread_is_woken_for_a_copy() {
    for is_blocked in [true, false] {
        sleep_over_a_copy(is_blocked);
    }
}

/// Another thread than the one that sleeps receives the message, and makes no further call. The
/// socket may accept no replies, so that the other side is not told.
fn sleep_over_a_copy(is_blocked: bool) {
    let b = side();
    let mut exposed = vec![0; 1 << 14];
    let region = register(&b, &mut exposed);
    let mut peer = acquainted(&b);
    let key = b.open_connections()[0];
    while is_blocked && !b.engine.core().conns[key].is_blocked() {
        peer.say(&Header::new(Op::ReadRequest), &[remote(0, 16383)], &[]);
        b.drive();
    }
    b.drive();
    let mut place = vec![0; 8 << 20];
    receive(&b, &mut place, 40);
    sleepers::prepare_sleep(&b);
    let mut bytes = vec![1; place.len()];
    peer.offer(40, &mut bytes, None);
    let is_copying = || !b.engine.core().conns[key].local.copies.transfers.is_empty();
    by_hand(&b, |core| {
        let mut conns = core.conns.values();
        conns.any(|conn| !conn.local.copies.transfers.is_empty())
    });
    assert!(sleepers::wakes(&b), "blocked {is_blocked}");
    until([&b, &b], || !is_copying());
    b.memory.close(&region).unwrap();
    assert!(place == bytes);
}

/// A copy may block on a page fault in the peer's memory.
#[test]
fn during_a_copy_other_operations_continue_and_its_memory_stays_lent() {
    for is_broken in [false, true] {
        let (a, b) = (side(), side());
        let mut peer = acquainted(&a);
        a.knows(peer.stream.local_addr().unwrap());
        a.knows(b.addr);
        b.knows(a.addr);
        let mut place = vec![0; 1 << 20];
        receive(&a, &mut place, 40);
        let mut bytes = vec![7; 1 << 20];
        peer.offer(40, &mut bytes, None);
        let mut copying = None;
        by_hand(&a, |core| {
            copying = core.next_errand();
            copying.is_some()
        });
        let key = a.open_connections()[0];
        // The copy is in progress on another thread, while this one does something else.
        let (mut out, mut at_b) = ([5; 8], [0; 8]);
        receive(&b, &mut at_b, 1);
        let mut message = Transmit {
            peer: 1,
            ..tagged(&mut out, 1)
        };
        a.engine.core().transmit(a.ep, &mut message).unwrap();
        until([&a, &b], || b.count() == 1);
        assert_eq!(at_b, out);
        if is_broken {
            a.engine.core().break_connection(key, Errno::ECONNRESET);
        }
        a.drive();
        assert!(a.engine.core().is_lent(a.ep));
        let mut copying = copying.unwrap();
        assert!(!copying.run());
        a.engine.core().errand_done(copying);
        until([&a, &a], || {
            a.outstanding() == 0 && a.count() + a.failed.borrow().len() == 2
        });
        assert_eq!(a.failed.borrow().len(), usize::from(is_broken));
        assert!(is_broken || place == bytes);
    }
}
