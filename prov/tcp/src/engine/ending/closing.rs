//! How connections and endpoints end.

use std::os::fd::AsFd;

use prov_base::errno::Errno;
use prov_base::warn_again;
use prov_local::copies::Goal;
use prov_local::rota::Rounds as _;
use prov_message::Woken as _;
use prov_message::lane::{Pause, short_pause};
use prov_message::peers::Failure;
use prov_message::{Core as _, Linked, Sided, Ticket};
use prov_util::endpoint::Side;
use prov_util::eq::ConnectionEvents;

use crate::engine::link::connection::{Connection, Owner, Stage};
use crate::engine::link::detours::Detour;
use crate::engine::link::endpoint::{Kind, OwnPart};
use crate::engine::link::fault::Fault;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::ready::{STALLS, Why};
use crate::engine::link::socket;
use crate::engine::{Core, Lane};
use crate::wire::handshake::Features;
use crate::wire::header::{Header, LEAVES, MAX_HEADER, Op};

impl Core {
    /// Ends a connection because of an error of its socket.
    #[cold]
    pub(crate) fn break_connection(&mut self, key: ConnKey, error: Errno) {
        self.break_with(key, Fault::Io(error));
    }

    /// Handles that the peer accepts no more data: everything that it has sent is read, and the end
    /// of the stream then ends the connection.
    #[cold]
    pub(crate) fn cut_off(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.stage = Stage::CutOff;
        conn.detours.set(Detour::PeerEnded, true);
        self.hear(key);
        self.read_later(key);
    }

    /// Handles the end of the stream. The receives that a connected endpoint has posted are
    /// cancelled only after the messages that other endpoints of the lane have received up to this
    /// point: the application reads both from one queue, and may stop at the first error.
    pub(crate) fn end_of_stream(&mut self, key: ConnKey) {
        let is_alone = self.conns.len() <= 1;
        match self.conns.get(key) {
            Some(conn) if conn.is_msg() && !is_alone => {
                self.is_due(key, Why::Ended);
            }
            _ => self.break_with(key, Fault::Io(Errno::ESHUTDOWN)),
        }
    }

    /// Ends the connections whose stream has ended, after the messages of other endpoints.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_streams(&mut self) {
        if self.endpoints.is_deaf() {
            // Messages of others wait for the owner of receives, and so do the ends.
            return;
        }
        // Handles the data of other sockets, which may end more streams.
        self.poll_once();
        let _ = self.read_nearby() | self.take_in_quiet(self.rota.len());
        for _ in 0..self.ready.of(Why::Ended).len() {
            if let Some(key) = self.next_due(Why::Ended) {
                self.break_with(key, Fault::Io(Errno::ESHUTDOWN));
            }
        }
    }

    /// Ends a connection, and all operations on it.
    #[cold]
    pub(crate) fn break_with(&mut self, key: ConnKey, fault: Fault) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        let mut data = Vec::new();
        let mut hopeless = false;
        let error = match fault {
            Fault::Gone => {
                log::info!(
                    target: crate::LOG.ep_ctrl,
                    "the connection with {} has nobody on this side", conn.peer_text()
                );
                Errno::ENOTCONN
            }
            Fault::Io(error) => {
                lost(conn, error);
                error
            }
            Fault::Here(error, reason) => {
                log::info!(
                    target: crate::LOG.ep_ctrl,
                    "the connection with {} is ended: {reason}", conn.peer_text()
                );
                error
            }
            Fault::Refused(refusal) => {
                log::info!(
                    target: crate::LOG.ep_ctrl, "{} refuses the connection", conn.peer_text()
                );
                data = refusal;
                Errno::ECONNREFUSED
            }
            Fault::Foreign => {
                log::warn!(
                    target: crate::LOG.ep_ctrl,
                    "{} has no RDM endpoint there", conn.peer_text()
                );
                hopeless = true;
                Errno::ECONNREFUSED
            }
            Fault::NoContext => {
                log::warn!(
                    target: crate::LOG.ep_ctrl,
                    "{} has no such receive context", conn.peer_text()
                );
                hopeless = true;
                Errno::ECONNREFUSED
            }
            Fault::Unproven(reason) => {
                log::warn!(
                    target: crate::LOG.ep_ctrl,
                    "no connection with {}: {reason}", conn.peer_text()
                );
                hopeless = true;
                Errno::EKEYREJECTED
            }
            Fault::Protocol(error) => {
                log::warn!(
                    target: crate::LOG.ep_ctrl,
                    "{} broke the protocol and loses its connection: {error}",
                    conn.peer_text()
                );
                Errno::EPROTO
            }
            Fault::Memory { error, addr, len } => {
                log::warn!(
                    target: crate::LOG.ep_ctrl,
                    "{} loses its connection for access to {len} bytes at {addr:#x}: {error}",
                    conn.peer_text()
                );
                error
            }
        };
        let was_open = conn.is_open();
        let is_over = matches!(error, Errno::ESHUTDOWN | Errno::ECONNRESET | Errno::EPIPE);
        let in_order = is_over && conn.ends_in_order();
        let owner = conn.owner;
        let peer = conn.peer;
        // The state is updated before the end is reported: the application may act on the report.
        self.fail_link(key, error);
        match owner {
            Owner::Listener(listener) => self.no_longer_half_open(key, listener),
            Owner::Subflow(of, number) => self.no_subflow(of, number, &error.to_string()),
            Owner::Ep(ep) => {
                match peer {
                    Some(peer) => {
                        let failure = match hopeless {
                            true => Failure::Hopeless(error),
                            false if in_order => Failure::Closed(error),
                            false => Failure::of(error),
                        };
                        self.peer_connection_ended(ep, peer, key, failure);
                    }
                    None => self.msg_connection_ended(ep, key, was_open, error, &data),
                }
                // Connections that are held back may resume if memory has been freed.
                self.follow_up();
            }
        }
    }

    /// Handles the loss of a connected endpoint's connection.
    fn msg_connection_ended(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        was_open: bool,
        error: Errno,
        data: &[u8],
    ) {
        let Some(state) = self.endpoints.get_mut(ep) else {
            return;
        };
        let msg = match &mut state.own.kind {
            Kind::Msg(msg) => msg,
            Kind::Rdm(rdm) => {
                rdm.peers.loopback_ended(key);
                return;
            }
        };
        if msg.conn != Some(key) {
            return;
        }
        msg.conn = None;
        msg.ended = true;
        self.endpoints.end_receives(ep, error);
        if let Some(events) = self.events_of(ep) {
            if was_open {
                events.shut_down();
            } else {
                events.failed(error, data);
            }
        }
    }

    /// Returns the source of connection events of a connected endpoint.
    pub(crate) fn events_of(&self, ep: EpKey) -> Option<&ConnectionEvents> {
        match &self.endpoints.get(ep)?.own.kind {
            Kind::Msg(msg) => msg.events.as_ref(),
            Kind::Rdm(_) => None,
        }
    }

    /// Ends receives whose messages will not arrive, and drops unexpected messages that are not
    /// complete. Returns the reads whose data will not arrive.
    fn forget_arrivals(
        &mut self,
        key: ConnKey,
        conn: &mut Connection,
        error: Errno,
    ) -> Vec<Ticket> {
        let Owner::Ep(ep) = conn.owner else {
            return Vec::new();
        };
        let copies = &mut conn.local.copies;
        let mut reads = copies.transfers.abandon(&mut self.endpoints, error);
        let course = copies.course.take().map(Goal::from);
        let arriving = match std::mem::take(&mut conn.incoming) {
            Incoming::Place(placing) => Some(*placing),
            _ => None,
        };
        let placings = course.and_then(Goal::abandon).into_iter().chain(arriving);
        reads.extend(placings.filter_map(|placing| self.endpoints.abandon(placing, error)));
        for (_, asked) in conn.ops.asked.drain() {
            if let Some(receipt) = asked.receipt {
                self.endpoints.received(&receipt, asked.memory, Err(error));
            }
        }
        self.endpoints.link_ended(ep, key, error);
        reads
    }

    /// Ends a connection on which nothing has been transferred, without a report.
    pub(crate) fn remove_connection(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        if let Owner::Listener(listener) = conn.owner {
            self.no_longer_half_open(key, listener);
        }
        self.drop_link(key);
    }

    /// Sends what is queued on the connections of an endpoint before they end.
    pub(crate) fn flush_last(&mut self, ep: EpKey) -> Option<Pause> {
        if !self.poller.is_own() {
            return None;
        }
        let mut blocked = Vec::new();
        let mut waits_for_memory = false;
        for key in self.links_of(ep) {
            if self
                .conns
                .get(key)
                .is_some_and(Connection::awaits_request_of_aside)
            {
                // Messages that are complete for the application, and leave on request.
                self.read(key, false);
                waits_for_memory = true;
            }
            self.flush(key);
            if self.must_wait_for_subflows(key) {
                self.read(key, false);
                waits_for_memory = true;
                continue;
            }
            if let Some(conn) = self.conns.get_mut(key)
                && conn.is_open()
                && !conn.is_cut_off()
                && (!conn.outbox.is_empty() || conn.is_leaving())
            {
                if conn.sends_by_memory() {
                    waits_for_memory = true;
                } else if let Ok(socket) = conn.socket.try_clone() {
                    blocked.push(socket);
                }
            }
        }
        if waits_for_memory {
            // No event of the socket that is waited for announces space in shared memory, or a
            // request.
            Some(short_pause())
        } else if blocked.is_empty() {
            None
        } else {
            Some(Box::new(move |left| socket::wait_writable(&blocked, left)))
        }
    }

    /// Implements `fi_shutdown` of a connected endpoint (fi_cm(3)).
    fn shut_down(&mut self, ep: EpKey) {
        if let Some(state) = self.endpoints.get(ep)
            && let Kind::Msg(msg) = &state.own.kind
            && let Some(conn) = msg.conn
        {
            let reason = "the application has shut it down";
            self.break_with(conn, Fault::Here(Errno::ESHUTDOWN, reason));
        }
    }
}

/// Says how the socket of a connection has ended.
fn lost(conn: &Connection, error: Errno) {
    let target = crate::LOG.ep_ctrl;
    match (conn.is_open(), error) {
        (true, Errno::ESHUTDOWN) => {
            log::info!(target: target, "{} has closed the connection", conn.peer_text());
        }
        (true, _) => {
            let queued = conn.outbox.len();
            warn_again!(
                target: target,
                "the connection with {} is lost, with {queued} bytes to send: {error}",
                conn.peer_text()
            );
        }
        (false, _) => {
            log::info!(target: target, "no connection with {}: {error}", conn.peer_text());
        }
    }
}

impl Linked for Core {
    fn links_of(&self, ep: EpKey) -> Vec<ConnKey> {
        let mine = self.conns.iter();
        let mine = mine.filter(|(_, conn)| conn.owner == Owner::Ep(ep));
        mine.map(|(key, _)| key).collect()
    }

    fn take_down(&mut self, key: ConnKey, error: Errno) -> Vec<Ticket> {
        self.copier.link_ended(key);
        let Some(mut conn) = self.conns.remove(key) else {
            return Vec::new();
        };
        self.poller.forget(conn.socket.as_fd());
        self.strangers.remove(key);
        self.half_open.remove(key);
        let mut ops = self.forget_arrivals(key, &mut conn, error);
        // A peer that is copying finds the seal broken before it finds other bytes.
        drop(std::mem::take(&mut conn.local.neighbour));
        ops.extend(conn.abandon());
        self.favourite.forget(key);
        if conn.local.shortcut.is_some() {
            self.rota.remove(key);
        }
        self.ready.forget(key, conn.due);
        if conn.due.has_any(STALLS) {
            self.stall_ends_if_over();
        }
        let subflows = conn.multipath.take();
        for socket in subflows.into_iter().flat_map(|flows| flows.into_sockets()) {
            self.poller.forget(socket.as_fd());
            if self.poller.is_own() {
                socket::end(socket);
            }
        }
        // In a forked child, the parent still uses the connection.
        if self.poller.is_own() {
            socket::end(conn.socket);
        }
        ops
    }

    fn takes_leave(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let has_nothing_left = conn.is_open() && conn.outbox.is_empty() && !conn.is_cut_off();
        if !has_nothing_left || conn.is_msg() || !conn.features.has(Features::RENDEZVOUS) {
            return;
        }
        let mut header = Header::new(Op::Throttle);
        header.op_data = LEAVES;
        let mut bytes = [0; MAX_HEADER];
        let len = header.encode(&[], conn.order, conn.sequence, &mut bytes);
        if let Some(bytes) = bytes.get(..len) {
            // A peer that takes nothing at present sees the connection break.
            let _ = conn.path().send(bytes);
        }
    }

    fn closed(&mut self, own: OwnPart) {
        if let Kind::Rdm(rdm) = own.kind {
            if let Some(listener) = rdm.listener {
                self.remove_listener(listener);
            }
            rdm.peers.abandon();
        }
    }
}

/// Implements `fi_shutdown` of a connected endpoint, after everything that is queued has been sent.
pub fn shut_down(lane: &Lane, ep: EpKey) {
    lane.linger(ep);
    lane.core().shut_down(ep);
}

impl Sided for Core {
    fn has_memory_of(&self, key: ConnKey, side: Side) -> bool {
        let conn = self.conns.get(key);
        conn.is_some_and(|conn| conn.has_memory_of(side))
    }

    fn break_off(&mut self, key: ConnKey, error: Errno) {
        let reason = "a context is closed whose operations are under way";
        self.break_with(key, Fault::Here(error, reason));
    }
}
