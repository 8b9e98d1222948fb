//! One TCP connection and all that hangs on it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::local::neighbour::Neighbour;
use crate::local::outbox::{Debt, Lent, Outbox};
use prov_message::keys::{from_peer, to_peer};
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Signals, Target, Ticket};
use prov_util::buffer::AppIov;
use prov_util::errno::Errno;
use prov_util::socket::peer_text;
use prov_util::socket::silence::Watch;
use slotmap::SlotMap;

use crate::engine::link::copies::Copies;
use crate::engine::link::detours::{Detour, Detours};
use crate::engine::link::fault::Fault;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::{EpKey, ListenerKey, NameKey, PeerKey};
use crate::engine::link::messages::{Placing, Receipt, Rendezvous};
use crate::engine::link::narrow::Narrow;
use crate::engine::link::onesided::OneSided;
use crate::engine::link::socket;
use crate::local::path::{Path, Shortcut};
use crate::params::Params;
use crate::wire::authentication::Nonce;
use crate::wire::handshake::{Features, Message};
use crate::wire::header::Header;
use crate::wire::stream::Stream;
use crate::wire::{ByteOrder, WireError, rdm};
use prov_local::copies::LEAST;

/// A connection of any age.
pub struct Connection {
    pub socket: OwnedFd,
    /// Memory that the peer shares, a process of this host.
    pub shortcut: Option<Box<Shortcut>>,
    pub stage: Stage,
    /// When the handshake has taken too long.
    pub deadline: Option<Instant>,
    /// What has come of its next message.
    pub heard: Vec<u8>,
    pub owner: Owner,
    /// The peer in its endpoint's table; RDM only.
    pub peer: Option<PeerKey>,
    /// The peer in the endpoint's address vector, or [`UNKNOWN_SOURCE`].
    pub src: u64,
    /// What both sides can beyond the C library's protocol.
    pub features: Features,
    pub order: ByteOrder,
    /// Names the peer's endpoint, see [`crate::wire::handshake::Message`].
    pub instance: u64,
    /// The peer's process; RDM only.
    pub pid: u32,
    pub stream: Stream,
    pub incoming: Incoming,
    /// Why messages may not take the short way.
    pub detours: Detours,
    /// Bytes that were read behind a message that waits.
    pub backlog: Vec<u8>,
    pub outbox: Outbox,
    pub looked: Looked,
    /// What was sent without a copy.
    pub lent: Lent,
    pub burst: Burst,
    /// Answers to what the peer has sent, which are not the application's.
    pub answers: Burst,
    /// What the answers in the outbox take.
    pub debt: Debt,
    /// Whether the outbox waits for its burst to end.
    pub is_held: bool,
    /// Whether there are only answers in it then.
    pub owes: bool,
    /// Whether the kernel takes no more for now.
    pub is_blocked: bool,
    /// Whether it never will, since the peer has gone: the connection ends when what
    /// has come before is read.
    pub is_cut_off: bool,
    /// Whether the connection is in the list of those with more to read.
    pub is_ready: bool,
    /// Reads in a row that were of small messages while large ones come.
    pub small_reads: u8,
    /// Whether this side has asked for the connection.
    pub calls: bool,
    /// How often it has brought something, as far as it is counted.
    pub brought: u8,
    /// Whether its host is still there.
    pub watch: Watch,
    /// Whether the two processes can read one another's memory.
    pub neighbour: Neighbour,
    /// What they read there.
    pub copies: Copies,
    /// Number of the next message in the stream.
    pub sequence: u8,
    /// What each of the two processes accesses of the other's memory by itself.
    pub onesided: Box<OneSided>,
    /// Reads whose bytes have not come, oldest first.
    pub reads: VecDeque<PendingRead>,
    /// Operations that wait for an acknowledgement, oldest first.
    pub acks: VecDeque<Unacknowledged>,
    /// Names of messages that have come and are to be acknowledged.
    pub owed: Vec<u64>,
    /// Operations that wait for an answer that names them.
    pub named: SlotMap<NameKey, Named>,
    /// Messages announced in the C library's protocol; `None` where the peer
    /// does not know that, or this library's.
    pub narrow: Option<Narrow>,
    /// Receives whose messages were asked for.
    pub asked: HashMap<Rendezvous, Asked>,
    /// Whether the log says that the peer lacks what operations asked for.
    pub is_refused: bool,
    /// Whether the log says that it has been refused access to memory.
    pub refusal_is_logged: bool,
}

/// Messages that follow each other: what is sent after the same call of the
/// application goes out together, but for the first.
#[derive(Default)]
pub struct Burst {
    /// The application's call ([`Signals::calls`]) after which something was sent
    /// last.
    call: u64,
    /// Messages that have left after it.
    sent: u64,
    /// Whether there is nothing to be gained by waiting for others: they go
    /// through memory.
    is_free: bool,
}

/// When this connection was last looked at for what has come.
#[derive(Default)]
pub struct Looked {
    /// The progress call that did, by the number of those that look at it.
    round: u64,
    /// How much of the outbox had left.
    sent: u64,
}

impl Looked {
    /// Notes a look.
    pub fn note(&mut self, round: u64, sent: u64) {
        *self = Looked { round, sent };
    }

    /// How much of `sent` has left without a look.
    #[inline]
    pub fn sent_since(&mut self, round: u64, sent: u64) -> u64 {
        if round != self.round {
            self.note(round, sent);
        }
        sent - self.sent
    }
}

impl Burst {
    /// Whether the next message is to be held back. If not, it leaves.
    #[inline]
    pub fn holds_back(&mut self, signals: &Signals) -> bool {
        let holds_back = self.would_hold_back(signals);
        if !holds_back {
            self.sent();
        }
        holds_back
    }

    /// Whether the next message is to be held back.
    #[inline(always)]
    pub fn would_hold_back(&mut self, signals: &Signals) -> bool {
        let call = signals.calls();
        if call != self.call {
            self.call = call;
            self.sent = 0;
        }
        self.sent != 0 && signals.holds_after(self.sent)
    }

    /// No message is held back any more.
    pub fn set_free(&mut self) {
        self.is_free = true;
        self.sent = 0;
    }

    /// A message has left.
    #[inline]
    pub fn sent(&mut self) {
        self.sent += u64::from(!self.is_free);
    }
}

/// How far a connection has come.
///
/// Told apart by a byte of its own, which every message looks at.
#[repr(u8)]
pub enum Stage {
    /// connect(2) is under way; then this goes out.
    Connecting { request: Vec<u8> },
    /// Our hello is out; when it is answered, the request follows.
    Proving { nonce: Nonce, request: Vec<u8> },
    /// The request is out.
    Requested,
    /// Accepted: the peer has the word.
    Accepted(Door),
    /// The stream flows.
    Open,
}

/// What a peer that has connected must do first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Door {
    /// Send its request; no key is needed.
    Open,
    /// Send its request, having proved its key.
    Proven,
    /// Say hello.
    Closed,
    /// Prove its key, after these numbers.
    Challenged { theirs: Nonce, ours: Nonce },
}

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// An endpoint's.
    Ep(EpKey),
    /// Nobody's yet, it came in here.
    Listener(ListenerKey),
}

/// A read on its way.
pub struct PendingRead {
    pub ticket: Ticket,
    pub memory: AppIov,
}

/// An operation that is done when the peer acknowledges its message.
pub struct Unacknowledged {
    pub ticket: Ticket,
    /// Position in the stream behind the message. As long as it has not left,
    /// the operation's memory is read, and no acknowledgement can be true.
    pub end: u64,
}

/// An operation that waits for an answer with its name.
pub enum Named {
    /// To be acknowledged.
    Ack(Unacknowledged),
    /// A message that the peer copies from this process's memory, and then
    /// acknowledges.
    Offered {
        waits: Unacknowledged,
        memory: AppIov,
    },
    /// An atomic operation, with the place for its old values.
    Atomic { ticket: Ticket, result: AppIov },
    /// A message that was announced: to be sent when it is asked for.
    Announced {
        ticket: Ticket,
        /// `None` once it was asked for.
        payload: Option<Payload>,
        /// Whether it is done only when it has been acknowledged.
        ack: bool,
        /// Position in the stream behind the announcement, and behind the message
        /// once it was asked for.
        end: u64,
    },
}

/// The bytes of a message that waits to be sent.
pub enum Payload {
    /// The application's.
    App(AppIov),
    /// A copy.
    Own(Vec<u8>),
}

impl Payload {
    /// How many they are.
    pub fn len(&self) -> usize {
        match self {
            Payload::App(memory) => memory.len(),
            Payload::Own(bytes) => bytes.len(),
        }
    }
}

/// A receive that has asked for its message.
pub struct Asked {
    pub memory: AppIov,
    pub receipt: Option<Receipt>,
    pub len: usize,
}

impl Connection {
    /// A connection that has just begun, whose stream is to begin until the
    /// `deadline`.
    pub fn new(socket: OwnedFd, owner: Owner, stage: Stage, deadline: Option<Instant>) -> Self {
        Connection {
            socket,
            shortcut: None,
            calls: matches!(stage, Stage::Connecting { .. }),
            brought: 0,
            stage,
            deadline,
            heard: Vec::new(),
            owner,
            peer: None,
            src: UNKNOWN_SOURCE,
            features: Features::default(),
            order: ByteOrder::Native,
            instance: 0,
            pid: 0,
            stream: Stream::new(ByteOrder::Native, Features::default()),
            incoming: Incoming::Nothing,
            detours: Detours::FIRST,
            backlog: Vec::new(),
            outbox: Outbox::default(),
            looked: Looked::default(),
            lent: Lent::default(),
            burst: Burst::default(),
            answers: Burst::default(),
            debt: Debt::default(),
            is_held: false,
            owes: false,
            is_blocked: false,
            is_cut_off: false,
            is_ready: false,
            small_reads: 0,
            watch: Watch::default(),
            neighbour: Neighbour::default(),
            copies: Copies::default(),
            sequence: 0,
            onesided: Box::default(),
            reads: VecDeque::new(),
            acks: VecDeque::new(),
            owed: Vec::new(),
            named: SlotMap::with_key(),
            narrow: None,
            asked: HashMap::new(),
            is_refused: false,
            refusal_is_logged: false,
        }
    }

    /// Whether the stream flows.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether nothing is under way: no message has come or left in part, and neither side
    /// waits for anything that is still to come over it.
    pub fn is_idle(&self) -> bool {
        let between_messages = self.is_open()
            && self.stream.is_between_messages()
            && matches!(self.incoming, Incoming::Nothing)
            && self.backlog.is_empty();
        let sent = self.outbox.is_idle() && self.lent.is_empty() && self.owed.is_empty();
        let waits = self.awaits_answers() || self.narrow.as_ref().is_some_and(Narrow::is_waiting);
        let later = self.is_ready || self.is_held || self.is_paused() || self.copies.are_any();
        between_messages && sent && !waits && !later
    }

    /// Whether there may be something to read still where nothing can be sent for
    /// this reason.
    #[cold]
    pub fn outlives(&self, error: Errno) -> bool {
        let has_gone = matches!(error, Errno::EPIPE | Errno::ECONNRESET);
        has_gone && self.is_open() && !self.is_paused()
    }

    /// The way that its bytes take.
    #[inline(always)]
    pub fn path(&mut self) -> Path<'_> {
        Path::of(&self.socket, &mut self.shortcut)
    }

    /// Sends what is queued until nothing is left, `true`, or no more is taken.
    /// Application memory of at least `zerocopy` bytes is sent without a copy, where
    /// that is possible.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_queued(
        &mut self,
        registered: &mut Option<Target>,
        zerocopy: usize,
    ) -> Result<bool, Errno> {
        let path = Path::of(&self.socket, &mut self.shortcut);
        self.outbox
            .flush(registered, path, zerocopy, &mut self.lent)
    }

    /// Whether what is sent goes through memory: nothing is held back there.
    #[inline(always)]
    pub fn sends_by_memory(&self) -> bool {
        self.shortcut
            .as_ref()
            .is_some_and(|shortcut| shortcut.is_out())
    }

    /// [`Shortcut::takes_at_once`].
    pub fn takes_at_once(&mut self, len: usize) -> bool {
        let shortcut = self.shortcut.as_mut();
        shortcut.is_some_and(|shortcut| shortcut.takes_at_once(len))
    }

    /// Whether the last bytes for the socket, which those in memory follow, have
    /// not left and do not leave now.
    pub fn is_leaving(&mut self) -> bool {
        let Some(shortcut) = &mut self.shortcut else {
            return false;
        };
        shortcut.is_leaving() && shortcut.leave(self.socket.as_fd()) == Err(Errno::EAGAIN)
    }

    /// Whether what comes next has to wait.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.detours.pause() || self.copies.waiting.is_some()
    }

    /// Whether messages with nothing special about them may take the short way.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.detours.let_in() && self.stream.is_between_messages()
    }

    /// Counts answers, by which the outbox is larger than when it took so much
    /// room.
    #[inline]
    pub fn owe(&mut self, room_before: usize) {
        let bytes = self.outbox.room().saturating_sub(room_before);
        let awaits = self.awaits_answers();
        if !self.debt.add(bytes, awaits, self.outbox.span()) {
            self.detours.set(Detour::Overdue, true);
        }
    }

    /// Whether the peer has read so many of its answers that it may ask on.
    pub fn may_ask_on(&mut self) -> bool {
        let awaits = self.awaits_answers();
        self.debt.is_small(awaits, self.outbox.span())
    }

    /// Whether the peer is to answer something.
    #[inline]
    fn awaits_answers(&self) -> bool {
        !(self.named.is_empty()
            && self.reads.is_empty()
            && self.acks.is_empty()
            && self.asked.is_empty())
    }

    /// The handshake is over, which the peer ended with this message: the stream
    /// begins.
    pub fn open(&mut self, message: &Message, params: &Params) {
        self.stage = Stage::Open;
        self.deadline = None;
        self.heard = Vec::new();
        self.order = message.order;
        let is_foreign = self.order != ByteOrder::Native;
        self.detours.set(Detour::Unopened, false);
        self.detours.set(Detour::Foreign, is_foreign);
        // Atomic values are exchanged as they stand in memory.
        self.features = match message.order {
            ByteOrder::Native => message.features.and(params.features()),
            ByteOrder::Big => Features::default(),
        };
        self.instance = message.instance;
        self.stream = Stream::new(self.order, self.features);
        socket::set_up_path(self.socket.as_fd(), message.host, params);
    }

    /// The RDM protocol that both sides speak is of this version.
    pub fn agree_on(&mut self, version: u8) {
        let narrow = version >= rdm::RENDEZVOUS && !self.features.has(Features::RENDEZVOUS);
        self.narrow = narrow.then(Narrow::default);
    }

    /// The oldest read, on the way to its place.
    pub fn oldest_read(&mut self) -> Result<Placing, Fault> {
        let unasked = Fault::Protocol(WireError::Field("read response"));
        let read = self.reads.pop_front().ok_or(unasked)?;
        Ok(Placing::read(read.memory, read.ticket))
    }

    /// A name for an operation that waits for an answer.
    pub fn name_op(&mut self, waits: Named) -> u64 {
        to_peer(self.named.insert(waits))
    }

    /// The operation of this name.
    pub fn named(&mut self, name: u64) -> Option<&mut Named> {
        self.named.get_mut(from_peer(name))
    }

    /// Where the message is that was offered by this name.
    pub fn offered(&self, name: u64) -> Option<AppIov> {
        match self.named.get(from_peer(name)) {
            Some(Named::Offered { memory, .. }) => Some(*memory),
            _ => None,
        }
    }

    /// Whether the peer was offered what it may ask for help with.
    pub fn has_large_offers(&self) -> bool {
        self.named.values().any(|named| match named {
            Named::Offered { memory, .. } => memory.len() as u64 >= LEAST,
            _ => false,
        })
    }

    /// The operation of the message that is posted next, with this header, and
    /// is to be acknowledged.
    #[inline]
    pub fn unacknowledged(&self, ticket: Ticket, header: &Header) -> Unacknowledged {
        let end = self.end_of_next(header);
        Unacknowledged { ticket, end }
    }

    /// Position in the stream behind the message that is posted next, with this
    /// header.
    #[inline]
    pub fn end_of_next(&self, header: &Header) -> u64 {
        let len = header.encoded_len() + header.payload;
        self.outbox.end_of_next(len)
    }

    /// The operation of this name, off the list, if it waits for the kind of
    /// answer that `is_awaited` knows. Another kind of answer breaks the
    /// protocol, and must not make the operation disappear.
    pub fn take_named(
        &mut self,
        name: u64,
        is_awaited: impl FnOnce(&Named) -> bool,
    ) -> Option<Named> {
        let key = from_peer(name);
        match self.named.get(key) {
            Some(waits) if is_awaited(waits) => self.named.remove(key),
            _ => None,
        }
    }

    /// The address of the far end, for the log.
    pub fn peer_text(&self) -> String {
        peer_text(self.socket.as_fd())
    }

    /// Operations that will not be done any more.
    pub fn abandon(&mut self) -> Vec<Ticket> {
        let mut ops: Vec<Ticket> = self.lent.abandon().collect();
        ops.extend(self.outbox.abandon());
        ops.extend(self.acks.drain(..).map(|waits| waits.ticket));
        ops.extend(self.narrow.iter_mut().flat_map(Narrow::abandon));
        ops.extend(self.reads.drain(..).map(|read| read.ticket));
        ops.extend(self.named.drain().map(|(_, waits)| match waits {
            Named::Ack(Unacknowledged { ticket, .. })
            | Named::Offered {
                waits: Unacknowledged { ticket, .. },
                ..
            }
            | Named::Atomic { ticket, .. }
            | Named::Announced { ticket, .. } => ticket,
        }));
        ops
    }

    /// A header that acknowledges.
    pub fn ack_header(name: Option<u64>) -> Header {
        match name {
            None => Header::ack(),
            Some(id) => {
                let mut header = Header::new(crate::wire::header::Op::NamedAck);
                header.id = id;
                header
            }
        }
    }
}

/// The address of an RDM endpoint: where its connection comes from, with the
/// port at which it listens.
pub fn endpoint_address(from: SocketAddr, port: u16) -> SocketAddr {
    let mut addr = from;
    addr.set_port(port);
    if let SocketAddr::V6(v6) = &mut addr {
        v6.set_flowinfo(0);
    }
    addr
}
