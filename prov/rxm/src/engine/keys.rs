//! Names of the engine's things. A name is never used twice, so that an event
//! for something that is gone finds nothing.

use std::collections::HashMap;

pub use prov_message::EpKey;
pub use prov_message::keys::{from_peer, to_peer};
pub use prov_message::peers::PeerKey;
use prov_util::poller;
use slotmap::{Key, new_key_type};

new_key_type! {
    /// What connects two endpoints, from the first word to the end.
    pub struct LinkKey;
    /// An operation that the peer is to answer.
    pub struct PendingKey;
    /// A message that is read from the peer's memory, or written from there.
    pub struct FetchKey;
}

/// What a descriptor in the poller belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The queue below of what has completed.
    Completions,
    /// The queue below of what happens to connections.
    Events,
    Timer,
}

impl poller::Source for Source {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            Source::Completions => 0,
            Source::Events => 1,
            Source::Timer => 2,
        }
    }

    fn of_token(token: u64) -> Self {
        match token {
            0 => Source::Completions,
            1 => Source::Events,
            _ => Source::Timer,
        }
    }
}

/// What is looked at when a time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// A peer without a link.
    Peer(EpKey, PeerKey),
    /// A link that should be open by then.
    Link(LinkKey),
}

/// Links by what events of the provider below call their endpoints.
pub type Names = HashMap<usize, LinkKey>;

/// Bits of a number that say where its link is; those above are random, so that
/// no peer passes for another by mistake, or easily on purpose.
const PLACE: u32 = 20;
/// The C library has signed numbers.
const BITS: u32 = 31;

/// Links by the numbers that peers put into packets.
#[derive(Default)]
pub struct Ids {
    places: Vec<(u32, LinkKey)>,
    free: Vec<u32>,
}

impl Ids {
    /// A number for a link; `None` where there are too many.
    pub fn add(&mut self, link: LinkKey) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.places.len()).ok();
                let place = place.filter(|place| *place < 1 << PLACE)?;
                self.places.push((0, LinkKey::null()));
                place
            }
        };
        let mut random = [0; 4];
        // Without random numbers, it is told from its predecessor all the same.
        if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).is_err() {
            random = (self.places[place as usize].0 >> PLACE)
                .wrapping_add(1)
                .to_ne_bytes();
        }
        let salt = u32::from_ne_bytes(random) & ((1 << (BITS - PLACE)) - 1);
        let id = salt << PLACE | place;
        self.places[place as usize] = (id, link);
        Some(id)
    }

    /// The link of a number.
    #[inline]
    pub fn find(&self, id: u32) -> Option<LinkKey> {
        let &(known, link) = self.places.get((id & ((1 << PLACE) - 1)) as usize)?;
        (known == id && !link.is_null()).then_some(link)
    }

    /// Its link has ended.
    pub fn remove(&mut self, id: u32) {
        if self.find(id).is_some() {
            let place = id & ((1 << PLACE) - 1);
            self.places[place as usize].1 = LinkKey::null();
            self.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn a_number_finds_its_link_until_that_has_ended() {
        let mut links = SlotMap::<LinkKey, ()>::with_key();
        let mut ids = Ids::default();
        let keys = [0; 3].map(|_| links.insert(()));
        let numbers = keys.map(|key| ids.add(key).unwrap());
        assert!(numbers.iter().all(|number| *number < 1 << BITS));
        assert_eq!(numbers.map(|number| ids.find(number)), keys.map(Some));
        assert_eq!(ids.find(numbers[0] ^ 1 << 30), None);
        ids.remove(numbers[1]);
        assert_eq!(ids.find(numbers[1]), None);
        let again = links.insert(());
        let number = ids.add(again).unwrap();
        assert_eq!(ids.find(number), Some(again));
        assert_eq!(ids.places.len(), 3);
    }
}
