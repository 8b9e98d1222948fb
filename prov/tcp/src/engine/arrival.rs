//! What comes on an open connection.

use prov_util::buffer::AppIov;
use prov_util::errno::Errno;
use prov_util::matching::{Matched, Message, ReceiveQueue};
use prov_util::mr::Grant;
use slotmap::SlotMap;

use super::Core;
use super::closing::Fault;
use super::connection::{Connection, Named, Owner, UNKNOWN_SOURCE};
use super::endpoint::{EndpointState, Queues, Receiver};
use super::incoming::{
    Ack, Body, Collecting, Incoming, Kept, Placing, Receipt, Rendezvous, Then, Unexpected,
};
use super::keys::{ConnKey, EpKey, ReceiverKey};
use super::op::Context;
use super::place::Place;
use super::progress::BULK;
use crate::wire::WireError;
use crate::wire::direct::MAX_LIST;
use crate::wire::header::{self, Header, Op};
use crate::wire::simple::decode_simple;
use crate::wire::stream::Event;

/// Cost of keeping an unexpected message, beside its bytes.
const KEEPING_COST: usize = 128;
/// Most bytes of operands of an atomic operation.
const COLLECT_LIMIT: usize = 1 << 20;

/// Takes in the messages at the start of `bytes` that have nothing special
/// about them and find their receives; returns what is left, which is all where
/// there is no short way (`quick_end`).
#[inline(always)]
pub(super) fn take_in_simple<'a>(
    quick_end: usize,
    conn: &mut Connection,
    eps: &SlotMap<EpKey, EndpointState>,
    receivers: &mut SlotMap<ReceiverKey, Receiver>,
    mut bytes: &'a [u8],
) -> &'a [u8] {
    if quick_end == 0
        || !conn.stream.is_between_messages()
        || conn.held_back.is_some()
        || conn.direct.is_copying()
        || conn.src == UNKNOWN_SOURCE && conn.peer.is_some()
    {
        return bytes;
    }
    let Owner::Ep(ep) = conn.owner else {
        return bytes;
    };
    let Some(ep) = eps.get(ep) else {
        return bytes;
    };
    let Some(receiver) = receivers.get_mut(ep.receiver) else {
        return bytes;
    };
    while let Some(simple) = decode_simple(bytes) {
        let tagged = simple.tag.is_some();
        let tag = simple.tag.unwrap_or(0);
        let len = simple.payload.len();
        let queue = receiver.queue(tagged);
        let mut receipt = Receipt {
            receiver: ep.receiver,
            tagged,
            context: Context(0),
            flags: 0,
            multi: None,
            src: conn.src,
            tag,
            data: None,
            len,
            ack: Ack::None,
        };
        if let Some(single) = queue.find_single(conn.src, tag) {
            single.buf.write_at(0, simple.payload);
            receipt.context = Context(single.context);
            receipt.flags = single.flags;
            ep.queues.report_plain_receive(&receipt, single.buf);
            let index = single.index;
            queue.finish_single(index);
        } else if !take_into_many(queue, &ep.queues, receipt, simple.payload) {
            break;
        }
        bytes = simple.rest;
        conn.is_bulk |= len >= BULK;
    }
    bytes
}

/// Takes in a plain message that goes into a buffer for many; `false` if nobody
/// waits for it.
#[inline(never)]
fn take_into_many(
    queue: &mut ReceiveQueue<AppIov, Unexpected>,
    queues: &Queues,
    mut receipt: Receipt,
    payload: &[u8],
) -> bool {
    let Some(matched) = queue.arrive(receipt.src, receipt.tag, receipt.len) else {
        return false;
    };
    matched.buf.write_at(0, payload);
    let release = match matched.multi {
        None => false,
        Some(multi) => queue.finish_multi(multi),
    };
    receipt.context = Context(matched.context);
    receipt.flags = matched.flags;
    receipt.multi = matched.multi;
    queues.report_receive(&receipt, &matched.buf, release, Ok(()));
    true
}

/// Whether to go on taking in.
pub(super) type Step = Result<(), Fault>;

impl Core {
    /// Takes in bytes that came on a connection.
    pub(super) fn take_in(&mut self, key: ConnKey, mut bytes: &[u8]) {
        if let Some(conn) = self.conns.get_mut(key) {
            let (quick_end, receivers) = (self.quick_end, &mut self.receivers);
            bytes = take_in_simple(quick_end, conn, &self.eps, receivers, bytes);
        }
        if !bytes.is_empty() {
            self.take_in_any(key, bytes);
        }
    }

    #[inline(never)]
    pub(super) fn take_in_any(&mut self, key: ConnKey, mut bytes: &[u8]) {
        let bytes = &mut bytes;
        loop {
            let Some(conn) = self.conns.get_mut(key) else {
                return;
            };
            if conn.is_paused() {
                conn.backlog.extend_from_slice(bytes);
                return;
            }
            let step = match conn.stream.next(bytes) {
                Ok(Event::Need) => return,
                Ok(Event::Message(header)) if conn.direct.must_wait(&header) => {
                    conn.direct.waiting = Some(header);
                    continue;
                }
                Ok(Event::Message(header)) => self.begin(key, &header, bytes),
                Ok(Event::Payload(part)) => self.payload(key, part),
                Err(error) => Err(Fault::Protocol(error)),
            };
            if let Err(fault) = step {
                self.break_with(key, fault);
                return;
            }
        }
    }

    /// A message begins.
    #[inline]
    pub(super) fn begin(&mut self, key: ConnKey, header: &Header, bytes: &mut &[u8]) -> Step {
        if self.params.trace_msg
            && let Some(conn) = self.conns.get(key)
        {
            super::posting::trace("received", conn, 0, header);
        }
        if header.payload >= BULK
            && let Some(conn) = self.conns.get_mut(key)
        {
            conn.is_bulk = true;
        }
        match header.op {
            Op::Tagged => self.message(key, header, true, bytes),
            Op::Msg if !header.is_ack() => self.message(key, header, false, bytes),
            _ => self.other(key, header),
        }
    }

    fn other(&mut self, key: ConnKey, header: &Header) -> Step {
        match header.op {
            Op::Msg | Op::Tagged => self.acknowledged(key),
            Op::NamedAck => self.acknowledged_by_name(key, header.id),
            Op::ReadRequest => self.read_requested(key),
            Op::ReadResponse => self.read_answered(key, header),
            Op::Write => self.write_begins(key, header),
            Op::TaggedRts => self.announced(key, header, true, Rendezvous::Narrow(header.op_data)),
            Op::WideRts => {
                let tagged = header.flags & header::TAGGED != 0;
                self.announced(key, header, tagged, Rendezvous::Wide(header.id))
            }
            Op::Cts => Err(Fault::Protocol(WireError::Field("clear to send"))),
            Op::WideCts => self.asked_for(key, header),
            Op::Data => self.announced_data(key, header, Rendezvous::Narrow(header.op_data)),
            Op::WideData => self.announced_data(key, header, Rendezvous::Wide(header.id)),
            Op::Throttle => {
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.throttled = header.op_data != 0;
                }
                Ok(())
            }
            Op::AtomicRequest => self.collect(key, header, COLLECT_LIMIT),
            Op::Acquaint => self.acquainted(key, header),
            Op::DirectRead | Op::DirectWrite => self.collect(key, header, MAX_LIST),
            Op::AtomicResponse => self.atomic_answered(key, header),
        }
    }

    /// The endpoint and the receive context behind a connection.
    #[inline]
    pub(super) fn receiver_of(&self, key: ConnKey) -> Option<(EpKey, ReceiverKey)> {
        match self.conns.get(key)?.owner {
            Owner::Ep(ep) => Some((ep, self.eps.get(ep)?.receiver)),
            Owner::Listener(_) => None,
        }
    }

    /// A plain or tagged message with its bytes begins.
    #[inline]
    fn message(&mut self, key: ConnKey, header: &Header, tagged: bool, bytes: &mut &[u8]) -> Step {
        let Some((ep, receiver_key)) = self.receiver_of(key) else {
            return Err(Fault::Gone);
        };
        self.look_for_source(key, ep);
        let Some(conn) = self.conns.get_mut(key) else {
            return Err(Fault::Gone);
        };
        let src = conn.src;
        let len = header.payload;
        let Some(receiver) = self.receivers.get_mut(receiver_key) else {
            return Err(Fault::Gone);
        };
        let ack = ack_of(header);
        let Some(matched) = receiver.queue(tagged).arrive(src, header.tag, len) else {
            return self.unexpected(key, header, tagged, ep, receiver_key);
        };
        let receipt = receipt(&matched, receiver_key, tagged, src, header, len, ack);
        if bytes.len() >= len {
            // All of it is here.
            let (body, rest) = bytes.split_at(len);
            *bytes = rest;
            conn.stream.payload_done(len);
            matched.buf.write_at(0, body);
            self.received(key, ep, &receipt, &matched.buf, Ok(()));
        } else {
            conn.incoming = Incoming::Place(Box::new(Placing {
                place: Place::App(matched.buf),
                done: 0,
                then: Then::Receive(receipt),
            }));
        }
        Ok(())
    }

    /// Finds out whether the address vector knows the peer by now, if it did
    /// not.
    #[inline]
    pub(super) fn look_for_source(&mut self, key: ConnKey, ep: EpKey) {
        if self
            .conns
            .get(key)
            .is_some_and(|conn| conn.src == UNKNOWN_SOURCE)
        {
            self.follow_av(ep);
        }
    }

    /// A message begins for which there is no receive.
    #[inline(never)]
    fn unexpected(
        &mut self,
        key: ConnKey,
        header: &Header,
        tagged: bool,
        ep: EpKey,
        receiver_key: ReceiverKey,
    ) -> Step {
        let len = header.payload;
        let cost = len.saturating_add(KEEPING_COST);
        let fits = self.has_room_to_keep(key, cost);
        let mut ack = ack_of(header);
        let body = match (fits, len) {
            (true, 0) => {
                // The C library acknowledges what it has taken in.
                if ack == Ack::Next {
                    self.acknowledge(key, ack);
                    ack = Ack::None;
                }
                Body::Complete(Vec::new())
            }
            (true, _) => Body::Arriving(Vec::new()),
            (false, _) => Body::HeldBack,
        };
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let receiver = self.receivers.get_mut(receiver_key).ok_or(Fault::Gone)?;
        let id = receiver.queue(tagged).keep(Message {
            src: conn.src,
            tag: header.tag,
            len,
            data: header.data,
            flags: if header.has_data() {
                fabric_abi::FI_REMOTE_CQ_DATA
            } else {
                0
            },
            payload: Unexpected {
                conn: key,
                ep,
                ack,
                body,
            },
        });
        let kept = Kept {
            receiver: receiver_key,
            tagged,
            id,
        };
        if !fits {
            conn.held_back = Some(kept);
            self.held_back.push_back(key);
        } else {
            self.unexpected_bytes += cost;
            if len > 0 {
                conn.incoming = Incoming::Keep(kept);
            }
        }
        self.throttle(key);
        Ok(())
    }

    /// What an unexpected message costs while it is kept.
    pub(super) fn keeping_cost(len: usize, body: &Body) -> usize {
        match body {
            Body::Complete(_) | Body::Arriving(_) => len.saturating_add(KEEPING_COST),
            Body::Announced(_) => KEEPING_COST,
            Body::HeldBack => 0,
        }
    }

    /// More bytes of the message that began last.
    fn payload(&mut self, key: ConnKey, part: &[u8]) -> Step {
        let Some(conn) = self.conns.get_mut(key) else {
            return Err(Fault::Gone);
        };
        match &mut conn.incoming {
            Incoming::Place(placing) => {
                placing.place.write_at(placing.done, part);
                placing.done += part.len();
            }
            Incoming::Keep(kept) => {
                let kept = *kept;
                if let Some(receiver) = self.receivers.get_mut(kept.receiver)
                    && let Some(message) = receiver.queue(kept.tagged).payload_mut(kept.id)
                    && let Body::Arriving(bytes) = &mut message.body
                {
                    if bytes.is_empty() {
                        bytes.reserve_exact(part.len() + conn.stream.payload_left());
                    }
                    bytes.extend_from_slice(part);
                } else {
                    conn.incoming = Incoming::Discard;
                }
            }
            Incoming::Collect(collecting) => collecting.bytes.extend_from_slice(part),
            Incoming::Discard | Incoming::Nothing => {}
        }
        if conn.stream.payload_left() == 0 {
            return self.message_ends(key);
        }
        Ok(())
    }

    /// `n` bytes of the current message have gone to their place.
    pub(super) fn placed_directly(&mut self, key: ConnKey, n: usize) {
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

    /// All bytes of a message have come.
    fn message_ends(&mut self, key: ConnKey) -> Step {
        let Some(conn) = self.conns.get_mut(key) else {
            return Err(Fault::Gone);
        };
        match std::mem::take(&mut conn.incoming) {
            Incoming::Place(placing) => self.placed(key, *placing),
            Incoming::Keep(kept) => self.kept(key, kept),
            Incoming::Collect(collecting) => self.collected(key, *collecting),
            Incoming::Discard | Incoming::Nothing => Ok(()),
        }
    }

    /// A message that is acted upon is here.
    fn collected(&mut self, key: ConnKey, collecting: Collecting) -> Step {
        match collecting.header.op {
            Op::DirectRead => self.direct_read(key, &collecting),
            Op::DirectWrite => self.direct_write(key, &collecting),
            _ => self.atomic_requested(key, collecting),
        }
    }

    /// A message is in its place.
    pub(super) fn placed(&mut self, key: ConnKey, placing: Placing) -> Step {
        match placing.then {
            Then::Receive(receipt) => {
                if let Some((ep, _)) = self.receiver_of(key) {
                    let memory = placing.place.memory();
                    self.received(key, ep, &receipt, &memory, Ok(()));
                }
                Ok(())
            }
            Then::Read(op) => {
                self.finish(&op, Ok(()));
                Ok(())
            }
            Then::RemoteWrite { data, len, ack } => {
                if let Place::Registered(grants) = &placing.place {
                    grants.iter().for_each(Grant::complete);
                }
                self.written_to(key, data, len, ack);
                Ok(())
            }
        }
    }

    /// An unexpected message is complete.
    fn kept(&mut self, key: ConnKey, kept: Kept) -> Step {
        let Some(receiver) = self.receivers.get_mut(kept.receiver) else {
            return Ok(());
        };
        let Some(message) = receiver.queue(kept.tagged).payload_mut(kept.id) else {
            return Ok(());
        };
        if let Body::Arriving(bytes) = &mut message.body {
            message.body = Body::Complete(std::mem::take(bytes));
        }
        if message.ack == Ack::Next {
            message.ack = Ack::None;
            self.acknowledge(key, Ack::Next);
        }
        Ok(())
    }

    /// A receive has got its message.
    #[inline]
    pub(super) fn received(
        &mut self,
        key: ConnKey,
        ep: EpKey,
        receipt: &Receipt,
        memory: &AppIov,
        outcome: Result<(), Errno>,
    ) {
        let release = match receipt.multi {
            None => false,
            Some(multi) => self
                .receivers
                .get_mut(receipt.receiver)
                .is_some_and(|receiver| receiver.queue(receipt.tagged).finish_multi(multi)),
        };
        if let Some(ep) = self.eps.get(ep) {
            ep.queues.report_receive(receipt, memory, release, outcome);
        }
        if receipt.ack != Ack::None && outcome.is_ok() {
            self.acknowledge(key, receipt.ack);
        }
    }

    /// Tells the sender that its message has come.
    pub(super) fn acknowledge(&mut self, key: ConnKey, ack: Ack) {
        let header = match ack {
            Ack::None => return,
            Ack::Next => Connection::ack_header(None),
            Ack::Named(name) => Connection::ack_header(Some(name)),
        };
        self.post_control(key, header);
    }

    /// Sends a header without payload that no operation waits for.
    pub(super) fn post_control(&mut self, key: ConnKey, header: Header) {
        self.post(
            key,
            super::posting::Post {
                header,
                rma: &[],
                payload: super::request::Bytes::Own(&[]),
                copy: true,
                op: None,
            },
        );
    }

    fn acknowledged(&mut self, key: ConnKey) -> Step {
        let op = self
            .conns
            .get_mut(key)
            .and_then(|conn| conn.acks.pop_front());
        let op = op.ok_or(Fault::Protocol(WireError::Field("acknowledgement")))?;
        self.finish(&op, Ok(()));
        Ok(())
    }

    fn acknowledged_by_name(&mut self, key: ConnKey, name: u64) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        match conn.take_named(name, |waits| matches!(waits, Named::Ack(_))) {
            Some(Named::Ack(op)) => {
                self.finish(&op, Ok(()));
                Ok(())
            }
            _ => Err(Fault::Protocol(WireError::Field("acknowledgement"))),
        }
    }

    /// Gathers a message that is acted upon when it is complete.
    fn collect(&mut self, key: ConnKey, header: &Header, limit: usize) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if header.payload > limit {
            return Err(Fault::Protocol(WireError::Payload(header.payload as u64)));
        }
        let collecting = Collecting {
            header: *header,
            rma: *conn.stream.rma(),
            bytes: Vec::with_capacity(header.payload),
        };
        if header.payload == 0 {
            return self.collected(key, collecting);
        }
        conn.incoming = Incoming::Collect(Box::new(collecting));
        Ok(())
    }
}

/// What the sender of a message wants to hear.
#[inline]
pub(super) fn ack_of(header: &Header) -> Ack {
    if !header.wants_ack() {
        Ack::None
    } else if header.flags & header::NAMED != 0 || header.op == Op::WideRts {
        Ack::Named(header.id)
    } else {
        Ack::Next
    }
}

/// The receipt of a message that was matched as it came.
#[inline]
pub(super) fn receipt(
    matched: &Matched<AppIov>,
    receiver: ReceiverKey,
    tagged: bool,
    src: u64,
    header: &Header,
    len: usize,
    ack: Ack,
) -> Receipt {
    Receipt {
        receiver,
        tagged,
        context: Context(matched.context),
        flags: matched.flags,
        multi: matched.multi,
        src,
        tag: header.tag,
        data: header.has_data().then_some(header.data),
        len,
        ack,
    }
}
