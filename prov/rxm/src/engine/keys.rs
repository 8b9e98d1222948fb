//! Keys of the engine's objects. A key is never reused, so that an event for an object that is gone
//! finds nothing.

use std::collections::HashMap;

use prov_base::{poller, random};
pub use prov_message::EpKey;
pub use prov_message::keys::{from_peer, to_peer};
pub use prov_message::peers::PeerKey;
use slotmap::{Key, new_key_type};

new_key_type! {
    /// A connection between two endpoints, from the request to the end.
    pub struct LinkKey;
    /// An operation that waits for the peer's response.
    pub struct PendingKey;
    /// A message that is read from, or written by, the peer.
    pub struct FetchKey;
}

/// What a descriptor in the poller belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The completion queues below.
    Completions,
    /// The event queue below.
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

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// A peer without a link.
    Peer(EpKey, PeerKey),
    /// A link that should be open by then.
    Link(LinkKey),
}

/// Links by the identifiers of their endpoints in events.
pub type Names = HashMap<usize, LinkKey>;

/// Number of bits of a number: the C library uses signed integers.
const BITS: u32 = 31;
/// Limit of the numbers in use, so that a guess hits one in at most one of thousands of attempts.
const MOST: usize = 1 << 20;
/// Initial size of the table.
const FEW: usize = 16;

/// Links by the numbers that peers put in packets. The numbers are random, so that a peer is not
/// taken for another one by mistake, and cannot easily imitate one or a link of another lane.
#[derive(Default)]
pub struct Ids {
    /// A hash table with a power of two of places, or empty. A number is at the index of its lower
    /// bits, which differ from those of all other numbers, and still do after the table has grown.
    places: Vec<(u32, LinkKey)>,
    /// The mask of these lower bits.
    mask: u32,
    count: usize,
}

impl Ids {
    /// Assigns a number to a link; `None` if there are too many.
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than the number of places"
    )]
    pub fn add(&mut self, link: LinkKey) -> Option<u32> {
        if self.count == MOST {
            return None;
        }
        if self.count >= self.places.len() / 2 {
            self.grow();
        }
        let random = random::number() as u32 & ((1 << BITS) - 1);
        let mut place = random & self.mask;
        while !self.places[place as usize].1.is_null() {
            place = (place + 1) & self.mask;
        }
        let id = random & !self.mask | place;
        self.places[place as usize] = (id, link);
        self.count += 1;
        Some(id)
    }

    /// Doubles the table.
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than the number of places"
    )]
    fn grow(&mut self) {
        let len = (2 * self.places.len()).max(FEW);
        let places = std::mem::replace(&mut self.places, vec![(0, LinkKey::null()); len]);
        self.mask = len as u32 - 1;
        for (id, link) in places.into_iter().filter(|(_, link)| !link.is_null()) {
            self.places[(id & self.mask) as usize] = (id, link);
        }
    }

    /// Returns the link with a number.
    #[inline]
    pub fn find(&self, id: u32) -> Option<LinkKey> {
        let &(known, link) = self.places.get((id & self.mask) as usize)?;
        (known == id && !link.is_null()).then_some(link)
    }

    /// Releases the number of a link that has ended.
    #[allow(
        clippy::indexing_slicing,
        reason = "the mask is one less than the number of places"
    )]
    pub fn remove(&mut self, id: u32) {
        if self.find(id).is_some() {
            self.places[(id & self.mask) as usize].1 = LinkKey::null();
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn a_connection_id_maps_to_its_link_until_the_link_is_removed() {
        let mut links = SlotMap::<LinkKey, ()>::with_key();
        let mut ids = Ids::default();
        assert_eq!(ids.find(0), None);
        let mut known: Vec<_> = (0..1000)
            .map(|_| {
                let link = links.insert(());
                (ids.add(link).unwrap(), link)
            })
            .collect();
        for _ in 0..3 {
            for &(number, link) in &known {
                assert!(number < 1 << BITS);
                assert_eq!(ids.find(number), Some(link));
                assert_eq!(ids.find(number ^ 1 << (BITS - 1)), None);
            }
            let gone: Vec<_> = known.drain(..500).collect();
            for &(number, _) in &gone {
                ids.remove(number);
                ids.remove(number);
                assert_eq!(ids.find(number), None);
            }
            for _ in gone {
                let link = links.insert(());
                known.push((ids.add(link).unwrap(), link));
            }
        }
        assert_eq!(ids.places.len(), 2048);
    }

    #[test]
    fn tables_of_different_contexts_assign_different_connection_ids() {
        let mut links = SlotMap::<LinkKey, ()>::with_key();
        let numbers: HashSet<_> = (0..1000)
            .map(|_| Ids::default().add(links.insert(())).unwrap())
            .collect();
        assert!(numbers.len() > 990, "{} of 1000", numbers.len());
    }
}
