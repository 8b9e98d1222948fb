//! Paths to peers. Those of peers that have one each, which most have, are read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::fi_addr_t;
use prov_base::bounds::PEERS;

/// A path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Index of the linked endpoint.
    pub link: usize,
    /// The peer's number in its address vector.
    pub number: fi_addr_t,
}

/// Peers of a part of the table.
const PART: usize = 1 << 12;

/// A table of paths, of parts that are allocated when one is set. It need not have all.
pub struct OnlyWays([OnceLock<Box<[AtomicU64]>>; PEERS / PART]);

impl Default for OnlyWays {
    fn default() -> Self {
        OnlyWays([const { OnceLock::new() }; PEERS / PART])
    }
}

/// The bits of an entry for the number of the peer; those above are one more than the link.
const NUMBER: u32 = 48;

fn entry(way: Way) -> Option<u64> {
    let link = u16::try_from(way.link).ok()?.checked_add(1)?;
    let is_small = way.number >> NUMBER == 0;
    is_small.then(|| u64::from(link) << NUMBER | way.number)
}

impl OnlyWays {
    /// Returns the path of a peer; `None` if it is not here.
    #[inline]
    pub fn get(&self, peer: fi_addr_t) -> Option<Way> {
        let peer = usize::try_from(peer).ok()?;
        let part = self.0.get(peer / PART)?.get()?;
        let entry = part.get(peer % PART)?.load(Ordering::Acquire);
        let link = (entry >> NUMBER).checked_sub(1)?;
        Some(Way {
            link: link as usize,
            number: entry & ((1 << NUMBER) - 1),
        })
    }

    /// Sets the path of a peer, or removes it.
    pub fn set(&self, peer: fi_addr_t, way: Option<Way>) {
        let place = usize::try_from(peer).ok();
        let part = place.and_then(|peer| self.0.get(peer / PART));
        let (Some(peer), Some(part)) = (place, part) else {
            return;
        };
        let entry = way.and_then(entry).unwrap_or(0);
        if entry == 0 && part.get().is_none() {
            return;
        }
        let part = part.get_or_init(|| (0..PART).map(|_| AtomicU64::new(0)).collect());
        if let Some(place) = part.get(peer % PART) {
            place.store(entry, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_until_it_is_removed() {
        let table = OnlyWays::default();
        let way = |link, number| Way { link, number };
        let last = PEERS as u64 - 1;
        assert_eq!(table.get(0), None);
        table.set(0, Some(way(0, 0)));
        table.set(last, Some(way(3, (1 << NUMBER) - 1)));
        assert_eq!(table.get(0), Some(way(0, 0)));
        assert_eq!(table.get(last), Some(way(3, (1 << NUMBER) - 1)));
        assert_eq!(table.get(1), None);
        table.set(0, None);
        assert_eq!(table.get(0), None);
    }

    #[test]
    fn what_does_not_fit_is_not_here() {
        let table = OnlyWays::default();
        let way = |link, number| Some(Way { link, number });
        table.set(PEERS as u64, way(0, 0));
        table.set(u64::MAX, way(0, 0));
        table.set(1, way(0, 1 << NUMBER));
        table.set(2, way(u16::MAX.into(), 0));
        for peer in [PEERS as u64, u64::MAX, 1, 2] {
            assert_eq!(table.get(peer), None);
        }
    }
}
