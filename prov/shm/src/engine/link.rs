//! A link to another endpoint: what the two do with each other, and how they found each other.

use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use prov_base::process_memory::Seal;
pub use prov_local::link::Fault;
use prov_local::process::Life;

use super::keys::{EpKey, PeerKey};
use super::messages::Shm;
use crate::listener::Wire;

/// See the [module](self) description.
pub struct Link {
    /// The peer; `None` for the far end of an endpoint's link to itself, and until the peer is
    /// known.
    pub peer: Option<PeerKey>,
    pub stage: Stage,
    /// Whether the peer is still there, where its end of the socket does not tell: the socket was
    /// given back.
    pub life: Option<Life>,
    /// Proves to the peer that this process's memory is the one that it knows.
    pub seal: Seal,
    /// Whether the peer has said that its endpoint is closed in good order.
    pub has_left: bool,
    pub local: prov_local::link::Link<Shm>,
}

/// The state of setting up a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// This side has requested the link.
    Asking,
    /// The peer has connected, and not requested a link.
    Entered,
    Open,
}

/// The last packet of an endpoint that is closed in good order. It wakes the peer as well.
pub const LEAVES: &[u8] = b"\x01";
/// The last packet of the side that has requested a link whose socket is given back.
pub const GIVEN_BACK: &[u8] = b"\x02";

impl Link {
    /// Creates a link without a channel.
    pub fn new(ep: EpKey, wire: Wire, seal: Seal, stage: Stage) -> Self {
        Link {
            peer: None,
            stage,
            life: None,
            seal,
            has_left: false,
            local: prov_local::link::Link::new(ep, wire),
        }
    }

    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }
}

impl Deref for Link {
    type Target = prov_local::link::Link<Shm>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.local
    }
}

impl DerefMut for Link {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.local
    }
}

impl prov_local::link::Wire for Wire {
    #[inline(always)]
    fn wake(&self) {
        Wire::wake(self);
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Wire::socket(self)
    }

    fn pid(&self) -> u32 {
        self.pid
    }
}
