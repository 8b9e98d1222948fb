//! Receiving messages on an open connection.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::errno::Errno;
use prov_base::warn_again;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{Core as _, Expected, Plain, Reaching as _, Unmatched};

use crate::engine::Core;
use crate::engine::link::connection::{Connection, Owner};
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::incoming::{Collecting, Incoming};
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::{
    Ack, Action, Arrival, Endpoints, Placing, Rendezvous, Tcp, Then,
};
use crate::engine::link::post::Post;
use crate::engine::transfer::acknowledging::ack_of;
use crate::local::neighbour::Subject;
use crate::wire::WireError;
use crate::wire::direct::MAX_LIST;
use crate::wire::handshake::Features;
use crate::wire::header::refusal::{self, Refused};
use crate::wire::header::{self, Header, Op};
use crate::wire::multipath::{MAX_OFFER, OFFER};
use crate::wire::simple::decode_simple;
use crate::wire::stream::Event;

/// Length in bytes of a message that puts its connection into bulk mode.
const BULK: usize = 16 << 10;
/// Largest number of bytes of operands of an atomic operation.
const COLLECT_LIMIT: usize = 1 << 20;

/// Returns the endpoint's part of the fast path for messages without special properties, if there
/// is one, on a connection in a state that permits it ([`Connection::is_plain`]).
#[inline(always)]
pub(crate) fn fast_path<'a>(
    conn: &Connection,
    endpoints: &'a mut Endpoints,
) -> Option<Plain<'a, Tcp>> {
    let Owner::Ep(ep) = conn.owner else {
        return None;
    };
    if conn.src == UNKNOWN_SOURCE && !conn.is_msg() {
        return None;
    }
    endpoints.plain(ep)
}

/// Receives the messages at the start of `bytes` that have no special properties and have matching
/// receives; returns the remaining bytes.
#[inline(always)]
pub(crate) fn take_in_simple<'a>(
    mut plain: Plain<'_, Tcp>,
    conn: &mut Connection,
    mut bytes: &'a [u8],
) -> &'a [u8] {
    while let Some(simple) = decode_simple(bytes) {
        if simple.name.is_some() && !conn.features.has(Features::NAMED_ACKS)
            || !plain.take(conn.src, simple.tag, simple.payload)
        {
            break;
        }
        bytes = simple.rest;
        if simple.payload.len() >= BULK {
            conn.detours.set(Detour::Bulk, true);
        }
        if let Some(name) = simple.name {
            conn.owed.push(name);
            bounded!(conn.owed, OPERATIONS);
        }
    }
    bytes
}

impl Core {
    /// Processes bytes that were received on a connection.
    pub(crate) fn take_in(&mut self, key: ConnKey, mut bytes: &[u8]) {
        self.take_in_plain(key, &mut bytes);
        if !bytes.is_empty() {
            self.take_in_any(key, bytes);
        }
        self.acknowledge_owed(key);
    }

    /// Receives the messages at the start of `bytes` that have no special properties; returns
    /// whether there were any.
    #[inline]
    fn take_in_plain(&mut self, key: ConnKey, bytes: &mut &[u8]) -> bool {
        let before = bytes.len();
        if let Some(conn) = self.conns.get_mut(key)
            && conn.is_plain()
            && let Some(plain) = fast_path(conn, &mut self.endpoints)
        {
            *bytes = take_in_simple(plain, conn, bytes);
        }
        bytes.len() != before
    }

    #[inline(never)]
    pub(crate) fn take_in_any(&mut self, key: ConnKey, mut bytes: &[u8]) {
        let bytes = &mut bytes;
        loop {
            let Some(conn) = self.conns.get_mut(key) else {
                return;
            };
            if conn.is_paused() {
                conn.backlog.extend_from_slice(bytes);
                return;
            }
            match self.take_in_acks(key, bytes) {
                Ok(false) => {}
                Ok(true) => {
                    self.take_in_plain(key, bytes);
                    continue;
                }
                Err(fault) => {
                    self.break_with(key, fault);
                    return;
                }
            }
            let Some(conn) = self.conns.get_mut(key) else {
                return;
            };
            let step = match conn.stream.next(bytes) {
                Ok(Event::Need) => return,
                Ok(Event::Message(header)) => match conn.waits_for(&header, &self.endpoints) {
                    None => self.begin(key, &header, bytes),
                    Some(why) => {
                        self.begin_later(key, header, why);
                        continue;
                    }
                },
                Ok(Event::Payload(part)) => self.payload(key, part),
                Err(error) => Err(Fault::Protocol(error)),
            };
            if let Err(fault) = step {
                self.break_with(key, fault);
                return;
            }
        }
    }

    /// Begins a message.
    #[inline]
    pub(crate) fn begin(&mut self, key: ConnKey, header: &Header, bytes: &mut &[u8]) -> LinkResult {
        if self.params.trace_msg
            && let Some(conn) = self.conns.get(key)
        {
            super::posting::trace("received", conn, 0, header);
        }
        if header.payload >= BULK
            && let Some(conn) = self.conns.get_mut(key)
        {
            conn.detours.set(Detour::Bulk, true);
        }
        match header.op {
            Op::Tagged => self.message(key, header, true, bytes),
            Op::Msg if !header.is_ack() => self.message(key, header, false, bytes),
            _ => self.other(key, header, bytes),
        }
    }

    fn other(&mut self, key: ConnKey, header: &Header, bytes: &mut &[u8]) -> LinkResult {
        match header.op {
            Op::Msg | Op::Tagged => self.acknowledged(key),
            Op::NamedAck => self.acknowledged_by_name(key, header.id),
            Op::ReadRequest => self.read_requested(key),
            Op::ReadResponse => self.read_answered(key, header, bytes),
            Op::Write => self.write_begins(key, header, bytes),
            Op::TaggedRts => self.announced(key, header, true, Rendezvous::Narrow(header.op_data)),
            Op::WideRts => {
                let tagged = header.flags & header::TAGGED != 0;
                self.announced(key, header, tagged, Rendezvous::Wide(header.id))
            }
            Op::Cts => self.asked_for_by_c(key, header.op_data),
            Op::WideCts => self.asked_for(key, header),
            Op::Data => self.announced_data(key, header, Rendezvous::Narrow(header.op_data)),
            Op::WideData => self.announced_data(key, header, Rendezvous::Wide(header.id)),
            Op::Throttle => {
                if let Some(conn) = self.conns.get_mut(key) {
                    match header.op_data {
                        header::LEAVES => conn.has_left = true,
                        throttled => conn.detours.set(Detour::Throttled, throttled != 0),
                    }
                }
                Ok(())
            }
            Op::AtomicRequest => self.collect(key, header, COLLECT_LIMIT, bytes),
            Op::Acquaint => {
                if header.op_data == Subject::Moved.code() {
                    // Bytes after it in the socket only wake the process.
                    *bytes = &[];
                }
                self.remarked(key, header)
            }
            Op::DirectMsg => self.collect(key, header, MAX_LIST, bytes),
            Op::AtomicResponse => self.atomic_answered(key, header, bytes),
            Op::Multipath if header.op_data == OFFER => self.collect(key, header, MAX_OFFER, bytes),
            Op::Multipath => self.subflow_message(key, header, bytes),
            Op::Refusal => self.refused(key, header),
            Op::Accessed => self.was_accessed(key, header),
        }
    }

    /// Returns the message with this header, of `len` bytes, as the inbox needs it.
    #[inline]
    pub(crate) fn arrival(
        &mut self,
        key: ConnKey,
        header: &Header,
        tagged: bool,
        len: usize,
    ) -> Result<Arrival, Fault> {
        self.look_for_source(key);
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        Ok(Arrival {
            link: key,
            ep: conn.ep().ok_or(Fault::Gone)?,
            src: conn.src,
            tagged,
            tag: header.tag,
            len,
            data: header.immediate(),
            ack: ack_of(header),
            announces: conn.features.has(Features::RENDEZVOUS),
        })
    }

    /// Begins a plain or tagged message that is sent with its bytes.
    #[inline]
    fn message(
        &mut self,
        key: ConnKey,
        header: &Header,
        tagged: bool,
        bytes: &mut &[u8],
    ) -> LinkResult {
        let arrival = self.arrival(key, header, tagged, header.payload)?;
        let Some(Expected { memory, receipt }) = self.endpoints.arrive(&arrival) else {
            return self.unexpected(key, &arrival);
        };
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if bytes.len() >= arrival.len {
            // All of it has been received.
            let (body, rest) = bytes.split_at(arrival.len);
            *bytes = rest;
            conn.stream.payload_done(arrival.len);
            memory.write_at(0, body);
            let ack = self.endpoints.received(&receipt, memory, Ok(()));
            self.acknowledge(key, ack);
        } else {
            conn.incoming = Incoming::Place(Box::new(Placing::receive(memory, receipt)));
        }
        Ok(())
    }

    /// Looks up a peer that was not in the address vector before.
    #[inline]
    pub(crate) fn look_for_source(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let conn = conn.filter(|conn| conn.src == UNKNOWN_SOURCE);
        if let Some(ep) = conn.and_then(Connection::ep) {
            self.follow_av(ep);
        }
    }

    /// Begins a message for which there is no receive.
    #[inline(never)]
    fn unexpected(&mut self, key: ConnKey, arrival: &Arrival) -> LinkResult {
        self.note_what_is_awaited(key);
        let unmatched = self.endpoints.unmatched(arrival);
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        match unmatched {
            Unmatched::Keep(kept) => conn.incoming = Incoming::Keep(kept),
            Unmatched::Complete => {}
            Unmatched::HeldBack => self.hold_back(key),
            Unmatched::Gone => return Err(Fault::Gone),
        }
        self.follow_up();
        Ok(())
    }

    /// Stops reading after the message that has begun, until an action decides how it continues.
    pub(crate) fn hold_back(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.detours.set(Detour::HeldBack, true);
        }
        self.ready
            .has_strangers(self.endpoints.holds_back_strangers());
    }

    /// Before a message for which there may be no room: an answer that comes behind it is not held back.
    pub(crate) fn note_what_is_awaited(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        let awaits_answers = conn.is_some_and(|conn| conn.ops.awaits_answers());
        self.endpoints.has_to_go_on(key, awaits_answers);
    }

    /// After an operation that the peer answers was posted: the answer comes behind the message that the
    /// connection is held back with, if it is.
    #[inline]
    pub(crate) fn expects_answer(&mut self, key: ConnKey) {
        let conn = self.conns.get(key);
        if conn.is_some_and(|conn| conn.detours.has(Detour::HeldBack)) {
            self.goes_on_to_answer(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn goes_on_to_answer(&mut self, key: ConnKey) {
        self.note_what_is_awaited(key);
        self.follow_up();
    }

    /// Processes further bytes of the message that began last.
    fn payload(&mut self, key: ConnKey, part: &[u8]) -> LinkResult {
        let Some(conn) = self.conns.get_mut(key) else {
            return Err(Fault::Gone);
        };
        match &mut conn.incoming {
            Incoming::Place(placing) => {
                placing.place.write_at(&mut self.target, placing.done, part);
                placing.done += part.len();
            }
            Incoming::Keep(kept) => {
                let more = conn.stream.payload_left();
                if !self.endpoints.append(*kept, part, more) {
                    conn.incoming = Incoming::Discard;
                }
            }
            Incoming::Collect(collecting) => collecting.bytes.extend_from_slice(part),
            Incoming::Discard | Incoming::Refuse(_) | Incoming::Nothing => {}
        }
        if conn.stream.payload_left() == 0 {
            return self.message_ends(key);
        }
        Ok(())
    }

    /// Notes that `n` bytes of the current message were received directly to their destination.
    pub(crate) fn placed_directly(&mut self, key: ConnKey, n: usize) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Incoming::Place(placing) = &mut conn.incoming {
            placing.done += n;
        }
        conn.stream.payload_done(n);
        if conn.stream.payload_left() == 0
            && let Err(fault) = self.message_ends(key)
        {
            self.break_with(key, fault);
        }
    }

    /// Handles the end of a message.
    fn message_ends(&mut self, key: ConnKey) -> LinkResult {
        let Some(conn) = self.conns.get_mut(key) else {
            return Err(Fault::Gone);
        };
        match std::mem::take(&mut conn.incoming) {
            Incoming::Place(placing) => self.placed(key, *placing),
            Incoming::Keep(kept) => {
                self.endpoints.kept(kept);
                self.follow_up();
            }
            Incoming::Collect(Collecting { header, bytes }) => {
                return self.collected(key, &header, &bytes);
            }
            Incoming::Refuse(answer) => self.post_control(key, answer),
            Incoming::Discard | Incoming::Nothing => {}
        }
        Ok(())
    }

    /// Processes a complete collected message.
    fn collected(&mut self, key: ConnKey, header: &Header, bytes: &[u8]) -> LinkResult {
        match header.op {
            Op::DirectMsg => self.direct_message(key, header, bytes),
            Op::Multipath => self.subflows_offered(key, bytes),
            _ => self.atomic_requested(key, header, bytes),
        }
    }

    /// Completes a message that is at its destination.
    pub(crate) fn placed(&mut self, key: ConnKey, placing: Placing) {
        if placing.has_data() {
            self.look_for_source(key);
        }
        let conn = self.conns.get(key);
        let src = conn.map_or(UNKNOWN_SOURCE, |conn| conn.src);
        let ep = conn.and_then(Connection::ep).unwrap_or_default();
        let outcome = placing.take_failure(&mut self.target);
        let (endpoints, target) = (&mut self.endpoints, &mut self.target);
        let ack = endpoints.placed(target, ep, src, placing, outcome);
        match outcome {
            Ok(()) => self.acknowledge(key, ack),
            Err(error) => self.has_not_written(key, ack, error),
        }
    }

    /// Answers a write that a device has not copied.
    #[cold]
    fn has_not_written(&mut self, key: ConnKey, ack: Ack, error: Errno) {
        let conn = self.conns.get(key);
        let is_refused = conn.is_some_and(|conn| conn.features.has(Features::REFUSALS));
        match ack {
            Ack::Named(name) if is_refused => {
                self.post_control(key, refusal::header(Refused::Named(name), error));
            }
            // The peer understands nothing else.
            ack => self.acknowledge(key, ack),
        }
    }

    /// Handles that the memory for the payload that is arriving is not mapped: this operation
    /// fails, and the rest of the payload is read and dropped. Returns whether there is such an
    /// operation.
    #[cold]
    pub(crate) fn cannot_place(&mut self, key: ConnKey) -> bool {
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        let Incoming::Place(placing) = std::mem::take(&mut conn.incoming) else {
            return false;
        };
        warn_again!(
            target: crate::LOG.ep_data,
            "the memory for what {} sends is not mapped: the operation fails",
            conn.peer_text()
        );
        let is_refused = conn.features.has(Features::REFUSALS);
        conn.incoming = Incoming::Discard;
        let (ep, src) = (conn.ep().unwrap_or_default(), conn.src);
        let is_write = matches!(placing.then, Then::RemoteWrite { .. });
        let (endpoints, target) = (&mut self.endpoints, &mut self.target);
        let ack = endpoints.placed(target, ep, src, *placing, Err(Errno::EFAULT));
        match ack {
            Ack::Named(name) if is_write && is_refused => {
                if let Some(conn) = self.conns.get_mut(key) {
                    let refusal = refusal::header(Refused::Named(name), Errno::EACCES);
                    conn.incoming = Incoming::Refuse(refusal);
                }
            }
            ack => self.acknowledge(key, ack),
        }
        true
    }

    /// Carries out an action that follows from a receive, or the lack of one.
    pub(crate) fn act_on(&mut self, action: Action) {
        match action {
            Action::Acknowledge(key, ack) => self.acknowledge(key, ack),
            Action::Redirect(key, course) => {
                let Some(conn) = self.conns.get_mut(key) else {
                    return;
                };
                match conn.incoming {
                    Incoming::Keep(_) => conn.incoming = course.into(),
                    _ => conn.local.copies.course = Some(course),
                }
            }
            Action::Resume(key, course) => {
                let Some(conn) = self.conns.get_mut(key) else {
                    return;
                };
                conn.detours.set(Detour::HeldBack, false);
                match conn.local.copies.held_back.take() {
                    None => conn.incoming = course.into(),
                    Some(held) => self.copy_held(key, held, course.into()),
                }
                let Some(conn) = self.conns.get_mut(key) else {
                    return;
                };
                let backlog = std::mem::take(&mut conn.backlog);
                self.take_in(key, &backlog);
                self.read_later(key);
            }
            Action::Fetch(key, fetch) => self.fetch(key, fetch),
            Action::Refuse(key, name, ack, len) => self.refuse(key, name, ack, len),
            Action::Throttle(key, on) => self.throttle(key, on),
        }
    }

    /// Sends a header without payload that no operation waits for.
    pub(crate) fn post_control(&mut self, key: ConnKey, header: Header) {
        self.post(key, Post::own(header, &[], &[]));
    }

    /// Collects a message that is processed when it is complete.
    fn collect(
        &mut self,
        key: ConnKey,
        header: &Header,
        limit: usize,
        bytes: &mut &[u8],
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if header.payload > limit {
            return Err(Fault::Protocol(WireError::Payload(header.payload as u64)));
        }
        let Some((all, rest)) = bytes.split_at_checked(header.payload) else {
            conn.incoming = Incoming::Collect(Collecting {
                header: *header,
                bytes: Vec::with_capacity(header.payload),
            });
            return Ok(());
        };
        *bytes = rest;
        conn.stream.payload_done(header.payload);
        self.collected(key, header, all)
    }

    /// Stores a message of `len` bytes at its destination, as far as it has arrived.
    pub(crate) fn place(
        &mut self,
        key: ConnKey,
        placing: Placing,
        len: usize,
        bytes: &mut &[u8],
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let Some((all, rest)) = bytes.split_at_checked(len) else {
            conn.incoming = Incoming::Place(Box::new(placing));
            return Ok(());
        };
        *bytes = rest;
        conn.stream.payload_done(len);
        placing.place.write_at(&mut self.target, 0, all);
        self.placed(key, placing);
        Ok(())
    }
}
