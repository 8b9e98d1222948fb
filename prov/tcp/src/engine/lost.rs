//! Peers whose connection was lost: receives for their messages only
//! (`FI_DIRECTED_RECV`) end with it, and so do later ones unless the peer is
//! back. Receives for anybody's messages wait on. A connected endpoint takes no
//! more receives.

use fabric_abi::FI_ADDR_UNSPEC;
use prov_message::Core as _;
use prov_util::errno::Errno;

use super::Core;
use super::connection::UNKNOWN_SOURCE;
use super::endpoint::Kind;
use super::keys::{EpKey, PeerKey};

impl Core {
    /// The open connection to a peer has ended.
    pub(super) fn peer_lost(&mut self, ep: EpKey, peer: PeerKey, error: Errno) {
        let Some(state) = self.endpoints.get(ep) else {
            return;
        };
        if !state.directed {
            return;
        }
        if let Some(rdm) = self.rdm(ep)
            && rdm.peers.contains_key(peer)
        {
            rdm.lost.insert(peer);
        }
        self.end_directed_receives(ep, peer, error);
    }

    /// A receive is posted for messages of one peer.
    #[inline]
    pub(super) fn expects_from(&mut self, ep: EpKey, addr: u64) {
        if let Some(state) = self.endpoints.get(ep)
            && let Kind::Rdm(rdm) = &state.own.kind
            && (rdm.av_changed() || !rdm.lost.is_empty())
        {
            self.look_for_peer(ep, addr);
        }
    }

    /// If a peer was lost, finds out whether it is back.
    #[cold]
    pub(super) fn look_for_peer(&mut self, ep: EpKey, addr: u64) {
        self.follow_av(ep);
        if addr == FI_ADDR_UNSPEC {
            return;
        }
        if let Some(rdm) = self.rdm(ep)
            && let Ok(peer) = rdm.route(addr)
            && rdm.lost.contains(&peer)
        {
            // A peer behind a firewall comes back on its own, or not at all.
            let _ = self.connect_peer(ep, peer);
        }
    }

    /// Ends the receives that only messages of this peer could have filled.
    pub(super) fn end_directed_receives(&mut self, ep: EpKey, peer: PeerKey, error: Errno) {
        self.follow_av(ep);
        let src = self
            .rdm(ep)
            .and_then(|rdm| rdm.peers.get(peer))
            .map_or(UNKNOWN_SOURCE, |peer| peer.src);
        self.endpoints.cancel_receives_from(ep, src, error);
    }

    /// Takes in what changed in an endpoint's address vector.
    pub(super) fn follow_av(&mut self, ep: EpKey) {
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        rdm.follow_av();
        for (key, src) in std::mem::take(&mut rdm.changed) {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.src = src;
                self.endpoints.relabel(ep, key, src);
            }
        }
        self.follow_up();
    }
}
