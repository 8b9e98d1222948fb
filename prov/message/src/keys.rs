//! Keys of the objects in a lane. A key is never reused (slotmap), so that an event or a peer that
//! names an object which is gone finds nothing.

use prov_base::poller;
use slotmap::{Key, KeyData};

/// A key in the form that is sent to peers.
pub fn to_peer(key: impl Key) -> u64 {
    key.data().as_ffi()
}

/// The key that a peer has sent; it may be invalid. Different words never yield the same key.
pub fn from_peer<K: Key>(word: u64) -> K {
    let data = KeyData::from_ffi(word);
    match data.as_ffi() == word {
        true => data.into(),
        false => K::null(),
    }
}

/// What a descriptor in a lane's poller belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<L, D> {
    /// A connection between two endpoints.
    Link(L),
    /// A listener for connection requests.
    Listener(D),
    /// The timer.
    Timer,
}

/// Marks the token of a [`Source::Listener`]. Keys have their index in the low half; 2^31 objects never
/// exist at the same time, so the index's top bit is free.
const LISTENER: u64 = 1 << 31;
const TIMER: u64 = u64::MAX;

impl<L: Key, D: Key> poller::Source for Source<L, D> {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            Source::Link(key) => to_peer(key),
            Source::Listener(key) => to_peer(key) | LISTENER,
            Source::Timer => TIMER,
        }
    }

    fn of_token(token: u64) -> Self {
        if token == TIMER {
            Source::Timer
        } else if token & LISTENER != 0 {
            Source::Listener(from_peer(token & !LISTENER))
        } else {
            Source::Link(from_peer(token))
        }
    }
}

#[cfg(test)]
mod tests {
    use prov_base::poller::Source as _;
    use slotmap::{SlotMap, new_key_type};

    use super::*;

    new_key_type! {
        struct LinkKey;
        struct ListenerKey;
    }

    #[test]
    fn tokens_lead_back_to_their_sources() {
        let mut links = SlotMap::<LinkKey, ()>::with_key();
        let mut listeners = SlotMap::<ListenerKey, ()>::with_key();
        for _ in 0..100 {
            let sources = [
                Source::Link(links.insert(())),
                Source::Listener(listeners.insert(())),
                Source::Timer,
            ];
            for source in sources {
                assert_eq!(Source::of_token(source.token()), source);
            }
        }
    }

    #[test]
    fn a_thing_has_one_name() {
        let mut links = SlotMap::<LinkKey, ()>::with_key();
        let first = links.insert(());
        links.remove(first);
        for key in [links.insert(()), links.insert(())] {
            let name = to_peer(key);
            assert_eq!(from_peer::<LinkKey>(name), key);
            for bit in 0..64 {
                assert!(!links.contains_key(from_peer(name ^ 1 << bit)) || bit == 0);
            }
            assert_ne!(from_peer::<LinkKey>(name ^ 1 << 32), key);
        }
    }
}
