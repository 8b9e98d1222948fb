//! Peers whose connection was lost: receives for their messages only
//! (`FI_DIRECTED_RECV`) end with it, and so do later ones unless the peer is
//! back. Receives for anybody's messages wait on. A connected endpoint takes no
//! more receives.

use fabric_abi::FI_ADDR_UNSPEC;
use prov_util::errno::{Errno, Result};
use prov_util::matching::Filter;
use prov_util::request::{Receive, Select};

use super::Core;
use super::connection::UNKNOWN_SOURCE;
use super::endpoint::Kind;
use super::keys::{EpKey, PeerKey, ReceiverKey};
use super::receiving::posted;

impl Core {
    /// A receive is posted that there is no room for: `-FI_EAGAIN`. Where there
    /// will never be room, since the connection has ended, it may still take
    /// what came before: else `-FI_ENOTCONN`.
    #[cold]
    pub(super) fn receive_without_room(
        &mut self,
        key: ReceiverKey,
        ep: Option<EpKey>,
        filter: Filter,
        receive: &Receive,
    ) -> Result {
        let Some(ep) = ep else {
            return Err(Errno::EAGAIN);
        };
        match self.eps.get(ep).map(|state| &state.kind) {
            Some(Kind::Msg(msg)) if msg.ended => {}
            _ => return Err(Errno::EAGAIN),
        }
        let tagged = matches!(receive.select, Select::Tagged { .. });
        let receiver = self.receivers.get_mut(key).ok_or(Errno::EOPBADSTATE)?;
        if receiver.shared {
            return Err(Errno::EAGAIN);
        }
        let queue = receiver.queue(tagged);
        if queue.peek(filter).is_none() {
            return Err(Errno::ENOTCONN);
        }
        if let Some((matched, message)) = queue.post(posted(receive, filter)) {
            self.catch_up(key, tagged, matched, message);
        }
        // A buffer for many messages gets no more.
        self.cancel_receives(ep, key);
        Ok(())
    }

    /// The open connection to a peer has ended.
    pub(super) fn peer_lost(&mut self, ep: EpKey, peer: PeerKey, error: Errno) {
        let Some(state) = self.eps.get(ep) else {
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

    /// A receive is posted for messages of one peer. If that was lost, finds
    /// out whether it is back.
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
        if src == UNKNOWN_SOURCE {
            return;
        }
        let Some(key) = self.eps.get(ep).map(|state| state.receiver) else {
            return;
        };
        for tagged in [false, true] {
            let Some(receiver) = self.receivers.get_mut(key) else {
                return;
            };
            for receive in receiver.queue(tagged).cancel_from(src) {
                if receive.buf.is_some() {
                    self.report_cancelled(key, Some(ep), tagged, &receive, error);
                }
            }
        }
    }
}
