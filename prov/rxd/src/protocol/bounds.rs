//! Debug assertions: nothing that an endpoint keeps grows without a limit.

use super::endpoint::{Endpoint, Shared};
use super::host::Host;
use super::jobs::{MAX_FOREIGN, MAX_OPERATIONS};
use super::peer::{Peer, WINDOW};
use super::receiving::MAX_EARLY;
use super::secret::MAX_PEERS;
use super::strangers::COOKIE_PATHS;

impl<H: Host> Endpoint<H> {
    /// What is shared by all peers; called after each turn.
    pub(super) fn check_bounds(&self) {
        let Shared {
            config,
            ready,
            strangers,
            proven,
            cookies,
            guests,
            jobs,
            ..
        } = &self.shared;
        assert!(self.peers.len() <= MAX_PEERS);
        assert!(self.names.len() <= self.peers.len());
        assert!(ready.len() <= self.peers.len(), "a peer is ready once");
        assert!(self.shared.timers_len() <= self.most_timers() + self.peers.len());
        let most = config.max_strangers;
        assert!(strangers.len() <= most && proven.len() <= most);
        assert!(guests.len() <= config.max_guests);
        assert!(cookies.len() <= COOKIE_PATHS);
        assert!(jobs.len() <= MAX_OPERATIONS + MAX_FOREIGN);
    }
}

impl<H: Host> Peer<H> {
    /// What belongs to a peer; called after its turn.
    pub(super) fn check_bounds(&self) {
        let (sending, most) = (&self.sending, MAX_OPERATIONS + MAX_FOREIGN);
        assert!(sending.flights.len() <= WINDOW as usize);
        assert!(sending.queue.len() <= most && sending.begun.len() <= most);
        let early = self.receiving.early.as_deref();
        assert!(early.is_none_or(|early| {
            // One packet more is held, whatever the limit is.
            early.packets.len() <= WINDOW as usize + 1 && early.bytes <= 2 * MAX_EARLY
        }));
    }
}
