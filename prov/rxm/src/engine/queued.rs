//! What could not be sent at once: it goes out in order, as there is room.

use std::collections::VecDeque;

use prov_message::Op;
use prov_message::peers::{Replay, Request};
use prov_util::errno::{Errno, Result};

use super::Core;
use super::below::What;
use super::keys::LinkKey;
use super::link::{Fault, Out};
use crate::wire::packet::{HEAD, Head};

/// What may wait to be sent to a peer that asks for more and more and takes
/// nothing: this many things, and bytes of packets.
const LONGEST: usize = 1 << 16;
pub(super) const MOST_BYTES: usize = 64 << 20;

impl Core {
    /// Something goes out as soon as there is room, after all else.
    pub(super) fn queue(&mut self, key: LinkKey, out: Out) {
        self.queue_at(key, out, VecDeque::push_back);
    }

    /// The rest of something goes out as soon as there is room, before all else.
    pub(super) fn queue_first(&mut self, key: LinkKey, out: Out) {
        self.queue_at(key, out, VecDeque::push_front);
    }

    fn queue_at(&mut self, key: LinkKey, out: Out, push: fn(&mut VecDeque<Out>, Out)) {
        let Some(link) = self.links.get_mut(key) else {
            return self.forget(out);
        };
        link.wait(out, push);
        let is_flooded = link.queue.len() > LONGEST || link.queued > MOST_BYTES;
        if !std::mem::replace(&mut link.is_busy, true) {
            self.busy.push(key);
        }
        if is_flooded {
            self.break_link(key, Fault::Protocol("more requests than answers are read"));
        }
    }

    /// Nothing comes of what was to be sent.
    pub(super) fn forget(&mut self, out: Out) {
        let ticket = match out {
            Out::Segments(rest) => rest.ticket,
            Out::Again(_, ticket) => Some(ticket),
            Out::Packet(_) | Out::Fetch(_) | Out::Push(_) => None,
        };
        if let Some(ticket) = ticket {
            self.endpoints.finish(ticket, Err(Errno::ENOTCONN));
        }
    }

    /// Sends a packet of this layer's own, at once or as soon as there is room.
    pub(super) fn answer(&mut self, key: LinkKey, head: &Head, behind: &[u8]) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let sent = match link.queue.is_empty() {
            true => self.send_packet(key, head, behind),
            false => Err(Errno::EAGAIN),
        };
        match sent {
            Ok(()) => {}
            Err(Errno::EAGAIN) => {
                let mut packet = vec![0; HEAD + behind.len()];
                if let Some((front, rest)) = packet.split_first_chunk_mut() {
                    head.write(front);
                    rest.copy_from_slice(behind);
                }
                self.queue(key, Out::Packet(packet.into_boxed_slice()));
            }
            Err(error) => self.break_link(key, Fault::Ended(error)),
        }
    }

    /// Sends a packet that has waited.
    fn send_again(&mut self, key: LinkKey, packet: &[u8]) -> Result {
        let (Some(below), Some(link)) = (&mut self.below, self.links.get_mut(key)) else {
            return Err(Errno::ENOTCONN);
        };
        below.send_packet(link, packet, What::Sent(key))
    }

    /// Sends what links have to send, as far as there is room.
    #[inline(never)]
    pub(super) fn send_queued(&mut self) {
        for key in std::mem::take(&mut self.busy) {
            let Some(link) = self.links.get_mut(key) else {
                continue;
            };
            link.is_busy = false;
            self.send_queued_on(key);
            if let Some(link) = self.links.get_mut(key)
                && !link.queue.is_empty()
                && !std::mem::replace(&mut link.is_busy, true)
            {
                self.busy.push(key);
            }
        }
    }

    pub(super) fn send_queued_on(&mut self, key: LinkKey) {
        while let Some(link) = self.links.get_mut(key)
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
                self.break_link(key, Fault::Ended(error));
            }
            return;
        }
    }

    fn send_out(&mut self, key: LinkKey, out: Out) -> std::result::Result<(), (Errno, Out)> {
        match out {
            Out::Packet(packet) => match self.send_again(key, &packet) {
                Ok(()) => Ok(()),
                Err(error) => Err((error, Out::Packet(packet))),
            },
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
                let replay = deferred.replay();
                let (op, posted) = self.post_again(key, &replay);
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

    fn post_again(&mut self, key: LinkKey, replay: &Replay) -> (Op, Result) {
        let ep = self.links.get(key).map(|link| link.ep).unwrap_or_default();
        match &replay.request {
            Request::Transmit(message) => (
                Op::of_transmit(ep, message),
                self.send(key, message, replay.payload()),
            ),
            Request::Access(access) => (
                Op::of_access(ep, access),
                self.start_access(key, access, replay.payload()),
            ),
            Request::Atomic(atomic) => (
                Op::of_atomic(ep, atomic),
                self.start_atomic(key, atomic, replay.payload(), replay.compared()),
            ),
        }
    }

    /// What has waited for a link goes out.
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
