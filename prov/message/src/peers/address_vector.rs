//! The address vector as peers ask it, whatever its addresses are.

use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

/// An address vector (fi_av(3)) whose addresses a provider has given a type.
pub trait AddressVector {
    /// What an address is: a socket address, a name, a GID.
    type Address: Clone + Eq + Hash;

    /// The address of this number; `None` where it means none.
    fn lookup(&self, fi_addr: u64) -> Option<Self::Address>;

    /// The number of an address.
    fn find(&self, addr: &Self::Address) -> Option<u64>;

    /// How many addresses there are.
    fn len(&self) -> usize;

    /// Whether there is no address.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `observer` when addresses have been removed, as long as it lives.
    fn observe(&self, observer: Weak<dyn Observer>);
}

/// Of socket addresses.
impl AddressVector for Use<Av> {
    type Address = SocketAddr;

    fn lookup(&self, fi_addr: u64) -> Option<SocketAddr> {
        Av::lookup(self, fi_addr)
    }

    fn find(&self, addr: &SocketAddr) -> Option<u64> {
        Av::find(self, addr)
    }

    fn len(&self) -> usize {
        Av::len(self)
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        Av::observe(self, observer);
    }
}

/// Counts addresses that leave the address vector.
#[derive(Default)]
pub(crate) struct Removals(AtomicU64);

impl Removals {
    /// How many there were.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Has the vector tell of its removals from now on.
    pub fn watch(self: &Arc<Self>, av: &impl AddressVector) {
        let observer: Arc<dyn Observer> = self.clone();
        av.observe(Arc::downgrade(&observer));
    }
}

impl Observer for Removals {
    fn removed(&self, _: u64) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// What tells one state of an address vector from another.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Counted before anything is looked up, so that what changes meanwhile is
    /// found the next time.
    pub removals: u64,
    /// Grows with insertions; shrinks where another process removes from a
    /// vector that it shares.
    pub len: usize,
}

impl Seen {
    /// Whether what was known before is known still.
    pub fn has_only_grown_since(self, before: Seen) -> bool {
        self.removals == before.removals && self.len >= before.len
    }
}
