//! Names of the engine's things. A name is never used twice, so that an event
//! for something that is gone finds nothing.

pub use prov_message::EpKey;
pub use prov_message::peers::PeerKey;
use prov_util::poller;
use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// What connects two endpoints, from the first word to the end.
    pub struct LinkKey;
    /// An operation or an offer that the peer is to answer.
    pub struct PendingKey;
    /// Bytes that come in parts.
    pub struct ComingKey;
}

/// What a descriptor in the poller belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The socket of a link.
    Link(LinkKey),
    /// Where an endpoint is found.
    Door(EpKey),
    Timer,
}

/// Keys have their index in the low half; so many things at once there never
/// are that its top bits would be used.
const DOOR: u64 = 1 << 31;
const TIMER: u64 = u64::MAX;

impl poller::Source for Source {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            Source::Link(key) => key.data().as_ffi(),
            Source::Door(key) => key.data().as_ffi() | DOOR,
            Source::Timer => TIMER,
        }
    }

    fn of_token(token: u64) -> Self {
        if token == TIMER {
            Source::Timer
        } else if token & DOOR != 0 {
            Source::Door(KeyData::from_ffi(token & !DOOR).into())
        } else {
            Source::Link(KeyData::from_ffi(token).into())
        }
    }
}

/// A key as peers know it.
pub fn to_peer(key: impl Key) -> u64 {
    key.data().as_ffi()
}

/// A key that a peer has named; it may mean nothing.
pub fn from_peer<K: Key>(word: u64) -> K {
    KeyData::from_ffi(word).into()
}
