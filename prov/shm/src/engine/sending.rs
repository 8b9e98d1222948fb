//! Sending messages: short ones eagerly, long ones by rendezvous.

use fabric_abi::{FI_COMMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_PEER_TRANSFER, FI_REMOTE_CQ_DATA};
use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::WRITTEN;
use prov_local::channel::{Head, INLINE, MODERATE};
use prov_local::copies::Copies as _;
use prov_local::link::payload::Payload;
use prov_local::switch_points::EAGER;
use prov_message::peers::{Bytes, Deferred, Destination, Lent};
use prov_message::{Op, Reaching as _};
use prov_util::request::{Tag, Transmit};

use super::Core;
use super::keys::{EpKey, to_peer};
use super::link::Link;
use super::link::pending::Pending;
use super::messages::Endpoints;
use super::records::{HAS_DATA, MESSAGE, OFFERED, REMOTE_LIST, TAGGED, UNTIL_PLACED};
use crate::params::SIZES;

/// Flags of messages that do not take the fast path.
const SPECIAL: u64 =
    FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE | FI_PEER_TRANSFER;
// The fast path does not check the length of messages that fit into a slot.
const _: () = assert!(INLINE <= SIZES.inject);
// A write has its remote list after its data.
const _: () = assert!(REMOTE_LIST + EAGER <= MODERATE);

impl Core {
    #[inline(always)]
    pub(super) fn post_message(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        match self.post_at_once(ep, message) {
            Some(()) => Ok(()),
            None => self.post_in_turn(ep, message),
        }
    }

    /// The fast path: sends an eager message without special flags on an open link.
    #[inline(always)]
    fn post_at_once(&mut self, ep: EpKey, message: &mut Transmit) -> Option<()> {
        let len = message.buffers.len();
        if message.flags & SPECIAL != 0 {
            return None;
        }
        if len > INLINE {
            return self.post_long(ep, message);
        }
        self.post_whole::<false>(ep, message)
    }

    /// As [`Core::post_at_once`], for a message that does not fit into a slot.
    #[inline(never)]
    fn post_long(&mut self, ep: EpKey, message: &mut Transmit) -> Option<()> {
        let is_special = message.buffers.len() > EAGER || message.buffers.has_device();
        if is_special || SIZES.check_message(message).is_err() {
            return None;
        }
        self.post_whole::<true>(ep, message)
    }

    #[inline(always)]
    fn post_whole<const LONG: bool>(&mut self, ep: EpKey, message: &mut Transmit) -> Option<()> {
        let state = self.endpoints.get(ep)?;
        let key = state.own.peers.open_link(message.peer)?;
        let link = self.links.get_mut(key)?;
        if link.pending.has_detours() || !link.writings.is_empty() {
            return None;
        }
        let (head, len) = (head_of(message, None), message.buffers.len());
        let is_sent = match LONG {
            false => link.post_short(
                head,
                len,
                #[inline(always)]
                |to| _ = to.copy_from(&message.buffers),
            ),
            true => link.post_long(
                head,
                len,
                #[inline(always)]
                |at, to| _ = to.copy_from_at(&message.buffers, at),
            ),
        };
        if !is_sent {
            return None;
        }
        state.reports.plain_message(ep, message);
        Some(())
    }

    #[inline(never)]
    fn post_in_turn(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        SIZES.check_message(message)?;
        let state = self.endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let known = state.own.peers.open_link(message.peer);
        let known = known.filter(|key| self.links.contains_key(*key));
        let destination = match known {
            Some(key) => Destination::Open(key),
            None => self.reach(ep, message.peer)?,
        };
        match destination {
            Destination::Open(key) => {
                let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
                if link.holds_messages() {
                    let op = Op::of_transmit(ep, message);
                    return self.wait_behind(key, op, || Deferred::transmit(message));
                }
                // A device copies while this lane does other things.
                let is_eager =
                    link.is_eager(message.buffers.len())? && !message.buffers.has_device();
                if link.send(message, None, is_eager, &mut self.endpoints)? {
                    self.has_offered(key);
                }
                Ok(())
            }
            Destination::Waits(peer) => self.defer(peer, Op::of_transmit(ep, message), || {
                Deferred::transmit(message)
            }),
        }
    }
}

impl Link {
    /// Sends a message: eagerly if `is_eager` and the peer takes such messages, otherwise by an
    /// announcement. Returns whether it was announced.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no space.
    #[inline(never)]
    pub fn send(
        &mut self,
        message: &mut Transmit,
        copied: Option<&[u8]>,
        is_eager: bool,
        endpoints: &mut Endpoints,
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

pub fn copy(bytes: &Bytes<'_>, to: &Iov<'_>) {
    match bytes {
        Bytes::App(memory) => memory.copy_to(to),
        Bytes::Own(bytes) => to.write_at(0, bytes),
    };
}
