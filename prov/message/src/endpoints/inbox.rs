//! Receives that wait for messages, and messages that wait for receives: the
//! types. What happens with them is in [`receiving`](crate::endpoints::receiving) and
//! [`arriving`](crate::endpoints::arriving).

use std::fmt::Debug;
use std::hash::Hash;

use prov_util::buffer::AppIov;
use prov_util::errno::Errno;
use prov_util::matching::{MessageId, ReceiveContext, ReceiveQueue};
use prov_util::mr::Grants;

use crate::endpoints::foreign::Foreign;
use crate::endpoints::keeping::Room;
use crate::endpoints::target::Place;
use crate::operation::EpKey;
use crate::operation::Ticket;
use crate::receipt::{InboxKey, Receipt};
use crate::reports::Reports;

/// What tells the messages of one provider from those of another.
pub trait Transport: Sized + 'static {
    /// Names what messages come on, such as a connection, until that ends. It is
    /// never used again.
    type Link: slotmap::Key + Hash + Send;
    /// What the sender of a message wants to hear of it; nothing by default.
    type Ack: Copy + Default + PartialEq + Debug + Send;
    /// The sender's name for a message that it has announced and kept.
    type Name: Copy + PartialEq + Debug + Send;
    /// What the provider knows of an endpoint.
    type Endpoint: Send;

    /// Whether messages of an endpoint that is closed may be there whose links go on, in
    /// an inbox that it shares.
    const LINKS_OUTLIVE_ENDPOINTS: bool = false;

    /// Room in bytes below which a multi-receive buffer is given back, unless the
    /// application says otherwise (`FI_OPT_MIN_MULTI_RECV`): that of the C library's
    /// providers for a network.
    const MIN_MULTI_RECV: usize = 16384;

    /// Whether the sender is told already when its message is kept, and not only
    /// when a receive has taken it.
    fn acknowledges_what_is_kept(_ack: Self::Ack) -> bool {
        false
    }
}

/// The posted receives and unexpected messages of an endpoint, or of several
/// that share a context.
pub struct Inbox<T: Transport> {
    /// Stays empty where another provider has the receives.
    matching: ReceiveContext<AppIov, Unexpected<T>>,
    /// See the [`foreign`](crate::endpoints::foreign) module.
    pub(crate) foreign: Option<Box<Foreign<T>>>,
    /// Whether it is not a single endpoint's own.
    pub shared: bool,
    /// Receives that may be posted at once; none once the only link that could
    /// bring messages for them has ended, or where another provider has them.
    pub(crate) size: usize,
    /// Why that link has ended.
    pub(crate) ended: Option<Errno>,
    /// See `FI_OPT_MIN_MULTI_RECV`.
    min_multi_recv: usize,
    /// Of a shared context: where receives complete that no endpoint took.
    pub reports: Reports,
}

impl<T: Transport> Inbox<T> {
    /// Without receives and messages.
    pub(crate) fn new(size: usize, shared: bool) -> Self {
        Inbox {
            matching: ReceiveContext::new(T::MIN_MULTI_RECV),
            foreign: None,
            shared,
            size,
            ended: None,
            min_multi_recv: T::MIN_MULTI_RECV,
            reports: Reports::default(),
        }
    }

    /// The queue of plain or of tagged messages.
    #[inline]
    pub(crate) fn queue(&mut self, tagged: bool) -> &mut ReceiveQueue<AppIov, Unexpected<T>> {
        if tagged {
            &mut self.matching.tagged
        } else {
            &mut self.matching.msg
        }
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

/// A message that found no receive and whose bytes go to the inbox.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub(crate) inbox: InboxKey,
    pub(crate) tagged: bool,
    pub(crate) id: MessageId,
}

/// What stands in the queue of unexpected messages.
pub struct Unexpected<T: Transport> {
    /// What it came on.
    pub(crate) link: T::Link,
    /// The endpoint that it came to.
    pub(crate) ep: EpKey,
    pub(crate) tagged: bool,
    pub(crate) ack: T::Ack,
    pub(crate) body: Body<T::Name>,
    /// What it is charged to if its bytes are here.
    pub(crate) room: Room,
}

/// The number under which queues have the messages of a link: its place among the
/// links that there are, which another link has when it has ended.
pub(crate) fn origin(link: impl slotmap::Key) -> u32 {
    link.data().as_ffi() as u32
}

impl<T: Transport> Unexpected<T> {
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.body, Body::Complete(_))
    }
}

/// Where the bytes of an unexpected message are.
pub(crate) enum Body<N> {
    /// Here.
    Complete(Vec<u8>),
    /// Here as far as they have come; the link goes on adding.
    Arriving(Vec<u8>),
    /// Still on the link, which is held back until a receive takes the message; or with
    /// the sender, and the link is held back with the announcement, which names it.
    HeldBack(Option<N>),
    /// With the sender, until it is asked for them.
    Announced(N),
    /// Nowhere: the sender is gone. Only where another provider has the receives,
    /// and cannot forget the message.
    Lost(Errno),
}

/// Where the rest of a message goes that is arriving.
pub enum Course<T: Transport> {
    /// To its place in memory, which may be too small.
    Place(Box<Placing<T>>),
    /// To the inbox.
    Keep(Kept),
    /// Nowhere: nobody wants it.
    Discard,
    /// There is no rest.
    Done,
}

/// A message on its way to its place.
pub struct Placing<T: Transport> {
    /// The place.
    pub place: Place,
    /// Bytes of the message that came, whether or not they had room.
    pub done: usize,
    /// What then.
    pub then: Then<T>,
    /// Whether the bytes go to the persistence domain before anybody is told
    /// (`FI_COMMIT_COMPLETE`).
    pub persists: bool,
}

impl<T: Transport> Placing<T> {
    /// The message of a receive.
    pub fn receive(memory: AppIov, receipt: Receipt<T::Ack>) -> Self {
        Placing {
            place: Place::App(memory),
            done: 0,
            then: Then::Receive(receipt),
            persists: false,
        }
    }

    /// What a read, or an atomic operation, results in.
    pub fn read(memory: AppIov, ticket: Ticket) -> Self {
        Placing {
            place: Place::App(memory),
            done: 0,
            then: Then::Read(ticket),
            persists: false,
        }
    }

    /// What a peer writes to our memory.
    pub fn remote_write(grants: Grants, data: Option<u64>, ack: T::Ack) -> Self {
        Placing {
            place: Place::Registered(grants),
            done: 0,
            then: Then::RemoteWrite { data, ack },
            persists: false,
        }
    }

    /// The same, for a peer that wants the bytes in the persistence domain.
    #[must_use]
    pub fn persistent(mut self, persists: bool) -> Self {
        self.persists = persists;
        self
    }

    /// Whether immediate data comes with it, for which the peer must be known.
    pub fn has_data(&self) -> bool {
        matches!(self.then, Then::RemoteWrite { data: Some(_), .. })
    }
}

/// What happens when a message has reached its place.
pub enum Then<T: Transport> {
    /// A receive completes.
    Receive(Receipt<T::Ack>),
    /// A read, or an atomic operation with a result, completes.
    Read(Ticket),
    /// A peer has written to our memory.
    RemoteWrite { data: Option<u64>, ack: T::Ack },
}

/// What a provider has to do for its links when a receive was posted, withdrawn
/// or matched late.
pub enum Action<T: Transport> {
    /// Tell the sender of a message that it has come.
    Acknowledge(T::Link, T::Ack),
    /// The rest of the message that is arriving on a link takes this course.
    Redirect(T::Link, Course<T>),
    /// A link that was held back goes on, with this course for the message that
    /// it was held back for.
    Resume(T::Link, Course<T>),
    /// Ask the sender for a message that it has announced, to be put there.
    Fetch(T::Link, Fetch<T>),
    /// Tell a sender that nobody wants a message that it has announced.
    Refuse(T::Link, T::Name, T::Ack, usize),
    /// Ask a sender to announce its messages, or no longer to do so.
    Throttle(T::Link, bool),
}

impl<T: Transport> Action<T> {
    /// The link that it is for.
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

    /// The receive whose message it would have brought on its way.
    pub(crate) fn receive(self) -> Option<(Receipt<T::Ack>, AppIov)> {
        match self {
            Action::Redirect(_, Course::Place(placing))
            | Action::Resume(_, Course::Place(placing)) => match placing.then {
                Then::Receive(receipt) => Some((receipt, placing.place.memory())),
                Then::Read(_) | Then::RemoteWrite { .. } => None,
            },
            Action::Fetch(_, fetch) => Some((fetch.receipt, fetch.memory)),
            _ => None,
        }
    }
}

/// A message that is asked for.
pub struct Fetch<T: Transport> {
    pub name: T::Name,
    pub memory: AppIov,
    pub receipt: Receipt<T::Ack>,
    /// Bytes in the message.
    pub len: usize,
}
