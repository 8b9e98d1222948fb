//! Sending of messages: short ones in one packet (eager), longer ones in several, and the longest
//! ones by rendezvous.

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_PEER_TRANSFER, FI_REMOTE_READ, FI_SEND, FI_WRITE};
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::peers::{Bytes as Payload, Deferred, Destination};
use prov_message::{Op, Reaching as _};
use prov_util::below::Local;
use prov_util::request::{Tag, Transmit};

use super::Core;
use super::below::What;
use super::below::packets::{Load, SMALL, Unposted};
use super::keys::{EpKey, LinkKey, to_peer};
use super::link::{Fault, Link, Out, Pending, Segments};
use crate::wire::packet::{HEAD, Head, Kind, Operation, Position};
use crate::wire::part::{COUNTED_LIST, write_list};

/// Longest message in bytes that is copied to a small slot, if it is not injected.
const QUICK: usize = SMALL - HEAD;

impl Core {
    #[inline(always)]
    pub(super) fn post_message(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        let Core {
            endpoints,
            links,
            below: Some(below),
            ..
        } = self
        else {
            return Err(Errno::EOPBADSTATE);
        };
        below.setting.sizes.check_message(message)?;
        let state = endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        let Some(key) = state.own.peers.open_link(message.peer) else {
            return self.post_message_slowly(ep, message);
        };
        let len = message.buffers.len();
        if let Some(link) = links.get_mut(key)
            && link.queue.is_empty()
            && link.ending.is_none()
            && message.flags & (FI_DELIVERY_COMPLETE | FI_PEER_TRANSFER) == 0
        {
            // Each branch has a header of its own, so that the first one's stays in registers.
            let sent = if below.may_inject(link, len, message.wants_completion()) {
                match below.inject(link, &head_of(message, link), &message.buffers) {
                    Ok(()) => {
                        state.reports.plain_message(ep, message);
                        return Ok(());
                    }
                    Err(error) => Err((error, What::Packet(None))),
                }
            } else if message.wants_completion() && len <= QUICK {
                let state = endpoints.get_mut(ep).ok_or(Errno::EOPBADSTATE)?;
                if !state.ledger.has_room() {
                    return Err(Errno::EAGAIN);
                }
                let ticket = state.ledger.count(Op::of_plain(ep, message));
                let head = head_of(message, link);
                below.send_quickly(link, key, &head, &message.buffers, ticket)
            } else {
                return self.post_message_slowly(ep, message);
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(unposted) => match self.undo(unposted) {
                    Errno::EAGAIN => return Err(Errno::EAGAIN),
                    error => self.has_broken(key, error),
                },
            }
        }
        self.post_message_slowly(ep, message)
    }

    #[inline(never)]
    fn post_message_slowly(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        match self.reach(ep, message.peer)? {
            Destination::Open(key) => self.post_on(key, |core| core.send(key, message, None)),
            Destination::Waits(peer) => self.defer(peer, Op::of_transmit(ep, message), || {
                Deferred::transmit(message)
            }),
        }
    }

    /// Posts an operation on an open link. If the link turns out to have ended, the application
    /// retries and finds that there is none.
    ///
    /// # Errors
    /// Those of posting; `-FI_EAGAIN` if queued output has to be sent first.
    pub(super) fn post_on(
        &mut self,
        key: LinkKey,
        post: impl FnOnce(&mut Self) -> Result,
    ) -> Result {
        match self.links.get(key) {
            Some(link) if link.queue.is_empty() && link.ending.is_none() => {}
            _ => return Err(Errno::EAGAIN),
        }
        match post(self) {
            Err(error) if is_end(error) => {
                self.has_broken(key, error);
                Err(Errno::EAGAIN)
            }
            posted => posted,
        }
    }

    /// Handles that the provider below accepts nothing for a link.
    #[cold]
    fn has_broken(&mut self, key: LinkKey, error: Errno) {
        self.ends(key, Fault::Ended(error));
        self.end_if_due(key);
    }

    /// Sends a message on a link.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room.
    #[inline(never)]
    pub(super) fn send(
        &mut self,
        key: LinkKey,
        message: &mut Transmit,
        copied: Option<&[u8]>,
    ) -> Result {
        let link = self.links.get(key).ok_or(Errno::EAGAIN)?;
        let op = Op::of_transmit(link.ep, message);
        let head = head_of(message, link);
        let len = message.buffers.len();
        let below = self.below.as_ref().ok_or(Errno::EOPBADSTATE)?;
        let is_delivered = message.flags & FI_DELIVERY_COMPLETE != 0;
        let eager = self.params.buffer_size;
        let can_tell = !is_delivered || below.until_delivered != 0;
        if len <= eager && (can_tell || len == 0) {
            let bytes = Payload::of(&message.buffers, copied);
            self.send_eagerly(key, op, &head, message, bytes)
        } else if len <= self.params.segmented() && can_tell {
            self.send_in_parts(key, op, head, message)
        } else {
            self.announce(key, op, head, &mut message.buffers)
        }
    }

    fn send_eagerly(
        &mut self,
        key: LinkKey,
        op: Op,
        head: &Head,
        message: &Transmit,
        bytes: Payload<'_>,
    ) -> Result {
        let (endpoints, link, below) = self.at_link(key).ok_or(Errno::EAGAIN)?;
        let is_delivered = message.flags & FI_DELIVERY_COMPLETE != 0;
        if !is_delivered && below.may_inject(link, bytes.len(), op.report) {
            below.inject_copy(link, head, &bytes)?;
            endpoints.report(&op, Ok(()));
            return Ok(());
        }
        let flags = if is_delivered {
            below.until_delivered
        } else {
            0
        };
        let ticket = endpoints.begin(op)?;
        let posted = match bytes {
            Payload::App(memory) if !message.is_inject() && below.sends_directly(memory) => {
                match below.local(memory, &message.desc, FI_SEND) {
                    Ok((local, regions)) => {
                        let what = What::Op(key, ticket, regions);
                        below.send(link, head, &Load::App(memory, &local), flags, what)
                    }
                    Err(error) => Err((error, What::Op(key, ticket, None))),
                }
            }
            bytes => {
                let what = What::Op(key, ticket, None);
                below.send(link, head, &Load::Copy(bytes), flags, what)
            }
        };
        posted.map_err(|unposted| self.undo(unposted))
    }

    /// Undoes the count of an operation that was not posted. Returns its error.
    pub(super) fn undo(&mut self, (error, what): Unposted) -> Errno {
        if let What::Op(_, ticket, _) = what {
            self.endpoints.settle(ticket);
        }
        error
    }

    fn send_in_parts(
        &mut self,
        key: LinkKey,
        op: Op,
        head: Head,
        message: &mut Transmit,
    ) -> Result {
        let (endpoints, link, below) = self.at_link(key).ok_or(Errno::EAGAIN)?;
        let (local, regions) = match below.sends_directly(&message.buffers) {
            true => below.local(&message.buffers, &message.desc, FI_SEND)?,
            false => (Local::NONE, None),
        };
        let ticket = endpoints.begin(op)?;
        let number = link.next_message;
        link.next_message += 1;
        let segments = Segments {
            ticket: Some(ticket),
            memory: message.buffers.take(),
            local,
            regions,
            head: Head {
                kind: Kind::Segment,
                message: number,
                ..head
            },
            done: 0,
            number: 0,
            // Segments are delivered in order, so it suffices that the last one completes on
            // delivery.
            flags: match message.flags & FI_DELIVERY_COMPLETE {
                0 => 0,
                _ => below.until_delivered,
            },
        };
        match self.send_segments(key, Box::new(segments)) {
            Ok(()) => Ok(()),
            Err((Errno::EAGAIN, rest)) if rest.done != 0 => {
                self.queue_first(key, Out::Segments(rest));
                Ok(())
            }
            Err((error, rest)) if rest.done == 0 => {
                if let Some(ticket) = rest.ticket {
                    self.endpoints.settle(ticket);
                }
                // The message may be sent again.
                message.buffers = rest.memory;
                Err(error)
            }
            Err((error, rest)) => {
                // The peer waits for the rest, and the provider below uses the memory until the
                // link has ended.
                self.queue_first(key, Out::Segments(rest));
                self.ends(key, Fault::Ended(error));
                Ok(())
            }
        }
    }

    /// Sends the rest of a segmented message. Returns what is left, and the error.
    pub(super) fn send_segments(
        &mut self,
        key: LinkKey,
        mut rest: Box<Segments>,
    ) -> std::result::Result<(), (Errno, Box<Segments>)> {
        let (Some(below), Some(link)) = (&mut self.below, self.links.get_mut(key)) else {
            return Err((Errno::ENOTCONN, rest));
        };
        let longest = self.params.buffer_size;
        loop {
            let len = longest.min(rest.memory.len() - rest.done);
            let is_last = rest.done + len == rest.memory.len();
            let position = match (rest.done, is_last) {
                (0, _) => Position::First,
                (_, true) => Position::Last,
                (_, false) => Position::Middle,
            };
            let head = Head {
                segment: Some((len as u16, rest.number, position)),
                ..rest.head
            };
            let what = match rest.ticket.take() {
                Some(ticket) if is_last => What::Op(key, ticket, std::mem::take(&mut rest.regions)),
                ticket => {
                    rest.ticket = ticket;
                    What::Sent(key)
                }
            };
            let local = rest.local.from(rest.done, &rest.memory);
            let part = rest.memory.slice(rest.done, len);
            let load = match below.sends_directly(&rest.memory) {
                true => Load::App(&part, &local),
                false => Load::Copy(Payload::App(&part)),
            };
            let flags = if is_last { rest.flags } else { 0 };
            if let Err((error, what)) = below.send(link, &head, &load, flags, what) {
                if let What::Op(_, ticket, regions) = what {
                    (rest.ticket, rest.regions) = (Some(ticket), regions);
                }
                return Err((error, rest));
            }
            if is_last {
                return Ok(());
            }
            rest.done += len;
            rest.number += 1;
        }
    }

    /// Announces a message, which the peer reads from this side's memory.
    fn announce(&mut self, key: LinkKey, op: Op, mut head: Head, memory: &mut AppIov) -> Result {
        // If the peer supports it, its application sees the beginning before it claims the message.
        let front = self
            .buffered
            .as_ref()
            .map_or(0, |buffered| buffered.bounds.least);
        let (endpoints, link, below) = self.at_link(key).ok_or(Errno::EAGAIN)?;
        let ticket = endpoints.count_acknowledged(op);
        let ticket = ticket.ok_or(Errno::EOPBADSTATE)?;
        // The peer reads the message, or has it written.
        let regions = match below.register(memory, FI_REMOTE_READ | FI_WRITE) {
            Ok(regions) => regions,
            Err(error) => {
                endpoints.settle(ticket);
                return Err(error);
            }
        };
        let mut behind = vec![0; COUNTED_LIST + front.min(memory.len())];
        let (list, front) = behind.split_at_mut(COUNTED_LIST);
        write_list(below.remote(memory, &regions).pieces(), list);
        memory.read_at(0, front);
        let pending = link.pending.insert(Pending::Announced {
            ticket,
            memory: memory.take(),
            regions,
            writing: None,
        });
        bounded!(link.pending, OPERATIONS);
        head.kind = Kind::Announced;
        head.message = to_peer(pending);
        let sent = self.send_packet(key, &head, &behind);
        let Err(error) = sent else {
            self.expects_answer(key);
            return Ok(());
        };
        let link = self.links.get_mut(key);
        if let Some(Pending::Announced {
            ticket,
            memory: unsent,
            ..
        }) = link.and_then(|link| link.pending.remove(pending))
        {
            // The message may be sent again.
            *memory = unsent;
            self.endpoints.settle(ticket);
        }
        Err(error)
    }

    /// Sends a packet of this provider.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room.
    pub(super) fn send_packet(&mut self, key: LinkKey, head: &Head, behind: &[u8]) -> Result {
        let (_, link, below) = self.at_link(key).ok_or(Errno::ENOTCONN)?;
        if below.may_inject(link, behind.len(), false) {
            return below.inject_copy(link, head, &Payload::Own(behind));
        }
        let load = Load::Copy(Payload::Own(behind));
        let sent = below.send(link, head, &load, 0, What::Sent(key));
        sent.map_err(|(error, _)| error)
    }
}

/// Returns whether an error means that the connection has ended.
fn is_end(error: Errno) -> bool {
    matches!(
        error,
        Errno::ENOTCONN
            | Errno::ESHUTDOWN
            | Errno::EPIPE
            | Errno::ECONNRESET
            | Errno::ECONNABORTED
            | Errno::ETIMEDOUT
            | Errno::EOPBADSTATE
    )
}

/// Returns the header of a message in one packet.
#[inline(always)]
fn head_of(message: &Transmit, link: &Link) -> Head {
    let (operation, tag) = match message.tag {
        Tag::None => (Operation::Message, 0),
        Tag::Value(tag) => (Operation::TaggedMessage, tag),
    };
    Head {
        kind: Kind::Eager,
        connection: link.far_id,
        message: 0,
        operation,
        len: message.buffers.len() as u64,
        data: message.immediate(),
        tag,
        segment: None,
    }
}
