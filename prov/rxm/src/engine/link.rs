//! A link: what connects two endpoints, without the engine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use prov_message::peers::{Bytes as Payload, Deferred, UNKNOWN_SOURCE};
use prov_message::{Receipt, Ticket, Transport};
use prov_util::below::{Endpoint, Local, Region, Slot};
use prov_util::buffer::AppIov;
use prov_util::errno::Errno;
use prov_util::request::RemoteIov;
use slotmap::SlotMap;

use super::below::{Receives, Registered};
use super::endpoint::Rdm;
use super::keys::{EpKey, FetchKey, LinkKey, PeerKey, PendingKey};
use crate::wire::Malformed;
use crate::wire::packet::{HEAD, Head};

/// What tells the messages of this provider from those of others.
pub enum Rxm {}

impl Transport for Rxm {
    type Link = LinkKey;
    type Ack = ();
    type Name = Announced;
    type Endpoint = Box<Rdm>;
}

/// A message that its sender has kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Announced {
    /// The sender's name for it.
    pub message: u64,
    /// Where it is in the sender's memory.
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
    /// Whose it is; none for the far end of an endpoint's link to itself.
    pub peer: Option<PeerKey>,
    /// Whether the peer has made it.
    pub came_in: bool,
    /// When packets came last, about, where its peer is a stranger.
    pub used: Instant,
    /// Where the peer listens.
    pub addr: SocketAddr,
    /// The peer's source, as the address vector has it: see [`Link::has_source`].
    pub src: u64,
    /// Whether messages that have nothing special about them are taken in at once: the
    /// source is known, and nothing waits before them.
    pub takes_plain: bool,
    pub stage: Stage,
    pub below: Endpoint,
    /// Where its receives are: it can be held back where they are its own.
    pub receives: Receives,
    /// Why nothing that comes is taken in: see [`Link::set_hold`].
    pub hold: Option<Hold>,
    /// Packets that wait for that, with their lengths; the first one is what the link is
    /// held back for, unless that is an announcement.
    pub held: VecDeque<(Slot, usize)>,
    /// What becomes of the message in the first of them, which the link goes on with.
    pub resumed: Option<Course>,
    /// What the peer calls it in packets.
    pub id: u32,
    /// What this side calls it in packets to the peer.
    pub far_id: u32,
    /// The process of the peer.
    pub far_pid: u32,
    /// What could not be sent yet, in order.
    pub queue: VecDeque<Out>,
    /// Bytes of the packets among that.
    pub queued: usize,
    /// Whether it is among the links with something to send.
    pub is_busy: bool,
    /// Operations below that have not completed.
    pub lent: usize,
    /// Operations that the peer is to answer.
    pub pending: SlotMap<PendingKey, Pending>,
    /// Messages that are on their way from the peer's memory.
    pub fetches: SlotMap<FetchKey, Fetching>,
    /// The message that is coming in parts.
    pub assembly: Option<Assembly>,
    /// The next message's name, of those that are sent in parts.
    pub next_message: u64,
    /// Why the link ends as soon as all is taken in that the peer has sent before.
    pub ending: Option<Fault>,
}

/// What has been said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// This side has asked.
    Asking,
    /// This side has accepted.
    Accepting,
    Open,
}

/// What a link is held back for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// A message, or the first part of one.
    Message,
    /// A message that is with the peer.
    Announcement,
}

/// What goes out as soon as there is room.
pub enum Out {
    /// A packet that nobody waits for: its head, and the bytes behind that.
    Packet(Head, Box<[u8]>),
    /// The rest of a message in parts.
    Segments(Box<Segments>),
    /// The rest of a message that is read.
    Fetch(FetchKey),
    /// The rest of a message that is written.
    Push(PendingKey),
    /// An operation that has waited for the link.
    Again(Box<Deferred>, Ticket),
}

impl Out {
    /// Bytes that it takes while it waits, where the peer says how many.
    fn packet_len(&self) -> usize {
        match self {
            Out::Packet(_, behind) => HEAD + behind.len(),
            _ => 0,
        }
    }
}

/// A message that goes out in parts.
pub struct Segments {
    /// None with the last part.
    pub ticket: Option<Ticket>,
    pub memory: AppIov,
    pub local: Local,
    pub regions: Registered,
    /// Of all parts.
    pub head: Head,
    pub done: usize,
    pub number: u32,
    /// Of the last part.
    pub flags: u64,
}

/// What the peer is to answer.
pub enum Pending {
    /// A message that it was told of. Where it has asked for it to be written,
    /// that is under way.
    Announced {
        ticket: Ticket,
        memory: AppIov,
        regions: Vec<Region>,
        writing: Option<Transfer>,
    },
    /// An atomic operation, and where its result goes.
    Atomic { ticket: Ticket, result: AppIov },
}

/// A message on its way from the peer's memory.
pub struct Fetching {
    /// The sender's name for it.
    pub message: u64,
    pub receipt: Receipt<()>,
    /// The receive's buffer, and what of it the message fills.
    pub whole: AppIov,
    pub memory: AppIov,
    pub regions: Vec<Region>,
    /// How much is read, and how far that is; none where the peer writes.
    pub reading: Option<Transfer>,
}

/// Bytes that are read from, or written to, a peer's memory.
#[derive(Clone, Copy)]
pub struct Transfer {
    pub remote: RemoteIov,
    pub local: Local,
    /// Bytes in all.
    pub len: usize,
    /// Bytes that were asked for.
    pub posted: usize,
    /// Operations that have not completed.
    pub left: usize,
}

/// A message that is coming in parts.
pub struct Assembly {
    pub message: u64,
    /// As its first part says; the others have to agree.
    pub arrival: Arrival,
    pub course: Course,
    /// What has come of it, where the application takes messages in place.
    pub in_place: Option<InPlace>,
    /// Bytes that have come.
    pub done: usize,
}

/// What has come of a message that the application takes in place.
pub struct InPlace {
    pub bytes: Vec<u8>,
    /// For all of the message.
    pub charge: Charge,
}

/// Why a link ends.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The peer has ended, or cannot be reached.
    Ended(Errno),
    /// The peer does not want it.
    Refused,
    /// The peer does what it never would.
    Protocol(&'static str),
    /// There is no room for what it sends.
    Flooded,
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Fault::Protocol(malformed.0)
    }
}

impl Link {
    /// Without anything said.
    pub fn new(
        ep: EpKey,
        addr: SocketAddr,
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
            below,
            receives,
            hold: None,
            held: VecDeque::new(),
            resumed: None,
            id: 0,
            far_id: 0,
            far_pid: 0,
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

    /// Something waits to be sent: behind all else, or before it.
    pub fn wait(&mut self, out: Out, push: fn(&mut VecDeque<Out>, Out)) {
        self.queued += out.packet_len();
        push(&mut self.queue, out);
    }

    /// What goes out next, which does not wait any more.
    pub fn next_out(&mut self) -> Option<Out> {
        let out = self.queue.pop_front()?;
        self.queued -= out.packet_len();
        Some(out)
    }

    /// Whether something can be sent: the peer's name for the connection is known,
    /// and the connection has not ended as far as is known.
    pub fn can_send(&self) -> bool {
        self.is_open() && self.ending.is_none()
    }

    /// Whether nothing is under way on it.
    pub fn is_idle(&self) -> bool {
        let nothing_out = self.queue.is_empty() && self.lent == 0 && self.pending.is_empty();
        let nothing_in = self.fetches.is_empty() && self.assembly.is_none() && self.hold.is_none();
        self.is_open() && nothing_out && nothing_in && self.ending.is_none()
    }

    /// The peer has this source, or none.
    pub fn has_source(&mut self, src: u64) {
        self.src = src;
        self.settle();
    }

    /// The link is held back for this, or goes on. Returns what it was held back for.
    pub fn set_hold(&mut self, hold: Option<Hold>) -> Option<Hold> {
        let before = std::mem::replace(&mut self.hold, hold);
        self.settle();
        before
    }

    fn settle(&mut self) {
        self.takes_plain = self.src != UNKNOWN_SOURCE && self.hold.is_none();
    }

    /// Whether messages of the peer that has ended are still to be taken in.
    pub fn outlives_peer(&self) -> bool {
        self.hold == Some(Hold::Message)
    }

    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }
}

/// Copies a payload to the front of bytes, which are long enough.
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
