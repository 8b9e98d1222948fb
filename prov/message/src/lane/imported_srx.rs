//! The lane of an endpoint whose receives belong to another provider
//! ([`imported_srx`](crate::endpoints::imported_srx)): the owner drives it and starts its messages.

use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use prov_base::errno::{Errno, Result};
use prov_util::av::{Changes, InsertObserver};
use prov_util::drive::Signals;
use prov_util::ffi::srx::{Discarded, StartReceives, Started};
use prov_util::progress::Progress;

use crate::lane::sources::Sources as _;
use crate::lane::{Core, Lane};
use crate::operation::EpKey;

/// The owner's way to an endpoint and its lane.
pub struct Importing<C: Core> {
    lane: Weak<Lane<C>>,
    ep: EpKey,
}

impl<C: Core> Importing<C> {
    /// Creates it for an endpoint in a lane.
    pub fn new(lane: &Arc<Lane<C>>, ep: EpKey) -> Arc<Self> {
        Arc::new(Importing {
            lane: Arc::downgrade(lane),
            ep,
        })
    }

    /// Enters the lane on behalf of the owner.
    fn for_owner(&self, work: impl FnOnce(&mut C) -> Result) -> Result {
        let lane = self.lane.upgrade().ok_or(Errno::EOPBADSTATE)?;
        let mut core = lane.core();
        core.endpoints().owner_enters();
        let outcome = work(&mut core);
        core.follow_up();
        core.endpoints().owner_leaves();
        outcome
    }
}

impl<C: Core> Importing<C> {
    /// The owner has posted a receive that only messages of this peer can match.
    pub fn awaits(&self, peer: u64, transfers: bool) {
        let _ = self.for_owner(|core| {
            if C::Sources::expects(core, self.ep) {
                C::Sources::awaits(core, self.ep, peer);
            }
            if transfers {
                C::Sources::depends(core, self.ep, peer);
            }
            Ok(())
        });
    }
}

impl<C: Core> StartReceives for Importing<C> {
    fn start(&self, started: Started) -> Result {
        self.for_owner(|core| {
            // The sender may have been removed from the address vector since its message came.
            if core.endpoints().changes != Changes::now() {
                core.follow_changes();
            }
            core.endpoints().start(self.ep, started)
        })
    }

    fn discard(&self, discarded: Discarded) -> Result {
        self.for_owner(|core| core.endpoints().discard(self.ep, discarded))
    }
}

impl<C: Core> InsertObserver for Importing<C> {
    fn inserted(&self) {
        let Some(lane) = self.lane.upgrade() else {
            return;
        };
        C::Sources::look(&mut lane.core(), self.ep);
        loop {
            // The owner is informed without holding the lane's lock.
            let news = lane.core().endpoints().new_sources(self.ep);
            match news {
                Some(news) => news.tell(),
                None => return,
            }
        }
    }
}

/// A lane as the bound queues drive it: the owner of the receives reads them.
pub struct OwnerDrives<C: Core>(pub Arc<Lane<C>>);

impl<C: Core> Progress for OwnerDrives<C> {
    fn progress(&self) {
        self.0.progress_for_owner();
    }

    fn signals(&self) -> Arc<Signals> {
        self.0.signals()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.0.wait_fd()
    }

    fn prepare_wait(&self) -> bool {
        self.0.prepare_wait_for_owner()
    }

    /// Event queues drive the lane without entering on behalf of the owner.
    fn for_events(&self) -> Option<Arc<dyn Progress>> {
        Some(self.0.clone())
    }
}
