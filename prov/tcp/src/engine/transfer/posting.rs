//! Sending messages: immediately, or in a burst with others.

use std::os::fd::AsFd;
use std::time::Instant;

use fabric_abi::FI_FENCE;
use prov_base::errno::{Errno, Result};
use prov_message::Op;
use prov_util::mr::Grants;

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::Endpoints;
use crate::engine::link::post::{COPY_LIMIT, Post};
use crate::engine::link::ready::Why;
use crate::params::LEAST_INJECT;
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header, MAX_HEADER};
use prov_message::peers::Lent;

/// Number of copied bytes in a connection's queue from which on posting is refused: a bound of
/// memory.
pub(crate) const OWN_LIMIT: usize = 1 << 20;
/// The same towards C peers, which stop reading early: applications that first send and then
/// receive have to be able to post all their sends.
const OWN_LIMIT_FOR_C: usize = 64 << 20;

impl Core {
    /// Whether another operation may be posted to the connection: `-FI_EAGAIN` if too much is
    /// queued.
    #[inline]
    pub(crate) fn check_room(&self, key: ConnKey) -> Result {
        let conn = self.conns.get(key).ok_or(Errno::ENOTCONN)?;
        let ep = conn.ep().and_then(|ep| self.endpoints.get(ep));
        let may_wait = ep.is_none_or(|ep| ep.ledger.has_room());
        let own = conn.outbox.own_len();
        let fits =
            own < OWN_LIMIT || own < OWN_LIMIT_FOR_C && !conn.features.has(Features::RENDEZVOUS);
        match may_wait && fits {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Whether an operation with these flags may be posted: with `FI_FENCE`, `-FI_EAGAIN` until all
    /// operations of the endpoint have completed.
    #[inline]
    pub(crate) fn check_fence(&self, ep: EpKey, flags: u64) -> Result {
        match flags & FI_FENCE != 0 && self.is_fenced(ep) {
            true => Err(Errno::EAGAIN),
            false => Ok(()),
        }
    }

    /// Whether an operation with `FI_FENCE` would have to wait.
    #[cold]
    fn is_fenced(&self, ep: EpKey) -> bool {
        let endpoint = self.endpoints.get(ep);
        endpoint.is_some_and(|ep| ep.own.has_fences && ep.ledger.outstanding() != 0)
    }

    /// Sends a message on an open connection, or queues it. Never fails: if the connection breaks,
    /// its operations end with the reason.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length, and payloads in the scratch area are short"
    )]
    pub(crate) fn post(&mut self, key: ConnKey, mut post: Post<'_>) {
        let Some(conn) = self.conns.get_mut(key) else {
            if let Some(op) = post.op {
                self.endpoints.report(&op, Err(Errno::ENOTCONN));
            }
            return;
        };
        let sequence = conn.sequence;
        conn.sequence = sequence.wrapping_add(1);
        if self.params.trace_msg {
            trace("sent", conn, sequence, &post.header);
        }
        let is_answer = post.header.is_answer();
        let burst = match is_answer {
            true => &mut conn.bursts.answers,
            false => &mut conn.bursts.messages,
        };
        let holds_back = burst.holds_back(&self.signals);
        if holds_back || !conn.outbox.is_idle() {
            return self.queue(key, &mut post, sequence, holds_back);
        }
        let payload_len = post.payload.len();
        // One comparison for short messages: they are the host's (`Request::stage`).
        if payload_len > LEAST_INJECT && (payload_len > COPY_LIMIT || post.payload.has_device()) {
            // From its memory, as far as possible.
            conn.append(
                &mut post,
                sequence,
                &mut self.endpoints,
                &mut self.spare_buffers,
            );
            return self.flush(key);
        }
        let Some(head) = self.scratch.first_chunk_mut() else {
            return;
        };
        let header_len = post.header.encode(post.rma, conn.order, sequence, head);
        let total = header_len + payload_len;
        let place = &mut self.scratch[header_len..total];
        match post.payload {
            Lent::App(memory) => {
                memory.read_at(0, place);
            }
            Lent::Own(bytes) => place.copy_from_slice(bytes),
        }
        self.send_scratch(key, total, post.op);
    }

    /// Appends a message to the queue of a connection, and holds the queue if it `holds_back` or
    /// waits.
    fn queue(&mut self, key: ConnKey, post: &mut Post<'_>, sequence: u8, holds_back: bool) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_answer = post.header.is_answer();
        // The library's own messages do not delay those of the application: an application's
        // message sends the waiting answers along.
        let leaves = !holds_back && conn.bursts.owes && !is_answer && !conn.is_blocked();
        conn.bursts.owes = is_answer && (conn.bursts.owes || conn.outbox.is_idle());
        let room = conn.outbox.room();
        conn.append(post, sequence, &mut self.endpoints, &mut self.spare_buffers);
        // The payload of a message of this side is limited already.
        let is_owed =
            is_answer && !matches!(post.header.op, header::Op::Data | header::Op::WideData);
        if is_owed {
            conn.owe(room);
        }
        match leaves {
            true => self.flush(key),
            false => self.hold(key),
        }
    }

    /// Posts a message of the library itself that is one of several: in a progress call they leave
    /// at its end.
    pub(crate) fn post_with_others(&mut self, key: ConnKey, header: Header) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !self.is_in_progress || conn.sends_by_memory() {
            return self.post_control(key, header);
        }
        let sequence = conn.sequence;
        conn.sequence = sequence.wrapping_add(1);
        if self.params.trace_msg {
            trace("sent", conn, sequence, &header);
        }
        self.queue(key, &mut Post::own(header, &[], &[]), sequence, true);
    }

    /// Sends the message whose `total` bytes are in the scratch area, on a connection with an empty
    /// queue; `op` completes when it is sent.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length, and payloads in the scratch area are short"
    )]
    pub(crate) fn send_scratch(&mut self, key: ConnKey, total: usize, op: Option<Op>) {
        if let Some(conn) = self.conns.get_mut(key) {
            let sent = conn.path().send(&self.scratch[..total]);
            if conn.is_multipath() {
                self.sent_on_subflows(key);
            }
            self.scratch_sent(key, sent, total, op);
        }
    }

    /// Handles that only a part of these bytes was sent: the rest is queued.
    #[inline(never)]
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length, and payloads in the scratch area are short"
    )]
    pub(crate) fn scratch_sent(
        &mut self,
        key: ConnKey,
        sent: Result<usize>,
        total: usize,
        op: Option<Op>,
    ) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let mut is_cut_off = false;
        let sent = match sent {
            Ok(sent) => sent,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => 0,
            Err(error) if conn.outlives(error) => {
                is_cut_off = true;
                0
            }
            Err(error) => {
                if let Some(op) = &op {
                    self.endpoints.report(op, Err(error));
                }
                return self.break_connection(key, error);
            }
        };
        conn.outbox.sent_directly(sent);
        if sent == total {
            if let Some(op) = &op {
                self.endpoints.report(op, Ok(()));
            }
            return;
        }
        lend_buffer(&mut self.spare_buffers, conn);
        conn.outbox.push(&self.scratch[sent..total]);
        conn.set_blocked(true);
        if let Some(ticket) = op.and_then(|op| self.endpoints.count(op)) {
            conn.outbox.push_op(ticket);
        }
        match is_cut_off {
            true => self.cut_off(key),
            false => {
                self.waits_for_room(key);
                self.watch_for_stillness(key);
            }
        }
    }

    /// Sends a message whose payload is registered memory.
    ///
    /// # Errors
    /// `-FI_EIO` if a device's memory cannot be read; nothing is sent then.
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length, and payloads in the scratch area are short"
    )]
    pub(crate) fn post_registered(
        &mut self,
        key: ConnKey,
        header: Header,
        grants: &Grants,
    ) -> Result {
        if header.payload <= COPY_LIMIT {
            let mut bytes = std::mem::take(&mut self.gathered);
            bytes.clear();
            if let Some(target) = &mut self.target {
                grants.append_to(&mut target.memory, &mut bytes);
                grants.take_failure(&mut target.memory)?;
            }
            self.post(key, Post::own(header, &[], &bytes));
            self.gathered = bytes;
            return Ok(());
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return Ok(());
        };
        let room = conn.outbox.room();
        let mut head = [0; MAX_HEADER];
        let header_len = header.encode(&[], conn.order, conn.sequence, &mut head);
        conn.sequence = conn.sequence.wrapping_add(1);
        // In memory that is shared with the peer, accesses know messages by their positions.
        let is_movable = conn.local.shortcut.is_none()
            && !(self.target.as_mut()).is_some_and(|to| grants.has_device(&mut to.memory));
        conn.outbox
            .push_answer(&head[..header_len], grants.parts(), is_movable);
        conn.owe(room);
        if !conn.is_blocked() {
            self.flush(key);
        }
        Ok(())
    }

    /// Holds the queue of a connection for a burst, unless it is too long.
    #[inline]
    pub(crate) fn hold(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if conn.is_blocked() {
            return self.watch_for_stillness(key);
        }
        if conn.outbox.len() >= self.params.staging_sbuf_size as u64 || conn.sends_by_memory() {
            self.flush(key);
        } else {
            if !self.ready.has(Why::Held) && !self.is_in_progress {
                self.signals.burst_begins();
            }
            self.ready.add(key, &mut conn.due, Why::Held);
        }
    }

    /// Sends what is queued, as far as the kernel accepts it.
    pub(crate) fn flush(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if !conn.is_open() || conn.is_cut_off() {
            return;
        }
        let flushed = conn.send_queued(&mut self.target, self.params.zerocopy_size);
        match flushed {
            Ok(empty) => {
                conn.set_blocked(!empty);
                conn.bursts.owes &= !empty;
                let is_nearby = conn.local.shortcut.is_some();
                let is_multipath = conn.is_multipath();
                let is_set_aside = conn.due.has(Why::Aside);
                if conn.detours.has(Detour::Overdue) && conn.may_ask_on() {
                    self.read_later(key);
                }
                if is_nearby && !empty {
                    self.waits_for_room(key);
                } else if is_nearby && let Err(fault) = self.depart_if_due(key) {
                    self.break_with(key, fault);
                }
                if is_multipath {
                    self.sent_on_subflows(key);
                }
                if is_set_aside {
                    self.note_what_is_aside(key);
                }
                if !empty {
                    self.watch_for_stillness(key);
                    self.wait_for_device(key);
                }
            }
            Err(error) if conn.outlives(error) => self.cut_off(key),
            Err(error) => {
                self.break_connection(key, error);
                return;
            }
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.finish_done(&mut self.endpoints);
        if let Some(buffer) = conn.outbox.take_buffer()
            && self.spare_buffers.len() < SPARE_BUFFERS
        {
            self.spare_buffers.push(buffer);
        }
    }

    /// Has the queue of a connection sent again by the next calls, if it waits for a device.
    fn wait_for_device(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        if conn.is_some_and(|conn| conn.outbox.waits_for_device()) {
            self.is_due(key, Why::Device);
        }
    }

    /// Sends the queues that wait for devices.
    #[cold]
    pub(crate) fn send_read_ahead(&mut self) {
        for _ in 0..self.ready.of(Why::Device).len() {
            if let Some(key) = self.next_due(Why::Device) {
                self.flush(key);
            }
        }
    }

    /// Handles that the kernel may have released memory that it sent from.
    pub(crate) fn memory_released(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.lent.listen(conn.socket.as_fd());
            conn.finish_done(&mut self.endpoints);
        }
    }

    /// Sends the queues that are held for bursts, if there are any.
    #[inline]
    pub(crate) fn end_bursts(&mut self) {
        if self.ready.has(Why::Sent) {
            self.report_sent();
        }
        if self.ready.has(Why::Held) {
            self.flush_held();
        }
    }

    /// Sends answers that were held in a progress call, at the beginning of which no queue was
    /// held.
    #[inline]
    pub(crate) fn send_answers(&mut self) {
        if self.ready.has(Why::Held) {
            self.flush_held();
        }
    }

    /// Sends the queues that are held.
    #[inline(never)]
    pub(crate) fn flush_held(&mut self) {
        while let Some(key) = self.next_due(Why::Held) {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.bursts.owes = false;
                self.flush(key);
            }
        }
        self.signals.burst_ends();
    }

    /// Sends what is held or had no space, for an application that makes no further call; returns
    /// whether anything was sent. The consequences are reported by the next call.
    pub(crate) fn flush_for_application(&mut self) -> bool {
        let waiting = |key: ConnKey| {
            let conn = self.conns.get(key);
            conn.filter(|conn| !conn.due.has(Why::Held))
        };
        let starved = self.ready.of(Why::Starved).iter();
        let starved = starved.filter(|key| waiting(**key).is_some());
        // Operations whose bytes were set aside are complete: nothing calls for them any more.
        let aside = self.ready.of(Why::Aside).iter().filter(|key| {
            waiting(**key).is_some_and(|conn| !conn.is_cut_off() && !conn.sends_by_memory())
        });
        let held = self.ready.of(Why::Held).iter();
        let devices = self.ready.of(Why::Device).iter();
        let devices = devices.filter(|key| waiting(**key).is_some());
        let keys = held.chain(starved).chain(aside).chain(devices);
        let keys: Vec<ConnKey> = keys.copied().collect();
        for why in [Why::Held, Why::Starved, Why::Device] {
            while self.next_due(why).is_some() {}
        }
        let mut has_left = false;
        self.signals.burst_ends();
        for key in keys {
            let Some(conn) = self.conns.get_mut(key) else {
                continue;
            };
            conn.bursts.owes = false;
            // Errors are reported when the rest is sent.
            let mut is_stuck = false;
            if let Some(shortcut) = &mut conn.local.shortcut {
                is_stuck = shortcut.leave(conn.socket.as_fd()) == Err(Errno::EAGAIN);
            }
            if let Some(multipath) = &mut conn.multipath {
                multipath.go_on();
            }
            let before = conn.outbox.len();
            let flushed = conn.send_queued(&mut self.target, self.params.zerocopy_size);
            // If the socket is broken, the next attempt reports that.
            let is_blocked = matches!(flushed, Ok(false));
            conn.set_blocked(is_blocked);
            let is_news = !is_blocked || conn.outbox.len() < before;
            let is_set_aside = conn.due.has(Why::Aside);
            if is_blocked || is_stuck {
                self.waits_for_room(key);
                self.watch_for_stillness(key);
                self.wait_for_device(key);
            }
            if is_set_aside {
                self.note_what_is_aside(key);
            }
            has_left |= is_news;
            if is_news {
                self.is_due(key, Why::Sent);
            }
        }
        self.stall_ends_if_over();
        if self.ready.has(Why::Sent) && self.must_wake() {
            self.poller.wake_at(Instant::now());
        }
        has_left
    }

    /// Reports operations that were sent on behalf of the application.
    #[cold]
    fn report_sent(&mut self) {
        while let Some(key) = self.next_due(Why::Sent) {
            self.flush(key);
        }
    }
}

impl Connection {
    /// Appends a message to the connection's queue.
    #[allow(
        clippy::indexing_slicing,
        reason = "what encodes a header returns its length, and payloads in the scratch area are short"
    )]
    fn append(
        &mut self,
        post: &mut Post<'_>,
        sequence: u8,
        endpoints: &mut Endpoints,
        spare_buffers: &mut Vec<Vec<u8>>,
    ) {
        if self.outbox.is_empty() {
            lend_buffer(spare_buffers, self);
        }
        let mut head = [0; MAX_HEADER];
        let header_len = post
            .header
            .encode(post.rma, self.order, sequence, &mut head);
        if post.header.op == header::Op::ReadRequest
            && self
                .outbox
                .push_before_answers(&mut head[..header_len], sequence)
        {
            self.bursts.debt.was_overtaken(header_len);
            return;
        }
        self.outbox.push(&head[..header_len]);
        match &mut post.payload {
            Lent::App(memory)
                if post.copy || memory.len() <= COPY_LIMIT && !memory.has_device() =>
            {
                self.outbox.push_copy(memory);
            }
            Lent::App(memory) => self.outbox.push_app(memory.take()),
            Lent::Own(bytes) => self.outbox.push(bytes),
        }
        if let Some(ticket) = post.op.and_then(|op| endpoints.count(op)) {
            self.outbox.push_op(ticket);
        }
    }

    /// Completes the operations whose data the kernel has accepted and released.
    pub(crate) fn finish_done(&mut self, endpoints: &mut Endpoints) {
        while let Some(ticket) = self.outbox.pop_done() {
            let done = match self.lent.enabled {
                true => self.lent.hold(ticket),
                false => Some(ticket),
            };
            if let Some(ticket) = done {
                endpoints.finish(ticket, Ok(()));
            }
        }
        while let Some(ticket) = self.lent.pop_released() {
            endpoints.finish(ticket, Ok(()));
        }
    }
}

/// Gives a connection that begins to queue a buffer.
#[inline]
pub(crate) fn lend_buffer(spare: &mut Vec<Vec<u8>>, conn: &mut Connection) {
    if let Some(buffer) = spare.pop() {
        conn.outbox.lend_buffer(buffer);
    }
}

/// Logs a message (`FI_TCP_TRACE_MSG`).
#[cold]
pub(crate) fn trace(what: &str, conn: &Connection, sequence: u8, header: &Header) {
    log::trace!(
        target: crate::LOG.ep_data,
        "{what} {:?} {sequence} {} {}: tag {:#x} flags {:#x} op_data {:#x} payload {}",
        header.op,
        if what == "sent" { "to" } else { "from" },
        conn.peer_text(),
        header.tag,
        header.flags,
        header.op_data,
        header.payload
    );
}

/// Largest number of outbox buffers that are kept for reuse.
const SPARE_BUFFERS: usize = 16;
