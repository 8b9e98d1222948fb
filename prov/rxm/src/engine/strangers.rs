//! Limits the links that strangers have established: peers that are in no address vector.

use std::time::Instant;

use prov_base::errno::Errno;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::strangers::{Activity, AllStrangers, Hosting, Strangers, limit};

use super::Core;
use super::keys::LinkKey;
use super::link::Fault;

/// The links of strangers in this process.
static STRANGERS: AllStrangers = AllStrangers::new();

/// Creates an empty set.
pub(super) fn strangers() -> Strangers<LinkKey> {
    Strangers::new(&STRANGERS)
}

impl Hosting for Core {
    type Link = LinkKey;

    const LOG_TARGET: &'static str = crate::LOG.ep_ctrl;

    fn strangers(&mut self) -> &mut Strangers<LinkKey> {
        &mut self.strangers
    }

    fn stranger_limit(&self) -> usize {
        limit(self.params.max_strangers)
    }

    fn look_at_stranger(&mut self, key: LinkKey, noted: Instant) -> Activity {
        self.take_in_all();
        let Some(link) = self.links.get(key) else {
            return Activity::Ended;
        };
        if link.ending.is_some() && link.outlives_peer() {
            return Activity::Idle;
        }
        if !link.is_idle() || self.endpoints.has_announced(key) {
            return Activity::Busy;
        }
        match link.used > noted {
            true => Activity::Used(link.used),
            false => Activity::Idle,
        }
    }

    fn close_stranger(&mut self, key: LinkKey) {
        self.break_link(key, Fault::Ended(Errno::ESHUTDOWN));
    }
}

impl Core {
    /// Updates the count of strangers after a link got a peer, or after the address vector learnt
    /// or forgot it.
    pub(super) fn count_if_stranger(&mut self, key: LinkKey) {
        let link = self.links.get(key);
        let is_strangers = link
            .is_some_and(|link| link.came_in && link.peer.is_some() && link.src == UNKNOWN_SOURCE);
        match is_strangers {
            true => self.strangers.used(key, Instant::now()),
            false => self.strangers.remove(key),
        }
    }
}
