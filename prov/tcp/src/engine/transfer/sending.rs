//! Sending the application's messages (fi_msg(3), fi_tagged(3)).

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::os::fd::AsFd;

use fabric_abi::{
    FI_COMMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_FENCE, FI_PEER_TRANSFER, FI_REMOTE_CQ_DATA,
};
use prov_base::errno::{Errno, Result};
use prov_message::peers::{Deferred, Destination, Lent, PeerKey};
use prov_message::{Op, Reaching as _};
use prov_util::request::{Tag, Transmit};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::endpoint::Kind;
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::narrow::NAMES;
use crate::engine::link::outstanding::{Named, Unacknowledged};
use crate::engine::link::post::Post;
use crate::engine::link::socket;
use crate::engine::transfer::nearby::put_header;
use crate::engine::transfer::posting::{OWN_LIMIT, lend_buffer};
use crate::engine::transfer::ways::SendPath;
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header};
use crate::wire::simple;

/// Flags of messages that take the slow path.
const SPECIAL: u64 = FI_REMOTE_CQ_DATA | FI_COMMIT_COMPLETE | FI_PEER_TRANSFER | FI_FENCE;

/// Number of bytes that an application which does not read its queues sends on a connection between
/// two checks for received data.
const LOOK_EVERY: u64 = 1 << 20;

impl Core {
    /// Posts a message. `-FI_EAGAIN` if it has to be posted again later.
    #[inline]
    pub(crate) fn post_message(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        if self.transmit_fast(ep, message).is_some() {
            return Ok(());
        }
        self.transmit_in_turn(ep, message)
    }

    /// The fast path for a small message without special properties, on an open connection.
    #[inline]
    fn transmit_fast(&mut self, key: EpKey, message: &mut Transmit) -> Option<()> {
        let len = message.buffers.len();
        if message.flags & SPECIAL != 0 || len >= self.quick_end {
            return None;
        }
        let ep = self.endpoints.get(key)?;
        let conn_key = match &ep.own.kind {
            Kind::Rdm(rdm) => rdm.peers.open_link(message.peer)?,
            Kind::Msg(msg) => msg.conn?,
        };
        let conn = self.conns.get_mut(conn_key)?;
        if !conn.detours.let_out() {
            return None;
        }
        if message.flags & FI_DELIVERY_COMPLETE != 0
            || !conn.outbox.is_idle()
            || conn.bursts.messages.would_hold_back(&self.signals)
        {
            return self.transmit_with_others(key, conn_key, message);
        }
        conn.bursts.messages.sent();
        let (tag, sequence) = (message.tag.value(), conn.sequence);
        if let Some(shortcut) = &mut conn.local.shortcut
            && shortcut.send_short(
                &conn.socket,
                simple::header_len(tag.is_some(), false) + len,
                #[inline(always)]
                |to| {
                    if let Some(body) = put_header(tag, sequence, &to) {
                        body.copy_from(&message.buffers);
                    }
                },
            )
        {
            conn.sequence = sequence.wrapping_add(1);
            ep.reports.plain_message(key, message);
            return Some(());
        }
        let total = simple::put_message(
            tag,
            sequence,
            len,
            &mut self.scratch[..],
            #[inline(always)]
            |body| _ = message.buffers.read_at(0, body),
        )?;
        conn.sequence = sequence.wrapping_add(1);
        let bytes = self.scratch.get(..total)?;
        if conn.local.shortcut.is_some() {
            return self.transmit_by_path(key, conn_key, message, total);
        }
        match socket::send(conn.socket.as_fd(), bytes) {
            Ok(sent) if sent == total => {}
            Ok(sent) => return self.sent_in_part(key, conn_key, message, sent, total),
            Err(error) => return self.not_sent(key, conn_key, message, error, total),
        }
        ep.reports.plain_message(key, message);
        Some(())
    }

    /// Sends the message whose `total` bytes are in the scratch area.
    #[inline(never)]
    fn transmit_by_path(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        message: &mut Transmit,
        total: usize,
    ) -> Option<()> {
        self.send_scratch(key, total, Some(Op::of_transmit(ep, message)));
        Some(())
    }

    /// Handles that the kernel accepted `sent` of these bytes.
    #[cold]
    #[inline(never)]
    fn sent_in_part(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        message: &mut Transmit,
        sent: usize,
        total: usize,
    ) -> Option<()> {
        self.scratch_sent(key, Ok(sent), total, Some(Op::of_transmit(ep, message)));
        Some(())
    }

    /// Handles that the kernel accepted none of them.
    #[cold]
    #[inline(never)]
    fn not_sent(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        message: &mut Transmit,
        error: Errno,
        total: usize,
    ) -> Option<()> {
        self.scratch_sent(key, Err(error), total, Some(Op::of_transmit(ep, message)));
        Some(())
    }

    /// The fast path for a message that is to be acknowledged, or if other messages wait: it is
    /// queued after them.
    #[inline(never)]
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length"
    )]
    fn transmit_with_others(
        &mut self,
        key: EpKey,
        conn_key: ConnKey,
        message: &mut Transmit,
    ) -> Option<()> {
        if self.has_sent_much(conn_key) {
            return None;
        }
        let ep = self.endpoints.get_mut(key)?;
        let conn = self.conns.get_mut(conn_key)?;
        let op = Op::of_transmit(key, message);
        let asks = message.flags & FI_DELIVERY_COMPLETE != 0 && ep.reports.tells_of(&op);
        if !ep.ledger.has_room()
            || conn.outbox.own_len() >= OWN_LIMIT
            || asks && !conn.features.has(Features::NAMED_ACKS)
        {
            return None;
        }
        let is_alone = conn.outbox.is_empty();
        let holds_back = conn.bursts.messages.holds_back(&self.signals);
        // The library's own messages do not delay those of the application: an application's
        // message sends the waiting answers along.
        let leaves = !holds_back && (is_alone || conn.bursts.owes) && !conn.is_blocked();
        conn.bursts.owes = false;
        let ticket = match asks {
            true => ep.ledger.count_acknowledged(op),
            false => ep.ledger.count(op),
        };
        let (tag, len) = (message.tag.value(), message.buffers.len());
        let (name, sent) = match asks {
            true => {
                let len = simple::header_len(tag.is_some(), true) + len;
                let end = conn.outbox.end_of_next(len);
                let waits = Named::Ack(Unacknowledged { ticket, end });
                (Some(conn.name_op(waits)), None)
            }
            false => (None, Some(ticket)),
        };
        if is_alone {
            lend_buffer(&mut self.spare_buffers, conn);
        }
        let mut head = [0; simple::MAX_SIMPLE];
        let header_len = simple::encode_simple(tag, name, len, conn.sequence, &mut head);
        conn.sequence = conn.sequence.wrapping_add(1);
        conn.outbox.push_with(&head[..header_len], &message.buffers);
        if let Some(ticket) = sent {
            conn.outbox.push_op(ticket);
        }
        if leaves {
            self.flush(conn_key);
        } else {
            self.hold(conn_key);
        }
        if asks {
            self.expects_answer(conn_key);
        }
        Some(())
    }

    fn transmit_in_turn(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        self.params.sizes().check_message(message)?;
        self.check_fence(ep, message.flags)?;
        match self.destination(ep, message.peer)? {
            Destination::Open(conn) => {
                self.check_room(conn)?;
                if self.has_sent_much(conn) {
                    self.look_for_throttle(conn)?;
                }
                match self.way(conn, message, false) {
                    SendPath::Later => return Err(Errno::EAGAIN),
                    way => self.send_by(way, ep, conn, message, None),
                }
                Ok(())
            }
            Destination::Waits(peer) => {
                self.check_names(ep, peer, message)?;
                let op = Op::of_transmit(ep, message);
                self.defer(peer, op, || Deferred::transmit(message))
            }
        }
    }

    /// Whether much has been sent since the last check for received data.
    #[inline]
    fn has_sent_much(&mut self, key: ConnKey) -> bool {
        let round = self.looks_at(key);
        let conn = self.conns.get_mut(key);
        conn.is_some_and(|conn| {
            let sent = conn.outbox.sent();
            conn.looked.sent_since(round, sent) >= LOOK_EVERY
        })
    }

    /// Returns the number of progress calls that have checked a connection for received data: all
    /// of them for the favourite, for others those that call the poller.
    #[inline]
    fn looks_at(&self, key: ConnKey) -> u64 {
        match self.favourite.get() {
            Some(favourite) if favourite == key => self.polls.wrapping_add(self.signals.calls()),
            _ if self.conns.get(key).is_some_and(Connection::sends_by_memory) => {
                self.polls.wrapping_add(self.signals.calls())
            }
            _ => self.polls,
        }
    }

    /// Checks whether the peer has requested announcements, while the application sends and makes
    /// no other call: the peer can buffer only a limited amount. Programs that do read their queues
    /// find nothing new there after a send.
    #[cold]
    fn look_for_throttle(&mut self, key: ConnKey) -> Result {
        let round = self.looks_at(key);
        let conn = self.conns.get_mut(key).ok_or(Errno::EAGAIN)?;
        conn.looked.note(round, conn.outbox.sent());
        self.read(key, false);
        // If it has ended, the next attempt finds that out.
        let is_open = self.conns.get(key).is_some_and(Connection::is_open);
        is_open.then_some(()).ok_or(Errno::EAGAIN)
    }

    /// Checks whether there will be a name for a message that has to be announced to a C peer, once
    /// there is a connection.
    fn check_names(&mut self, ep: EpKey, peer: PeerKey, message: &Transmit) -> Result {
        let is_long = |len| len > self.params.max_saved_size;
        if !is_long(message.buffers.len()) {
            return Ok(());
        }
        let state = self.endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let Kind::Rdm(rdm) = &state.own.kind else {
            return Ok(());
        };
        let waiting = rdm.peers.waiting(peer);
        let long = waiting.filter(|(request, _)| request.message_len().is_some_and(is_long));
        match long.count() < NAMES {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Returns the destination of an operation of an endpoint for the peer `addr`.
    #[inline]
    pub(crate) fn destination(&mut self, ep: EpKey, addr: u64) -> Result<Destination<ConnKey>> {
        let state = self.endpoints.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
        match &mut state.own.kind {
            Kind::Msg(msg) => match msg.conn {
                Some(conn) if self.conns.get(conn).is_some_and(|conn| conn.is_open()) => {
                    Ok(Destination::Open(conn))
                }
                _ => Err(Errno::ENOTCONN),
            },
            Kind::Rdm(_) => self.reach(ep, addr),
        }
    }

    /// Sends a message on an open connection, by the method that suits it; from a copy of its bytes,
    /// if there is one.
    pub(crate) fn send(
        &mut self,
        ep: EpKey,
        key: ConnKey,
        message: &mut Transmit,
        copy: Option<&[u8]>,
    ) {
        let way = self.way(key, message, copy.is_some());
        self.send_by(way, ep, key, message, copy);
    }

    /// Sends a message on an open connection.
    #[inline]
    fn send_by(
        &mut self,
        way: SendPath,
        ep: EpKey,
        key: ConnKey,
        message: &mut Transmit,
        copy: Option<&[u8]>,
    ) {
        let mut header = Header::new(header::Op::Msg);
        if let Tag::Value(tag) = message.tag {
            header.op = header::Op::Tagged;
            header.tag = tag;
        }
        header.carry(message.immediate());
        header.payload = message.buffers.len();
        let op = Op::of_transmit(ep, message);
        let mut post = Post {
            header,
            rma: &[],
            copy: message.is_inject(),
            payload: Lent::of(&mut message.buffers, copy),
            op: None,
        };
        match way {
            SendPath::Offered(from) => {
                return self.offer_message(key, post, from, message.flags, op);
            }
            SendPath::Announced => return self.announce(key, None, post, message.flags, op),
            SendPath::AnnouncedToC(name) => {
                return self.announce(key, Some(name), post, message.flags, op);
            }
            // A message that has waited for the connection does not wait again for the peer to be
            // identified.
            SendPath::Eager | SendPath::Later => {}
        }
        post.op = self.ask_for_ack(key, &mut post.header, message.flags, op);
        let is_answered = post.header.wants_ack();
        self.post(key, post);
        if is_answered {
            self.expects_answer(key);
        }
    }

    /// Makes the header request an acknowledgement if the operation's flags require one. Returns
    /// the operation if it completes when it is sent.
    #[inline]
    pub(crate) fn ask_for_ack(
        &mut self,
        key: ConnKey,
        header: &mut Header,
        flags: u64,
        op: Op,
    ) -> Option<Op> {
        // An injected message, for example, has no completion to report.
        if ack_flag(flags) == 0 || !self.endpoints.tells_of(&op) {
            return Some(op);
        }
        let (Some(conn), Some(ticket)) = (
            self.conns.get_mut(key),
            self.endpoints.count_acknowledged(op),
        ) else {
            return Some(op);
        };
        header.flags |= ack_flag(flags);
        if conn.features.has(Features::NAMED_ACKS) {
            header.flags |= header::NAMED;
            let waits = conn.unacknowledged(ticket, header);
            header.id = conn.name_op(Named::Ack(waits));
        } else {
            conn.ops.acks.push_back(conn.unacknowledged(ticket, header));
            bounded!(conn.ops.acks, OPERATIONS);
        }
        None
    }
}

/// Returns the flags of a header that request the acknowledgement which an operation's flags
/// require.
#[inline]
pub(crate) fn ack_flag(flags: u64) -> u16 {
    if flags & FI_COMMIT_COMPLETE != 0 {
        header::COMMIT_COMPLETE
    } else if flags & FI_DELIVERY_COMPLETE != 0 {
        header::DELIVERY_COMPLETE
    } else {
        0
    }
}
