//! The address vector as peers use it, independent of the type of its addresses.

use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

/// An address vector (fi_av(3)) with a provider's type of addresses.
pub trait AddressVector {
    /// The type of an address: a socket address, a name, a GID.
    type Address: Clone + Eq + Hash;

    /// Returns the address with this number; `None` if the number is invalid.
    fn lookup(&self, fi_addr: u64) -> Option<Self::Address>;

    /// Returns the number of an address.
    fn find(&self, addr: &Self::Address) -> Option<u64>;

    /// Whether the peer at an address cannot be connected to (`FI_FIREWALL_ADDR`).
    fn only_calls(&self, _fi_addr: u64) -> bool {
        false
    }

    /// Returns the number of addresses.
    fn len(&self) -> usize;

    /// Returns whether there are no addresses.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `observer` whenever an address is removed, for as long as the observer lives.
    fn observe(&self, observer: Weak<dyn Observer>);
}

/// An address vector of socket addresses.
impl AddressVector for Use<Av> {
    type Address = SocketAddr;

    fn lookup(&self, fi_addr: u64) -> Option<SocketAddr> {
        Av::lookup(self, fi_addr)
    }

    fn find(&self, addr: &SocketAddr) -> Option<u64> {
        Av::find(self, addr)
    }

    fn only_calls(&self, fi_addr: u64) -> bool {
        Av::only_calls(self, fi_addr)
    }

    fn len(&self) -> usize {
        Av::len(self)
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        Av::observe(self, observer);
    }
}

/// Counts the addresses that were removed from the address vector. Each message reads it, so that
/// its cache line, and the one beside it, have nothing that other threads write.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Removals(AtomicU64);

impl Removals {
    /// Returns the count.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Registers itself with a vector.
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

/// Identifies a state of an address vector.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VectorState {
    /// Read before anything is looked up, so that a concurrent change is found by the next
    /// comparison.
    pub removals: u64,
    /// Grows with insertions; shrinks if another process removes an address from a shared vector.
    pub len: usize,
}

impl VectorState {
    /// Returns whether everything that was known in the state `before` is still valid.
    pub fn has_only_grown_since(self, before: VectorState) -> bool {
        self.removals == before.removals && self.len >= before.len
    }
}
