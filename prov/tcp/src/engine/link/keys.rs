//! Names of the engine's things. A name is never used twice, so that an event
//! for something that is gone finds nothing.

pub use prov_message::EpKey;
pub use prov_message::peers::PeerKey;
use prov_util::poller;
use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// A connection, from connect(2) or accept(2) to its end.
    pub struct ConnKey;
    /// A listening socket.
    pub struct ListenerKey;
    /// An operation that waits for an answer with its name.
    pub struct NameKey;
}

/// What a descriptor in the poller belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A connection's socket.
    Conn(ConnKey),
    /// A listening socket.
    Listener(ListenerKey),
    /// The timer.
    Timer,
}

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

/// Keys have their index in the low half; so many things at once there never
/// are that its top bits would be used.
const LISTENER: u64 = 1 << 31;
const TIMER: u64 = u64::MAX;

impl poller::Source for Source {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            Source::Conn(key) => key.data().as_ffi(),
            Source::Listener(key) => key.data().as_ffi() | LISTENER,
            Source::Timer => TIMER,
        }
    }

    fn of_token(token: u64) -> Self {
        if token == TIMER {
            Source::Timer
        } else if token & LISTENER != 0 {
            Source::Listener(KeyData::from_ffi(token & !LISTENER).into())
        } else {
            Source::Conn(KeyData::from_ffi(token).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use prov_util::poller::Source as _;

    use super::*;

    #[test]
    fn tokens_lead_back_to_their_sources() {
        let mut conns = slotmap::SlotMap::<ConnKey, ()>::with_key();
        let mut listeners = slotmap::SlotMap::<ListenerKey, ()>::with_key();
        for _ in 0..100 {
            let sources = [
                Source::Conn(conns.insert(())),
                Source::Listener(listeners.insert(())),
                Source::Timer,
            ];
            for source in sources {
                assert_eq!(Source::of_token(source.token()), source);
            }
        }
    }
}
