//! Connections between RDM endpoints: made on first use, one per peer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use prov_message::{Op, Ticket};
use prov_util::errno::{Errno, Result};

use super::Core;
use super::connection::{Connection, Owner, Stage};
use super::endpoint::Kind;
use super::keys::{ConnKey, EpKey, PeerKey};
use super::rdm::{Attempt, Awaited, Rdm};
use super::request::{Bytes, Replay, Request};
use super::socket;
use super::timers::Target;
use crate::host;
use crate::wire::handshake::{Kind as MessageKind, Message};
use crate::wire::rdm::{self, Identity};

/// Pause before the second attempt to connect; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Core {
    pub fn rdm(&mut self, ep: EpKey) -> Option<&mut Rdm> {
        match &mut self.endpoints.get_mut(ep)?.own.kind {
            Kind::Rdm(rdm) => Some(rdm),
            Kind::Msg(_) => None,
        }
    }

    /// Keeps an operation until there is a connection to its peer.
    pub(super) fn defer(
        &mut self,
        peer: PeerKey,
        op: Op,
        request: impl FnOnce(Ticket) -> Request,
    ) -> Result {
        let ep = op.ep;
        let state = self.endpoints.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.ledger.has_room() {
            return Err(Errno::EAGAIN);
        }
        let Kind::Rdm(rdm) = &mut state.own.kind else {
            return Err(Errno::EOPBADSTATE);
        };
        let waiting = rdm.peers.get_mut(peer).ok_or(Errno::EINVAL)?;
        let request = request(state.ledger.count(op));
        waiting.pending.push_back(request);
        if waiting.conn.is_none() && waiting.attempt.is_none() {
            // The connection failed as it was being made.
            self.connect_peer(ep, peer)?;
        }
        Ok(())
    }

    /// Sees to it that a connection to the peer is being made.
    pub(super) fn connect_peer(&mut self, ep: EpKey, peer: PeerKey) -> Result {
        let timeout = self.params.connect_timeout();
        let Some(rdm) = self.rdm(ep) else {
            return Err(Errno::EOPBADSTATE);
        };
        let Some(known) = rdm.peers.get_mut(peer) else {
            return Err(Errno::EINVAL);
        };
        if known.conn.is_some() || known.attempt.is_some() {
            return Ok(());
        }
        if known.behind_firewall {
            return Err(Errno::EFIREWALLADDR);
        }
        known.attempt = Some(Attempt {
            deadline: Instant::now() + timeout,
            retry_at: None,
            pause: FIRST_PAUSE,
            error: Errno::ETIMEDOUT,
        });
        self.start_attempt(ep, peer);
        Ok(())
    }

    fn start_attempt(&mut self, ep: EpKey, peer: PeerKey) {
        let params = self.params.clone();
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let own = rdm.addr;
        let Some(known) = rdm.peers.get_mut(peer) else {
            return;
        };
        let Some(attempt) = &mut known.attempt else {
            return;
        };
        attempt.retry_at = None;
        let deadline = attempt.deadline;
        let dest = known.addr;
        let src = known.src;
        let identity = Identity {
            version: rdm::VERSION,
            version_checked: false,
            behind_firewall: params.firewall_addr,
            port: own.port(),
            pid: std::process::id(),
        };
        let request = Message::new(
            MessageKind::Request,
            params.features(),
            rdm.instance,
            &identity.encode(),
        )
        .from_host(host::mark());
        let source = SocketAddr::new(own.ip(), 0);
        let source = (!own.ip().is_unspecified()).then_some(source);
        let made = socket::connect(source, &dest, &params).and_then(|socket| {
            let stage = Stage::Connecting {
                request: request.encode(),
                deadline,
            };
            let mut conn = Connection::new(socket, Owner::Ep(ep), stage);
            conn.peer = Some(peer);
            conn.src = src;
            self.add_connection(conn)
        });
        match made {
            Ok(key) => {
                if let Some(known) = self.rdm(ep).and_then(|rdm| rdm.peers.get_mut(peer)) {
                    known.conn = Some(key);
                }
            }
            Err(error) => self.attempt_failed(ep, peer, error, false),
        }
    }

    /// An attempt to connect to a peer has failed: there will be another, if
    /// there is time, something to send and not `hopeless`.
    pub(super) fn attempt_failed(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        error: Errno,
        hopeless: bool,
    ) {
        let now = Instant::now();
        let patience = self.params.refused_timeout();
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let was_lost = rdm.lost.contains(&peer);
        let Some(known) = rdm.peers.get_mut(peer) else {
            return;
        };
        known.conn = None;
        if known.crossing.is_some() {
            self.take_up_crossing(ep, peer);
            let conn = self.rdm(ep).and_then(|rdm| rdm.peers.get(peer)?.conn);
            if conn.is_some() {
                return;
            }
        }
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let Some(known) = rdm.peers.get_mut(peer) else {
            return;
        };
        // Receives may wait for a peer that was lost.
        let is_wanted = known.is_wanted() || was_lost;
        let Some(attempt) = &mut known.attempt else {
            rdm.forget_idle(peer);
            return;
        };
        attempt.error = error;
        if error == Errno::ECONNREFUSED || error == Errno::EKEYREJECTED {
            // Somebody is there, and nobody listens, or goes before the proof:
            // it may be restarting.
            attempt.deadline = attempt.deadline.min(now + patience);
        }
        let retry_at = now + attempt.pause;
        if hopeless || !is_wanted || retry_at >= attempt.deadline {
            self.give_up(ep, peer);
            return;
        }
        attempt.retry_at = Some(retry_at);
        attempt.pause = (attempt.pause * 2).min(LONGEST_PAUSE);
        self.timers.set(retry_at, Target::Peer(ep, peer));
        self.poller.wake_at(retry_at);
    }

    /// The time has come to look after a peer without a connection.
    pub(super) fn check_peer(&mut self, ep: EpKey, peer: PeerKey, now: Instant) {
        let Some(known) = self.rdm(ep).and_then(|rdm| rdm.peers.get_mut(peer)) else {
            return;
        };
        if known.conn.is_some() {
            return;
        }
        match &known.attempt {
            Some(attempt) if attempt.retry_at.is_some_and(|at| at <= now) => {
                self.start_attempt(ep, peer);
            }
            _ => {}
        }
    }

    /// Ends the attempts to connect: what waits fails.
    fn give_up(&mut self, ep: EpKey, peer: PeerKey) {
        let Some(known) = self.rdm(ep).and_then(|rdm| rdm.peers.get_mut(peer)) else {
            return;
        };
        let error = known.attempt.take().map_or(Errno::ETIMEDOUT, |a| a.error);
        let is_wanted = known.is_wanted();
        let pending = std::mem::take(&mut known.pending);
        if known.awaited == Awaited::Yes {
            known.awaited = Awaited::Failed(Instant::now(), error);
        }
        if is_wanted {
            log::warn!(
                "no connection to {}: {error}; {} operations fail",
                known.addr,
                pending.len()
            );
        }
        for request in pending {
            self.endpoints.finish(request.ticket, Err(error));
        }
        if self.rdm(ep).is_some_and(|rdm| rdm.lost.contains(&peer)) {
            self.end_directed_receives(ep, peer, error);
        }
        if let Some(rdm) = self.rdm(ep) {
            rdm.forget_idle(peer);
        }
    }

    /// The connection to a peer is open: what has waited leaves.
    pub(super) fn peer_connected(&mut self, ep: EpKey, peer: PeerKey, key: ConnKey) {
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        rdm.lost.remove(&peer);
        let Some(known) = rdm.peers.get_mut(peer) else {
            return;
        };
        known.conn = Some(key);
        known.attempt = None;
        known.awaited = Awaited::No;
        let src = known.src;
        let pending = std::mem::take(&mut known.pending);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.peer = Some(peer);
            conn.src = src;
        }
        for request in pending {
            let (replay, copy, ticket) = request.replay();
            // Posting counts it again if it has to wait.
            self.endpoints.settle(ticket);
            match replay {
                Replay::Transmit(message) => {
                    let bytes = Bytes::of(&copy, &message.buffers);
                    self.send(ep, key, &message, bytes);
                }
                Replay::Access(access) => {
                    let bytes = Bytes::of(&copy, &access.local);
                    self.start_access(ep, key, &access, bytes);
                }
            }
        }
    }
}
