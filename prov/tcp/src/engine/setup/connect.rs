//! Connections between RDM endpoints: made on first use, one per peer. What is
//! to be done about them, [`Peers`](prov_message::peers::Peers) says.

use std::net::SocketAddr;
use std::time::Instant;

use prov_message::Op;
use prov_message::peers::{Deferred, Ended, Failure, GivenUp, Request, Step};
use prov_util::errno::{Errno, Result};

use crate::engine::Core;
use crate::engine::link::connection::{Connection, Owner, Stage};
use crate::engine::link::endpoint::Kind;
use crate::engine::link::keys::Due;
use crate::engine::link::keys::{ConnKey, EpKey, PeerKey};
use crate::engine::link::rdm::{Rdm, Waiting};
use crate::engine::link::socket;
use crate::host;
use crate::wire::handshake::{Kind as MessageKind, Message};
use crate::wire::rdm::{self, Identity};

impl Core {
    pub fn rdm(&mut self, ep: EpKey) -> Option<&mut Rdm> {
        match &mut self.endpoints.get_mut(ep)?.own.kind {
            Kind::Rdm(rdm) => Some(rdm),
            Kind::Msg(_) => None,
        }
    }

    /// Keeps an operation until there is a connection to its peer.
    pub(crate) fn defer(
        &mut self,
        peer: PeerKey,
        op: Op,
        request: impl FnOnce() -> Deferred,
    ) -> Result {
        let state = self.endpoints.get_mut(op.ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.ledger.has_room() {
            return Err(Errno::EAGAIN);
        }
        let Kind::Rdm(rdm) = &mut state.own.kind else {
            return Err(Errno::EOPBADSTATE);
        };
        let waiting = (request(), state.ledger.count(op));
        match rdm.peers.defer(peer, waiting, Instant::now()) {
            Ok(step) => {
                self.connect_if(op.ep, step);
                Ok(())
            }
            Err(declined) => {
                let (_, ticket) = declined.request;
                state.ledger.settle(ticket);
                Err(declined.error)
            }
        }
    }

    /// Starts an attempt to connect, if that is the step to be taken.
    pub(crate) fn connect_if(&mut self, ep: EpKey, step: Step) {
        if let Step::Start(peer) = step {
            self.start_attempt(ep, peer);
        }
    }

    fn start_attempt(&mut self, ep: EpKey, peer: PeerKey) {
        let params = self.params.clone();
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let own = rdm.addr;
        let Some(target) = rdm.peers.target(peer) else {
            return;
        };
        let (dest, src, deadline) = (*target.addr, target.source, target.deadline);
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
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        match made {
            Ok(key) => rdm.peers.begun(peer, key),
            Err(error) => {
                let failure = Failure::of(error);
                let ended = rdm.peers.not_begun(peer, failure, Instant::now());
                self.end_with_connection(ep, peer, error, ended);
            }
        }
    }

    /// A connection to a peer, open or not yet, has ended.
    pub(crate) fn peer_connection_ended(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        key: ConnKey,
        failure: Failure,
    ) {
        self.take_up_crossing(ep, peer);
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let ended = rdm.peers.ended(peer, key, failure, Instant::now());
        self.end_with_connection(ep, peer, failure.error(), ended);
    }

    fn end_with_connection(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        error: Errno,
        ended: Ended<SocketAddr, Waiting>,
    ) {
        self.follow_av(ep);
        match ended {
            Ended::Quietly => {}
            Ended::Again(at) => self.look_again(ep, peer, at),
            Ended::Lost { source, again } => {
                if let Some(at) = again {
                    self.look_again(ep, peer, at);
                }
                self.end_directed_receives(ep, source, error);
            }
            Ended::GivenUp(given_up) => self.give_up(ep, given_up),
        }
    }

    fn look_again(&mut self, ep: EpKey, peer: PeerKey, at: Instant) {
        self.timers.set(at, Due::Peer(ep, peer));
        self.poller.wake_at(at);
    }

    /// The attempts to connect have ended: what waits fails.
    fn give_up(&mut self, ep: EpKey, given_up: GivenUp<SocketAddr, Waiting>) {
        let error = given_up.error;
        log::warn!(
            target: crate::LOG.ep_ctrl,
            "no connection to {}: {error}; {} operations fail",
            given_up.addr,
            given_up.failed.len()
        );
        for (_, ticket) in given_up.failed {
            self.endpoints.finish(ticket, Err(error));
        }
        self.end_directed_receives(ep, given_up.source, error);
    }

    /// The time has come to look after a peer without a connection.
    pub(crate) fn check_peer(&mut self, ep: EpKey, peer: PeerKey, now: Instant) {
        if let Some(rdm) = self.rdm(ep) {
            let step = rdm.peers.due(peer, now);
            self.connect_if(ep, step);
        }
    }

    /// The connection to a peer is open: what has waited leaves.
    pub(crate) fn peer_connected(&mut self, ep: EpKey, peer: PeerKey, key: ConnKey) {
        let Some(opened) = self.rdm(ep).and_then(|rdm| rdm.peers.opened(peer, key)) else {
            return;
        };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.peer = Some(peer);
            conn.src = opened.source;
        }
        if let Some(displaced) = opened.displaced {
            self.break_connection(displaced, Errno::ECONNRESET);
        }
        while let Some((request, ticket)) = self
            .rdm(ep)
            .and_then(|rdm| rdm.peers.next_waiting(peer, key))
        {
            // Posting counts it again if it has to wait.
            self.endpoints.settle(ticket);
            self.replay(ep, key, request);
        }
        if let Some(crossing) = opened.crossing {
            self.answer_crossing(crossing);
        }
    }

    fn replay(&mut self, ep: EpKey, key: ConnKey, request: Deferred) {
        let replay = request.replay();
        match &replay.request {
            Request::Transmit(message) => self.send(ep, key, message, replay.payload()),
            Request::Access(access) => self.start_access(ep, key, access, replay.payload()),
            // These wait with the application.
            Request::Atomic(atomic) => {
                let op = Op::of_atomic(ep, atomic);
                self.endpoints.report(&op, Err(Errno::EOPNOTSUPP));
            }
        }
    }
}
