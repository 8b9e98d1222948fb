//! One TCP connection with all of its state.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::local::neighbour::Neighbour;
use crate::local::outbox::{Debt, Outbox, ZeroCopySends};
use prov_base::errno::Errno;
use prov_base::socket::peer_text;
use prov_base::socket::silence::Watch;
use prov_local::link::payload::Payload;
use prov_message::keys::{from_peer, to_peer};
use prov_message::peers::{Deadline, UNKNOWN_SOURCE};
use prov_message::{Burst, RmaTarget, Ticket};
use prov_util::endpoint::Side;

use crate::engine::link::access::OneSided;
use crate::engine::link::copies::Copies;
use crate::engine::link::detours::{Detour, Detours};
use crate::engine::link::fault::Fault;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::{ConnKey, EpKey, ListenerKey, PeerKey};
use crate::engine::link::messages::Placing;
use crate::engine::link::narrow::Narrow;
use crate::engine::link::outstanding::{Named, Outstanding, Unacknowledged};
use crate::engine::link::ready::{Reasons, Why};
use crate::engine::link::socket;
use crate::engine::link::stillness::Stillness;
use crate::local::path::{Path, Shortcut};
use crate::multipath::Multipath;
use crate::params::Params;
use crate::wire::authentication::Nonce;
use crate::wire::handshake::{Features, Message};
use crate::wire::header::Header;
use crate::wire::stream::Stream;
use crate::wire::{ByteOrder, WireError, rdm};

/// A connection in any stage.
pub struct Connection {
    pub socket: OwnedFd,
    pub stage: Stage,
    /// Nothing once the stream has begun.
    pub setup: Setup,
    pub owner: Owner,
    /// The peer in its endpoint's table; only of RDM endpoints.
    pub peer: Option<PeerKey>,
    /// The peer in the endpoint's address vector, or [`UNKNOWN_SOURCE`].
    pub src: u64,
    /// The extensions of the C library's protocol that both sides support.
    pub features: Features,
    pub order: ByteOrder,
    /// Identifies the peer's endpoint, see [`crate::wire::handshake::Message`].
    pub instance: u64,
    /// The peer's process; only of RDM endpoints.
    pub pid: u32,
    pub stream: Stream,
    pub incoming: Incoming,
    /// The flags that force messages onto the slow path.
    pub detours: Detours,
    /// Bytes that were read after a message that waits.
    pub backlog: Vec<u8>,
    pub outbox: Outbox,
    pub stillness: Stillness,
    pub looked: Looked,
    /// Operations that were sent without a copy.
    pub lent: ZeroCopySends,
    pub bursts: Bursts,
    /// The reasons for which it is in the lane's ready queue.
    pub due: Reasons,
    /// Whether the peer has said that its endpoint is closed in good order.
    pub has_left: bool,
    /// Number of consecutive reads of small messages while the connection is in bulk mode.
    pub small_reads: u8,
    /// Whether this side has requested the connection.
    pub calls: bool,
    /// Detects whether its host has failed.
    pub watch: Watch,
    /// What a peer that is a process of this host adds.
    pub local: Local,
    /// Its subflows, if it has several.
    pub multipath: Option<Box<Multipath>>,
    /// Number of the next message in the stream.
    pub sequence: u8,
    /// What waits for answers of the peer.
    pub ops: Outstanding,
    /// Names of received messages that are to be acknowledged.
    pub owed: Vec<u64>,
    pub logged: Logged,
}

/// What the outbox holds back, so that several messages leave at once.
#[derive(Default)]
pub struct Bursts {
    /// The burst of the application's messages.
    pub messages: Burst,
    /// The burst of answers to the peer, which are not messages of the application.
    pub answers: Burst,
    /// The size of the answers in the outbox.
    pub debt: Debt,
    /// Whether the outbox contains only answers, while it waits for its burst to end.
    pub owes: bool,
}

/// What this process has and knows of a peer that is a process of this host.
#[derive(Default)]
pub struct Local {
    /// Whether the peer is on this host, according to itself or its address.
    pub is_within_host: bool,
    /// Memory that is shared with it.
    pub shortcut: Option<Box<Shortcut>>,
    /// How often something was received before there was such memory, as far as that is counted.
    pub brought: u8,
    /// Whether the two processes can read each other's memory.
    pub neighbour: Neighbour,
    /// The copies from the peer's memory.
    pub copies: Copies,
    /// The access of each of the two processes to the other's memory by itself.
    pub onesided: Box<OneSided>,
}

/// What the log already says about a connection.
#[derive(Default)]
pub struct Logged {
    /// That the peer does not support requested operations.
    pub lacks_support: bool,
    /// That the peer was refused access to memory.
    pub refusal: bool,
}

/// The handshake of a connection.
#[derive(Default)]
pub struct Setup {
    /// When it times out.
    pub deadline: Option<Deadline>,
    /// The bytes of its next message that have been received.
    pub heard: Vec<u8>,
}

/// When this connection was last checked for received data.
#[derive(Default)]
pub struct Looked {
    /// The number of the progress call that checked it, among those that do.
    round: u64,
    /// Number of bytes of the outbox that had been sent.
    sent: u64,
}

impl Looked {
    /// Notes a check.
    pub fn note(&mut self, round: u64, sent: u64) {
        *self = Looked { round, sent };
    }

    /// Returns how much of `sent` has been sent without a check.
    #[inline]
    pub fn sent_since(&mut self, round: u64, sent: u64) -> u64 {
        if round != self.round {
            self.note(round, sent);
        }
        sent - self.sent
    }
}

/// The stage of a connection. Its discriminant is a byte of its own, which every message tests.
#[repr(u8)]
pub enum Stage {
    /// connect(2) is in progress; `request` is sent when it succeeds.
    Connecting { request: Vec<u8> },
    /// The hello is sent; the request follows the answer.
    Proving { nonce: Nonce, request: Vec<u8> },
    /// The request is sent.
    Requested,
    /// Accepted: the peer has to send first.
    Accepted(AuthState),
    /// The stream has begun.
    Open,
    /// It has, and the kernel or the memory accepts no more data for now.
    Blocked,
    /// It has, and the peer has gone, so that no more data is accepted: the connection ends when the
    /// data that arrived before has been read.
    CutOff,
}

/// The first step that a peer that has connected must take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthState {
    /// Send its request; no key is required.
    Open,
    /// Send its request for a subflow, which contains a token.
    Joining,
    /// Send its request; it has proved its key.
    Proven,
    /// Send hello.
    Closed,
    /// Prove its key, for these numbers.
    Challenged { theirs: Nonce, ours: Nonce },
}

/// The owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// An endpoint's.
    Ep(EpKey),
    /// A listener's, until the request has been processed.
    Listener(ListenerKey),
    /// A connection to which it is added as its subflow with this number, once the peer has accepted.
    Subflow(ConnKey, u8),
}

impl Connection {
    /// Creates a connection, whose stream has to begin before the `deadline`.
    pub fn new(socket: OwnedFd, owner: Owner, stage: Stage, deadline: Option<Instant>) -> Self {
        Connection {
            socket,
            calls: matches!(stage, Stage::Connecting { .. }),
            stage,
            setup: Setup {
                deadline: deadline.map(Deadline::new),
                heard: Vec::new(),
            },
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
            stillness: Stillness::default(),
            looked: Looked::default(),
            lent: ZeroCopySends::default(),
            bursts: Bursts::default(),
            due: Reasons::default(),
            has_left: false,
            small_reads: 0,
            watch: Watch::default(),
            local: Local::default(),
            multipath: None,
            sequence: 0,
            owed: Vec::new(),
            ops: Outstanding::default(),
            logged: Logged::default(),
        }
    }

    /// Whether it is the one of a connected endpoint (`FI_EP_MSG`), which completes receives in order:
    /// rxm relies on that.
    #[inline(always)]
    pub fn is_msg(&self) -> bool {
        self.peer.is_none()
    }

    /// Returns its endpoint.
    #[inline(always)]
    pub fn ep(&self) -> Option<EpKey> {
        match self.owner {
            Owner::Ep(ep) => Some(ep),
            Owner::Listener(_) | Owner::Subflow(..) => None,
        }
    }

    /// Whether the stream has begun.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Blocked | Stage::CutOff)
    }

    /// Whether no more data is accepted, for now or for ever.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        matches!(self.stage, Stage::Blocked | Stage::CutOff)
    }

    /// Whether the peer has gone, so that data is only read.
    #[inline]
    pub fn is_cut_off(&self) -> bool {
        matches!(self.stage, Stage::CutOff)
    }

    /// Notes whether more data is accepted now.
    #[inline]
    pub fn set_blocked(&mut self, is_blocked: bool) {
        match (&self.stage, is_blocked) {
            (Stage::Open, true) => self.stage = Stage::Blocked,
            (Stage::Blocked, false) => self.stage = Stage::Open,
            _ => {}
        }
    }

    /// Whether the connection is idle: no message is partly received or sent, and neither side
    /// waits for anything from the other.
    pub fn is_idle(&self) -> bool {
        let between_messages = self.is_open()
            && self.stream.is_between_messages()
            && matches!(self.incoming, Incoming::Nothing)
            && self.backlog.is_empty();
        let sent = self.outbox.is_idle() && self.lent.is_empty() && self.owed.is_empty();
        let waits =
            self.awaits_answers() || self.ops.narrow.as_ref().is_some_and(Narrow::is_waiting);
        let later = self.due.has(Why::Read) || self.due.has(Why::Held);
        let later = later || self.is_paused() || self.local.copies.are_any();
        between_messages && sent && !waits && !later
    }

    /// Whether the end of the stream, now, means that the peer's endpoint was closed in good order.
    /// A peer of the C library does not say so: it is one that ends while nothing is under way.
    pub fn ends_in_order(&self) -> bool {
        let can_say_so = self.features.has(Features::RENDEZVOUS);
        self.has_left || !can_say_so && self.is_idle()
    }

    /// Whether operations of this side of the endpoint are in progress on this connection, so that
    /// their memory is read or written.
    pub fn has_memory_of(&self, side: Side) -> bool {
        match side {
            Side::Receive => {
                matches!(self.incoming, Incoming::Place(_))
                    || self.local.copies.are_any()
                    || !self.ops.asked.is_empty()
            }
            Side::Transmit => {
                !(self.outbox.is_idle()
                    && self.lent.is_empty()
                    && self.ops.acks.is_empty()
                    && self.ops.reads.is_empty()
                    && self.ops.named.is_empty())
                    || self.ops.narrow.as_ref().is_some_and(Narrow::is_waiting)
            }
        }
    }

    /// Whether there may still be data to read although sending fails for this reason.
    #[cold]
    pub fn outlives(&self, error: Errno) -> bool {
        let has_gone = matches!(error, Errno::EPIPE | Errno::ECONNRESET);
        has_gone && self.is_open() && !self.is_paused()
    }

    /// Returns the path of its bytes: the socket or shared memory.
    #[inline(always)]
    pub fn path(&mut self) -> Path<'_> {
        Path::of(&self.socket, &mut self.local.shortcut, &mut self.multipath)
    }

    /// Sends what is queued, until the queue is empty (`true`) or no more is accepted. Application
    /// memory of at least `zerocopy` bytes is sent without a copy, if possible.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_queued(
        &mut self,
        registered: &mut Option<RmaTarget>,
        zerocopy: usize,
    ) -> Result<bool, Errno> {
        let path = Path::of(&self.socket, &mut self.local.shortcut, &mut self.multipath);
        let path = path.at_position(self.outbox.sent());
        self.outbox
            .flush(registered, path, zerocopy, &mut self.lent)
    }

    /// Whether messages are sent through shared memory, where they are not held for bursts.
    #[inline(always)]
    pub fn sends_by_memory(&self) -> bool {
        self.local
            .shortcut
            .as_ref()
            .is_some_and(|shortcut| shortcut.is_out())
    }

    /// Whether the last bytes for the socket, which the bytes in shared memory follow, are still
    /// unsent after another attempt.
    pub fn is_leaving(&mut self) -> bool {
        let Some(shortcut) = &mut self.local.shortcut else {
            return false;
        };
        shortcut.is_leaving() && shortcut.leave(self.socket.as_fd()) == Err(Errno::EAGAIN)
    }

    /// Whether it has several subflows, or is about to have them.
    #[inline]
    pub fn is_multipath(&self) -> bool {
        self.multipath.is_some()
    }

    /// Whether there may be more to receive on another subflow.
    pub fn may_receive_elsewhere(&self) -> bool {
        let multipath = self.multipath.as_ref();
        multipath.is_some_and(|multipath| multipath.may_receive())
    }

    /// Whether processing of received data has to wait.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.detours.pause()
    }

    /// Whether messages without special properties may take the fast path.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.detours.let_in() && self.stream.is_between_messages()
    }

    /// Counts answers, by the growth of the outbox since its size was `room_before`.
    #[inline]
    pub fn owe(&mut self, room_before: usize) {
        let bytes = self.outbox.room().saturating_sub(room_before);
        let awaits = self.awaits_answers();
        if !self.bursts.debt.add(bytes, awaits, self.outbox.span()) {
            self.detours.set(Detour::Overdue, true);
        }
    }

    /// Whether the peer has read enough of its answers that further requests are accepted.
    pub fn may_ask_on(&mut self) -> bool {
        let awaits = self.awaits_answers();
        self.bursts.debt.is_small(awaits, self.outbox.span())
    }

    /// Whether answers of the peer are outstanding.
    #[inline]
    fn awaits_answers(&self) -> bool {
        !(self.ops.named.is_empty()
            && self.ops.reads.is_empty()
            && self.ops.acks.is_empty()
            && self.ops.asked.is_empty())
    }

    /// Handles the end of the handshake, with the last message of the peer: the stream begins.
    pub fn open(&mut self, message: &Message, params: &Params) {
        self.stage = Stage::Open;
        self.setup = Setup::default();
        self.order = message.order;
        let is_foreign = self.order != ByteOrder::Native;
        self.detours.set(Detour::Unopened, false);
        self.detours.set(Detour::Foreign, is_foreign);
        // Atomic values are exchanged in their representation in memory.
        self.features = match message.order {
            ByteOrder::Native => message.features.and(params.features()),
            ByteOrder::Big => Features::default(),
        };
        self.instance = message.instance;
        self.stream = Stream::new(self.order, self.features);
        self.local.is_within_host = socket::set_up_path(self.socket.as_fd(), message.host, params);
    }

    /// Sets the version of the RDM protocol that both sides support.
    pub fn agree_on(&mut self, version: u8) {
        let narrow = version >= rdm::RENDEZVOUS && !self.features.has(Features::RENDEZVOUS);
        self.ops.narrow = narrow.then(Narrow::default);
    }

    /// Returns the oldest read, whose data arrives next.
    pub fn oldest_read(&mut self) -> Result<Placing, Fault> {
        let unasked = Fault::Protocol(WireError::Field("read response"));
        let read = self.ops.reads.pop_front().ok_or(unasked)?;
        Ok(Placing::read(read.memory, read.ticket))
    }

    /// Registers an operation that waits for an answer; returns its name.
    pub fn name_op(&mut self, waits: Named) -> u64 {
        let name = self.ops.named.insert(waits);
        bounded!(self.ops.named, OPERATIONS);
        to_peer(name)
    }

    /// Returns the operation with this name.
    pub fn named(&mut self, name: u64) -> Option<&mut Named> {
        self.ops.named.get_mut(from_peer(name))
    }

    /// Returns the payload of the message that was offered by this name.
    pub fn offered(&self, name: u64) -> Option<&Payload> {
        match self.ops.named.get(from_peer(name)) {
            Some(Named::Offered { payload, .. }) => Some(payload),
            _ => None,
        }
    }

    /// Whether the peer was offered messages that it may fetch.
    pub fn has_offers(&self) -> bool {
        let mut named = self.ops.named.values();
        named.any(|named| matches!(named, Named::Offered { .. }))
    }

    /// Returns the entry for the operation of the next message, with this header, which is to be
    /// acknowledged.
    #[inline]
    pub fn unacknowledged(&self, ticket: Ticket, header: &Header) -> Unacknowledged {
        let end = self.end_of_next(header);
        Unacknowledged { ticket, end }
    }

    /// Returns the position in the stream after the next message, with this header.
    #[inline]
    pub fn end_of_next(&self, header: &Header) -> u64 {
        let len = header.encoded_len() + header.payload;
        self.outbox.end_of_next(len)
    }

    /// Removes and returns the operation with this name, if it waits for the kind of answer that
    /// `is_awaited` accepts. An answer of another kind is a protocol error, and must not remove the
    /// operation.
    pub fn take_named(
        &mut self,
        name: u64,
        is_awaited: impl FnOnce(&Named) -> bool,
    ) -> Option<Named> {
        let key = from_peer(name);
        match self.ops.named.get(key) {
            Some(waits) if is_awaited(waits) => self.ops.named.remove(key),
            _ => None,
        }
    }

    /// Returns the address of the peer, for the log.
    pub fn peer_text(&self) -> String {
        peer_text(self.socket.as_fd())
    }

    /// Removes and returns the operations that will not complete.
    pub fn abandon(&mut self) -> Vec<Ticket> {
        let mut ops: Vec<Ticket> = self.lent.abandon().collect();
        ops.extend(self.outbox.abandon());
        ops.extend(self.ops.acks.drain(..).map(|waits| waits.ticket));
        ops.extend(self.ops.narrow.iter_mut().flat_map(Narrow::abandon));
        ops.extend(self.ops.reads.drain(..).map(|read| read.ticket));
        ops.extend(self.ops.named.drain().filter_map(|(_, waits)| match waits {
            Named::Ack(Unacknowledged { ticket, .. }) | Named::Atomic { ticket, .. } => {
                Some(ticket)
            }
            Named::Announced { ticket, .. } | Named::Offered { ticket, .. } => ticket,
        }));
        ops
    }

    /// Returns the header of an acknowledgement.
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

/// Returns the address of an RDM endpoint: the address of its connection, with the port at which it
/// listens.
pub fn endpoint_address(from: SocketAddr, port: u16) -> SocketAddr {
    let mut addr = from;
    addr.set_port(port);
    if let SocketAddr::V6(v6) = &mut addr {
        v6.set_flowinfo(0);
    }
    addr
}
