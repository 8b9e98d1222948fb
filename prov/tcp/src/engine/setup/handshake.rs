//! Connections before their stream begins.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use prov_base::errno::Errno;
use prov_base::random;
use prov_message::peers::{RdmAddress, UNKNOWN_SOURCE};
use prov_message::strangers::Hosting as _;

use crate::engine::Core;
use crate::engine::link::connection::{AuthState, Connection, Owner, Stage, endpoint_address};
use crate::engine::link::fault::Fault;
use crate::engine::link::keys::{ConnKey, Due, EpKey, Event, ListenerKey, PeerKey, Source};
use crate::engine::link::listener::{Incomer, ListenerKind};
use crate::engine::link::rdm::Rdm;
use crate::engine::link::socket;
use crate::local::host;
use crate::wire::WireError;
use crate::wire::authentication::Key;
use crate::wire::handshake::{
    Decoded, Features, Kind as MessageKind, MAX_MESSAGE, Message, decode,
};
use crate::wire::rdm::Identity;

/// The result of reading bytes of a handshake.
enum Read {
    /// More bytes are needed.
    Partial,
    /// The message.
    Complete(Message),
    /// The connection has failed.
    Failed(Fault),
}

impl Core {
    /// Handles an event of a connection whose stream has not begun.
    pub(crate) fn advance_handshake(&mut self, key: ConnKey, event: Event) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if matches!(conn.stage, Stage::Connecting { .. }) {
            if (event.writable || event.ended || event.failed)
                && let Err(fault) = self.connected(key)
            {
                self.break_with(key, fault);
            }
            return;
        }
        // One event may bring several messages of the handshake.
        while self.conns.get(key).is_some_and(|conn| !conn.is_open()) {
            let message = match self.read_handshake(key) {
                Read::Partial => return,
                Read::Failed(fault) => {
                    let fault = self.without_proof(key, fault);
                    self.break_with(key, fault);
                    return;
                }
                Read::Complete(message) => message,
            };
            let outcome = match message.kind {
                MessageKind::Challenge => self.challenged(key, &message),
                MessageKind::Hello | MessageKind::Proof => self.admit(key, &message),
                MessageKind::Request | MessageKind::ContextRequest if self.is_closed_to(key) => {
                    Err(self.refuse_request(key, &message))
                }
                MessageKind::Reject if message.features.has(Features::NO_CONTEXT) => {
                    Err(Fault::NoContext)
                }
                MessageKind::Reject if message.features.has(Features::KEY) => {
                    Err(Fault::Unproven("it has no key, or demands one"))
                }
                MessageKind::Request
                | MessageKind::ContextRequest
                | MessageKind::Join
                | MessageKind::Accept
                | MessageKind::Reject => {
                    match self.conns.get(key).map(|conn| conn.owner) {
                        Some(Owner::Ep(ep)) => self.answered(key, ep, &message),
                        Some(Owner::Listener(listener)) => self.requested(key, listener, message),
                        Some(Owner::Subflow(..)) => self.subflow_accepted(key, &message),
                        None => {}
                    }
                    return;
                }
            };
            if let Err(fault) = outcome {
                self.break_with(key, fault);
                return;
            }
        }
    }

    /// Handles the end of connect(2): on success the first message is sent.
    fn connected(&mut self, key: ConnKey) -> Result<(), Fault> {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        socket::connect_outcome(conn.socket.as_fd()).map_err(Fault::Io)?;
        let Stage::Connecting { request } = &mut conn.stage else {
            return Ok(());
        };
        let request = std::mem::take(request);
        let keyed = match conn.owner {
            Owner::Ep(ep) => self
                .endpoints
                .get(ep)
                .is_some_and(|ep| ep.own.auth_key.is_some()),
            Owner::Listener(_) | Owner::Subflow(..) => false,
        };
        if !keyed {
            send_all(conn.socket.as_fd(), &request)?;
            conn.stage = Stage::Requested;
            return Ok(());
        }
        let nonce = random::bytes().map_err(Fault::Io)?;
        send_all(conn.socket.as_fd(), &Key::hello(&nonce).encode())?;
        conn.stage = Stage::Proving { nonce, request };
        Ok(())
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "limited to the buffer; the system returns no more"
    )]
    fn read_handshake(&mut self, key: ConnKey) -> Read {
        let Some(conn) = self.conns.get_mut(key) else {
            return Read::Failed(Fault::Gone);
        };
        let expected: &[MessageKind] = match conn.stage {
            Stage::Requested => &[MessageKind::Accept, MessageKind::Reject],
            Stage::Proving { .. } => &[MessageKind::Challenge, MessageKind::Reject],
            Stage::Accepted(AuthState::Proven) => {
                &[MessageKind::Request, MessageKind::ContextRequest]
            }
            Stage::Accepted(AuthState::Open | AuthState::Closed) => &[
                MessageKind::Request,
                MessageKind::ContextRequest,
                MessageKind::Hello,
            ],
            Stage::Accepted(AuthState::Challenged { .. }) => &[MessageKind::Proof],
            Stage::Accepted(AuthState::Joining) => &[MessageKind::Join],
            Stage::Connecting { .. } | Stage::Open | Stage::Blocked | Stage::CutOff => {
                return Read::Partial;
            }
        };
        loop {
            let need = match decode(&conn.setup.heard, expected) {
                Ok(Decoded::Complete(message)) => return Read::Complete(message),
                Ok(Decoded::Need(need)) => need,
                Err(error) => return Read::Failed(Fault::Protocol(error)),
            };
            let mut buffer = [0; MAX_MESSAGE];
            let room = need.min(buffer.len());
            match socket::receive(conn.socket.as_fd(), &mut buffer[..room]) {
                Ok(0) => return Read::Failed(Fault::Io(Errno::ECONNRESET)),
                Ok(n) => conn.setup.heard.extend_from_slice(&buffer[..n]),
                Err(Errno::EAGAIN) => return Read::Partial,
                Err(Errno::EINTR) => {}
                Err(error) => return Read::Failed(Fault::Io(error)),
            }
        }
    }

    /// Handles the answer to this side's request.
    fn answered(&mut self, key: ConnKey, ep: EpKey, message: &Message) {
        let is_rdm = self.rdm(ep).is_some();
        let is_refused = message.kind == MessageKind::Reject;
        let identity = match is_rdm.then(|| Identity::decode(&message.data)) {
            // A peer that rejects without data may answer differently later.
            Some(Err(_)) if !(is_refused && message.data.is_empty()) => {
                let fault = self.foreign(key, ep, message);
                self.break_with(key, fault);
                return;
            }
            Some(Ok(identity)) => Some(identity),
            Some(Err(_)) | None => None,
        };
        if is_refused {
            self.break_with(key, Fault::Refused(message.data.clone()));
            return;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.open(message, &self.params);
        if let Some(identity) = identity {
            conn.pid = identity.pid;
            conn.agree_on(identity.answered());
            if let Some(peer) = conn.peer {
                self.has_begun(key, ep);
                self.peer_connected(ep, peer, key);
            }
        } else if let Some(events) = self.events_of(ep) {
            events.connected(&message.data);
            self.has_begun(key, ep);
        }
        // Data after the answer may have arrived with it.
        self.read_later(key);
    }

    /// Handles a request that arrived at a listener.
    fn requested(&mut self, key: ConnKey, listener: ListenerKey, message: Message) {
        let Some(state) = self.listeners.get(listener) else {
            self.remove_connection(key);
            return;
        };
        match &state.kind {
            ListenerKind::Rdm(ep) => {
                let ep = *ep;
                self.rdm_requested(key, ep, &message);
            }
            ListenerKind::Subflows => self.subflow_requested(key, listener, &message),
            ListenerKind::Passive(_) if message.kind == MessageKind::ContextRequest => {
                self.refuse_context(key);
            }
            ListenerKind::Passive(_) => {
                self.no_longer_half_open(key, listener);
                let Some(conn) = self.conns.remove(key) else {
                    return;
                };
                self.poller.forget(conn.socket.as_fd());
                if let Some(state) = self.listeners.get(listener)
                    && let ListenerKind::Passive(sink) = &state.kind
                {
                    sink.request(Incomer {
                        socket: conn.socket,
                        message,
                        auth_key: state.auth_key.clone(),
                    });
                }
            }
        }
    }

    /// Handles the request of another RDM endpoint.
    fn rdm_requested(&mut self, key: ConnKey, ep: EpKey, message: &Message) {
        let asked = match message.kind {
            MessageKind::ContextRequest => Identity::decode_for(&message.data),
            _ => Identity::decode(&message.data).map(|identity| (identity, 0)),
        };
        let (identity, context) = match asked {
            Ok(asked) => asked,
            Err(_) => {
                let fault = self.foreign(key, ep, message);
                self.reject(key, &[]);
                self.break_with(key, fault);
                return;
            }
        };
        if self.rdm(ep).is_some_and(|rdm| rdm.context != context) {
            self.refuse_context(key);
            return;
        }
        let from = self.socket(key).and_then(socket::name_of_requester);
        let Some(from) = from else {
            self.remove_connection(key);
            return;
        };
        let at = endpoint_address(from, identity.port);
        let Some(addr) = RdmAddress::new(at, message.context) else {
            self.break_with(key, Fault::Protocol(WireError::Field("context")));
            return;
        };
        let Some(rdm) = self.rdm(ep) else {
            self.remove_connection(key);
            return;
        };
        let addr = rdm.peers.known_as(&addr, RdmAddress::without_scope);
        let own = rdm.addr;
        let connection_to = |rdm: &Rdm| rdm.peers.link(rdm.peers.find(&addr)?);
        let mut existing = connection_to(rdm);
        if let Some(old) = existing
            && self.conns.get(old).is_some_and(Connection::is_open)
        {
            // It may have ended, which may be why the peer connects again.
            self.read(old, true);
            existing = self.rdm(ep).and_then(|rdm| connection_to(rdm));
        }
        let mut loopback = false;
        match existing.and_then(|old| self.conns.get(old).map(|conn| (old, conn))) {
            None => {}
            Some((old, conn)) if conn.is_open() => {
                let same = if conn.instance != 0 && message.instance != 0 {
                    conn.instance == message.instance
                } else {
                    conn.pid == identity.pid
                };
                if same {
                    self.reject_rdm(key, &identity);
                    return;
                }
                let restarted = Fault::Here(Errno::ECONNRESET, "the peer has restarted");
                self.break_with(old, restarted);
            }
            Some((_, conn)) => match wire_order(&addr.at).cmp(&wire_order(&own)) {
                std::cmp::Ordering::Less => {
                    self.reject_rdm(key, &identity);
                    return;
                }
                std::cmp::Ordering::Greater
                    if message.instance == 0 && matches!(conn.stage, Stage::Requested) =>
                {
                    // The C library up to 2.5 also accepts our request if its own is accepted
                    // before it has processed ours, and then drops its own connection with
                    // everything that was sent on it. It rejects ours while its own is unanswered.
                    if let Some(rdm) = self.rdm(ep)
                        && let Some(peer) = rdm.peers.find(&addr)
                    {
                        rdm.peers.crosses(peer, key);
                    }
                    return;
                }
                std::cmp::Ordering::Greater => {}
                std::cmp::Ordering::Equal => loopback = true,
            },
        }
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let peer = rdm.peers.peer_at(&addr);
        if !loopback && rdm.peers.source(peer) == UNKNOWN_SOURCE && !self.admit_stranger() {
            if let Some(rdm) = self.rdm(ep) {
                rdm.peers.forget_idle(peer);
            }
            self.remove_connection(key);
            return;
        }
        self.accept_rdm(key, ep, peer, message, &identity, loopback);
    }

    /// Processes the peer's request that crossed this side's, after this side's request has failed.
    pub(crate) fn take_up_crossing(&mut self, ep: EpKey, peer: PeerKey) {
        if let Some(rdm) = self.rdm(ep)
            && let Some(key) = rdm.peers.take_crossing(peer)
        {
            self.answer_crossing(key);
        }
    }

    /// Answers a request that has waited for the outcome of this side's.
    pub(crate) fn answer_crossing(&mut self, key: ConnKey) {
        if let Some(Owner::Listener(listener)) = self.conns.get(key).map(|conn| conn.owner)
            && let Read::Complete(message) = self.read_handshake(key)
        {
            self.requested(key, listener, message);
        }
    }

    pub(crate) fn accept_rdm(
        &mut self,
        key: ConnKey,
        ep: EpKey,
        peer: PeerKey,
        message: &Message,
        identity: &Identity,
        loopback: bool,
    ) {
        let behind_firewall = self.params.firewall_addr;
        if !self.conns.contains_key(key) {
            return;
        }
        let Some(rdm) = self.rdm(ep) else {
            return;
        };
        let instance = rdm.instance;
        let src = rdm.peers.source(peer);
        if identity.behind_firewall {
            rdm.peers.only_calls(peer);
        }
        // If the answer cannot be sent, the peer's attempt has failed, and with it ours, which was
        // given up for it.
        let gave_way = if loopback {
            rdm.peers.loops_back(peer, key);
            None
        } else {
            rdm.peers.adopt(peer, key, Instant::now())
        };
        if let Some(ours) = gave_way {
            self.remove_connection(ours);
        }
        if loopback {
            self.endpoints.link_is_own(key);
        }
        let answer = Identity {
            version: identity.agreed(),
            version_checked: identity.version != 0,
            behind_firewall: identity.behind_firewall && behind_firewall,
            port: identity.port,
            pid: std::process::id(),
        };
        let answer = Message::new(
            MessageKind::Accept,
            message.features.and(self.params.features()),
            instance,
            &answer.encode(),
        )
        .from_host(host::mark());
        if let Some(Owner::Listener(listener)) = self.conns.get(key).map(|conn| conn.owner) {
            self.no_longer_half_open(key, listener);
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.owner = Owner::Ep(ep);
        conn.peer = (!loopback).then_some(peer);
        conn.src = src;
        conn.pid = identity.pid;
        if let Err(fault) = send_all(conn.socket.as_fd(), &answer.encode()) {
            self.break_with(key, fault);
            return;
        }
        conn.open(message, &self.params);
        conn.agree_on(identity.agreed());
        if !loopback {
            self.has_begun(key, ep);
            self.peer_connected(ep, peer, key);
            self.count_if_stranger(key);
        }
        self.read_later(key);
    }

    /// Rejects a connection that is not needed; the peer gets its own data back.
    fn reject_rdm(&mut self, key: ConnKey, identity: &Identity) {
        self.reject(key, &identity.encode());
        self.remove_connection(key);
    }

    /// Refuses a connection that is for another context than is here: the peer does not try
    /// again.
    fn refuse_context(&mut self, key: ConnKey) {
        let answer = Message::new(MessageKind::Reject, Features::NO_CONTEXT, 0, &[]);
        if let Some(socket) = self.socket(key) {
            // If it does not reach the peer, the end of the connection does.
            let _ = socket::send(socket, &answer.encode());
        }
        self.remove_connection(key);
    }

    fn reject(&self, key: ConnKey, data: &[u8]) {
        let answer = Message::new(MessageKind::Reject, Features::default(), 0, data);
        if let Some(socket) = self.socket(key) {
            // If it does not reach the peer, the end of the connection does.
            let _ = socket::send(socket, &answer.encode());
        }
    }

    /// Handles that the other end is not of the RDM type: logs one line only, since it may repeat
    /// its requests.
    fn foreign(&mut self, key: ConnKey, ep: EpKey, message: &Message) -> Fault {
        let from = self.socket(key).map(socket::peer_name);
        if let Some(Ok(from)) = from
            && let Some(rdm) = self.rdm(ep)
            && rdm.foreign.replace(from.ip()) != Some(from.ip())
        {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "no connection with {from}: its endpoint is not tcp's of the RDM type ({} bytes \
                 of connection data), but an MSG endpoint or one of a provider over tcp, such as \
                 ofi_rxm",
                message.data.len()
            );
        }
        Fault::Foreign
    }

    /// Ends a connection whose handshake has timed out. What has arrived counts, although this side
    /// may have made no calls since.
    pub(crate) fn check_deadline(&mut self, key: ConnKey, now: Instant) {
        let is_due = |conn: &Connection| conn.setup.deadline.is_some_and(|time| time.at() <= now);
        if !self.conns.get(key).is_some_and(is_due) {
            return;
        }
        self.take_up_handshake(key);
        let again = self.params.connect_timeout();
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(deadline) = &mut conn.setup.deadline else {
            return;
        };
        match deadline.is_over(now, again) {
            true => self.break_with(key, Fault::Io(Errno::ETIMEDOUT)),
            false => self.poller.call_at(deadline.at(), Due::Conn(key)),
        }
    }

    /// Goes on with a handshake whose events may not have been reported.
    fn take_up_handshake(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        let is_connecting = matches!(conn.stage, Stage::Connecting { .. });
        if is_connecting && let Err(error) = socket::connect_outcome(conn.socket.as_fd()) {
            return self.break_with(key, Fault::Io(error));
        }
        let event = Event {
            source: Source::Link(key),
            readable: true,
            writable: is_connecting && rustix::net::getpeername(&conn.socket).is_ok(),
            ended: false,
            failed: false,
        };
        self.advance_handshake(key, event);
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Fault::Protocol(error)
    }
}

/// Sends a message of the handshake: a new socket accepts a few hundred bytes, or is not connected.
pub(crate) fn send_all(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Fault> {
    match socket::send(socket, bytes) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(Fault::Io(Errno::ECONNABORTED)),
        Err(error) => Err(Fault::Io(error)),
    }
}

/// Returns the address as the two ends compare it: IP address, then port, as bytes in network
/// order.
fn wire_order(addr: &std::net::SocketAddr) -> (Vec<u8>, u16) {
    let ip = match addr.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    (ip, addr.port())
}
