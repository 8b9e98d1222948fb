//! Sending messages: short ones eagerly, long ones by rendezvous.

use fabric_abi::{FI_COMMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_PEER_TRANSFER, FI_REMOTE_CQ_DATA};
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::WRITTEN;
use prov_message::keys::to_peer;
use prov_message::peers::{Bytes, Deferred, Lent};
use prov_message::{Endpoints, EpKey, Op};
use prov_util::request::{Tag, Transmit};

use super::outgoing::copy;
use super::payload::Payload;
use super::pending::Pending;
use super::records::{HAS_DATA, MESSAGE, OFFERED, REMOTE_LIST, TAGGED, UNTIL_PLACED};
use super::{At, Link, LinkOf, Links, LocalTransport, outgoing};
use crate::channel::{Head, MODERATE};
use crate::switch_points::EAGER;

/// Flags of messages that do not take the fast path.
pub const SPECIAL: u64 =
    FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE | FI_PEER_TRANSFER;
// A write has its remote list after its data.
const _: () = assert!(REMOTE_LIST + EAGER <= MODERATE);

/// Sends a message, or keeps it until the operations that were posted before it are complete. The caller
/// has checked it.
///
/// # Errors
/// `-FI_EAGAIN` if there is no space.
pub fn post_message<L: Links>(
    lane: &mut L,
    ep: EpKey,
    key: LinkOf<L>,
    message: &mut Transmit,
) -> Result {
    let At {
        link, endpoints, ..
    } = lane.at(key).ok_or(Errno::EAGAIN)?;
    if link.holds_messages() {
        let op = Op::of_transmit(ep, message);
        return outgoing::wait_behind(lane, key, op, || Deferred::transmit(message));
    }
    // A device copies while this lane does other things.
    let is_eager = link.is_eager(message.buffers.len())? && !message.buffers.has_device();
    if link.send(message, None, is_eager, endpoints)? {
        lane.has_offered(key);
    }
    Ok(())
}

impl<T: LocalTransport> Link<T> {
    /// Sends an eager message without special flags, if nothing is in its way. `LONG` says whether it
    /// may not fit into a slot; it has at most [`EAGER`] bytes of the host's memory.
    #[inline(always)]
    pub fn send_at_once<const LONG: bool>(&mut self, message: &Transmit) -> bool {
        if self.pending.has_detours() || !self.writings.is_empty() {
            return false;
        }
        let (head, len) = (head_of(message, None), message.buffers.len());
        match LONG {
            false => self.post_short(
                head,
                len,
                #[inline(always)]
                |to| _ = to.copy_from(&message.buffers),
            ),
            true => self.post_long(
                head,
                len,
                #[inline(always)]
                |at, to| _ = to.copy_from_at(&message.buffers, at),
            ),
        }
    }

    /// Sends a message: eagerly if `is_eager` and the peer takes such messages, otherwise by an
    /// announcement. Returns whether it was announced.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space.
    #[inline(never)]
    pub(super) fn send(
        &mut self,
        message: &mut Transmit,
        copied: Option<&[u8]>,
        is_eager: bool,
        endpoints: &mut Endpoints<T>,
    ) -> Result<bool> {
        let op = Op::of_transmit(self.ep, message);
        let is_offered = self.pending.offers_only() || !is_eager;
        let until_received = message.flags & (FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE) != 0;
        let mut head = head_of(message, message.immediate());
        let len = message.buffers.len();
        if !is_offered && !until_received {
            let bytes = Bytes::of(&message.buffers, copied);
            let sent = self.post(head, len, |to| copy(&bytes, to));
            return match sent {
                Ok(true) => {
                    endpoints.report(&op, message.buffers.take_failure());
                    Ok(false)
                }
                Ok(false) | Err(_) => Err(Errno::EAGAIN),
            };
        }
        if !self.pending.has_room_for_message() {
            return Err(Errno::EAGAIN);
        }
        let ticket = endpoints.count_acknowledged(op);
        let ticket = ticket.ok_or(Errno::EOPBADSTATE)?;
        let (name, sent) = if is_offered {
            let is_kept = message.is_inject();
            let payload = Payload::of(Lent::of(&mut message.buffers, copied), is_kept);
            let from = payload.location();
            let name = self.pending.insert(Pending::Offer { ticket, payload });
            head.kind = OFFERED;
            head.words[2] = to_peer(name);
            let mut list = [0; WRITTEN];
            let list = from.write(&mut list);
            let sent = self.post(head, list.len(), |to| {
                to.write_at(0, list);
            });
            (name, sent)
        } else {
            let name = self.pending.insert(Pending::Op(ticket));
            head.words[2] = to_peer(name);
            if message.flags & FI_COMMIT_COMPLETE != 0 {
                head.flags |= UNTIL_PLACED;
            }
            let bytes = Bytes::of(&message.buffers, copied);
            (name, self.post(head, len, |to| copy(&bytes, to)))
        };
        if sent == Ok(true) {
            return Ok(is_offered);
        }
        if let Some(ticket) = self.pending.remove(name).and_then(Pending::into_ticket) {
            endpoints.settle(ticket);
        }
        Err(Errno::EAGAIN)
    }
}

/// Returns the head of a message, with this immediate data or none.
#[inline(always)]
fn head_of(message: &Transmit, data: Option<u64>) -> Head {
    let (tagged, tag) = match message.tag {
        Tag::None => (0, 0),
        Tag::Value(tag) => (TAGGED, tag),
    };
    let has_data = if data.is_some() { HAS_DATA } else { 0 };
    Head {
        kind: MESSAGE,
        flags: tagged | has_data,
        words: [tag, data.unwrap_or(0), 0],
    }
}
