//! The rendezvous protocol: messages are announced before they are sent.
//!
//! Between two endpoints of this library the sender announces messages instead of sending them if
//! much is queued already, or if the receiver [throttles](crate::wire::header::Op::Throttle) it
//! because it has buffered too many unexpected messages. An announced message takes no memory at
//! the receiver, so it can continue reading what follows. With a C peer the C library's protocol is
//! used. Which messages are announced is decided in [`ways`](super::ways).

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::hash_map::Entry;

use prov_base::buffer::AppIov;
use prov_base::errno::Errno;
use prov_local::copies::Goal;
use prov_local::link::payload::Payload;
use prov_message::{Core as _, Notice, Op};

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::{Ack, Arrival, Fetch, Placing, Rendezvous};
use crate::engine::link::narrow::OfferedMessage;
use crate::engine::link::outstanding::{Asked, Named};
use crate::engine::link::post::Post;
use crate::engine::transfer::sending::ack_flag;
use crate::wire::WireError;
use crate::wire::header::{self, Header};

impl Core {
    /// Requests the peer to announce all messages, or to stop doing so. A connected endpoint has one
    /// sender, which announces none.
    pub(crate) fn throttle(&mut self, key: ConnKey, on: bool) {
        if self.conns.get(key).is_none_or(Connection::is_msg) {
            return;
        }
        let mut header = Header::new(header::Op::Throttle);
        header.op_data = u8::from(on);
        self.post_control(key, header);
    }

    /// Announces a message; to a C peer, with this name.
    pub(crate) fn announce(
        &mut self,
        key: ConnKey,
        name: Option<u8>,
        message: Post<'_>,
        flags: u64,
        op: Op,
    ) {
        let (Some(conn), Some(ticket)) = (
            self.conns.get_mut(key),
            self.endpoints.count_acknowledged(op),
        ) else {
            return;
        };
        let mut header = message.header;
        header.size = header.payload as u64;
        header.payload = 0;
        header.flags |= ack_flag(flags);
        let wants_ack = header.wants_ack();
        let payload = Payload::of(message.payload, message.copy);
        match (name, &mut conn.ops.narrow) {
            (Some(name), Some(narrow)) => {
                header.op = header::Op::TaggedRts;
                header.op_data = name;
                let message = OfferedMessage {
                    ticket: Some(ticket),
                    payload,
                    wants_ack,
                };
                narrow.insert(name, message);
            }
            _ => {
                if header.op == header::Op::Tagged {
                    header.flags |= header::TAGGED;
                }
                header.op = header::Op::WideRts;
                header.id = conn.name_op(Named::Announced {
                    ticket: Some(ticket),
                    payload: Some(payload),
                    ack: wants_ack,
                    end: conn.end_of_next(&header),
                });
            }
        }
        self.post_control(key, header);
        if !wants_ack {
            self.watch_what_is_announced(key);
        }
        self.expects_answer(key);
    }

    /// Handles the request of a C peer for an announced message.
    pub(crate) fn asked_for_by_c(&mut self, key: ConnKey, name: u8) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let waiting = conn
            .ops
            .narrow
            .as_mut()
            .and_then(|narrow| narrow.take(name));
        let Some(OfferedMessage {
            mut ticket,
            mut payload,
            wants_ack,
        }) = waiting
        else {
            return Err(Fault::Protocol(WireError::Field("clear to send")));
        };
        let mut data = Header::new(header::Op::Data);
        data.op_data = name;
        data.payload = payload.len();
        conn.stillness.answered();
        let op = if let Some(ticket) = ticket.take_if(|_| wants_ack) {
            conn.ops.acks.push_back(conn.unacknowledged(ticket, &data));
            bounded!(conn.ops.acks, OPERATIONS);
            None
        } else {
            // Posting counts the operation again if it has to wait.
            ticket.map(|ticket| self.endpoints.settle(ticket))
        };
        self.post_announced(key, data, &mut payload, op);
        if payload.aside() != 0 {
            self.aside_has_left(key);
        }
        Ok(())
    }

    /// Handles the request of the peer for an announced message, or its refusal.
    pub(crate) fn asked_for(&mut self, key: ConnKey, header: &Header) -> LinkResult {
        let fault = || Fault::Protocol(WireError::Field("clear to send"));
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let sent = conn.outbox.sent();
        let Some(Named::Announced {
            payload, ack, end, ..
        }) = conn.named(header.id)
        else {
            return Err(fault());
        };
        if *end > sent {
            return Err(fault());
        }
        let mut payload = payload.take().ok_or_else(fault)?;
        let wants_ack = *ack;
        conn.stillness.answered();
        let is_refused = header.op_data != 0;
        let mut op = None;
        if (is_refused || !wants_ack)
            && let Some(Named::Announced { ticket, .. }) = conn.take_named(header.id, |_| true)
        {
            if is_refused {
                match ticket {
                    Some(ticket) => self.endpoints.finish(ticket, Ok(())),
                    None => self.aside_has_left(key),
                }
                return Ok(());
            }
            // Posting counts the operation again if it has to wait.
            op = ticket.map(|ticket| self.endpoints.settle(ticket));
        }
        let mut data = Header::new(header::Op::WideData);
        data.id = header.id;
        data.payload = payload.len();
        let behind = conn.end_of_next(&data);
        if let Some(Named::Announced { end, .. }) = conn.named(header.id) {
            *end = behind;
        }
        self.post_announced(key, data, &mut payload, op);
        if payload.aside() != 0 {
            self.aside_has_left(key);
        }
        Ok(())
    }

    /// Sends the bytes of an announced message.
    fn post_announced(
        &mut self,
        key: ConnKey,
        header: Header,
        payload: &mut Payload,
        op: Option<Op>,
    ) {
        let copy = !matches!(payload, Payload::App(_));
        self.post(
            key,
            Post {
                header,
                rma: &[],
                payload: payload.lend(),
                copy,
                op,
            },
        );
    }

    /// Handles the announcement of a message.
    pub(crate) fn announced(
        &mut self,
        key: ConnKey,
        header: &Header,
        tagged: bool,
        name: Rendezvous,
    ) -> LinkResult {
        let arrival = self.arrival(key, header, tagged, header.size as usize)?;
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        if conn.ops.asked.len() >= ASKED_LIMIT {
            return Err(Fault::Protocol(WireError::Field("request to send")));
        }
        self.note_or_hold_back(key, &arrival, name)
    }

    /// Notes an announced message, or requests it. If there is no memory for that, nothing after it
    /// is read until there is.
    pub(crate) fn note_or_hold_back(
        &mut self,
        key: ConnKey,
        arrival: &Arrival,
        name: Rendezvous,
    ) -> LinkResult {
        self.note_what_is_awaited(key);
        match self.endpoints.announced_in_order(arrival, name) {
            Notice::Taken => {}
            Notice::HeldBack => self.hold_back(key),
            Notice::Gone => return Err(Fault::Gone),
        }
        self.follow_up();
        Ok(())
    }

    /// Requests an announced message.
    pub(crate) fn fetch(&mut self, key: ConnKey, fetch: Fetch) {
        let Fetch {
            name,
            memory,
            receipt,
            len,
        } = fetch;
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Rendezvous::Direct(id) = name {
            let placing = Placing::receive(memory, receipt);
            return self.copy_announced(key, id, placing.into());
        }
        if conn.ops.asked.contains_key(&name) {
            self.endpoints
                .received(&receipt, memory, Err(Errno::EPROTO));
            return self.named_twice(key);
        }
        let receipt = Some(receipt);
        let asked = Asked {
            memory,
            receipt,
            len,
        };
        conn.ops.asked.insert(name, asked);
        bounded!(conn.ops.asked, OPERATIONS);
        self.ask(key, name, false);
    }

    /// Informs the peer that an announced message is not wanted.
    pub(crate) fn refuse(&mut self, key: ConnKey, name: Rendezvous, ack: Ack, len: usize) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Rendezvous::Direct(id) = name {
            self.copy_announced(key, id, Goal::Discard);
            return self.acknowledge(key, ack);
        }
        if conn.ops.asked.contains_key(&name) {
            return self.named_twice(key);
        }
        if let Rendezvous::Narrow(_) = name {
            // The C library's protocol has no message for that: the data arrives and is dropped.
            let asked = Asked {
                memory: AppIov::EMPTY,
                receipt: None,
                len,
            };
            conn.ops.asked.insert(name, asked);
            bounded!(conn.ops.asked, OPERATIONS);
            self.acknowledge(key, ack);
        }
        self.ask(key, name, true);
    }

    fn named_twice(&mut self, key: ConnKey) {
        self.break_with(key, Fault::Protocol(WireError::Field("request to send")));
    }

    fn ask(&mut self, key: ConnKey, name: Rendezvous, is_refused: bool) {
        let header = match name {
            Rendezvous::Narrow(name) => {
                let mut header = Header::new(header::Op::Cts);
                header.op_data = name;
                header
            }
            Rendezvous::Wide(name) | Rendezvous::Direct(name) => {
                let mut header = Header::new(header::Op::WideCts);
                header.id = name;
                header.op_data = u8::from(is_refused);
                header
            }
        };
        self.post_control(key, header);
    }

    /// Begins the data of a message that was requested.
    pub(crate) fn announced_data(
        &mut self,
        key: ConnKey,
        header: &Header,
        name: Rendezvous,
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let asked = match conn.ops.asked.entry(name) {
            Entry::Occupied(asked) if asked.get().len == header.payload => asked.remove(),
            _ => return Err(Fault::Protocol(WireError::Field("rendezvous"))),
        };
        let Some(receipt) = asked.receipt else {
            conn.incoming = Incoming::Discard;
            return Ok(());
        };
        let placing = Placing::receive(asked.memory, receipt);
        if header.payload == 0 {
            self.placed(key, placing);
            return Ok(());
        }
        conn.incoming = Incoming::Place(Box::new(placing));
        Ok(())
    }
}

/// Largest number of messages of one peer that are announced and requested at the same time: a
/// bound of memory.
pub(crate) const ASKED_LIMIT: usize = 1 << 20;
