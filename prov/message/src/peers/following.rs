//! Keeps peers in accordance with the address vector: which peer a number means, and the source of
//! each peer's messages.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::errno::{Errno, Result};

use super::address_vector::{AddressVector, VectorState};
use super::{PeerKey, Peers, UNKNOWN_SOURCE};

impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// Returns whether the address vector has changed since the last look-up.
    #[inline]
    pub fn av_changed(&self) -> bool {
        self.av
            .as_ref()
            .is_some_and(|av| self.look_at(av) != self.seen)
    }

    /// Follows the changes in the address vector. [`Peers::take_relabelled`] returns the links that
    /// are to be relabelled.
    pub fn follow(&mut self) {
        let Some(av) = &self.av else {
            return;
        };
        let now = self.look_at(av);
        if now == self.seen {
            return;
        }
        let looked_at: Vec<PeerKey> = if now.has_only_grown_since(self.seen) {
            self.strangers.iter().copied().collect()
        } else {
            self.routes.clear();
            self.table.keys().collect()
        };
        let all = !now.has_only_grown_since(self.seen);
        self.seen = now;
        for key in looked_at {
            self.look_up(key);
            self.forget_idle(key);
        }
        self.look_up_left(all);
    }

    /// Returns whether links are to be relabelled.
    #[inline]
    pub fn is_relabelled(&self) -> bool {
        !self.relabelled.is_empty() || self.left.is_relabelled()
    }

    /// Returns the links whose messages have a new source, with that source, after the address
    /// vector learnt or forgot the peer. In the order of these changes.
    pub fn take_relabelled(&mut self) -> Vec<(L, u64)> {
        std::mem::take(&mut self.relabelled)
    }

    /// Returns the peer at an address; it may have been forgotten.
    #[inline]
    pub(super) fn route(&mut self, fi_addr: u64) -> Result<PeerKey> {
        if self.removals.count() == self.seen.removals
            && let Some(key) = self.routes.peer(fi_addr)
        {
            return Ok(key);
        }
        self.find_route(fi_addr)
    }

    /// Returns the peer at an address, which is added if necessary.
    #[cold]
    pub(super) fn find_route(&mut self, fi_addr: u64) -> Result<PeerKey> {
        self.follow();
        let av = self.av.as_ref().ok_or(Errno::ENOAV)?;
        let addr = av.lookup(fi_addr).ok_or(Errno::EINVAL)?;
        let key = self.peer_at(&addr);
        self.routes.set(fi_addr, key, None);
        Ok(key)
    }

    fn look_at(&self, av: &V) -> VectorState {
        VectorState {
            removals: self.removals.count(),
            len: av.len(),
        }
    }

    pub(super) fn source_of(&self, addr: &V::Address) -> u64 {
        let av = self.av.as_ref();
        av.and_then(|av| av.find(addr)).unwrap_or(UNKNOWN_SOURCE)
    }

    /// Looks a peer up in the address vector.
    fn look_up(&mut self, key: PeerKey) {
        let Some(addr) = self.address(key) else {
            return;
        };
        let source = self.source_of(addr);
        let Some(peer) = self.table.get_mut(key) else {
            return;
        };
        if source == peer.source {
            return;
        }
        peer.source = source;
        if source == UNKNOWN_SOURCE {
            self.strangers.insert(key);
            bounded!(self.strangers, PEERS);
        } else {
            self.strangers.remove(&key);
        }
        let far_end = match self.loopback {
            Some((itself, link)) if itself == key => Some(link),
            _ => None,
        };
        let links = peer.link.name().into_iter().chain(far_end);
        self.relabelled.extend(links.map(|link| (link, source)));
        bounded!(self.relabelled, PEERS);
    }
}
