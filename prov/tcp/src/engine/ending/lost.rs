//! Peers whose connection was lost: receives for their messages only
//! (`FI_DIRECTED_RECV`) end with it, and so do later ones unless the peer is
//! back. Receives for anybody's messages wait on. A connected endpoint takes no
//! more receives.

use std::time::Instant;

use prov_message::Core as _;
use prov_util::errno::Errno;

use crate::engine::Core;
use crate::engine::link::endpoint::Kind;
use crate::engine::link::keys::EpKey;

impl Core {
    /// A receive will be posted for messages of one peer. Returns whether one of
    /// the peers is lost.
    #[inline]
    pub(crate) fn expects_one(&mut self, ep: EpKey) -> bool {
        let Some(state) = self.endpoints.get(ep) else {
            return false;
        };
        let Kind::Rdm(rdm) = &state.own.kind else {
            return false;
        };
        let any_lost = rdm.peers.any_lost();
        if rdm.peers.av_changed() {
            self.follow_av(ep);
        }
        any_lost
    }

    /// A receive was posted for messages of one peer. If that was lost, finds
    /// out whether it is back.
    #[cold]
    pub(crate) fn look_for_peer(&mut self, ep: EpKey, addr: u64) {
        if let Some(rdm) = self.rdm(ep) {
            let step = rdm.peers.seek(addr, Instant::now());
            self.connect_if(ep, step);
        }
    }

    /// Ends the receives that only messages of this source could have filled.
    pub(crate) fn end_directed_receives(&mut self, ep: EpKey, source: Option<u64>, error: Errno) {
        if let (Some(src), Some(state)) = (source, self.endpoints.get(ep))
            && state.directed
        {
            self.endpoints.cancel_receives_from(ep, src, error);
        }
    }

    /// Takes in what changed in an endpoint's address vector.
    pub(crate) fn follow_av(&mut self, ep: EpKey) {
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        rdm.peers.follow();
        for (key, src) in rdm.peers.take_relabelled() {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.src = src;
            }
            self.endpoints.relabel(ep, key, src);
        }
        self.follow_up();
    }
}
