//! Messages that are announced before they are sent.
//!
//! Between two of this library the sender announces messages instead of
//! sending them when much is queued already, or when the receiver is
//! [throttling](crate::wire::header::Op::Throttle) it because it keeps too much
//! that nobody receives. What was announced takes no room at the receiver, so
//! it can go on reading what comes behind it. From a C peer announcements are
//! taken, none are made to it.

use std::collections::hash_map::Entry;

use fabric_abi::{FI_COMMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA};
use prov_util::buffer::AppIov;
use prov_util::errno::Errno;
use prov_util::matching::Message;

use super::Core;
use super::arrival::{Step, ack_of, receipt};
use super::closing::Fault;
use super::connection::{Asked, Named, Payload};
use super::incoming::{Body, Incoming, Placing, Receipt, Rendezvous, Then, Unexpected};
use super::keys::ConnKey;
use super::op::Op;
use super::place::Place;
use super::posting::{COPY_LIMIT, Post};
use super::request::Bytes;
use crate::wire::WireError;
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header};

/// Bytes in a connection's queue beyond which messages are announced.
const QUEUE_LIMIT: u64 = 4 << 20;
/// Up to this size messages are only announced to a peer that throttles. They
/// are copied to the queue, which takes few of them.
const WORTH_ANNOUNCING: usize = COPY_LIMIT;
/// Longer messages are always announced: the peer could not keep many.
const ALWAYS_ANNOUNCED: usize = 2 << 20;
/// Bytes of unexpected messages that are kept beyond the limit from peers that
/// announce their messages by then: what they had sent before. Holding such a
/// peer back could last for ever, since the message that the application waits
/// for may be on its way behind the one that it does not want yet.
const IN_FLIGHT: usize = 64 << 20;

impl Core {
    /// Asks the peer to announce its messages, if too much is kept already that
    /// nobody receives.
    pub(super) fn throttle(&mut self, key: ConnKey) {
        if self.unexpected_bytes <= self.params.max_unexpected / 2 {
            return;
        }
        if let Some(conn) = self.conns.get_mut(key)
            && !conn.throttles
            && conn.features.has(Features::RENDEZVOUS)
        {
            conn.throttles = true;
            self.throttled.push(key);
            let mut header = Header::new(header::Op::Throttle);
            header.op_data = 1;
            self.post_control(key, header);
        }
    }

    /// Whether an unexpected message on a connection can be kept at this cost.
    pub(super) fn has_room_to_keep(&self, key: ConnKey, cost: usize) -> bool {
        let announces = self
            .conns
            .get(key)
            .is_some_and(|conn| conn.features.has(Features::RENDEZVOUS));
        let allowance = if announces { IN_FLIGHT } else { 0 };
        let limit = self.params.max_unexpected.saturating_add(allowance);
        self.unexpected_bytes.saturating_add(cost) <= limit
    }

    /// Lets peers send without announcing again, once little is kept.
    pub(super) fn release_throttle(&mut self) {
        if self.throttled.is_empty() || self.unexpected_bytes > self.params.max_unexpected / 4 {
            return;
        }
        for key in std::mem::take(&mut self.throttled) {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.throttles = false;
                self.post_control(key, Header::new(header::Op::Throttle));
            }
        }
    }

    /// Whether a message of `len` bytes is better announced.
    #[inline]
    pub(super) fn should_announce(&self, key: ConnKey, len: usize) -> bool {
        let Some(conn) = self.conns.get(key) else {
            return false;
        };
        let worth_it = conn.throttled
            || len > ALWAYS_ANNOUNCED
            || (len > WORTH_ANNOUNCING && conn.outbox.len() >= QUEUE_LIMIT);
        if !worth_it {
            return false;
        }
        len > 0 && conn.features.has(Features::RENDEZVOUS)
    }

    /// Announces a message.
    pub(super) fn announce(
        &mut self,
        key: ConnKey,
        mut header: Header,
        flags: u64,
        payload: Bytes<'_>,
        copy: bool,
        op: Op,
    ) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if header.op == header::Op::Tagged {
            header.flags |= header::TAGGED;
        }
        if flags & (FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE) != 0 {
            header.flags |= header::DELIVERY_COMPLETE;
        }
        header.op = header::Op::WideRts;
        header.size = payload.len() as u64;
        header.payload = 0;
        let waiting = match payload {
            Bytes::App(memory) if copy => Payload::Own(super::sending::copy_of(memory)),
            Bytes::App(memory) => Payload::App(*memory),
            Bytes::Own(bytes) => Payload::Own(bytes.to_vec()),
        };
        header.id = conn.name_op(Named::Announced {
            op,
            payload: waiting,
            ack: header.wants_ack(),
        });
        if let Some(ep) = self.eps.get_mut(op.ep) {
            ep.outstanding += 1;
        }
        self.post_control(key, header);
    }

    /// The peer asks for a message that was announced to it, or drops it.
    pub(super) fn asked_for(&mut self, key: ConnKey, header: &Header) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let is_announced = |waits: &Named| matches!(waits, Named::Announced { .. });
        let Some(Named::Announced { op, payload, ack }) = conn.take_named(header.id, is_announced)
        else {
            return Err(Fault::Protocol(WireError::Field("clear to send")));
        };
        if header.op_data != 0 {
            self.finish(&op, Ok(()));
            return Ok(());
        }
        if ack {
            conn.named.insert(header.id, Named::Ack(op));
        } else if let Some(ep) = self.eps.get_mut(op.ep) {
            // Posting counts it again if it has to wait.
            ep.outstanding -= 1;
        }
        let mut data = Header::new(header::Op::WideData);
        data.id = header.id;
        let (bytes, copy) = match &payload {
            Payload::App(memory) => (Bytes::App(memory), false),
            Payload::Own(bytes) => (Bytes::Own(bytes), true),
        };
        data.payload = bytes.len();
        self.post(
            key,
            Post {
                header: data,
                rma: &[],
                payload: bytes,
                copy,
                op: (!ack).then_some(op),
            },
        );
        Ok(())
    }

    /// The peer announces a message.
    pub(super) fn announced(
        &mut self,
        key: ConnKey,
        header: &Header,
        tagged: bool,
        name: Rendezvous,
    ) -> Step {
        let (ep, receiver_key) = self.receiver_of(key).ok_or(Fault::Gone)?;
        self.look_for_source(key, ep);
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let src = conn.src;
        if conn.asked.len() >= ASKED_LIMIT {
            return Err(Fault::Protocol(WireError::Field("request to send")));
        }
        let receiver = self.receivers.get_mut(receiver_key).ok_or(Fault::Gone)?;
        let len = header.size as usize;
        let ack = ack_of(header);
        match receiver.queue(tagged).arrive(src, header.tag, len) {
            Some(matched) => {
                let receipt = receipt(&matched, receiver_key, tagged, src, header, len, ack);
                self.ask_for(key, name, matched.buf, Some(receipt), len);
            }
            None => {
                let body = Body::Announced(name);
                conn.announced += 1;
                if conn.announced > ANNOUNCED_LIMIT {
                    return Err(Fault::Protocol(WireError::Field("request to send")));
                }
                self.unexpected_bytes += Core::keeping_cost(len, &body);
                receiver.queue(tagged).keep(Message {
                    src,
                    tag: header.tag,
                    len,
                    data: header.data,
                    flags: if header.has_data() {
                        FI_REMOTE_CQ_DATA
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
            }
        }
        Ok(())
    }

    /// A message that was announced on a connection is kept no longer.
    pub(super) fn announcement_taken(&mut self, key: ConnKey) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.announced = conn.announced.saturating_sub(1);
        }
    }

    /// Asks for a message that was announced; without a receipt it is dropped.
    pub(super) fn ask_for(
        &mut self,
        key: ConnKey,
        name: Rendezvous,
        memory: AppIov,
        receipt: Option<Receipt>,
        len: usize,
    ) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let header = match name {
            Rendezvous::Narrow(name) => {
                let mut header = Header::new(header::Op::Cts);
                header.op_data = name;
                header
            }
            Rendezvous::Wide(name) => {
                let mut header = Header::new(header::Op::WideCts);
                header.id = name;
                header.op_data = u8::from(receipt.is_none());
                header
            }
        };
        if conn.asked.contains_key(&name) {
            // The peer has used the name twice.
            if let Some(receipt) = receipt
                && let Some((ep, _)) = self.receiver_of(key)
            {
                self.received(key, ep, &receipt, &memory, Err(Errno::EPROTO));
            }
            self.break_with(key, Fault::Protocol(WireError::Field("request to send")));
            return;
        }
        if receipt.is_some() || matches!(name, Rendezvous::Narrow(_)) {
            conn.asked.insert(
                name,
                Asked {
                    memory,
                    receipt,
                    len,
                },
            );
        }
        self.post_control(key, header);
    }

    /// A message comes that was asked for.
    pub(super) fn announced_data(
        &mut self,
        key: ConnKey,
        header: &Header,
        name: Rendezvous,
    ) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let asked = match conn.asked.entry(name) {
            Entry::Occupied(asked) if asked.get().len == header.payload => asked.remove(),
            _ => return Err(Fault::Protocol(WireError::Field("rendezvous"))),
        };
        let Some(receipt) = asked.receipt else {
            conn.incoming = Incoming::Discard;
            return Ok(());
        };
        let placing = Placing {
            place: Place::App(asked.memory),
            done: 0,
            then: Then::Receive(receipt),
        };
        if header.payload == 0 {
            return self.placed(key, placing);
        }
        conn.incoming = Incoming::Place(Box::new(placing));
        Ok(())
    }
}

/// Messages that one peer may have announced and been asked for at once.
const ASKED_LIMIT: usize = 1 << 20;
/// Messages that one peer may have announced without a receive for them: more
/// than any endpoint has under way, and a bound on what a peer can make us keep.
const ANNOUNCED_LIMIT: usize = 1 << 20;
