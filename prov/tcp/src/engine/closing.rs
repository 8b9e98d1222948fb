//! How connections and endpoints end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use prov_util::errno::{Errno, Result};

use super::Core;
use super::connection::{Connection, Owner, Stage};
use super::endpoint::Kind;
use super::incoming::{Body, Incoming, Then};
use super::keys::{ConnKey, EpKey, ReceiverKey};
use super::op::Op;
use super::socket;
use crate::wire::WireError;

/// Why a connection ends.
#[derive(Debug)]
pub enum Fault {
    /// The peer broke the protocol.
    Protocol(WireError),
    /// The peer named memory that it may not access.
    Memory { error: Errno, addr: u64, len: u64 },
    /// The socket has an error, or has ended.
    Io(Errno),
    /// The peer refused, with these connection data.
    Refused(Vec<u8>),
    /// The other side has no endpoint of the RDM type.
    Foreign,
    /// The peer did not prove that it has the key of this side, for this
    /// reason.
    Unproven(&'static str),
    /// It has ended already.
    Gone,
}

/// How long closing an endpoint may take to send what is due.
const LINGER: Duration = Duration::from_secs(2);

impl Core {
    /// Ends a connection for an error of its socket.
    #[cold]
    pub(super) fn break_connection(&mut self, key: ConnKey, error: Errno) {
        self.break_with(key, Fault::Io(error));
    }

    /// The peer has ended the stream.
    pub(super) fn end_of_stream(&mut self, key: ConnKey) {
        self.break_with(key, Fault::Io(Errno::ESHUTDOWN));
    }

    /// Ends a connection, and with it all operations on it.
    #[cold]
    pub(super) fn break_with(&mut self, key: ConnKey, fault: Fault) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        let mut data = Vec::new();
        let mut hopeless = false;
        let error = match fault {
            Fault::Gone => Errno::ENOTCONN,
            Fault::Io(error) => error,
            Fault::Refused(refusal) => {
                data = refusal;
                Errno::ECONNREFUSED
            }
            Fault::Foreign => {
                hopeless = true;
                Errno::ECONNREFUSED
            }
            Fault::Unproven(reason) => {
                log::warn!("no connection with {}: {reason}", conn.peer_text());
                hopeless = true;
                Errno::EKEYREJECTED
            }
            Fault::Protocol(error) => {
                log::warn!(
                    "{} broke the protocol and loses its connection: {error}",
                    conn.peer_text()
                );
                Errno::EPROTO
            }
            Fault::Memory { error, addr, len } => {
                log::warn!(
                    "{} loses its connection for access to {len} bytes at {addr:#x}: {error}",
                    conn.peer_text()
                );
                error
            }
        };
        let was_open = conn.is_open();
        let owner = conn.owner;
        let peer = conn.peer;
        let ops = self.take_down(key, error);
        // First the state, then the news of it: the application may act on it.
        match owner {
            Owner::Listener(listener) => self.no_longer_half_open(key, listener),
            Owner::Ep(ep) => {
                for op in &ops {
                    self.finish(op, Err(error));
                }
                match peer {
                    Some(peer) if !was_open => self.attempt_failed(ep, peer, error, hopeless),
                    Some(peer) => {
                        if let Some(rdm) = self.rdm(ep) {
                            if let Some(known) = rdm.peers.get_mut(peer)
                                && known.conn == Some(key)
                            {
                                known.conn = None;
                            }
                            rdm.forget_idle(peer);
                        }
                        self.peer_lost(ep, peer, error);
                    }
                    None => self.msg_connection_ended(ep, key, was_open, error, &data),
                }
            }
        }
    }

    /// A connected endpoint has lost its connection.
    fn msg_connection_ended(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        was_open: bool,
        error: Errno,
        data: &[u8],
    ) {
        let Some(state) = self.eps.get_mut(ep) else {
            return;
        };
        let receiver = state.receiver;
        let Kind::Msg(msg) = &mut state.kind else {
            if let Kind::Rdm(rdm) = &mut state.kind
                && rdm.loopback == Some(key)
            {
                rdm.loopback = None;
            }
            return;
        };
        if msg.conn != Some(key) {
            return;
        }
        msg.conn = None;
        msg.ended = true;
        if let Some(own) = self.receivers.get_mut(receiver)
            && !own.shared
        {
            own.size = 0;
            self.cancel_receives(ep, receiver);
        }
        if let Some(state) = self.eps.get(ep)
            && let Kind::Msg(msg) = &state.kind
            && let Some(events) = &msg.events
        {
            if was_open {
                events.shut_down();
            } else {
                events.failed(error, data);
            }
        }
    }

    pub(super) fn cancel_receives(&mut self, ep: EpKey, key: ReceiverKey) {
        for tagged in [false, true] {
            let Some(receiver) = self.receivers.get_mut(key) else {
                return;
            };
            for cancelled in receiver.queue(tagged).cancel_all() {
                if cancelled.buf.is_some() {
                    self.report_cancelled(key, Some(ep), tagged, &cancelled, Errno::ECANCELED);
                }
            }
        }
    }

    /// Removes a connection with its half-received messages. Returns the
    /// operations that end with it; its seal has ended when they are reported.
    fn take_down(&mut self, key: ConnKey, error: Errno) -> Vec<Op> {
        let Some(mut conn) = self.conns.remove(key) else {
            return Vec::new();
        };
        self.poller.forget(conn.socket.as_fd());
        let mut ops = conn.abandon();
        self.forget_arrivals(key, &mut conn, error, &mut ops);
        if conn.is_hot {
            self.hot.retain(|hot| hot.conn != key);
        }
        socket::end(conn.socket);
        ops
    }

    /// Ends receives whose messages will not come, and drops unexpected
    /// messages that are not complete.
    fn forget_arrivals(
        &mut self,
        key: ConnKey,
        conn: &mut Connection,
        error: Errno,
        ops: &mut Vec<Op>,
    ) {
        let Owner::Ep(ep) = conn.owner else {
            return;
        };
        let mut receipts = Vec::new();
        match std::mem::take(&mut conn.incoming) {
            Incoming::Place(placing) => match placing.then {
                Then::Receive(receipt) => receipts.push((receipt, placing.place.memory())),
                Then::Read(op) => ops.insert(0, op),
                Then::RemoteWrite { .. } => {}
            },
            Incoming::Nothing | Incoming::Keep(_) | Incoming::Collect(_) | Incoming::Discard => {}
        }
        receipts.extend(
            conn.asked
                .drain()
                .filter_map(|(_, asked)| Some((asked.receipt?, asked.memory))),
        );
        for (receipt, memory) in receipts {
            self.received(key, ep, &receipt, &memory, Err(error));
        }
        let Some(receiver) = self.eps.get(ep).map(|state| state.receiver) else {
            return;
        };
        for tagged in [false, true] {
            let Some(receiver) = self.receivers.get_mut(receiver) else {
                break;
            };
            let gone = receiver.queue(tagged).withdraw_if(|message| {
                message.payload.conn == key && !matches!(message.payload.body, Body::Complete(_))
            });
            for message in gone {
                self.unexpected_bytes -= Core::keeping_cost(message.len, &message.payload.body);
            }
        }
    }

    /// Ends a connection on which nothing was transferred yet, without telling
    /// anybody.
    pub(super) fn remove_connection(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get(key) else {
            return;
        };
        if let Owner::Listener(listener) = conn.owner {
            self.no_longer_half_open(key, listener);
        }
        self.take_down(key, Errno::ECANCELED);
    }

    /// Sends what is due on a connection before it ends, as far as that is
    /// possible in reasonable time.
    fn linger(&mut self, key: ConnKey, deadline: Instant) {
        loop {
            self.flush(key);
            let Some(conn) = self.conns.get(key) else {
                return;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if conn.outbox.is_empty() || !matches!(conn.stage, Stage::Open) || left.is_zero() {
                return;
            }
            socket::wait_writable(conn.socket.as_fd(), left);
        }
    }

    /// `fi_shutdown` of a connected endpoint.
    pub fn shut_down(&mut self, ep: EpKey) -> Result {
        let state = self.eps.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let Kind::Msg(msg) = &state.kind else {
            return Err(Errno::ENOSYS);
        };
        let Some(conn) = msg.conn else {
            return Ok(());
        };
        self.linger(conn, Instant::now() + LINGER);
        self.break_connection(conn, Errno::ESHUTDOWN);
        Ok(())
    }

    /// `fi_close` of an endpoint: its connections end, its operations end
    /// without a word.
    pub fn close_endpoint(&mut self, ep: EpKey) {
        let mine: Vec<ConnKey> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.owner == Owner::Ep(ep))
            .map(|(key, _)| key)
            .collect();
        let deadline = Instant::now() + LINGER;
        for &conn in &mine {
            self.linger(conn, deadline);
        }
        let Some(state) = self.eps.remove(ep) else {
            return;
        };
        if let Kind::Rdm(rdm) = &state.kind
            && let Some(listener) = rdm.listener
        {
            self.remove_listener(listener);
        }
        for conn in mine {
            self.take_down(conn, Errno::ECANCELED);
        }
        let shared = self
            .receivers
            .get(state.receiver)
            .is_some_and(|receiver| receiver.shared);
        if shared {
            self.drop_messages_of(state.receiver, ep);
        } else {
            self.close_receiver(state.receiver);
        }
        self.admit_held_back();
    }

    /// Drops a receive context with all that waits in it.
    pub fn close_receiver(&mut self, key: ReceiverKey) {
        if let Some(mut receiver) = self.receivers.remove(key) {
            for tagged in [false, true] {
                for message in receiver.queue(tagged).withdraw_if(|_| true) {
                    self.unexpected_bytes -= Core::keeping_cost(message.len, &message.payload.body);
                }
            }
        }
    }

    /// Drops the messages in a shared context that came to an endpoint.
    fn drop_messages_of(&mut self, key: ReceiverKey, ep: EpKey) {
        for tagged in [false, true] {
            let Some(receiver) = self.receivers.get_mut(key) else {
                return;
            };
            for message in receiver
                .queue(tagged)
                .withdraw_if(|message| message.payload.ep == ep)
            {
                self.unexpected_bytes -= Core::keeping_cost(message.len, &message.payload.body);
            }
        }
    }
}
