//! Output that could not be sent immediately: it is sent in order, as soon as there is room.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::collections::VecDeque;

use prov_base::errno::{Errno, Result};
use prov_message::Op;
use prov_message::peers::{Replay, Request};

use super::Core;
use super::keys::LinkKey;
use super::link::{Fault, Out};
use crate::wire::packet::Head;

/// Limits of the output that is queued for a peer that requests more and more without receiving:
/// number of entries, and bytes of packets.
const LONGEST: usize = 1 << 16;
pub(super) const MOST_BYTES: usize = 64 << 20;

impl Core {
    /// Queues output after all other.
    pub(super) fn queue(&mut self, key: LinkKey, out: Out) {
        self.queue_at(key, out, VecDeque::push_back);
    }

    /// Queues the rest of an output before all other.
    pub(super) fn queue_first(&mut self, key: LinkKey, out: Out) {
        self.queue_at(key, out, VecDeque::push_front);
    }

    fn queue_at(&mut self, key: LinkKey, out: Out, push: fn(&mut VecDeque<Out>, Out)) {
        let Some(link) = self.links.get_mut(key) else {
            return self.forget(out);
        };
        link.wait(out, push);
        let is_flooded = link.queue.len() > LONGEST || link.queued > MOST_BYTES;
        self.is_busy(key);
        if is_flooded {
            self.break_link(key, Fault::Protocol("more requests than answers are read"));
        }
    }

    /// Drops output that will not be sent.
    pub(super) fn forget(&mut self, out: Out) {
        let ticket = match out {
            Out::Segments(rest) => rest.ticket,
            Out::Again(_, ticket) => Some(ticket),
            Out::Packet(..) | Out::Fetch(_) | Out::Push(_) => None,
        };
        if let Some(ticket) = ticket {
            self.endpoints.finish(ticket, Err(Errno::ENOTCONN));
        }
    }

    /// Sends a packet of this provider, immediately or as soon as there is room. The packet that it
    /// answers may have arrived before this side knows that the connection exists, and its number
    /// at the peer.
    pub(super) fn answer(&mut self, key: LinkKey, head: &Head, behind: &[u8]) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let sent = match link.queue.is_empty() && link.can_send() {
            true => self.send_packet(key, head, behind),
            false => Err(Errno::EAGAIN),
        };
        match sent {
            Ok(()) => {}
            Err(Errno::EAGAIN) => self.queue(key, Out::Packet(*head, behind.into())),
            Err(error) => self.ends(key, Fault::Ended(error)),
        }
    }

    /// Sends a packet that has waited.
    fn send_again(&mut self, key: LinkKey, head: &Head, behind: &[u8]) -> Result {
        let link = self.links.get(key).ok_or(Errno::ENOTCONN)?;
        let head = Head {
            connection: link.far_id,
            ..*head
        };
        self.send_packet(key, &head, behind)
    }

    /// Sends the queued output of links, as far as there is room, and ends the links that have to.
    #[inline(never)]
    pub(super) fn send_queued(&mut self) {
        for key in std::mem::take(&mut self.busy) {
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            link.is_busy = false;
            self.send_queued_on(key);
            self.end_if_due(key);
            if let Some(link) = self.links.get(key)
                && (!link.queue.is_empty() || link.ending.is_some() && !link.outlives_peer())
            {
                self.is_busy(key);
            }
        }
    }

    pub(super) fn is_busy(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !std::mem::replace(&mut link.is_busy, true)
        {
            self.busy.push(key);
            bounded!(self.busy, PEERS);
        }
    }

    pub(super) fn send_queued_on(&mut self, key: LinkKey) {
        while let Some(link) = self.links.get_mut(key)
            && link.can_send()
            && let Some(out) = link.next_out()
        {
            let outcome = self.send_out(key, out);
            let Err((error, out)) = outcome else {
                continue;
            };
            let Some(link) = self.links.get_mut(key) else {
                return self.forget(out);
            };
            link.wait(out, VecDeque::push_front);
            if error != Errno::EAGAIN {
                self.ends(key, Fault::Ended(error));
            }
            return;
        }
    }

    fn send_out(&mut self, key: LinkKey, out: Out) -> std::result::Result<(), (Errno, Out)> {
        match out {
            Out::Packet(head, behind) => self
                .send_again(key, &head, &behind)
                .map_err(|error| (error, Out::Packet(head, behind))),
            Out::Segments(rest) => self
                .send_segments(key, rest)
                .map_err(|(error, rest)| (error, Out::Segments(rest))),
            Out::Fetch(fetch) => self
                .fetch_more(key, fetch)
                .map_err(|error| (error, Out::Fetch(fetch))),
            Out::Push(pending) => self
                .push_more(key, pending)
                .map_err(|error| (error, Out::Push(pending))),
            Out::Again(deferred, ticket) => {
                self.endpoints.settle(ticket);
                let mut replay = deferred.replay();
                let (op, posted) = self.post_again(key, &mut replay);
                match posted {
                    Ok(()) => Ok(()),
                    Err(Errno::EAGAIN) => match self.endpoints.count(op) {
                        Some(ticket) => {
                            let deferred = Box::new(replay.defer());
                            Err((Errno::EAGAIN, Out::Again(deferred, ticket)))
                        }
                        None => Ok(()),
                    },
                    Err(error) => {
                        self.endpoints.report(&op, Err(error));
                        Ok(())
                    }
                }
            }
        }
    }

    fn post_again(&mut self, key: LinkKey, replay: &mut Replay) -> (Op, Result) {
        let ep = self.links.get(key).map(|link| link.ep).unwrap_or_default();
        let (request, copies) = replay.parts();
        let copied = copies.map(|copies| copies.payload);
        match request {
            Request::Transmit(message) => (
                Op::of_transmit(ep, message),
                self.send(key, message, copied),
            ),
            Request::Access(access) => (
                Op::of_access(ep, access),
                self.start_access(key, access, copied),
            ),
            Request::Atomic(atomic) => (
                Op::of_atomic(ep, atomic),
                self.start_atomic(key, atomic, copies),
            ),
        }
    }

    /// Sends the operations that have waited for a link.
    pub(super) fn replay(&mut self, key: LinkKey) {
        while let Some(link) = self.links.get(key)
            && let (ep, Some(peer)) = (link.ep, link.peer)
            && let Some(rdm) = self.rdm(ep)
            && let Some((request, ticket)) = rdm.peers.next_waiting(peer, key)
        {
            self.queue(key, Out::Again(Box::new(request), ticket));
        }
        self.send_queued_on(key);
    }
}
