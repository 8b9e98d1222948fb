//! Peers for which receives wait: a peer that is gone without a word ends them, as it ends
//! operations that it does not acknowledge.
//!
//! Receives are not counted by the peers that they name, which would cost each of them some time. It
//! is found out a few times within the time after which a silent peer is given up.

use prov_base::lately::nanoseconds;
use prov_message::peers::{Destination, UNKNOWN_SOURCE};
use prov_message::{EpKey, Reaching as _};

use super::Core;
use crate::protocol::{self, Endpoint, PeerId};

impl Core {
    /// There is a peer whose silence may have to be noticed.
    pub(super) fn watch_from_now(&mut self) {
        if self.watch_at == u64::MAX && self.endpoints.iter().any(|(_, state)| state.directed) {
            self.watch_at = nanoseconds() + self.watch_every();
        }
    }

    fn watch_every(&self) -> u64 {
        protocol::watch_every(self.params.timeout().as_nanos() as u64)
    }

    /// Tells the protocol for which peers receives wait.
    #[cold]
    #[inline(never)]
    pub(super) fn watch(&mut self, protocol: &mut Endpoint<Core>, now: u64) {
        self.watch_at = match self.links.is_empty() {
            true => u64::MAX,
            false => now + self.watch_every(),
        };
        let Some((ep, _)) = self.endpoints.iter().next() else {
            return;
        };
        let sources = self.endpoints.awaited_sources(ep);
        for link in self.links.values() {
            let is_awaited = link.src != UNKNOWN_SOURCE && sources.contains(&link.src);
            protocol.watch(now, link.id, is_awaited);
        }
    }

    /// Finds out whether a peer is back for which a receive was posted; if not, the receive ends.
    #[cold]
    pub(super) fn seek(&mut self, ep: EpKey, addr: u64) {
        let is_lost = match self.reach(ep, addr) {
            Ok(Destination::Waits(peer)) => {
                let peers = self.peers(ep);
                peers.is_some_and(|peers| peers.is_lost(peer))
            }
            _ => false,
        };
        if is_lost
            && let Ok(key) = self.reach_slowly(ep, addr)
            && let Some(id) = self.links.get(key).map(|link| link.id)
        {
            self.seek_peer(id);
        }
    }

    fn seek_peer(&mut self, id: PeerId) {
        let now = nanoseconds();
        self.with_protocol(|protocol, core| {
            protocol.seek(now, id);
            core.is_stalled |= !protocol.transmit(now, core);
        });
    }
}
