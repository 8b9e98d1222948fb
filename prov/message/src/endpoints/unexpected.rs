//! An unexpected message: one that has come before a receive for it.

use prov_base::errno::Errno;
use prov_util::matching::MessageId;

use crate::endpoints::room::{Cost, KEEPING_COST, Room};
use crate::endpoints::transport::Transport;
use crate::operation::EpKey;
use crate::receipt::InboxKey;

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

impl<T: Transport> Unexpected<T> {
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.body, Body::Complete(_))
    }

    /// The cost of keeping the message, whose length is `len`.
    pub(crate) fn cost(&self, len: usize) -> Cost {
        match self.body {
            Body::Complete(_) | Body::Arriving(_) => {
                Cost::Bytes(len.saturating_add(KEEPING_COST), self.room)
            }
            Body::Announced(_) => Cost::Announcement(self.room),
            Body::HeldBack(_) | Body::Lost(_) => Cost::Nothing,
        }
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
