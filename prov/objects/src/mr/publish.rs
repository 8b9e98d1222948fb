//! Publishing of regions to peers that access memory by themselves: processes of this host, which
//! look up a key without a message.

use std::sync::atomic::{AtomicU32, Ordering};

/// A region as such peers see it: contiguous memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The key.
    pub key: u64,
    /// Start of the region in the peers' addressing: its address, or 0.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// Address in this process.
    pub addr: u64,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`.
    pub access: u64,
    /// The accesses that a counter of the region counts, which peers therefore report.
    pub counted: u64,
}

/// The index of a region in the table of a [`Publisher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedIndex(pub u32);

/// The table that peers read.
pub trait Publisher: Send + Sync {
    /// Publishes a region. A region that is `None`, or that finds no free entry in the table, is
    /// only counted: peers have to ask for such regions. Returns the entry.
    fn publish(&self, region: Option<&Published>) -> Option<PublishedIndex>;

    /// Sets the accesses (`FI_REMOTE_*`) of a published region that are counted.
    fn count(&self, place: PublishedIndex, counted: u64);

    /// Withdraws a region. After this returns, no peer accesses it by itself. Waits for accesses in
    /// progress, for as long as those peers live.
    fn withdraw(&self, place: Option<PublishedIndex>);

    /// Makes peers report accesses of these kinds (`FI_REMOTE_*`) to any region, because an
    /// endpoint counts them.
    fn count_all(&self, counted: u64);
}

/// A region's publication, encoded in one word.
#[derive(Debug, Default)]
pub(super) struct Listing(AtomicU32);

/// It is not published.
const UNKNOWN: u32 = 0;
/// It is published without an entry.
const UNLISTED: u32 = 1;
/// The first entry.
const PLACES: u32 = 2;

impl Listing {
    pub(super) fn set(&self, place: Option<PublishedIndex>) {
        let word = place.map_or(UNLISTED, |PublishedIndex(place)| PLACES + place);
        self.0.store(word, Ordering::Release);
    }

    /// Returns whether it is published without an entry.
    pub(super) fn is_unlisted(&self) -> bool {
        self.0.load(Ordering::Acquire) == UNLISTED
    }

    /// Returns its entry, if it has one.
    pub(super) fn place(&self) -> Option<PublishedIndex> {
        let word = self.0.load(Ordering::Acquire);
        word.checked_sub(PLACES).map(PublishedIndex)
    }

    /// Like `place`, and ends the publication: `None` if the region was not published.
    pub(super) fn take(&self) -> Option<Option<PublishedIndex>> {
        let word = self.0.swap(UNKNOWN, Ordering::AcqRel);
        (word != UNKNOWN).then(|| word.checked_sub(PLACES).map(PublishedIndex))
    }
}
