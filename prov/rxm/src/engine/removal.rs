//! Peers whose addresses are removed from the address vector lose their connections, if the user
//! wants that (`FI_AV_REMOVE_CLEANUP`, fabric(7)).

use std::sync::{Arc, Weak};

use prov_message::peers::AddressVector as _;
use prov_message::{EpKey, Lane, Linked as _, Reaching as _};
use prov_util::av::Observer;

use super::Core;
use super::keys::LinkKey;
use super::link::Fault;

/// Enters the lane of an endpoint when addresses are removed, so that connections end within
/// fi_av_remove(3). Without it, they end when the lane makes progress.
pub struct Closer {
    lane: Weak<Lane<Core>>,
    ep: EpKey,
}

impl Closer {
    /// Registers one with the address vector of an endpoint. It works for as long as it lives.
    pub fn watch(lane: &Arc<Lane<Core>>, ep: EpKey) -> Arc<Self> {
        let closer = Arc::new(Closer {
            lane: Arc::downgrade(lane),
            ep,
        });
        let observer: Arc<dyn Observer> = closer.clone();
        if let Some(av) = lane.core().rdm(ep).and_then(|rdm| rdm.peers.av()) {
            av.observe(Arc::downgrade(&observer));
        }
        closer
    }
}

impl Observer for Closer {
    fn removed(&self, _: u64) {
        if let Some(lane) = self.lane.upgrade() {
            lane.core().close_removed(self.ep);
        }
    }
}

impl Core {
    /// Ends a link whose peer has no address any more, if links end for that.
    pub(super) fn end_removed(&mut self, key: LinkKey) {
        let below = self.below.as_ref();
        if below.is_some_and(|below| below.setting.closes_removed) {
            self.ends(key, Fault::Removed);
        }
    }

    /// Ends the links of an endpoint whose peers' addresses were removed.
    fn close_removed(&mut self, ep: EpKey) {
        self.follow_av(ep);
        for key in self.links_of(ep) {
            self.end_if_due(key);
        }
    }
}
