//! Acknowledgements, in both directions: those that this side owes for messages that it has
//! received, and those of the peer, which complete operations.

use prov_message::Ticket;

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::{Ack, Endpoints};
use crate::engine::link::outstanding::{Named, Unacknowledged};
use crate::engine::transfer::posting::lend_buffer;
use crate::wire::WireError;
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header, Op};
use crate::wire::simple::{decode_ack, encode_ack};

/// Number of names to acknowledge for which a connection keeps memory while it is idle.
const KEPT_NAMES: usize = 64;

/// Returns the acknowledgement that the sender of a message requests.
#[inline]
pub(crate) fn ack_of(header: &Header) -> Ack {
    if !header.wants_ack() {
        Ack::None
    } else if header.flags & header::NAMED != 0 || header.op == Op::WideRts {
        Ack::Named(header.id)
    } else {
        Ack::Next
    }
}

impl Core {
    /// Acknowledges a message.
    pub(crate) fn acknowledge(&mut self, key: ConnKey, ack: Ack) {
        let header = match ack {
            Ack::None => return,
            Ack::Next => Connection::ack_header(None),
            Ack::Named(name) => Connection::ack_header(Some(name)),
        };
        self.post_control(key, header);
    }

    /// Acknowledges the messages that were received on the fast path.
    #[inline]
    pub(crate) fn acknowledge_owed(&mut self, key: ConnKey) {
        if self
            .conns
            .get(key)
            .is_some_and(|conn| !conn.owed.is_empty())
        {
            self.acknowledge_all(key);
        }
    }

    #[inline(never)]
    fn acknowledge_all(&mut self, key: ConnKey) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let is_alone = conn.outbox.is_empty();
        if is_alone {
            lend_buffer(&mut self.spare_buffers, conn);
        }
        let room = conn.outbox.room();
        for name in conn.owed.drain(..) {
            conn.outbox.push(&encode_ack(name, conn.sequence));
            conn.sequence = conn.sequence.wrapping_add(1);
        }
        // An idle connection keeps little memory.
        conn.owed.shrink_to(KEPT_NAMES);
        conn.owe(room);
        conn.bursts.owes |= is_alone;
        if is_alone && !self.is_in_progress {
            self.flush(key);
        } else {
            self.hold(key);
        }
    }

    /// Processes the acknowledgements at the start of `bytes`; returns whether there were any.
    #[inline]
    pub(crate) fn take_in_acks(&mut self, key: ConnKey, bytes: &mut &[u8]) -> Result<bool, Fault> {
        let before = bytes.len();
        while let Some((name, rest)) = decode_ack(bytes) {
            let conn = self.conns.get(key).ok_or(Fault::Gone)?;
            let is_known = conn.features.has(Features::NAMED_ACKS) && conn.is_plain();
            if !is_known {
                break;
            }
            *bytes = rest;
            self.acknowledged_by_name(key, name)?;
        }
        Ok(bytes.len() != before)
    }

    pub(crate) fn acknowledged(&mut self, key: ConnKey) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let sent = conn.outbox.sent();
        let waits = conn.ops.acks.pop_front_if(|waits| waits.end <= sent);
        let waits = waits.ok_or(Fault::Protocol(WireError::Field("acknowledgement")))?;
        conn.has_come_there(waits.ticket, &mut self.endpoints);
        Ok(())
    }

    pub(crate) fn acknowledged_by_name(&mut self, key: ConnKey, name: u64) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let sent = conn.outbox.sent();
        let is_awaited = |waits: &Named| match waits {
            Named::Ack(waits) => waits.end <= sent,
            Named::Offered { end, .. } => *end <= sent,
            Named::Announced { payload, end, .. } => payload.is_none() && *end <= sent,
            Named::Atomic { .. } => false,
        };
        match conn.take_named(name, is_awaited) {
            Some(
                Named::Ack(Unacknowledged { ticket, .. })
                | Named::Announced {
                    ticket: Some(ticket),
                    ..
                },
            ) => {
                conn.has_come_there(ticket, &mut self.endpoints);
                Ok(())
            }
            Some(Named::Offered { ticket, .. }) => {
                conn.stillness.answered();
                match ticket {
                    Some(ticket) => conn.has_come_there(ticket, &mut self.endpoints),
                    None => {
                        conn.is_fetched(name);
                        self.aside_has_left(key);
                    }
                }
                Ok(())
            }
            _ => Err(Fault::Protocol(WireError::Field("acknowledgement"))),
        }
    }
}

impl Connection {
    /// Completes an operation that the peer has acknowledged; the kernel may still read its memory,
    /// and it then completes later.
    #[inline]
    fn has_come_there(&mut self, ticket: Ticket, endpoints: &mut Endpoints) {
        let done = match self.lent.enabled {
            true => self.lent.hold(ticket),
            false => Some(ticket),
        };
        if let Some(ticket) = done {
            endpoints.finish(ticket, Ok(()));
        }
    }
}
