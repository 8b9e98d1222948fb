//! Keys of the engine's objects. A key is never reused, so that an event for an object that is gone
//! finds nothing.

pub use prov_message::EpKey;
use prov_message::keys::from_peer;
pub use prov_message::peers::PeerKey;
use slotmap::new_key_type;

new_key_type! {
    /// The connection between two endpoints, from the first packet to the end.
    pub struct LinkKey;
}

/// The owner of a descriptor in the poller: a link's socket, or an endpoint's listener.
pub type Source = prov_message::keys::Source<LinkKey, EpKey>;

/// An action at a point in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// Retries a peer without a link.
    Peer(EpKey, PeerKey),
    /// Checks a connection that may not have requested a link.
    Entered(LinkKey),
    /// Resumes polling a listener.
    Listener(EpKey),
    /// Checks whether the peers of links without sockets are still there.
    Lives,
}

/// Returns the key under which the lane's bell is in the poller. No link has it: its index is the
/// largest that a link could have in the poller.
pub fn bell_key() -> LinkKey {
    from_peer((1 << 32) | ((1 << 31) - 1))
}
