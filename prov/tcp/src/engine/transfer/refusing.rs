//! Access to memory that is not permitted: it fails by itself, and later messages of the connection
//! are not affected.
//!
//! The C library's protocol has no negative answer. With a peer that does not support them, a
//! refused access that the peer waits for ends the connection.

use prov_base::errno::Errno;
use prov_message::Refusal;

use crate::engine::Core;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::incoming::Incoming;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::Ack;
use crate::engine::link::outstanding::{Named, PendingRead, Unacknowledged};
use crate::wire::WireError;
use crate::wire::handshake::Features;
use crate::wire::header::Header;
use crate::wire::header::refusal::{self, Refused};

impl Core {
    /// Refuses an operation of a peer that has been received completely.
    #[cold]
    pub(crate) fn refuse_access(
        &mut self,
        key: ConnKey,
        refused: Refused,
        refusal: Refusal,
    ) -> LinkResult {
        let reason = self.refusal(key, refusal, true)?;
        self.post_control(key, refusal::header(refused, reason));
        Ok(())
    }

    /// Refuses a write of which a payload of `len` bytes is still to arrive. The peer is informed
    /// after it has sent all of that.
    #[cold]
    pub(crate) fn refuse_write(
        &mut self,
        key: ConnKey,
        ack: Ack,
        len: usize,
        refusal: Refusal,
    ) -> LinkResult {
        let reason = self.refusal(key, refusal, ack != Ack::None)?;
        let answer = match ack {
            Ack::Named(name) => Some(refusal::header(Refused::Named(name), reason)),
            Ack::None | Ack::Next => None,
        };
        match (len, answer) {
            (0, None) => {}
            (0, Some(answer)) => self.post_control(key, answer),
            (_, answer) => {
                let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
                conn.incoming = answer.map_or(Incoming::Discard, Incoming::Refuse);
            }
        }
        Ok(())
    }

    /// Returns the header of a refusal for the peer, if it waits for an answer.
    ///
    /// # Errors
    /// For invalid operations, and if the peer does not support refusals.
    fn refusal(
        &mut self,
        key: ConnKey,
        refusal: Refusal,
        is_awaited: bool,
    ) -> Result<Errno, Fault> {
        let Refusal::Memory { error, piece } = refusal else {
            return Err(refusal.into());
        };
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        if is_awaited && !conn.features.has(Features::REFUSALS) {
            return Err(refusal.into());
        }
        if !std::mem::replace(&mut conn.logged.refusal, true) {
            log::warn!(
                target: crate::LOG.ep_data,
                "{} is refused access to {} bytes at {:#x}: {error}; further ones are not logged",
                conn.peer_text(),
                piece.len,
                piece.addr,
            );
        }
        Ok(error)
    }

    /// Handles that the peer has refused an operation.
    pub(crate) fn refused(&mut self, key: ConnKey, header: &Header) -> LinkResult {
        let (refused, reason) = refusal::read(header).map_err(Fault::Protocol)?;
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let sent = conn.outbox.sent();
        let ticket = match refused {
            Refused::Read => conn
                .ops
                .reads
                .pop_front()
                .map(|PendingRead { ticket, .. }| ticket),
            Refused::Named(name) => {
                let is_access = |waits: &Named| match waits {
                    Named::Ack(waits) => waits.end <= sent,
                    Named::Atomic { .. } => true,
                    Named::Offered { .. } | Named::Announced { .. } => false,
                };
                match conn.take_named(name, is_access) {
                    Some(
                        Named::Ack(Unacknowledged { ticket, .. }) | Named::Atomic { ticket, .. },
                    ) => Some(ticket),
                    _ => None,
                }
            }
        };
        let unasked = Fault::Protocol(WireError::Field("refusal"));
        self.endpoints.finish(ticket.ok_or(unasked)?, Err(reason));
        Ok(())
    }
}
