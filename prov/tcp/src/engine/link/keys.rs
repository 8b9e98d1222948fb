//! Names of the engine's objects. A name is never reused, so that an event for an object that does
//! not exist any longer finds nothing.

use prov_base::poller;
pub use prov_message::EpKey;
pub use prov_message::peers::PeerKey;
use slotmap::new_key_type;

new_key_type! {
    /// A connection, from connect(2) or accept(2) to its end.
    pub struct ConnKey;
    /// A listening socket.
    pub struct ListenerKey;
    /// An operation that waits for an answer with its name.
    pub struct NameKey;
}

/// The owner of a descriptor in the poller: a connection's socket or a listening one.
pub type Source = prov_message::keys::Source<ConnKey, ListenerKey>;

/// The events of a descriptor.
pub type Event = poller::Event<Source>;

/// The target of a timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// A connection whose handshake may time out.
    Conn(ConnKey),
    /// A peer without a connection, for which an attempt is due.
    Peer(EpKey, PeerKey),
    /// A listener that pauses.
    Listener(ListenerKey),
    /// A connection whose peer may take nothing at present.
    Still(ConnKey),
    /// All open connections, whose hosts may have failed.
    Silence,
    /// A connection whose subflows have to be looked at.
    Subflows(ConnKey),
}
