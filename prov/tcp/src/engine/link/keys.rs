//! Names of the engine's things. A name is never used twice, so that an event
//! for something that is gone finds nothing.

pub use prov_message::EpKey;
pub use prov_message::peers::PeerKey;
use prov_util::poller;
use slotmap::new_key_type;

new_key_type! {
    /// A connection, from connect(2) or accept(2) to its end.
    pub struct ConnKey;
    /// A listening socket.
    pub struct ListenerKey;
    /// An operation that waits for an answer with its name.
    pub struct NameKey;
}

/// What a descriptor in the poller belongs to: a connection's socket or a listening
/// one.
pub type Source = prov_message::keys::Source<ConnKey, ListenerKey>;

/// What a descriptor has.
pub type Event = poller::Event<Source>;

/// What is looked at again when its time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// A connection whose handshake takes long.
    Conn(ConnKey),
    /// A peer to which there is no connection.
    Peer(EpKey, PeerKey),
    /// A listener that rests.
    Listener(ListenerKey),
    /// All open connections, whose hosts may be silent.
    Silence,
}
