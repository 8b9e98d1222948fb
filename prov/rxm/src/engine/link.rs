//! The state of a link, a connection between two endpoints.

use std::collections::VecDeque;
use std::time::Instant;

use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_message::peers::{Bytes as Payload, Deadline, Deferred, RdmAddress, UNKNOWN_SOURCE};
use prov_message::{Context, Receipt, Ticket, Transport};
use prov_util::below::{Endpoint, Local, Region, Slot};
use prov_util::endpoint::Side;
use prov_util::request::RemoteIov;
use slotmap::SlotMap;

use super::endpoint::Rdm;
use super::keys::{EpKey, FetchKey, LinkKey, PeerKey, PendingKey};
use crate::wire::Malformed;
use crate::wire::packet::{HEAD, Head};

/// Memory that was registered for an operation; mostly none.
pub type Registered = Option<Box<Vec<Region>>>;

/// Where the packet buffers of a link are posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receives {
    /// To a shared receive context.
    Shared,
    /// To its own endpoint, like those of all links.
    All,
    /// To its own endpoint, while most links share a context.
    Few,
}

/// The types of this provider's messages.
pub enum Rxm {}

impl Transport for Rxm {
    type Link = LinkKey;
    type Ack = ();
    type Name = Announced;
    type Endpoint = Box<Rdm>;
}

/// An announced message (rendezvous).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Announced {
    /// The sender's identifier of the message.
    pub message: u64,
    /// Its place in the sender's memory.
    pub memory: RemoteIov,
}

pub type Endpoints = prov_message::Endpoints<Rxm>;
pub type Action = prov_message::Action<Rxm>;
pub type Arrival = prov_message::Arrival<Rxm>;
pub type Charge = prov_message::Charge<LinkKey>;
pub type Course = prov_message::Course<Rxm>;

/// See the [module](self) description.
pub struct Link {
    pub ep: EpKey,
    /// The peer; `None` for the far end of an endpoint's link to itself.
    pub peer: Option<PeerKey>,
    /// Whether the peer has requested it.
    pub came_in: bool,
    /// The approximate time of the last packet, if its peer is a stranger.
    pub used: Instant,
    /// The address at which the peer listens.
    pub addr: RdmAddress,
    /// The peer's number in the address vector: see [`Link::has_source`].
    pub src: u64,
    /// Whether plain messages use the fast path: the source is known, and no packet waits.
    pub takes_plain: bool,
    pub stage: Stage,
    /// When it has to be open.
    pub deadline: Option<Deadline>,
    pub below: Endpoint,
    /// Where its packet buffers are posted: it can be held back if they are its own.
    pub receives: Receives,
    /// The reason why arriving packets are not handled: see [`Link::set_hold`].
    pub hold: Option<Hold>,
    /// The packets that wait, with their lengths. The first one is the packet for which the link is
    /// held back, unless that is an announcement.
    pub held: VecDeque<(Slot, usize)>,
    /// The destination of the message in the first of them, with which the link continues.
    pub resumed: Option<Course>,
    /// The number of the link in packets from the peer.
    pub id: u32,
    /// The number of the link in packets to the peer.
    pub far_id: u32,
    /// The process of the peer.
    pub far_pid: u32,
    /// Whether the peer says when its endpoint is closed in good order, and is told.
    pub takes_leave: bool,
    /// Whether it has said so.
    pub has_left: bool,
    /// Queued output, in order.
    pub queue: VecDeque<Out>,
    /// Number of bytes of packets in it.
    pub queued: usize,
    /// Whether the link is in the list of links with queued output.
    pub is_busy: bool,
    /// Number of operations below that have not completed.
    pub lent: usize,
    /// Operations that wait for the peer's response.
    pub pending: SlotMap<PendingKey, Pending>,
    /// Messages that are being read from the peer's memory.
    pub fetches: SlotMap<FetchKey, Fetching>,
    /// The message that is arriving in segments.
    pub assembly: Option<Assembly>,
    /// The identifier of the next message that is sent in segments.
    pub next_message: u64,
    /// The reason to end the link as soon as everything that the peer has sent has been received.
    pub ending: Option<Fault>,
}

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// This side has requested it.
    Asking,
    /// This side has accepted it.
    Accepting,
    Open,
}

/// What a link is held back for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// A message, or its first segment.
    Message,
    /// An announced message.
    Announcement,
}

/// Output that is sent as soon as there is room.
pub enum Out {
    /// A packet without a completion: its header, and the rest.
    Packet(Head, Box<[u8]>),
    /// The rest of a segmented message.
    Segments(Box<Segments>),
    /// The rest of a message that is read.
    Fetch(FetchKey),
    /// The rest of a message that is written.
    Push(PendingKey),
    /// An operation that has waited for the link.
    Again(Box<Deferred>, Ticket),
}

impl Out {
    /// Returns the size of queued packets whose number the peer determines.
    fn packet_len(&self) -> usize {
        match self {
            Out::Packet(_, behind) => HEAD + behind.len(),
            _ => 0,
        }
    }

    /// Returns whether it is of an operation of the application.
    fn is_of_an_operation(&self) -> bool {
        match self {
            Out::Packet(..) | Out::Fetch(_) => false,
            Out::Segments(_) | Out::Push(_) | Out::Again(..) => true,
        }
    }
}

/// A message that is sent in segments.
pub struct Segments {
    /// `None` with the last segment.
    pub ticket: Option<Ticket>,
    pub memory: AppIov,
    pub local: Local,
    pub regions: Registered,
    /// The header of all segments.
    pub head: Head,
    pub done: usize,
    pub number: u32,
    /// The flags of the last segment.
    pub flags: u64,
}

/// An operation that waits for the peer's response.
pub enum Pending {
    /// An announced message. If the peer has asked for it to be written, this is in progress.
    Announced {
        ticket: Ticket,
        memory: AppIov,
        regions: Vec<Region>,
        writing: Option<Transfer>,
    },
    /// An atomic operation, and the buffer for its result.
    Atomic { ticket: Ticket, result: AppIov },
}

/// A message that is being transferred from the peer's memory.
pub struct Fetching {
    /// The sender's identifier of the message.
    pub message: u64,
    pub receipt: Receipt<()>,
    /// The receive's buffer.
    pub memory: AppIov,
    pub regions: Vec<Region>,
    /// The state of reading it; `None` if the peer writes it.
    pub reading: Option<Transfer>,
}

/// A transfer from or to a peer's memory.
#[derive(Clone, Copy)]
pub struct Transfer {
    pub remote: RemoteIov,
    pub local: Local,
    /// Total number of bytes.
    pub len: usize,
    /// Number of bytes that were requested.
    pub posted: usize,
    /// Number of operations that have not completed.
    pub left: usize,
}

/// A message that is arriving in segments.
pub struct Assembly {
    pub message: u64,
    /// The header in its first segment; the others have to agree.
    pub arrival: Arrival,
    pub course: Course,
    /// What has arrived of it, if the application reads messages in place.
    pub in_place: Option<InPlace>,
    /// Number of bytes that have arrived.
    pub done: usize,
}

/// The beginning of a message that the application reads in place.
pub struct InPlace {
    pub bytes: Vec<u8>,
    /// The charge for the whole message.
    pub charge: Charge,
}

/// The reason for the end of a link.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The peer has ended, or cannot be reached.
    Ended(Errno),
    /// The peer has refused it.
    Refused,
    /// The peer has no such context of a scalable endpoint.
    NoContext,
    /// The peer violates the protocol.
    Protocol(&'static str),
    /// There is no room for what the peer sends.
    Flooded,
    /// The application has removed the peer's address.
    Removed,
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Fault::Protocol(malformed.0)
    }
}

impl Link {
    /// Creates a link in its first state.
    pub fn new(
        ep: EpKey,
        addr: RdmAddress,
        (below, receives): (Endpoint, Receives),
        stage: Stage,
    ) -> Self {
        Link {
            ep,
            peer: None,
            came_in: stage == Stage::Accepting,
            used: Instant::now(),
            addr,
            src: UNKNOWN_SOURCE,
            takes_plain: false,
            stage,
            deadline: None,
            below,
            receives,
            hold: None,
            held: VecDeque::new(),
            resumed: None,
            id: 0,
            far_id: 0,
            far_pid: 0,
            takes_leave: false,
            has_left: false,
            queue: VecDeque::new(),
            queued: 0,
            is_busy: false,
            lent: 0,
            pending: SlotMap::with_key(),
            fetches: SlotMap::with_key(),
            assembly: None,
            next_message: 0,
            ending: None,
        }
    }

    /// Queues output, after all other or before it.
    pub fn wait(&mut self, out: Out, push: fn(&mut VecDeque<Out>, Out)) {
        self.queued += out.packet_len();
        push(&mut self.queue, out);
    }

    /// Removes the next queued output.
    pub fn next_out(&mut self) -> Option<Out> {
        let out = self.queue.pop_front()?;
        self.queued -= out.packet_len();
        Some(out)
    }

    /// Removes an operation of which nothing has been sent, for fi_cancel(3).
    pub fn take_back(&mut self, context: Context) -> Option<Ticket> {
        let at = self.queue.iter().position(|out| match out {
            Out::Again(_, ticket) => ticket.op().can_be_cancelled_by(context),
            Out::Packet(..) | Out::Segments(_) | Out::Fetch(_) | Out::Push(_) => false,
        })?;
        match self.queue.remove(at) {
            Some(Out::Again(_, ticket)) => Some(ticket),
            _ => None,
        }
    }

    /// Returns whether something can be sent: the peer's number of the connection is known, and the
    /// connection is not known to have ended.
    pub fn can_send(&self) -> bool {
        self.is_open() && self.ending.is_none()
    }

    /// Whether the end of the connection, now, means that the peer's endpoint was closed in good
    /// order. A peer of the C library does not say so: it is one that ends while nothing is under
    /// way.
    pub fn ends_in_order(&self) -> bool {
        self.has_left || !self.takes_leave && self.has_nothing_under_way()
    }

    fn has_nothing_under_way(&self) -> bool {
        let nothing_out = self.queue.is_empty() && self.lent == 0 && self.pending.is_empty();
        let nothing_in = self.fetches.is_empty() && self.assembly.is_none() && self.hold.is_none();
        nothing_out && nothing_in
    }

    /// Returns whether no operation is outstanding on it.
    pub fn is_idle(&self) -> bool {
        self.is_open() && self.has_nothing_under_way() && self.ending.is_none()
    }

    /// Returns whether memory of this side's operations is in use, apart from operations below.
    pub fn has_memory_of(&self, side: Side) -> bool {
        match side {
            Side::Receive => {
                !self.fetches.is_empty() || self.assembly.is_some() || self.resumed.is_some()
            }
            Side::Transmit => {
                !self.pending.is_empty() || self.queue.iter().any(Out::is_of_an_operation)
            }
        }
    }

    /// Sets the peer's source, or none.
    pub fn has_source(&mut self, src: u64) {
        self.src = src;
        self.settle();
    }

    /// Holds the link back for this reason, or releases it. Returns the previous reason.
    pub fn set_hold(&mut self, hold: Option<Hold>) -> Option<Hold> {
        let before = std::mem::replace(&mut self.hold, hold);
        self.settle();
        before
    }

    fn settle(&mut self) {
        self.takes_plain = self.src != UNKNOWN_SOURCE && self.hold.is_none();
    }

    /// Returns whether messages of the peer have to be received although it has ended.
    pub fn outlives_peer(&self) -> bool {
        self.hold == Some(Hold::Message)
    }

    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }
}

/// Copies a payload to the beginning of a buffer, which is long enough.
#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "limited to the shorter one")]
pub fn copy(payload: &Payload<'_>, to: &mut [u8]) {
    match payload {
        Payload::App(memory) => {
            let len = memory.len().min(to.len());
            memory.read_at(0, &mut to[..len]);
        }
        Payload::Own(bytes) => {
            let len = bytes.len().min(to.len());
            to[..len].copy_from_slice(&bytes[..len]);
        }
    }
}
