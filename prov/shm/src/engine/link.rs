//! A link: what connects two endpoints, without the engine.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Instant;

use crate::listener::Wire;
use prov_base::buffer::{AppIov, Iov, Piece};
use prov_base::errno::Errno;
use prov_base::process_memory::{OtherIov, Seal};
use prov_local::channel::{Channel, Head, MODERATE, Record};
use prov_local::copies::Transfers;
use prov_local::onesided::table::Watching;
use prov_local::onesided::window::Window;
use prov_local::parts::PATIENCE;
use prov_local::process::OtherProcess;
use prov_local::ring::Broken;
use prov_message::peers::Deferred;
use prov_message::{OpClass, Ticket, Transport};
use prov_util::endpoint::Side;
use prov_util::mr::Grants;
use prov_util::request::{Access, RemoteAccess, RemoteIov};
use slotmap::SlotMap;

use super::endpoint::Rdm;
use super::keys::{EpKey, LinkKey, PeerKey, PendingKey};
use super::records::{HAS_DATA, REMOTE_LIST, WAS_READ, WAS_WRITTEN, remote_list};
use super::sending::{EAGER, WIDE};

/// Requests that the peer has yet to answer.
pub const REQUESTS: usize = 4096;
/// What tells the messages of this provider from those of others.
pub enum Shm {}

impl Transport for Shm {
    type Link = LinkKey;
    type Ack = Ack;
    type Name = Offered;
    type Endpoint = Box<Rdm>;

    /// That of the C library's shm.
    const MIN_MULTI_RECV: usize = 4096;
}

/// The sender's name for a message that it wants acknowledged; 0 for none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ack(pub u64);

/// A message that its sender has kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offered {
    /// The sender's name for it.
    pub name: u64,
    /// Where it is in the sender's memory.
    pub from: OtherIov,
}

pub type Endpoints = prov_message::Endpoints<Shm>;
pub type Action = prov_message::Action<Shm>;
pub type Arrival = prov_message::Arrival<Shm>;
pub type Placing = prov_message::Placing<Shm>;
pub type Then = prov_message::Then<Shm>;

/// See the [module](self) description.
pub struct Link {
    pub ep: EpKey,
    /// Whose it is; none for the far end of an endpoint's link to itself, and
    /// before it is known.
    pub peer: Option<PeerKey>,
    /// The peer's source, as the address vector has it.
    pub src: u64,
    pub stage: Stage,
    pub wire: Wire,
    /// There is one once the link is open, or asked for by this side.
    pub channel: Option<Channel>,
    /// What vouches for this process's memory towards the peer.
    pub seal: Seal,
    /// The peer's memory, where this process can read it.
    pub memory: Option<OtherProcess>,
    /// What of it this process accesses by itself.
    pub window: Option<Window>,
    /// The peer may do so with this one's registered memory.
    pub watching: Option<Watching>,
    pub pending: Unanswered,
    /// Answers for which there was no room in the channel.
    pub answers: VecDeque<Answer>,
    /// Bytes in them.
    pub answer_bytes: usize,
    /// What the peer reads, which is sent in parts.
    pub streams: VecDeque<Stream>,
    /// Writes that go out in parts, one after the other.
    pub writings: VecDeque<Writing>,
    /// Operations that were posted behind such writes, or behind reads whose results come in
    /// parts: they may not overtake them. Changed by [`Link::wait_behind`] and
    /// [`Link::next_behind`].
    behind: VecDeque<(Deferred, Ticket)>,
    /// The peer's write that comes in parts.
    pub parts: Option<Parts>,
    /// How many messages the peer had taken, and when, as there was last no room for a long
    /// eager message and it had taken some since the time before.
    full_since: Option<(u64, Instant)>,
    /// Payloads that the peer has announced, as far as they are being fetched.
    pub pulls: Transfers<Shm>,
    /// Whether the next message of the peer has to wait for room.
    pub is_stalled: bool,
    /// Whether it is among those that wait until the application has read completions.
    pub is_unreported: bool,
    /// Whether it is among the links that have something to send.
    pub is_busy: bool,
    /// What the peer has done to the channel that it never would.
    pub broken: Option<Broken>,
    /// Whether the peer has ended: what it has sent before is taken in still.
    pub has_ended: bool,
}

/// What has been said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// This side has asked.
    Asking,
    /// Somebody is there who has not asked yet.
    Entered,
    Open,
}

/// What the peer is to answer.
pub enum Pending {
    /// The end of an operation.
    Op(Ticket),
    /// A read, or an atomic operation with a result, where that goes, and how many bytes
    /// are there.
    Result {
        ticket: Ticket,
        to: AppIov,
        done: usize,
    },
    /// What was offered, and the operation that is done with it.
    Offer {
        ticket: Option<Ticket>,
        bytes: Bytes,
    },
}

impl Pending {
    /// Whether the peer answers it as soon as it comes.
    fn is_request(&self) -> bool {
        match self {
            Pending::Op(ticket)
            | Pending::Offer {
                ticket: Some(ticket),
                ..
            } => {
                let class = ticket.op().class;
                !matches!(class, OpClass::Send | OpClass::TaggedSend)
            }
            Pending::Result { .. } => true,
            Pending::Offer { ticket: None, .. } => false,
        }
    }

    /// Whether the peer does not send it with its answer.
    fn is_long_result(&self) -> bool {
        matches!(self, Pending::Result { to, .. } if to.len() > EAGER)
    }

    /// Whether the peer reads it.
    fn is_read(&self) -> bool {
        matches!(self, Pending::Offer { ticket: None, .. })
    }
}

/// All that the peer is to answer.
#[derive(Default)]
pub struct Unanswered {
    all: SlotMap<PendingKey, Pending>,
    /// How many of them the peer answers as soon as they come.
    requests: usize,
    /// And how many are what it reads.
    reads: usize,
    /// Why messages may not take the fast path: [`OFFERS_ONLY`] for a peer that wants messages
    /// to be announced, [`HAS_BEHIND`] while operations wait behind long ones, and
    /// [`LONG_RESULT`] for each long result that is to come.
    detours: usize,
}

/// See [`Unanswered::has_detours`].
const OFFERS_ONLY: usize = 1;
const HAS_BEHIND: usize = 2;
const LONG_RESULT: usize = 4;

impl Unanswered {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn insert(&mut self, pending: Pending) -> PendingKey {
        self.requests += usize::from(pending.is_request());
        self.reads += usize::from(pending.is_read());
        self.detours += LONG_RESULT * usize::from(pending.is_long_result());
        self.all.insert(pending)
    }

    pub fn remove(&mut self, name: PendingKey) -> Option<Pending> {
        let pending = self.all.remove(name)?;
        self.requests -= usize::from(pending.is_request());
        self.reads -= usize::from(pending.is_read());
        self.detours -= LONG_RESULT * usize::from(pending.is_long_result());
        Some(pending)
    }

    /// Whether messages may not take the fast path.
    #[inline(always)]
    pub fn has_detours(&self) -> bool {
        self.detours != 0
    }

    /// Whether the peer wants messages to be offered.
    pub fn offers_only(&self) -> bool {
        self.detours & OFFERS_ONLY != 0
    }

    /// The peer wants so, or not.
    pub fn offer_only(&mut self, only: bool) {
        self.detours = self.detours & !OFFERS_ONLY | if only { OFFERS_ONLY } else { 0 };
    }

    /// Whether operations wait behind long ones.
    fn has_behind(&self) -> bool {
        self.detours & HAS_BEHIND != 0
    }

    fn note_behind(&mut self, are_any: bool) {
        self.detours = self.detours & !HAS_BEHIND | if are_any { HAS_BEHIND } else { 0 };
    }

    /// Whether long results are to come. The peer reads its memory for them when there is
    /// room, so that nothing may follow that changes it, or leads the peer to change it.
    pub fn has_long_results(&self) -> bool {
        self.detours >= LONG_RESULT
    }

    /// Whether the peer reads more than it would ever have under way, with those of which
    /// it has yet to say that they are done.
    pub fn has_too_many_reads(&self) -> bool {
        self.reads > 2 * REQUESTS
    }

    /// Where a result goes, and how many bytes of it are there.
    pub fn result(&mut self, name: PendingKey) -> Option<(AppIov, &mut usize)> {
        match self.all.get_mut(name)? {
            Pending::Result { to, done, .. } => Some((*to, done)),
            Pending::Op(_) | Pending::Offer { .. } => None,
        }
    }

    pub fn into_all(self) -> impl Iterator<Item = Pending> {
        self.all.into_iter().map(|(_, pending)| pending)
    }
}

impl Deref for Unanswered {
    type Target = SlotMap<PendingKey, Pending>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// Bytes that are sent when they are asked for.
pub enum Bytes {
    /// Of an operation in flight.
    App(AppIov),
    /// A copy.
    Own(Box<[u8]>),
    /// Registered memory that the peer reads.
    Registered(Grants),
}

impl Bytes {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Bytes::App(memory) => memory.len(),
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Registered(grants) => grants.len(),
        }
    }
}

/// An answer with its bytes.
pub struct Answer {
    pub head: Head,
    pub bytes: Vec<u8>,
}

/// What a peer reads, on its way in parts.
pub struct Stream {
    pub offer: PendingKey,
    /// The peer's name for it.
    pub to: u64,
    pub done: usize,
    pub len: usize,
}

/// A write on its way.
pub struct Writing {
    pub name: PendingKey,
    pub bytes: Bytes,
    pub remote: RemoteIov,
    pub data: Option<u64>,
    pub done: usize,
    pub len: usize,
}

/// What has come of a peer's write in parts.
pub struct Parts {
    /// The peer's name for it.
    pub name: u64,
    /// Bytes of the parts.
    pub len: usize,
    /// Where all of them go; `None` if that was refused.
    pub to: Option<Grants>,
}

/// Why a link ends.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The peer has ended, or cannot be reached.
    Ended(Errno),
    /// The peer does not want it: another one is being made.
    Refused,
    /// The peer does what it never would.
    Protocol(&'static str),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Fault::Protocol(broken.0)
    }
}

/// What waking a sleeper sends.
pub const WAKE: &[u8] = b"\0";

impl Link {
    /// Without a channel.
    pub fn new(ep: EpKey, wire: Wire, seal: Seal, stage: Stage) -> Self {
        Link {
            ep,
            peer: None,
            src: prov_message::peers::UNKNOWN_SOURCE,
            stage,
            wire,
            channel: None,
            seal,
            memory: None,
            window: None,
            watching: None,
            pending: Unanswered::default(),
            answers: VecDeque::new(),
            answer_bytes: 0,
            streams: VecDeque::new(),
            writings: VecDeque::new(),
            behind: VecDeque::new(),
            parts: None,
            full_since: None,
            pulls: Transfers::default(),
            is_stalled: false,
            is_unreported: false,
            is_busy: false,
            broken: None,
            has_ended: false,
        }
    }

    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether the next message of the peer can be taken in when it comes.
    #[inline(always)]
    pub fn can_take(&self) -> bool {
        !self.is_stalled
    }

    /// The bytes of the peer's message that is next.
    #[inline]
    pub fn bytes(&self, record: &Record) -> Piece<'_> {
        let channel = self.channel.as_ref();
        channel.map_or(Piece::EMPTY, |channel| channel.receiver.bytes(record))
    }

    /// Sends a message whose `len` bytes `fill` puts in place; `false` if there
    /// is no room now.
    pub fn post(
        &mut self,
        head: Head,
        len: usize,
        fill: impl FnOnce(&Iov<'_>),
    ) -> Result<bool, Broken> {
        let Some(channel) = &mut self.channel else {
            return Ok(false);
        };
        let space = channel.space(len);
        let space = space.inspect_err(|broken| self.broken = Some(*broken))?;
        let Some(space) = space else {
            return Ok(false);
        };
        fill(&space.bytes());
        if space.publish(head) {
            self.wake_peer();
        }
        Ok(true)
    }

    /// [`Link::post`] for a short message, where that is possible at once.
    #[inline(always)]
    pub fn post_short(&mut self, head: Head, len: usize, fill: impl FnOnce(Piece<'_>)) -> bool {
        let Link { channel, wire, .. } = self;
        let Some(channel) = channel else {
            return false;
        };
        channel.sender.send_short(
            head,
            len,
            fill,
            #[inline(always)]
            || wake(wire),
        )
    }

    /// [`Link::post`] for a longer message, where that is possible at once.
    #[inline(always)]
    pub fn post_long(&mut self, head: Head, len: usize, fill: impl Fn(usize, Piece<'_>)) -> bool {
        let Link { channel, wire, .. } = self;
        let Some(channel) = channel else {
            return false;
        };
        channel.send_long(
            head,
            len,
            fill,
            #[inline(always)]
            || wake(wire),
        )
    }

    /// Tells the peer of an access that this process has carried out. There is room for
    /// that, unless the channel is broken, and the link ends.
    pub fn tell_of(&mut self, access: &RemoteAccess) {
        let list = remote_list(&access.remote);
        let data = access.immediate();
        let head = Head {
            kind: match access.access {
                Access::Read => WAS_READ,
                Access::Write => WAS_WRITTEN,
            },
            flags: if data.is_some() { HAS_DATA } else { 0 },
            words: [data.unwrap_or(0), 0, access.remote.pieces().len() as u64],
        };
        let Some(channel) = &mut self.channel else {
            return;
        };
        match channel.space(list.bytes().len()) {
            Ok(Some(space)) => {
                space.bytes().write_at(0, list.bytes());
                if space.publish_notice(head) {
                    self.wake_peer();
                }
            }
            Ok(None) => {}
            Err(broken) => self.broken = Some(broken),
        }
    }

    /// Whether the peer has yet to take messages, as far as this side knows: where it does
    /// not, there are some.
    pub fn has_untaken(&mut self) -> bool {
        !self.ask(Channel::is_clear)
    }

    /// Whether another request can be sent, where there is room for it.
    pub fn may_request(&self) -> bool {
        self.may_read() && self.may_write()
    }

    /// The same of a read, which changes nothing.
    pub fn may_read(&self) -> bool {
        self.writings.is_empty() && self.pending.requests < REQUESTS
    }

    /// The same of a write, which may wait behind others, but not behind reads.
    pub fn may_write(&self) -> bool {
        self.pending.requests < REQUESTS && !self.pending.has_long_results()
    }

    /// Whether the peer has yet to answer requests, or to be sent them.
    pub fn has_requests(&self) -> bool {
        self.pending.requests != 0 || !self.writings.is_empty()
    }

    /// Whether there is room for what goes next of what there is to send. Where not, this
    /// side waits for it.
    pub fn has_room_for_next(&mut self) -> bool {
        let part = |left: usize| left.min(EAGER);
        let answer = self.answers.front().map(|answer| answer.bytes.len());
        let writing = self.writings.front();
        let writing = writing.map(|next| part(next.len - next.done) + REMOTE_LIST);
        let stream = self.streams.front();
        let stream = stream.map(|next| part(next.len - next.done));
        let next = answer.or(writing.min(stream).or(writing).or(stream));
        next.is_some_and(|len| self.has_space(len))
    }

    /// Whether there is room for a message, or an offer of one.
    pub fn has_room(&mut self) -> bool {
        self.has_space(MODERATE)
    }

    /// Whether a message of so many bytes is sent eagerly, and not announced.
    ///
    /// # Errors
    /// `-FI_EAGAIN` where it is as soon as there is room, while the receiver makes some. From a
    /// receiver that has not for [`PATIENCE`] it is announced: that takes little room, so that
    /// the sender gets far ahead of a receiver that waits for a processor.
    #[inline]
    pub fn is_eager(&mut self, len: usize) -> Result<bool, Errno> {
        match len {
            _ if len <= EAGER => Ok(true),
            _ if len <= WIDE => self.has_wide_room(len),
            _ => Ok(false),
        }
    }

    #[inline(never)]
    fn has_wide_room(&mut self, len: usize) -> Result<bool, Errno> {
        let channel = self.channel.as_mut();
        if !channel.is_some_and(|channel| channel.takes(len)) {
            return Ok(false);
        }
        if self.has_space(len) {
            return Ok(true);
        }
        let taken = self.channel.as_ref().map_or(0, Channel::taken_there);
        match self.full_since {
            Some((seen, since)) if seen == taken && since.elapsed() >= PATIENCE => Ok(false),
            Some((seen, _)) if seen == taken => Err(Errno::EAGAIN),
            _ => {
                self.full_since = Some((taken, Instant::now()));
                Err(Errno::EAGAIN)
            }
        }
    }

    /// Whether a message has to wait for what was posted before it.
    pub fn holds_messages(&self) -> bool {
        self.pending.has_behind() || !self.writings.is_empty() || self.pending.has_long_results()
    }

    /// The same of a read or a write.
    pub fn holds_access(&self, access: Access) -> bool {
        self.pending.has_behind()
            || match access {
                // It changes nothing that other reads would find.
                Access::Read => !self.writings.is_empty(),
                // Writes have an order of their own.
                Access::Write => self.pending.has_long_results(),
            }
    }

    /// Keeps an operation until what was posted before it is over.
    pub fn wait_behind(&mut self, request: Deferred, ticket: Ticket) {
        self.behind.push_back((request, ticket));
        self.pending.note_behind(true);
    }

    /// Whether the next operation that waits so is a message.
    pub fn is_message_behind(&self) -> Option<bool> {
        let (next, _) = self.behind.front()?;
        Some(next.message_len().is_some())
    }

    /// Takes the next one of them.
    pub fn next_behind(&mut self) -> Option<(Deferred, Ticket)> {
        let next = self.behind.pop_front();
        self.pending.note_behind(!self.behind.is_empty());
        next
    }

    /// Whether there is room for what there was none for.
    pub fn has_room_again(&mut self) -> bool {
        self.ask(Channel::has_room_again)
    }

    fn has_space(&mut self, len: usize) -> bool {
        self.ask(|channel| channel.has_room(len))
    }

    /// What the channel says, unless it is broken.
    fn ask(&mut self, question: impl FnOnce(&mut Channel) -> Result<bool, Broken>) -> bool {
        let Some(channel) = &mut self.channel else {
            return false;
        };
        question(channel)
            .inspect_err(|broken| self.broken = Some(*broken))
            .unwrap_or(false)
    }

    #[cold]
    pub fn wake_peer(&self) {
        wake(&self.wire);
    }

    /// Whether the peer has been offered messages that it may fetch.
    pub fn has_offers(&self) -> bool {
        let mut pending = self.pending.values();
        pending.any(|pending| {
            matches!(
                pending,
                Pending::Offer {
                    ticket: Some(_),
                    ..
                }
            )
        })
    }

    /// Whether there is something to be sent that waits for room only.
    pub fn has_something_to_send(&self) -> bool {
        let is_answering = !self.answers.is_empty() || !self.streams.is_empty();
        is_answering || !self.writings.is_empty() || !self.behind.is_empty()
    }

    /// Whether operations of this side of the endpoint are under way here, and their memory is
    /// read or written to.
    pub fn has_memory_of(&self, side: Side) -> bool {
        match side {
            Side::Receive => !self.pulls.is_empty(),
            Side::Transmit => {
                !self.pending.is_empty()
                    || !self.streams.is_empty()
                    || !self.writings.is_empty()
                    || !self.behind.is_empty()
            }
        }
    }
}

/// Wakes who sleeps at the other end.
#[cold]
pub fn wake(wire: &Wire) {
    // A socket that takes no more has something to wake the peer already, and one
    // that has ended ends the link.
    let _ = wire.send(WAKE, None);
}
