//! Connections between RDM endpoints: made on first use, one for each peer.
//! [`Peers`](prov_message::peers::Peers) decides what to do about them, and [`Reaching`] does it.

use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_message::peers::{ConnectTarget, Deferred, Failure, RdmAddress, RdmVector, Request};
use prov_message::reaching::PeersOf;
use prov_message::{Op, Reaching};

use crate::engine::Core;
use crate::engine::link::connection::{Connection, Owner, Stage};
use crate::engine::link::endpoint::Kind;
use crate::engine::link::fault::Fault;
use crate::engine::link::keys::Due;
use crate::engine::link::keys::{ConnKey, EpKey, PeerKey};
use crate::engine::link::rdm::Rdm;
use crate::engine::link::socket;
use crate::local::host;
use crate::wire::handshake::{Kind as MessageKind, Message};
use crate::wire::rdm::{self, Identity};

impl Reaching for Core {
    type Vector = RdmVector;

    const LOG_TARGET: &'static str = crate::LOG.ep_ctrl;

    fn peers(&mut self, ep: EpKey) -> Option<&mut PeersOf<Self>> {
        self.rdm(ep).map(|rdm| &mut rdm.peers)
    }

    fn ask(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        target: &ConnectTarget<RdmAddress>,
    ) -> Result<ConnKey> {
        let params = self.params.clone();
        let rdm = self.rdm(ep).ok_or(Errno::EOPBADSTATE)?;
        let own = rdm.addr;
        let identity = Identity {
            version: rdm::VERSION,
            version_checked: false,
            behind_firewall: params.firewall_addr,
            port: own.port(),
            pid: std::process::id(),
        };
        let (kind, data) = match target.addr.context {
            0 => (MessageKind::Request, identity.encode().to_vec()),
            context => (MessageKind::ContextRequest, identity.encode_for(context)),
        };
        let request = Message::new(kind, params.features(), rdm.instance, &data)
            .from_host(host::mark())
            .from_context(rdm.context);
        // The same address, with its scope, and any port.
        let mut source = own;
        source.set_port(0);
        let source = (!own.ip().is_unspecified()).then_some(source);
        let socket = socket::connect(source, &target.addr.at, &params)?;
        let request = request.encode();
        let stage = Stage::Connecting { request };
        let mut conn = Connection::new(socket, Owner::Ep(ep), stage, Some(target.deadline));
        conn.peer = Some(peer);
        conn.src = target.source;
        self.add_connection(conn)
    }

    fn call_at(&mut self, at: Instant, ep: EpKey, peer: PeerKey) {
        self.poller.call_at(at, Due::Peer(ep, peer));
    }

    fn has_source(&mut self, link: ConnKey, source: u64) {
        if let Some(conn) = self.conns.get_mut(link) {
            conn.src = source;
        }
        self.count_if_stranger(link);
    }
}

impl Core {
    pub fn rdm(&mut self, ep: EpKey) -> Option<&mut Rdm> {
        match &mut self.endpoints.get_mut(ep)?.own.kind {
            Kind::Rdm(rdm) => Some(rdm),
            Kind::Msg(_) => None,
        }
    }

    /// Handles the end of a connection to a peer, established or not.
    pub(crate) fn peer_connection_ended(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        key: ConnKey,
        failure: Failure,
    ) {
        self.take_up_crossing(ep, peer);
        self.link_ended(ep, peer, key, failure);
    }

    /// Handles the establishment of the connection to a peer: waiting operations are sent.
    pub(crate) fn peer_connected(&mut self, ep: EpKey, peer: PeerKey, key: ConnKey) {
        let Some(opened) = self.rdm(ep).and_then(|rdm| rdm.peers.opened(peer, key)) else {
            return;
        };
        if let Some(conn) = self.conns.get_mut(key) {
            conn.peer = Some(peer);
            conn.src = opened.source;
        }
        if let Some(displaced) = opened.displaced {
            let reason = "the peer has made another one";
            self.break_with(displaced, Fault::Here(Errno::ECONNRESET, reason));
        }
        while let Some((request, ticket)) = self
            .rdm(ep)
            .and_then(|rdm| rdm.peers.next_waiting(peer, key))
        {
            // Posting counts the operation again if it has to wait.
            self.endpoints.settle(ticket);
            self.replay(ep, key, request);
        }
        if let Some(crossing) = opened.crossing {
            self.answer_crossing(crossing);
        }
    }

    fn replay(&mut self, ep: EpKey, key: ConnKey, request: Deferred) {
        let mut replay = request.replay();
        let (request, copies) = replay.parts();
        let copy = copies.map(|copies| copies.payload);
        match request {
            Request::Transmit(message) => self.send(ep, key, message, copy),
            Request::Access(access) => self.start_access(ep, key, access, copy),
            // Atomic operations wait in the application ([`Core::negotiated`]).
            Request::Atomic(atomic) => {
                let op = Op::of_atomic(ep, atomic);
                self.endpoints.report(&op, Err(Errno::EOPNOTSUPP));
            }
        }
    }
}
