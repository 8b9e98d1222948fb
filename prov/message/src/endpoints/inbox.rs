//! The types of posted receives and unexpected messages. What happens to them is in
//! [`receiving`](crate::endpoints::receiving) and [`arriving`](crate::endpoints::arriving).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_util::matching::{MessageId, ReceiveContext, ReceiveQueue};
use prov_util::mr::Grants;

use crate::endpoints::behind::Behind;
use crate::endpoints::distant::Distant;
use crate::endpoints::foreign::Foreign;
use crate::endpoints::keeping::Room;
use crate::endpoints::target::PayloadBuffer;
use crate::operation::EpKey;
use crate::operation::Ticket;
use crate::receipt::{InboxKey, Receipt};
use crate::reports::Reports;

/// The types in which the messages of one provider differ from those of another.
pub trait Transport: Sized + 'static {
    /// The key of a link: what messages arrive on, such as a connection. It is never reused.
    type Link: slotmap::Key + Hash + Send;
    /// The acknowledgement that the sender of a message asks for; the default means none.
    type Ack: Copy + Default + PartialEq + Debug + Send;
    /// The sender's identifier of a message that it has announced and keeps.
    type Name: Copy + PartialEq + Debug + Send;
    /// The provider's data of an endpoint.
    type Endpoint: Send;

    /// Whether an inbox that is shared may hold messages of a closed endpoint whose links still
    /// exist.
    const LINKS_OUTLIVE_ENDPOINTS: bool = false;

    /// Default for `FI_OPT_MIN_MULTI_RECV`: a multi-receive buffer with fewer free bytes is
    /// released. The value is that of the C library's network providers.
    const MIN_MULTI_RECV: usize = 16384;

    /// Whether the sender is acknowledged when its message is buffered, instead of when a receive
    /// has taken it.
    fn acknowledges_what_is_kept(_ack: Self::Ack) -> bool {
        false
    }
}

slotmap::new_key_type! {
    /// The link of a transport whose messages come on none ([`Transport::Link`]): datagrams.
    pub struct NoLink;
}

/// A receive context: the posted receives and unexpected messages of one endpoint, or of several
/// that share it.
pub struct Inbox<T: Transport> {
    /// Stays empty if another provider has the receives.
    matching: ReceiveContext<AppIov, Unexpected<T>>,
    /// Where receives are for messages that match none of this inbox.
    pub(crate) elsewhere: Option<Elsewhere<T>>,
    /// Whether it is a shared receive context.
    pub shared: bool,
    /// Limit of posted receives. It is 0 once the only link that could bring messages has ended, or
    /// if another provider has the receives.
    pub(crate) size: usize,
    /// The same for the fast path; 0 while each receive has an effect on other endpoints or on links
    /// that are held back.
    fast_size: usize,
    /// Whether endpoints in other lanes use the context, which have to be told of each receive.
    is_slow: bool,
    /// Links of other than strangers that are held back with a message of this inbox.
    held_back: BTreeSet<T::Link>,
    /// Whether the application has looked for a message that was not there (`FI_PEEK`), and has not
    /// found one or posted a receive since.
    is_sought: bool,
    /// The error with which that link ended.
    pub(crate) ended: Option<Errno>,
    /// Whether its endpoint uses another one: it ends with the messages that are arriving in its
    /// multi-receive buffers.
    pub(crate) is_left: bool,
    /// See `FI_OPT_MIN_MULTI_RECV`.
    min_multi_recv: usize,
    /// For a shared context: where receives complete that were not taken by an endpoint.
    pub reports: Reports,
    /// The same, if nothing is bound to the context and no endpoint of the lane uses it: those of
    /// an endpoint in another lane, during a call.
    pub(crate) lent: Option<Reports>,
    /// Receives that wait for a device ([`Endpoints::settle`](crate::endpoints::Endpoints::settle_behind)).
    pub(crate) behind: Vec<Behind<T::Ack>>,
}

impl<T: Transport> Inbox<T> {
    /// Creates an empty inbox.
    pub(crate) fn new(size: usize, shared: bool) -> Self {
        Inbox {
            matching: ReceiveContext::new(T::MIN_MULTI_RECV),
            elsewhere: None,
            shared,
            size,
            fast_size: size,
            is_slow: false,
            held_back: BTreeSet::new(),
            is_sought: false,
            ended: None,
            is_left: false,
            min_multi_recv: T::MIN_MULTI_RECV,
            reports: Reports::default(),
            lent: None,
            behind: Vec::new(),
        }
    }

    /// Returns the queue of untagged or of tagged messages.
    #[inline]
    pub(crate) fn queue(&mut self, tagged: bool) -> &mut ReceiveQueue<AppIov, Unexpected<T>> {
        if tagged {
            &mut self.matching.tagged
        } else {
            &mut self.matching.msg
        }
    }

    /// The receives of another provider, if it has them.
    pub(crate) fn foreign(&mut self) -> Option<&mut Foreign<T>> {
        match &mut self.elsewhere {
            Some(Elsewhere::Provider(foreign)) => Some(foreign),
            Some(Elsewhere::Lane(_)) | None => None,
        }
    }

    /// Handles that no message arrives any more, because of this error, or that another provider
    /// has the receives.
    pub(crate) fn ends(&mut self, cause: Option<Errno>) {
        self.size = 0;
        self.ended = cause;
        self.set_fast_size();
    }

    /// Has all receives posted by [`Endpoints::post`], and none by [`Endpoints::post_fast`].
    ///
    /// [`Endpoints::post`]: crate::endpoints::Endpoints::post
    /// [`Endpoints::post_fast`]: crate::endpoints::Endpoints::post_fast
    pub fn slow_down(&mut self) {
        self.is_slow = true;
        self.set_fast_size();
    }

    fn set_fast_size(&mut self) {
        self.fast_size = match self.is_slow || self.is_sought || !self.held_back.is_empty() {
            true => 0,
            false => self.size,
        };
    }

    /// Notes that a link is held back with a message of this inbox, or is no more.
    pub(crate) fn holds_back(&mut self, link: T::Link, is_held_back: bool) {
        match is_held_back {
            true => self.held_back.insert(link),
            false => self.held_back.remove(&link),
        };
        bounded!(self.held_back, PEERS);
        self.set_fast_size();
    }

    /// The links that [`Inbox::holds_back`] has noted.
    pub(crate) fn held_back(&self) -> &BTreeSet<T::Link> {
        &self.held_back
    }

    /// Notes that the application has looked for a message, and whether it has found one or has posted
    /// a receive for it.
    pub(crate) fn looked(&mut self, has_found: bool) {
        if self.is_sought == has_found {
            self.is_sought = !has_found;
            self.set_fast_size();
        }
    }

    /// Returns whether the application waits for a message that is not here.
    pub(crate) fn is_awaited(&self) -> bool {
        match &self.elsewhere {
            Some(Elsewhere::Lane(distant)) => distant.any_posted(),
            // Its receives are not known here.
            Some(Elsewhere::Provider(_)) => false,
            None => self.is_sought || self.any_posted(),
        }
    }

    /// Returns whether receives are posted here.
    pub fn any_posted(&self) -> bool {
        let ReceiveContext { msg, tagged, .. } = &self.matching;
        msg.posted_len() != 0 || tagged.posted_len() != 0
    }

    /// The limit of posted receives of the fast path.
    #[inline(always)]
    pub(crate) fn fast_size(&self) -> usize {
        self.fast_size
    }

    /// See [`ReceiveContext::finishes_multi`].
    pub(crate) fn finishes_multi(&self) -> bool {
        self.matching.finishes_multi()
    }

    /// `FI_OPT_MIN_MULTI_RECV`
    pub fn min_multi_recv(&self) -> usize {
        self.min_multi_recv
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`.
    pub fn set_min_multi_recv(&mut self, bytes: usize) {
        self.min_multi_recv = bytes;
        self.matching.set_min_multi_recv(bytes);
    }
}

/// Where the receives of an inbox are, if not in it alone.
pub(crate) enum Elsewhere<T: Transport> {
    /// At another provider: see the [`foreign`](crate::endpoints::foreign) module.
    Provider(Box<Foreign<T>>),
    /// In a shared context of another lane: see the [`distant`](crate::endpoints::distant) module.
    Lane(Box<Distant>),
}

/// Handle of an unexpected message that is being buffered in an inbox.
#[derive(Clone, Copy, Debug)]
pub struct UnexpectedHandle {
    pub(crate) inbox: InboxKey,
    pub(crate) tagged: bool,
    pub(crate) id: MessageId,
}

/// An entry of the queue of unexpected messages.
pub struct Unexpected<T: Transport> {
    /// The link on which it arrived.
    pub(crate) link: T::Link,
    /// The endpoint to which it is addressed.
    pub(crate) ep: EpKey,
    pub(crate) tagged: bool,
    pub(crate) ack: T::Ack,
    pub(crate) body: Body<T::Name>,
    /// The budget to which it is charged if its payload is buffered.
    pub(crate) room: Room,
}

/// The number under which the queues file the messages of a link: the link's index, which another
/// link may reuse after this one has ended.
pub(crate) fn origin(link: impl slotmap::Key) -> u32 {
    link.data().as_ffi() as u32
}

impl<T: Transport> Unexpected<T> {
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.body, Body::Complete(_))
    }
}

/// Where the payload of an unexpected message is.
pub(crate) enum Body<N> {
    /// Buffered here.
    Complete(Vec<u8>),
    /// Buffered here as far as it has arrived; the link continues to append.
    Arriving(Vec<u8>),
    /// Still on the link, which is held back until a receive takes the message. With a name: at the
    /// sender, and the link is held back with the announcement.
    HeldBack(Option<N>),
    /// At the sender, until it is requested (rendezvous).
    Announced(N),
    /// Nowhere, since the sender is gone. Occurs only if another provider has the receives, because
    /// it cannot forget the message.
    Lost(Errno),
}

/// The destination of the rest of an arriving message.
pub enum Course<T: Transport> {
    /// Memory, which may be too small.
    Place(Box<Placing<T>>),
    /// The inbox.
    Keep(UnexpectedHandle),
    /// None: the message is discarded.
    Discard,
    /// There is no rest.
    Done,
}

/// A message that is being written to its destination.
pub struct Placing<T: Transport> {
    /// The destination.
    pub place: PayloadBuffer,
    /// Bytes of the message that have arrived, including those that did not fit.
    pub done: usize,
    /// What follows when it is complete.
    pub then: Then<T>,
    /// Whether the bytes are flushed to the persistence domain before anybody is informed
    /// (`FI_COMMIT_COMPLETE`).
    pub persists: bool,
}

impl<T: Transport> Placing<T> {
    /// The message of a posted receive.
    pub fn receive(memory: AppIov, receipt: Receipt<T::Ack>) -> Self {
        Placing {
            place: PayloadBuffer::App(memory),
            done: 0,
            then: Then::Receive(receipt),
            persists: false,
        }
    }

    /// The result of a read or of an atomic operation.
    pub fn read(memory: AppIov, ticket: Ticket) -> Self {
        Placing {
            place: PayloadBuffer::App(memory),
            done: 0,
            then: Then::Read(ticket),
            persists: false,
        }
    }

    /// A peer's write to registered memory.
    pub fn remote_write(grants: Grants, data: Option<u64>, ack: T::Ack) -> Self {
        Placing {
            place: PayloadBuffer::Registered(grants),
            done: 0,
            then: Then::RemoteWrite { data, ack },
            persists: false,
        }
    }

    /// The same, with or without flushing the bytes to the persistence domain.
    #[must_use]
    pub fn persistent(mut self, persists: bool) -> Self {
        self.persists = persists;
        self
    }

    /// Returns whether immediate data comes with it, for which the peer's source must be known.
    pub fn has_data(&self) -> bool {
        matches!(self.then, Then::RemoteWrite { data: Some(_), .. })
    }
}

/// What follows when a message has reached its destination.
pub enum Then<T: Transport> {
    /// A receive completes.
    Receive(Receipt<T::Ack>),
    /// A read, or an atomic operation with a result, completes.
    Read(Ticket),
    /// A peer has written to registered memory.
    RemoteWrite { data: Option<u64>, ack: T::Ack },
}

/// What a provider has to do for its links after a receive was posted, cancelled, or matched with a
/// message that had already arrived.
pub enum Action<T: Transport> {
    /// Acknowledge a message to its sender.
    Acknowledge(T::Link, T::Ack),
    /// Direct the rest of the message that is arriving on a link to this destination.
    Redirect(T::Link, Course<T>),
    /// Continue with a link that was held back; its message has this destination.
    Resume(T::Link, Course<T>),
    /// Request a message that the sender has announced.
    Fetch(T::Link, Fetch<T>),
    /// Tell a sender that a message it has announced is not wanted.
    Refuse(T::Link, T::Name, T::Ack, usize),
    /// Tell a sender to announce its messages (`true`), or to stop doing so (`false`).
    Throttle(T::Link, bool),
}

impl<T: Transport> Action<T> {
    /// Returns the link that the action concerns.
    pub(crate) fn link(&self) -> T::Link {
        match *self {
            Action::Acknowledge(link, _)
            | Action::Redirect(link, _)
            | Action::Resume(link, _)
            | Action::Fetch(link, _)
            | Action::Refuse(link, ..)
            | Action::Throttle(link, _) => link,
        }
    }

    /// Returns the receive whose message the action would have requested or resumed.
    pub(crate) fn receive(self) -> Option<(Receipt<T::Ack>, AppIov)> {
        match self {
            Action::Redirect(_, Course::Place(placing))
            | Action::Resume(_, Course::Place(placing)) => match placing.then {
                Then::Receive(receipt) => Some((receipt, placing.place.into_memory())),
                Then::Read(_) | Then::RemoteWrite { .. } => None,
            },
            Action::Fetch(_, fetch) => Some((fetch.receipt, fetch.memory)),
            _ => None,
        }
    }
}

/// A request for an announced message.
pub struct Fetch<T: Transport> {
    pub name: T::Name,
    pub memory: AppIov,
    pub receipt: Receipt<T::Ack>,
    /// Length of the message in bytes.
    pub len: usize,
}
