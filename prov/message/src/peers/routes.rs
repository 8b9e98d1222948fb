//! A table from numbers of the address vector to peers, indexed by number.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::PeerKey;

/// Pages of 256 addresses; a page is allocated when one of its addresses is used.
pub(super) struct Routes<L> {
    pages: Vec<Option<Box<Page<L>>>>,
    /// Those of numbers beyond 32 bits, which name a receive context, too (`fi_rx_addr`).
    contexts: HashMap<u64, Route<L>, BuildHasherDefault<Numbers>>,
}

const PAGE: usize = 256;

type Page<L> = [Route<L>; PAGE];

/// Hashes numbers that the application has: nobody else chooses them.
#[derive(Default)]
struct Numbers(u64);

impl Hasher for Numbers {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Folded multiply by an odd constant without structure: the upper bits name the context,
        // and the lower ones the address.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// The route for an address.
struct Route<L> {
    peer: Option<PeerKey>,
    /// The peer's link, if it was open at the last use. Once the link has ended, its key is
    /// invalid.
    link: Option<L>,
}

impl<L: Copy> Routes<L> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Routes {
            pages: Vec::new(),
            contexts: HashMap::default(),
        }
    }

    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the offset is taken modulo the size of a page, and the page was made"
    )]
    fn get(&self, fi_addr: u64) -> Option<&Route<L>> {
        let page = self.pages.get(page_of(fi_addr)?)?.as_deref()?;
        Some(&page[fi_addr as usize % PAGE])
    }

    fn of_context(&self, fi_addr: u64) -> Option<&Route<L>> {
        self.contexts.get(&fi_addr)
    }

    /// Apart, so that it costs messages to other addresses no registers.
    #[cold]
    #[inline(never)]
    fn link_of_context(&self, fi_addr: u64) -> Option<L> {
        self.of_context(fi_addr)?.link
    }

    /// Returns the peer at an address, if it was looked up before.
    #[inline]
    pub fn peer(&self, fi_addr: u64) -> Option<PeerKey> {
        match self.get(fi_addr) {
            Some(route) => route.peer,
            None => self.of_context(fi_addr)?.peer,
        }
    }

    /// Returns the link that messages for an address used last.
    #[inline]
    pub fn link(&self, fi_addr: u64) -> Option<L> {
        match self.get(fi_addr) {
            Some(route) => route.link,
            None => self.link_of_context(fi_addr),
        }
    }

    /// Records the route of a valid address.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offset is taken modulo the size of a page, and the page was made"
    )]
    pub fn set(&mut self, fi_addr: u64, peer: PeerKey, link: Option<L>) {
        let route = Route {
            peer: Some(peer),
            link,
        };
        let Some(page) = page_of(fi_addr).filter(|_| u32::try_from(fi_addr).is_ok()) else {
            self.contexts.insert(fi_addr, route);
            bounded!(self.contexts, PEERS);
            return;
        };
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| {
            Box::new(std::array::from_fn(|_| Route {
                peer: None,
                link: None,
            }))
        });
        page[fi_addr as usize % PAGE] = route;
    }

    /// Removes all routes.
    pub fn clear(&mut self) {
        self.pages = Vec::new();
        self.contexts.clear();
    }
}

#[inline]
fn page_of(fi_addr: u64) -> Option<usize> {
    usize::try_from(fi_addr / PAGE as u64).ok()
}

#[cfg(test)]
mod tests {
    use slotmap::{SlotMap, new_key_type};

    use super::*;

    new_key_type! { struct LinkKey; }

    #[test]
    fn a_route_takes_sixteen_bytes_with_and_without_a_link() {
        assert_eq!(size_of::<Route<LinkKey>>(), 16);
    }

    #[test]
    fn only_pages_that_are_used_take_memory() {
        let (mut peers, mut links) = (
            SlotMap::<PeerKey, ()>::with_key(),
            SlotMap::<LinkKey, ()>::with_key(),
        );
        let (peer, link) = (peers.insert(()), links.insert(()));
        let mut routes = Routes::new();
        routes.set(1_000_000, peer, Some(link));
        routes.set(1_000_001, peer, None);
        assert_eq!(routes.pages.iter().flatten().count(), 1);
        assert_eq!(routes.peer(1_000_000), Some(peer));
        assert_eq!(routes.link(1_000_000), Some(link));
        assert_eq!(routes.peer(1_000_001), Some(peer));
        assert_eq!(routes.link(1_000_001), None);
        for unused in [0, 999_999, 1_000_002, 1_000_256, u64::MAX] {
            assert_eq!(routes.peer(unused), None);
        }
        routes.clear();
        assert_eq!(routes.peer(1_000_000), None);
    }

    #[test]
    fn a_number_that_also_names_a_receive_context_has_a_route_of_its_own_and_no_page() {
        let mut peers = SlotMap::<PeerKey, ()>::with_key();
        let mut links = SlotMap::<LinkKey, ()>::with_key();
        let (peer, link) = (peers.insert(()), links.insert(()));
        let mut routes = Routes::<LinkKey>::new();
        routes.set(1 << 60 | 1, peer, Some(link));
        assert!(routes.pages.is_empty());
        assert_eq!(routes.peer(1 << 60 | 1), Some(peer));
        assert_eq!(routes.link(1 << 60 | 1), Some(link));
        for other in [1, 1 << 60, 1 << 61 | 1] {
            assert_eq!(routes.peer(other), None);
        }
        routes.clear();
        assert_eq!(routes.peer(1 << 60 | 1), None);
    }
}
