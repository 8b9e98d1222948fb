//! What two processes of a host do with each other, whoever has found the peer: eager messages,
//! announced ones (rendezvous), accesses to registered memory, what waits for space, being held back, and
//! the end of either side. It says nothing of how the two found each other.
//!
//! A [`Link`] is the state of one of them. A lane with links implements [`Links`], which handles what
//! arrives on them and posts to them. Each handler works on the parts that [`At`] has.

mod arrival;
mod outgoing;
pub mod pending;
mod pulling;
pub mod records;
mod remote;
mod replaying;
mod ring_writes;
mod sending;

pub use crate::payload;
pub use crate::payload::aside;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use prov_base::bounded;
use prov_base::bounds::{OPERATIONS, PEERS};
use prov_base::buffer::{Iov, Piece};
use prov_base::errno::Errno;
use prov_base::logging::Targets;
use prov_base::process_memory::OtherIov;
use prov_message::peers::{Deferred, UNKNOWN_SOURCE};
use prov_message::reaching::DeferredOp;
use prov_message::{Context, Core, Endpoints, EpKey, RmaTarget, Ticket, Transport};
use prov_util::endpoint::Side;
use prov_util::mr::Grants;
use prov_util::request::{Access, RemoteAccess};

use self::outgoing::{Answer, ReadReply, Writing};
use self::pending::{Pending, PendingRequests};
use self::records::{DONE, HAS_DATA, REMOTE_LIST, WAS_READ, WAS_WRITTEN, remote_list};
use self::remote::Atomics;
use self::ring_writes::PeersWrites;
use crate::channel::{Channel, Head, MODERATE, Record};
use crate::copies::{Copies, Transfers};
use crate::onesided::ring_writes::RingWrites;
use crate::onesided::table::Watching;
use crate::onesided::window::Window;
use crate::process::OtherProcess;
use crate::ring::Broken;
use crate::switch_points::{EAGER, WIDE};

pub use self::arrival::{acknowledge, drain, fetch, take_in, throttle};
pub use self::pulling::copied;
pub use self::remote::{ATOMIC_LIMIT, post_access, post_atomic};
pub use self::replaying::{replay, send_more};
pub use self::ring_writes::settle_ring_writes;
pub use self::sending::{SPECIAL, post_message};

/// Time for which a receiver that frees no space is waited for before messages are announced: about the
/// time in which it would receive all that an area contains.
const PATIENCE: Duration = Duration::from_micros(100);

/// A transport whose peers have links.
pub trait LocalTransport: Transport {
    /// What a link has besides shared memory.
    type Wire: Wire;

    /// Where it logs.
    const LOG: Targets;

    /// Returns the acknowledgement that a message asks for.
    fn ack(ack: Ack) -> Self::Ack;

    /// Returns the identifier of a message that stays with its sender.
    fn name(offered: Offered) -> Self::Name;

    /// Returns how an endpoint accesses memory.
    fn rules(own: &Self::Endpoint) -> Rules;

    /// Returns the link by which an endpoint sends to itself, if it has one.
    fn own_link(own: &Self::Endpoint) -> Option<Self::Link>;
}

/// What a link has besides shared memory: it wakes the peer, and shows whether it is there.
pub trait Wire: Send + 'static {
    /// Wakes the peer's thread that sleeps.
    fn wake(&self);
    /// Returns the socket whose other end is the peer's, if there is one.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
    /// Returns the id of the peer's process, for the log.
    fn pid(&self) -> u32;
}

/// How an endpoint accesses memory.
#[derive(Clone, Copy)]
pub struct Rules {
    /// The order of its operations at the target (`fi_tx_attr::msg_order`), which decides whether
    /// remote accesses are ordered after messages. All other orders are kept in any case.
    pub msg_order: u64,
    /// Whether peers refer to registered memory by its addresses (`FI_MR_VIRT_ADDR`).
    pub uses_virtual_addresses: bool,
}

/// The acknowledgement that the sender of a message requests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The sender's name for the message; 0 for no acknowledgement.
    pub name: u64,
    /// Whether it is due when the message is in the buffer of a receive (`FI_COMMIT_COMPLETE`), not
    /// when it is kept for one.
    pub until_placed: bool,
}

/// A rendezvous message, whose payload the sender has kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offered {
    /// The sender's name for the message.
    pub name: u64,
    /// Location of the payload in the sender's memory.
    pub from: OtherIov,
}

/// The links of a lane for which there is something to do.
pub struct Lists<K> {
    /// Links with data to send for which there was no space.
    busy: Vec<K>,
    /// Links with short writes in their rings that peers may not have applied yet.
    ring_writes: Vec<K>,
    /// Links that wait until the application has read completions, in the order of their turns.
    /// They report nothing meanwhile.
    unreported: VecDeque<K>,
    /// Buffers for peers' atomic operations.
    atomics: Atomics,
}

impl<K> Default for Lists<K> {
    fn default() -> Self {
        Lists {
            busy: Vec::new(),
            ring_writes: Vec::new(),
            unreported: VecDeque::new(),
            atomics: Atomics::default(),
        }
    }
}

impl<K> Lists<K> {
    /// Whether no link waits until the application has read completions.
    pub fn are_all_reported(&self) -> bool {
        self.unreported.is_empty()
    }
}

/// A link, and the parts of its lane that its handlers work on.
pub struct At<'a, T: LocalTransport> {
    pub link: &'a mut Link<T>,
    pub endpoints: &'a mut Endpoints<T>,
    /// Access to the domain's registered memory.
    pub target: &'a mut Option<RmaTarget>,
    pub lists: &'a mut Lists<T::Link>,
}

/// A lane with links.
pub trait Links: Copies + Core<Transport: LocalTransport> {
    /// Returns a link, and parts of the lane; `None` if it has ended.
    fn at(&mut self, key: LinkOf<Self>) -> Option<At<'_, Self::Transport>>;

    /// Returns the links for which there is something to do.
    fn lists(&mut self) -> &mut Lists<LinkOf<Self>>;

    /// Looks up the source of a link whose peer was not in the address vector.
    fn find_source(&mut self, key: LinkOf<Self>);

    /// Whether the next operation that was posted before the link was open is a message; `None` if
    /// there is none.
    fn is_message_deferred(&mut self, key: LinkOf<Self>) -> Option<bool>;

    /// Removes and returns that operation.
    fn next_deferred(&mut self, key: LinkOf<Self>) -> Option<DeferredOp>;

    /// Ends a link, and all operations on it.
    fn breaks(&mut self, key: LinkOf<Self>, fault: Fault);
}

/// The key of a lane's links.
pub type LinkOf<L> = <<L as Core>::Transport as Transport>::Link;

/// One side of what two processes have with each other. See the [module](self) description.
pub struct Link<T: LocalTransport> {
    pub ep: EpKey,
    /// The peer's source address, as in the address vector.
    pub src: u64,
    pub wire: T::Wire,
    /// Present once the link is open, or was requested by this side.
    pub channel: Option<Channel>,
    /// The peer's memory, if this process can read it.
    pub memory: Option<OtherProcess>,
    /// The peer's registered memory that this process accesses directly.
    pub window: Option<Window>,
    /// Short writes to it that the peer may not have applied yet.
    pub ring_writes: Option<RingWrites<Ticket>>,
    /// Whether the link is in the list of those with such writes.
    pub has_ring_writes: bool,
    /// The peer's short writes.
    peers_writes: Option<Box<PeersWrites>>,
    /// Registration as the owner of memory that the peer may access directly.
    pub watching: Option<Watching>,
    pub pending: PendingRequests,
    /// Replies for which there was no space in the channel.
    pub answers: VecDeque<Answer>,
    /// Number of bytes in the replies.
    answer_bytes: usize,
    /// Data that the peer reads, sent in parts.
    streams: VecDeque<ReadReply>,
    /// Writes that are sent in parts, one after the other.
    pub writings: VecDeque<Writing>,
    /// Operations that were posted after such writes, or after reads whose results arrive in parts,
    /// and must not overtake them. Modified by [`Link::wait_behind`] and [`Link::next_behind`]
    /// only.
    behind: VecDeque<(Deferred, Ticket)>,
    /// The peer's write that arrives in parts.
    parts: Option<Parts>,
    /// Number of messages that the peer had received when there was no space for a long eager
    /// message, and the time at which that number was first seen.
    full_since: Option<(u64, Instant)>,
    /// Rendezvous payloads that the peer has announced and that are being fetched.
    pub pulls: Transfers<T>,
    /// Whether the peer's next message waits for space.
    pub is_stalled: bool,
    /// Whether the link waits until the application has read completions.
    is_unreported: bool,
    /// Whether the link is in the list of those with data to send.
    is_busy: bool,
    /// The violation of the channel's protocol that the peer has committed.
    pub broken: Option<Broken>,
    /// Whether the peer has ended. The messages that it has sent before are still received.
    pub has_ended: bool,
}

/// The part of a peer's write that has arrived.
struct Parts {
    /// The peer's name for the write.
    name: u64,
    /// Total length of the parts in bytes.
    len: usize,
    /// The destination of all parts; `None` if the write was refused.
    to: Option<Grants>,
}

/// The reason for which a link ends.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The peer has ended, or cannot be reached.
    Ended(Errno),
    /// The peer rejects the link, since another one is being set up.
    Refused,
    /// The peer violates the protocol.
    Protocol(&'static str),
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Fault::Protocol(broken.0)
    }
}

/// What was under way on a link that has ended.
pub struct Ended {
    /// Operations that will not complete.
    pub abandoned: Vec<Ticket>,
    /// Operations that have ended meanwhile.
    pub ended: Vec<(Ticket, Result<(), Errno>)>,
}

impl<T: LocalTransport> Link<T> {
    /// Creates a link without a channel.
    pub fn new(ep: EpKey, wire: T::Wire) -> Self {
        Link {
            ep,
            src: UNKNOWN_SOURCE,
            wire,
            channel: None,
            memory: None,
            window: None,
            ring_writes: None,
            has_ring_writes: false,
            peers_writes: None,
            watching: None,
            pending: PendingRequests::default(),
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

    /// Ends all that is under way; reads and receives end with this `error`.
    pub fn end(mut self, endpoints: &mut Endpoints<T>, error: Errno) -> Ended {
        let mut abandoned = self.pulls.abandon(endpoints, error);
        let pending = std::mem::take(&mut self.pending);
        abandoned.extend(pending.into_all().filter_map(Pending::into_ticket));
        abandoned.extend(self.behind.drain(..).map(|(_, ticket)| ticket));
        let (ended, left) = self.ring_writes.map(RingWrites::into_ended).unzip();
        abandoned.extend(left.into_iter().flatten());
        Ended {
            abandoned,
            ended: ended.into_iter().flatten().collect(),
        }
    }

    /// Whether the peer's next message can be received when it arrives.
    #[inline(always)]
    pub fn can_take(&self) -> bool {
        !self.is_stalled
    }

    /// Returns the bytes of the peer's next message.
    #[inline]
    pub fn bytes(&self, record: &Record) -> Piece<'_> {
        let channel = self.channel.as_ref();
        channel.map_or(Piece::EMPTY, |channel| channel.receiver.bytes(record))
    }

    /// Sends a message of `len` bytes, which `fill` writes. Returns `false` if there is no space at
    /// present.
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

    /// As [`Link::post`], for a short message on the fast path.
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
            || wire.wake(),
        )
    }

    /// As [`Link::post`], for a longer message on the fast path.
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
            || wire.wake(),
        )
    }

    /// Notifies the peer of an access that this process has carried out. There is space for the
    /// notification, unless the channel is broken, in which case the link ends.
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

    /// Whether the peer has messages that it has not received, as far as this side knows; if it
    /// cannot tell, the result is `true`.
    pub fn has_untaken(&mut self) -> bool {
        !self.ask(Channel::is_clear)
    }

    /// Whether the protocol permits another request, provided that there is space.
    pub fn may_request(&self) -> bool {
        self.may_read() && self.may_write()
    }

    /// Whether it permits a read, which changes nothing.
    pub fn may_read(&self) -> bool {
        self.writings.is_empty() && self.pending.has_room_for_request()
    }

    /// Whether it permits a write, which may be queued after other writes, but not after reads.
    pub fn may_write(&self) -> bool {
        self.pending.has_room_for_request() && !self.pending.has_long_results()
    }

    /// Whether requests are queued, or the peer has not answered some.
    pub fn has_requests(&self) -> bool {
        self.pending.has_requests() || !self.writings.is_empty()
    }

    /// Whether there is space for the next data to send. If not, this side waits for it when it
    /// sleeps.
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

    /// Whether there is space for a message, or an offer of one.
    pub fn has_room(&mut self) -> bool {
        self.has_space(MODERATE)
    }

    /// Whether a message of this length is sent eagerly, and not announced (rendezvous). Longer ones are
    /// where neither side can read the other's memory, so that the payload is copied twice in any case.
    ///
    /// `-FI_EAGAIN` if it will be sent eagerly once there is space, as long as the receiver frees
    /// some. If the receiver has not done so for [`PATIENCE`], the message is announced: an
    /// announcement takes little space, so that the sender gets far ahead of a receiver that waits
    /// for a processor.
    #[inline]
    pub fn is_eager(&mut self, len: usize) -> Result<bool, Errno> {
        match len {
            _ if len <= EAGER => Ok(true),
            _ if len <= WIDE && self.memory.is_none() => self.has_wide_room(len),
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

    /// Whether a message has to wait for operations that were posted before it.
    pub fn holds_messages(&self) -> bool {
        self.pending.has_behind() || !self.writings.is_empty() || self.pending.has_long_results()
    }

    /// Whether a read or a write has to wait for operations that were posted before it.
    pub fn holds_access(&self, access: Access) -> bool {
        self.pending.has_behind()
            || match access {
                // Earlier reads do not see its effect, since it has none.
                Access::Read => !self.writings.is_empty(),
                // Writes are queued in order.
                Access::Write => self.pending.has_long_results(),
            }
    }

    /// Keeps an operation until the operations that were posted before it are complete.
    pub fn wait_behind(&mut self, request: Deferred, ticket: Ticket) {
        self.behind.push_back((request, ticket));
        bounded!(self.behind, OPERATIONS);
        self.pending.note_behind(true);
    }

    /// Whether the next operation that waits in this way is a message.
    pub fn is_message_behind(&self) -> Option<bool> {
        let (next, _) = self.behind.front()?;
        Some(next.message_len().is_some())
    }

    /// Removes the next operation that waits in this way.
    pub fn next_behind(&mut self) -> Option<(Deferred, Ticket)> {
        let next = self.behind.pop_front();
        self.pending.note_behind(!self.behind.is_empty());
        next
    }

    /// Removes an operation that waits in this way, for fi_cancel(3).
    pub fn take_back(&mut self, context: Context) -> Option<Ticket> {
        let mut waiting = self.behind.iter();
        let at = waiting.position(|(_, ticket)| ticket.op().can_be_cancelled_by(context))?;
        let (_, ticket) = self.behind.remove(at)?;
        self.pending.note_behind(!self.behind.is_empty());
        Some(ticket)
    }

    /// Whether there is space for the last message that found none.
    pub fn has_room_again(&mut self) -> bool {
        self.ask(Channel::has_room_again)
    }

    fn has_space(&mut self, len: usize) -> bool {
        self.ask(|channel| channel.has_room(len))
    }

    /// Returns an answer of the channel; `false`, noting the error, if it is broken.
    fn ask(&mut self, question: impl FnOnce(&mut Channel) -> Result<bool, Broken>) -> bool {
        let Some(channel) = &mut self.channel else {
            return false;
        };
        question(channel)
            .inspect_err(|broken| self.broken = Some(*broken))
            .unwrap_or(false)
    }

    /// Sends a reply, immediately or as soon as there is space.
    #[inline]
    pub fn answer(&mut self, head: Head, bytes: &[u8]) {
        let sent = self.answers.is_empty()
            && self
                .post(head, bytes.len(), |to| {
                    to.write_at(0, bytes);
                })
                .unwrap_or(true);
        if !sent {
            let bytes = bytes.to_vec();
            self.answer_bytes += bytes.len();
            self.answers.push_back(Answer { head, bytes });
        }
    }

    /// Reports to the peer that the operation or offer that it calls `name` is complete.
    #[inline]
    pub fn done(&mut self, name: u64, outcome: Result<(), Errno>) {
        let status = outcome.err().map_or(0, |error| error.number() as u64);
        let head = Head {
            kind: DONE,
            flags: 0,
            words: [name, status, 0],
        };
        self.answer(head, &[]);
    }

    /// Adds the link, if it has data to send, to the list of those that wait for space.
    #[inline]
    pub fn waits_for_space(&mut self, key: T::Link, lists: &mut Lists<T::Link>) {
        if self.has_something_to_send() {
            self.waits_for_turn(key, lists);
        }
    }

    /// As [`Link::waits_for_space`], for operations that wait elsewhere.
    pub fn waits_for_turn(&mut self, key: T::Link, lists: &mut Lists<T::Link>) {
        if !std::mem::replace(&mut self.is_busy, true) {
            lists.busy.push(key);
            bounded!(lists.busy, PEERS);
        }
    }

    #[cold]
    pub fn wake_peer(&self) {
        self.wire.wake();
    }

    /// Whether the peer has offers of messages that it may fetch.
    pub fn has_offers(&self) -> bool {
        let mut pending = self.pending.values();
        pending.any(|pending| matches!(pending, Pending::Offer { .. }))
    }

    /// Whether the link has data to send that waits for space only.
    pub fn has_something_to_send(&self) -> bool {
        let is_answering = !self.answers.is_empty() || !self.streams.is_empty();
        is_answering || !self.writings.is_empty() || !self.behind.is_empty()
    }

    /// Whether operations of this side of the endpoint are in progress on this link, so that their
    /// memory is read or written.
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
