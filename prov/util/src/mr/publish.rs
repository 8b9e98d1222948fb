//! Where regions are announced to peers that access memory by themselves: processes of
//! this host, which find out what a key means without asking.

use std::sync::atomic::{AtomicU32, Ordering};

/// A region as such peers see it: memory in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The key.
    pub key: u64,
    /// Where the region begins in the peers' eyes: its address, or 0.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Address in this process.
    pub addr: u64,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    pub access: u64,
    /// Which of those accesses a counter of the region counts: peers report them.
    pub counted: u64,
}

/// Which place a region has in the table of a [`Publisher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u32);

/// The table that peers see.
pub trait Publisher: Send + Sync {
    /// Publishes a region, or counts one that peers have to ask for: `None`, or one for
    /// which there is no place in the table. Returns the place.
    fn publish(&self, region: Option<&Published>) -> Option<Place>;

    /// The accesses (`FI_REMOTE_*`) of a published region that are counted, from now on.
    fn count(&self, place: Place, counted: u64);

    /// Withdraws a region. When this returns, no peer accesses it by itself. Waits for
    /// those that do, for as long as they live.
    fn withdraw(&self, place: Option<Place>);

    /// Peers report accesses of these kinds (`FI_REMOTE_*`) from now on, whichever
    /// region they are to: an endpoint counts them.
    fn count_all(&self, counted: u64);
}

/// What a [`Publisher`] was told of a region, in one word.
#[derive(Debug, Default)]
pub(super) struct Listing(AtomicU32);

/// The publisher was not told of it.
const UNKNOWN: u32 = 0;
/// It has no place.
const UNLISTED: u32 = 1;
/// The first place.
const PLACES: u32 = 2;

impl Listing {
    pub(super) fn set(&self, place: Option<Place>) {
        let word = place.map_or(UNLISTED, |Place(place)| PLACES + place);
        self.0.store(word, Ordering::Release);
    }

    /// Whether the publisher knows of it, and has no place for it.
    pub(super) fn is_unlisted(&self) -> bool {
        self.0.load(Ordering::Acquire) == UNLISTED
    }

    /// Its place, if it has one.
    pub(super) fn place(&self) -> Option<Place> {
        let word = self.0.load(Ordering::Acquire);
        word.checked_sub(PLACES).map(Place)
    }

    /// The same, for the last time: `None` where the publisher was not told of the region.
    pub(super) fn take(&self) -> Option<Option<Place>> {
        let word = self.0.swap(UNKNOWN, Ordering::AcqRel);
        (word != UNKNOWN).then(|| word.checked_sub(PLACES).map(Place))
    }
}
