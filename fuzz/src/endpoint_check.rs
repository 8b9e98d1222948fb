//! A whole endpoint with operations of all kinds in progress, and a stranger as its peer that sends
//! arbitrary bytes. Whatever they are, nothing breaks, every operation ends once, and nothing is
//! left of the connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric_abi::{
    FI_ADDR_UNSPEC, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_MULTI_RECV, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_SUM, FI_UINT64, FI_VERSION,
};
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::Seal;
use prov_base::sync::LockKind;
use prov_local::process::{Card, OtherFiles, OtherProcess, Reading};
use prov_message::{Attributes, Core as _, EpKey};
use prov_tcp::engine::link::detours::Detour;
use prov_tcp::engine::link::endpoint::{Kind, Msg, OwnPart};
use prov_tcp::engine::link::listener::{Incomer, ListenerKind, RequestSink};
use prov_tcp::engine::link::rdm::Rdm;
use prov_tcp::engine::link::socket;
use prov_tcp::engine::{Core, Lane};
use prov_tcp::local::neighbour::Subject;
use prov_tcp::params::Params;
use prov_tcp::wire::ByteOrder;
use prov_tcp::wire::handshake::{self, Features, Message};
use prov_tcp::wire::header::{BASE, Header, MAX_HEADER, Op};
use prov_tcp::wire::rdm::Identity;
use prov_tcp::wire::stream::{Event, Stream};
use prov_util::av::{self, Av, Insertion};
use prov_util::cq::{Cq, CqConfig};
use prov_util::desc::Descs;
use prov_util::eq::{ConnectionEvents, Eq};
use prov_util::ffi::{Class, Handle, Use};
use prov_util::mr::{self, Job, Memory, MrTable};
use prov_util::progress::Progress;
use prov_util::request::{
    Access, Atomic, AtomicKind, Receive, RemoteAccess, RemoteIov, RemotePiece, Select, Tag,
    Transmit,
};
use prov_util::wait::Attachment;

/// The port at which the stranger claims to listen.
const STRANGER: u16 = 9;
/// The key of the memory that the stranger may access.
const KEY: u64 = 3;
/// Number of bytes of a message by which two processes prove their identity.
const ACQUAINTANCE: usize = BASE + 16;
/// Time limit for the arrival of data or of the end of a socket, on a machine that is busy with
/// other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rounds until the time limit.
fn rounds() -> impl Iterator<Item = ()> {
    let end = Instant::now() + PATIENCE;
    (0u32..).map_while(move |round| {
        // The clock is not read each time.
        (round % 256 != 0 || Instant::now() < end).then(|| {
            if round % 256 == 255 {
                std::thread::yield_now();
            }
        })
    })
}

/// The type of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Msg,
    Rdm,
}

/// The first byte selects the handshake and the endpoint's operations, the second how the bytes are
/// cut; the rest is what the stranger sends after the handshake.
pub fn check(kind: Type, input: &[u8]) {
    let &[choice, cut, ref bytes @ ..] = input else {
        return;
    };
    let mut room = Room::default();
    let mut endpoint = Endpoint::open(kind, &mut room);
    if choice & 1 != 0 {
        endpoint.post_receives(&mut room);
    }
    let features = match choice & 2 {
        0 => Features::OURS,
        _ => Features::default(),
    };
    let Some(mut stranger) = endpoint.meet(features) else {
        panic!("a request in order is refused");
    };
    if choice & 16 != 0 && features == Features::OURS {
        endpoint.acquaint(&mut stranger);
    }
    if choice & 4 != 0 {
        endpoint.post_operations(&mut room);
    }
    for piece in bytes.chunks(usize::from(cut) + 1) {
        // The endpoint may have closed the connection.
        let _ = stranger.write(piece);
        endpoint.engine.progress();
        while matches!(stranger.read(&mut [0; 4096]), Ok(1..)) {}
    }
    for _ in 0..20 {
        endpoint.engine.progress();
    }
    if choice & 8 != 0 {
        endpoint.post_receives(&mut room);
    }
    drop(stranger);
    endpoint.part(&mut room);
}

/// The application's memory; it outlives the endpoint.
struct Room {
    receives: Vec<Vec<u8>>,
    results: Vec<u8>,
    sends: Vec<u8>,
    registered: Vec<u8>,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            receives: Vec::new(),
            results: vec![0; 4096],
            sends: vec![7; 100_000],
            registered: vec![0; 4096],
        }
    }
}

fn memory(bytes: &mut [u8]) -> AppIov {
    // SAFETY: the bytes are part of the room, which outlives the endpoint, and are not accessed
    // otherwise while the operation is in progress.
    unsafe { AppIov::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

struct Endpoint {
    engine: Arc<Lane>,
    ep: EpKey,
    addr: SocketAddr,
    cq: Use<Cq>,
    incomer: Arc<Mutex<Option<Incomer>>>,
    /// The stranger's.
    seal: Seal,
    /// The contexts of the operations posted and of those that ended. None is 0, which is the
    /// context of receives.
    posted: Vec<usize>,
    ended: Vec<usize>,
}

struct Door(Arc<Mutex<Option<Incomer>>>);

fn is_from(incomer: &Incomer, stranger: &TcpStream) -> bool {
    let caller = prov_base::socket::peer_name(incomer.socket.as_fd());
    caller.ok() == stranger.local_addr().ok()
}

impl RequestSink for Door {
    fn has_room(&self) -> bool {
        true
    }

    fn request(&self, incomer: Incomer) {
        *self.0.lock().unwrap() = Some(incomer);
    }
}

fn open<T: Class>(object: T) -> Use<T> {
    Use::of(&Handle::new(object, std::ptr::null_mut(), Vec::new()))
}

impl Endpoint {
    fn open(kind: Type, room: &mut Room) -> Self {
        let params = Arc::new(Params {
            // Small limits, so that they are reached.
            max_unexpected: 16 << 10,
            max_unannounced: 4 << 10,
            max_saved: 2,
            max_saved_size: 50_000,
            prefetch_rbuf_size: 4096,
            staging_sbuf_size: 4096,
            local_message_size: 1,
            ..Params::default()
        });
        let table = Arc::new(MrTable::new(&mr::Config::default()));
        let piece = libc::iovec {
            iov_base: room.registered.as_mut_ptr().cast(),
            iov_len: room.registered.len(),
        };
        // SAFETY: the memory is part of the room, which outlives the endpoint.
        let memory = unsafe { Memory::new(&[piece]) }.unwrap();
        let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        table
            .register(mr::Request::new(memory, access, KEY))
            .unwrap();
        let engine = Lane::start(LockKind::Real, |signals| {
            Core::new(params.clone(), Some(table), None, signals.clone())
        })
        .unwrap();
        let socket = socket::bound(&"127.0.0.1:0".parse().unwrap(), &params).unwrap();
        let addr = socket::name(socket.as_fd()).unwrap();
        let cq = open(Cq::new(CqConfig::default()).unwrap());
        // Events are not checked here.
        let eq = open(Eq::new(Attachment::None, FI_VERSION(2, 0)));
        let incomer = Arc::new(Mutex::new(None));
        let mut core = engine.core();
        let state = match kind {
            Type::Msg => Kind::Msg(Msg {
                conn: None,
                events: Some(ConnectionEvents::new(eq.handle().named(), eq.clone())),
                ended: false,
            }),
            Type::Rdm => {
                let av = open(
                    Av::open(&av::Config {
                        format: av::format::Format::IN,
                        ..av::Config::default()
                    })
                    .unwrap(),
                );
                let stranger = SocketAddr::new(addr.ip(), STRANGER);
                av.insert([Insertion::from(stranger)], |_, outcome| {
                    outcome.unwrap();
                })
                .unwrap();
                Kind::Rdm(Box::new(Rdm::new(av, addr, &params)))
            }
        };
        let attributes = Attributes {
            tx_size: 1024,
            most_receives: 1024,
            directed: false,
            job: Job::NONE,
        };
        let part = OwnPart {
            kind: state,
            auth_key: None,
            msg_order: 0,
            is_for_rma: false,
            only_rendezvous: false,
            has_fences: true,
        };
        let ep = core.endpoints.add(attributes, part);
        let state = core.endpoints.get_mut(ep).unwrap();
        state.reports.tx_cq = Some(cq.clone());
        state.reports.rx_cq = Some(cq.clone());
        let inbox = state.inbox;
        let inbox = core.endpoints.inbox_mut(inbox).unwrap();
        inbox.set_min_multi_recv(256);
        let door = match kind {
            Type::Msg => ListenerKind::Passive(Box::new(Door(incomer.clone()))),
            Type::Rdm => ListenerKind::Rdm(ep),
        };
        let listener = core.add_listener(socket, door, None, 8).unwrap();
        if let Some(rdm) = core.rdm(ep) {
            rdm.listener = Some(listener);
        }
        drop(core);
        Endpoint {
            engine,
            ep,
            addr,
            cq,
            incomer,
            seal: Seal::new().unwrap(),
            posted: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Connects the stranger.
    fn meet(&mut self, features: Features) -> Option<TcpStream> {
        let mut stranger = TcpStream::connect(self.addr).unwrap();
        stranger.set_nonblocking(true).unwrap();
        stranger.set_nodelay(true).unwrap();
        let identity = Identity {
            version: 1,
            version_checked: false,
            behind_firewall: true,
            port: STRANGER,
            pid: 1,
        };
        let request = Message::new(handshake::Kind::Request, features, 5, &identity.encode());
        stranger.write_all(&request.encode()).unwrap();
        let mut answer = Vec::new();
        for () in rounds() {
            self.engine.progress();
            let incomer = self.incomer.lock().unwrap().take();
            // Others may try to connect to a previous user of this port.
            if let Some(incomer) = incomer.filter(|incomer| is_from(incomer, &stranger)) {
                let accepted = self.engine.core().accept_msg(self.ep, incomer, &[]);
                accepted.unwrap();
            }
            let mut part = [0; handshake::MAX_MESSAGE];
            if let Ok(n @ 1..) = stranger.read(&mut part) {
                answer.extend(&part[..n]);
            }
            let kinds = &[handshake::Kind::Accept, handshake::Kind::Reject];
            if let Ok(handshake::Decoded::Complete(message)) = handshake::decode(&answer, kinds) {
                return (message.kind == handshake::Kind::Accept).then_some(stranger);
            }
        }
        None
    }

    /// The stranger and the endpoint can read each other's memory: they are one process.
    fn acquaint(&mut self, stranger: &mut TcpStream) {
        let pid = u64::from(std::process::id());
        let number = u64::from(stranger.as_raw_fd().unsigned_abs());
        let link = std::fs::metadata(format!("/proc/self/fd/{number}"));
        let inode = link.unwrap().ino();
        let card = Card::new(inode, self.seal.token()).unwrap();
        let say = |mut stranger: &TcpStream, what: Subject, id, word| {
            let mut header = Header::new(Op::Acquaint);
            (header.op_data, header.id, header.word) = (what.code(), id, word);
            let mut bytes = [0; MAX_HEADER];
            let len = header.encode(&[], ByteOrder::Native, 0, &mut bytes);
            stranger.write_all(&bytes[..len]).unwrap();
        };
        say(stranger, Subject::Introduction, pid, number);
        say(stranger, Subject::Card, card.number().into(), 0);
        // The endpoint introduces itself, shows its card and is ready.
        let mut heard = Vec::new();
        for () in rounds() {
            self.engine.progress();
            let mut more = [0; 4096];
            if let Ok(n) = stranger.read(&mut more) {
                heard.extend(&more[..n]);
            }
            if heard.len() == 3 * ACQUAINTANCE {
                break;
            }
        }
        let (mut shown, order) = (&heard[ACQUAINTANCE..], ByteOrder::Native);
        let mut stream = Stream::new(order, Features::OURS);
        let Ok(Event::Message(shown)) = stream.next(&mut shown) else {
            panic!("{heard:?}");
        };
        let pid = std::process::id();
        let files = OtherFiles::of(pid.into()).unwrap();
        let Reading { seal, .. } = files.read_card(shown.id).unwrap();
        let (_, secret) = OtherProcess::find(pid, seal).unwrap();
        say(stranger, Subject::Ready, secret, 0);
        self.engine.progress();
    }

    fn post_receives(&mut self, room: &mut Room) {
        let sizes_and_selects = [
            (0, Select::Untagged, 0),
            (100, Select::Tagged { tag: 77, ignore: 0 }, 0),
            (1000, Select::Untagged, FI_MULTI_RECV),
            (
                3000,
                Select::Tagged {
                    tag: 0,
                    ignore: u64::MAX >> 1,
                },
                0,
            ),
            (
                3000,
                Select::Tagged {
                    tag: 0,
                    ignore: u64::MAX,
                },
                0,
            ),
        ];
        for (size, select, flags) in sizes_and_selects {
            let mut bytes = vec![0; size];
            let mut receive = Receive {
                select,
                buffers: memory(&mut bytes),
                desc: Descs::NONE,
                peer: FI_ADDR_UNSPEC,
                flags: FI_COMPLETION | flags,
                context: std::ptr::null_mut(),
            };
            // Refused once the connection of a MSG endpoint is gone.
            let _ = self.engine.core().receive(self.ep, &mut receive);
            room.receives.push(bytes);
        }
    }

    /// Posts one operation of each kind towards the stranger.
    fn post_operations(&mut self, room: &mut Room) {
        let mut remote = RemoteIov::default();
        remote.push(RemotePiece {
            addr: 0,
            len: 64,
            key: 1,
        });
        let messages = [
            (Tag::None, 8, 0),
            (Tag::Value(1), 8, FI_DELIVERY_COMPLETE),
            (Tag::Value(2), 100_000, 0),
            (Tag::None, 100_000, FI_DELIVERY_COMPLETE),
            (Tag::Value(3), 100_000, FI_DELIVERY_COMPLETE),
        ];
        let mut core = self.engine.core();
        let mut post = |context, outcome: Result| {
            if outcome.is_ok() {
                self.posted.push(context);
            }
        };
        for (number, (tag, len, flags)) in messages.into_iter().enumerate() {
            let mut message = Transmit {
                tag,
                buffers: memory(&mut room.sends[..len]),
                desc: Descs::NONE,
                peer: 0,
                data: 0,
                flags: FI_COMPLETION | flags,
                context: std::ptr::without_provenance_mut(1 + number),
            };
            post(1 + number, core.transmit(self.ep, &mut message));
        }
        let (read, fetched) = room.results.split_at_mut(2048);
        for (number, access, local) in [
            (11, Access::Read, memory(&mut read[..64])),
            (12, Access::Write, memory(&mut room.sends[..64])),
        ] {
            let mut access = RemoteAccess {
                access,
                local,
                remote,
                desc: Descs::NONE,
                peer: 0,
                data: 0,
                flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
                context: std::ptr::without_provenance_mut(number),
            };
            post(number, core.access(self.ep, &mut access));
        }
        let mut atomic = Atomic {
            kind: AtomicKind::Fetch {
                result: memory(&mut fetched[..64]),
                result_desc: Descs::NONE,
            },
            datatype: FI_UINT64,
            op: FI_SUM,
            operand: memory(&mut room.sends[..64]),
            remote,
            desc: Descs::NONE,
            peer: 0,
            data: 0,
            flags: FI_COMPLETION,
            context: std::ptr::without_provenance_mut(21),
        };
        post(21, core.atomic(self.ep, &mut atomic));
    }

    /// Disconnects the stranger: everything posted ends, and so does its connection.
    fn part(&mut self, room: &mut Room) {
        let mut left = usize::MAX;
        for () in rounds() {
            self.engine.progress();
            self.read_completions();
            let core = self.engine.core();
            left = core.conns.len();
            if left == 0 && self.ended.len() == self.posted.len() {
                break;
            }
            // A message that arrived completely waits for its receive.
            if core
                .conns
                .values()
                .any(|conn| conn.detours.has(Detour::HeldBack))
            {
                drop(core);
                self.post_receives(room);
            }
        }
        assert_eq!(left, 0, "posted {:?}, ended {:?}", self.posted, self.ended);
        self.ended.sort_unstable();
        assert_eq!(self.ended, self.posted);
        self.engine.core().close(self.ep);
    }

    fn read_completions(&mut self) {
        loop {
            let ended = &mut self.ended;
            let mut count = |context: usize| {
                if context != 0 {
                    ended.push(context);
                }
            };
            let read = self
                .cq
                .read(64, |completion| count(completion.context.addr()));
            match read {
                Err(Errno::EAVAIL) => {
                    if let Ok(error) = self.cq.read_error() {
                        count(error.completion.context.addr());
                    }
                }
                Ok(1..) => {}
                _ => return,
            }
        }
    }
}
