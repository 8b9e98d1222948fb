//! An address vector whose addresses are byte strings.

use std::sync::{Arc, Weak};

use prov_util::av::format::Address;
use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

use crate::peers::{AddressVector, Removals, UNKNOWN_SOURCE, VectorState};

/// An address vector (fi_av(3)) of names: byte strings, or text without its terminating zero.
pub struct Names {
    av: Use<Av>,
    removals: Arc<Removals>,
    /// The state of the vector at the last call of `have_changed`.
    seen: VectorState,
}

impl Names {
    /// Wraps the vector that an endpoint is bound to.
    pub fn new(av: Use<Av>) -> Self {
        let mut names = Names {
            av,
            removals: Arc::default(),
            seen: VectorState::default(),
        };
        names.removals.watch(&names);
        names.have_changed();
        names
    }

    /// Calls `read` with the name of this number; returns `None` if the number is invalid.
    pub fn with<R>(&self, fi_addr: u64, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let bytes = |addr: Address<'_>| match addr {
            Address::Bytes(bytes) => Some(read(bytes)),
            Address::Internet(_) => None,
        };
        self.av.with_address(fi_addr, bytes).flatten()
    }

    /// The receive context that a number names (`fi_rx_addr`), 0 for none.
    pub fn context_of(&self, fi_addr: u64) -> usize {
        self.av.context_of(fi_addr) as usize
    }

    /// Returns the source number of messages from a name, [`UNKNOWN_SOURCE`] if the vector does not
    /// know it.
    pub fn source(&self, name: &[u8]) -> u64 {
        let number = self.av.find_address(Address::Bytes(name));
        number.unwrap_or(UNKNOWN_SOURCE)
    }

    /// Returns whether the vector has changed since the last call, in which case waiting messages
    /// may need another source ([`Endpoints::relabel`](crate::Endpoints::relabel)). For transports
    /// without links; [`Peers`](crate::peers::Peers) tracks the changes itself.
    pub fn have_changed(&mut self) -> bool {
        let now = VectorState {
            removals: self.removals.count(),
            len: self.av.len(),
        };
        std::mem::replace(&mut self.seen, now) != now
    }
}

impl AddressVector for Names {
    type Address = Vec<u8>;

    fn lookup(&self, fi_addr: u64) -> Option<Vec<u8>> {
        self.with(fi_addr, <[u8]>::to_vec)
    }

    fn find(&self, addr: &Vec<u8>) -> Option<u64> {
        self.av.find_address(Address::Bytes(addr))
    }

    fn len(&self) -> usize {
        self.av.len()
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        self.av.observe(observer);
    }
}
