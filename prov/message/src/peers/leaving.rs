//! Whose the messages are that links have left which have ended, so that they have the
//! number that their peer has when they are received.

use super::address_vector::AddressVector;
use super::{PeerKey, Peers, UNKNOWN_SOURCE};
use crate::endpoints::left::LeftKey;

/// See the [module](self) description.
pub(super) struct LeftOf<A> {
    all: Vec<Left<A>>,
    /// So many are there when it is time to look which of them are received.
    look_at: usize,
    /// What comes from another source than it says.
    relabelled: Vec<(LeftKey, u64)>,
}

struct Left<A> {
    key: LeftKey,
    /// Whose it is.
    addr: A,
    source: u64,
}

/// What is left of this many links is not worth a look whether it is received.
const FEW: usize = 64;

impl<A> LeftOf<A> {
    /// Nothing.
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
    /// The link of a peer has ended, and has left this.
    pub(crate) fn leaves(&mut self, peer: PeerKey, key: LeftKey) {
        if let Some(peer) = self.table.get(peer) {
            self.left.all.push(Left {
                key,
                addr: peer.addr.clone(),
                source: peer.source,
            });
        }
    }

    /// How many links are remembered for what they have left.
    pub fn left_behind(&self) -> usize {
        self.left.all.len()
    }

    /// Whether it is time to look which of it is received:
    /// [`Peers::forget_left`] forgets that.
    pub(crate) fn has_left_much(&self) -> bool {
        self.left.all.len() >= self.left.look_at
    }

    /// All that links have left.
    pub(crate) fn all_left(&self) -> Vec<LeftKey> {
        self.left.all.iter().map(|left| left.key).collect()
    }

    /// Forgets all but this.
    pub(crate) fn forget_left(&mut self, mut is_left: impl FnMut(LeftKey) -> bool) {
        self.left.all.retain(|left| is_left(left.key));
        self.left.look_at = FEW.max(2 * self.left.all.len());
    }

    /// What links have left whose peers have another number, with that.
    pub(crate) fn take_left_relabelled(&mut self) -> Vec<(LeftKey, u64)> {
        std::mem::take(&mut self.left.relabelled)
    }

    /// Looks for the numbers of those who have left something: of all of them, or of those
    /// whom the address vector did not know.
    pub(super) fn look_up_left(&mut self, all: bool) {
        let mut left = std::mem::take(&mut self.left.all);
        for Left { key, addr, source } in &mut left {
            if !all && *source != UNKNOWN_SOURCE {
                continue;
            }
            let now = self.source_of(addr);
            if std::mem::replace(source, now) != now {
                self.left.relabelled.push((*key, now));
            }
        }
        self.left.all = left;
    }
}
