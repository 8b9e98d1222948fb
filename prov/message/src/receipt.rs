//! What a completion needs to know about a matched receive, and which posted receives end with a peer.

use prov_util::matching::MultiId;
use slotmap::new_key_type;

use crate::operation::{Context, EpKey};

new_key_type! {
    /// The key of a receive context, an endpoint's own or a shared one.
    pub struct InboxKey;

    /// The key of a owner in another provider's receive that has matched.
    pub struct GivenKey;
}

/// A receive that has matched a message.
#[derive(Clone, Copy, Debug)]
pub struct Receipt<A> {
    /// The receive context to which it was posted.
    pub inbox: InboxKey,
    /// The endpoint at which the message arrived.
    pub ep: EpKey,
    pub tagged: bool,
    pub context: Context,
    /// Operation flags of the receive.
    pub flags: u64,
    pub buffer: Buffer,
    pub src: u64,
    pub tag: u64,
    /// Immediate data.
    pub data: Option<u64>,
    /// Length of the message in bytes.
    pub len: usize,
    pub ack: A,
}

/// Who gets the receive's buffer when the message is complete.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Buffer {
    /// The application.
    Single,
    /// The application, with the last message of this multi-receive buffer.
    Multi(MultiId),
    /// The provider that has the receives.
    Imported(GivenKey),
}

impl Buffer {
    /// For a receive of this library.
    #[inline]
    pub(crate) fn of(multi: Option<MultiId>) -> Self {
        multi.map_or(Buffer::Single, Buffer::Multi)
    }
}

/// The receives that end with a peer, of those that only its messages can match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependent {
    /// All of them.
    All,
    /// Those of transfers for another provider (`FI_PEER_TRANSFER`, fi_peer(3)), which have to end
    /// when their group has lost a member, for whatever reason.
    Transfers,
}
