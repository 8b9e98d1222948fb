//! Names of the engine's things. A name is never used twice, so that an event
//! for something that is gone finds nothing.

pub use prov_message::EpKey;
pub use prov_message::keys::{from_peer, to_peer};
pub use prov_message::peers::PeerKey;
use slotmap::new_key_type;

new_key_type! {
    /// What connects two endpoints, from the first word to the end.
    pub struct LinkKey;
    /// An operation or an offer that the peer is to answer.
    pub struct PendingKey;
}

/// What a descriptor in the poller belongs to: the socket of a link, or where an
/// endpoint is found.
pub type Source = prov_message::keys::Source<LinkKey, EpKey>;

/// What is looked at again when its time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// A peer without a link.
    Peer(EpKey, PeerKey),
    /// Who has come and may not have asked for a link.
    Entered(LinkKey),
    /// A listener that is not polled for a while.
    Listener(EpKey),
}
