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

/// The owner of a descriptor in the poller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A connection: its socket.
    Link(ConnKey),
    /// A connection with several subflows: the socket of another one.
    Beside(ConnKey),
    /// A listening socket.
    Listener(ListenerKey),
    /// The timer.
    Timer,
}

/// How the toolkit names the owners of which a descriptor is the only one.
type Named = prov_message::keys::Source<ConnKey, ListenerKey>;

/// Marks the token of a [`Source::Beside`]: the bit next to the one that marks listeners, in the index
/// of the key. 2^30 connections never exist at the same time.
const BESIDE: u64 = 1 << 30;

impl poller::Source for Source {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            Source::Link(key) => Named::Link(key).token(),
            Source::Beside(key) => Named::Link(key).token() | BESIDE,
            Source::Listener(key) => Named::Listener(key).token(),
            Source::Timer => Named::Timer.token(),
        }
    }

    fn of_token(token: u64) -> Self {
        match Named::of_token(token) {
            Named::Link(_) if token & BESIDE != 0 => match Named::of_token(token & !BESIDE) {
                Named::Link(key) => Source::Beside(key),
                Named::Listener(_) | Named::Timer => Source::Timer,
            },
            Named::Link(key) => Source::Link(key),
            Named::Listener(key) => Source::Listener(key),
            Named::Timer => Source::Timer,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use prov_base::poller::Source as _;
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn tokens_lead_back_to_their_sources() {
        let mut conns = SlotMap::<ConnKey, ()>::with_key();
        let mut listeners = SlotMap::<ListenerKey, ()>::with_key();
        for _ in 0..100 {
            let (conn, listener) = (conns.insert(()), listeners.insert(()));
            for source in [
                Source::Link(conn),
                Source::Beside(conn),
                Source::Listener(listener),
                Source::Timer,
            ] {
                assert_eq!(Source::of_token(source.token()), source);
            }
        }
    }
}
