//! The peers whose links have ended and left complete messages, so that these messages have their
//! peer's current number when they are received.

use super::address_vector::AddressVector;
use super::{PeerKey, Peers, UNKNOWN_SOURCE};
use crate::endpoints::left::LeftKey;
use prov_base::bounded;
use prov_base::bounds::PEERS;

/// See the [module](self) description.
pub(super) struct LeftOf<A> {
    all: Vec<Left<A>>,
    /// The number of entries at which entries without messages are searched and removed.
    look_at: usize,
    /// Entries whose messages have a new source, with that source.
    relabelled: Vec<(LeftKey, u64)>,
}

struct Left<A> {
    key: LeftKey,
    /// The peer's address.
    addr: A,
    source: u64,
}

/// Below this number of entries, the search for entries without messages is not worth its cost.
const FEW: usize = 64;

impl<A> LeftOf<A> {
    /// Creates an empty set.
    pub fn new() -> Self {
        LeftOf {
            all: Vec::new(),
            look_at: FEW,
            relabelled: Vec::new(),
        }
    }

    #[inline]
    pub fn is_relabelled(&self) -> bool {
        !self.relabelled.is_empty()
    }
}

impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// Records what a peer's link has left.
    pub(crate) fn leaves(&mut self, peer: PeerKey, key: LeftKey) {
        if let Some(peer) = self.table.get(peer) {
            self.left.all.push(Left {
                key,
                addr: peer.addr.clone(),
                source: peer.source,
            });
            bounded!(self.left.all, PEERS);
        }
    }

    /// Returns the number of entries.
    pub fn left_behind(&self) -> usize {
        self.left.all.len()
    }

    /// Returns whether it is time to remove entries without messages with [`Peers::forget_left`].
    pub(crate) fn has_left_much(&self) -> bool {
        self.left.all.len() >= self.left.look_at
    }

    /// Returns all entries.
    pub(crate) fn all_left(&self) -> Vec<LeftKey> {
        self.left.all.iter().map(|left| left.key).collect()
    }

    /// Removes all entries for which `is_left` is false.
    pub(crate) fn forget_left(&mut self, mut is_left: impl FnMut(LeftKey) -> bool) {
        self.left.all.retain(|left| is_left(left.key));
        self.left.look_at = FEW.max(2 * self.left.all.len());
    }

    /// Returns the entries whose peers have another number, with that number.
    pub(crate) fn take_left_relabelled(&mut self) -> Vec<(LeftKey, u64)> {
        std::mem::take(&mut self.left.relabelled)
    }

    /// Looks up the numbers of the peers of all entries, or only of those that the address vector
    /// did not know.
    pub(super) fn look_up_left(&mut self, all: bool) {
        let mut left = std::mem::take(&mut self.left.all);
        for Left { key, addr, source } in &mut left {
            if !all && *source != UNKNOWN_SOURCE {
                continue;
            }
            let now = self.source_of(addr);
            if std::mem::replace(source, now) != now {
                self.left.relabelled.push((*key, now));
                bounded!(self.left.relabelled, PEERS);
            }
        }
        self.left.all = left;
    }
}
