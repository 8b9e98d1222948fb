//! The end of links and endpoints, and its consequences.

use std::time::Instant;

use prov_base::errno::Errno;
use prov_base::warn_again;
use prov_message::lane::Pause;
use prov_message::peers::Failure;
use prov_message::{Course, EpKey, Linked, Sided, Then, Ticket};
use prov_util::endpoint::Side;

use super::Core;
use super::below::{QueueSide, What};
use super::endpoint::Rdm;
use super::keys::LinkKey;
use super::link::{Fault, Link, Out, Pending};
use crate::LOG;
use crate::wire::packet::{Head, Kind};

impl Core {
    /// Ends a link as soon as everything that the peer has sent before has been received; until
    /// then, nothing is sent. Some of it may be held by the caller, or by another provider.
    #[cold]
    pub(super) fn ends(&mut self, key: LinkKey, fault: Fault) {
        if let Some(link) = self.links.get_mut(key) {
            link.ending.get_or_insert(fault);
            self.is_busy(key);
            // Another thread may be asleep.
            self.poller.wake_at(Instant::now());
        }
    }

    /// Handles the end of a link below, after everything that the peer has sent.
    pub(super) fn has_ended(&mut self, key: LinkKey, fault: Fault) {
        self.take_in_all();
        if let Some(link) = self.links.get_mut(key).filter(|link| link.outlives_peer()) {
            // The step that lets the link continue checks this.
            link.ending.get_or_insert(fault);
            return;
        }
        match self.is_full() {
            false => self.break_link(key, fault),
            true => self.ends(key, fault),
        }
    }

    /// Ends a link that has to, if everything can be received now.
    pub(super) fn end_if_due(&mut self, key: LinkKey) {
        let link = self.links.get(key).filter(|link| !link.outlives_peer());
        if let Some(fault) = link.and_then(|link| link.ending)
            && !self.endpoints.is_deaf()
        {
            self.take_in_all();
            let link = self.links.get(key);
            let is_held_back = link.is_some_and(Link::outlives_peer);
            if !self.is_full() && !is_held_back {
                self.break_link(key, fault);
            }
        }
    }

    /// Ends a link with all operations on it.
    #[cold]
    pub(super) fn break_link(&mut self, key: LinkKey, fault: Fault) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (ep, peer, addr) = (link.ep, link.peer, link.addr);
        let in_order = link.is_open() && link.ends_in_order();
        let error = match fault {
            Fault::Ended(error @ (Errno::ESHUTDOWN | Errno::ECANCELED | Errno::EALREADY)) => {
                log::info!(
                    target: LOG.ep_ctrl, "the connection with {addr} has ended: {error}"
                );
                error
            }
            Fault::Ended(error) => {
                warn_again!(
                    target: LOG.ep_ctrl,
                    "the connection with {addr} is lost: {error}"
                );
                error
            }
            Fault::Refused => {
                log::info!(target: LOG.ep_ctrl, "{addr} refuses the connection");
                Errno::ECONNREFUSED
            }
            Fault::NoContext => {
                warn_again!(target: LOG.ep_ctrl, "{addr} has no such receive context");
                Errno::ECONNREFUSED
            }
            Fault::Protocol(what) => {
                warn_again!(
                    target: LOG.ep_ctrl,
                    "{addr} broke the protocol and loses its connection: {what}"
                );
                Errno::EPROTO
            }
            Fault::Flooded => {
                warn_again!(
                    target: LOG.ep_ctrl,
                    "{addr} sends more than is kept and loses its connection"
                );
                Errno::ENOBUFS
            }
            Fault::Removed => {
                log::info!(
                    target: LOG.ep_ctrl,
                    "the connection with {addr} ends with its address in the vector"
                );
                Errno::ECANCELED
            }
        };
        let is_over = matches!(error, Errno::ESHUTDOWN | Errno::ECONNRESET | Errno::EPIPE);
        let failure = match (fault, error) {
            // The peer's own request is on its way.
            (_, Errno::EALREADY) => Failure::Unreached(Errno::ECONNREFUSED),
            (Fault::NoContext | Fault::Removed, error) => Failure::Hopeless(error),
            (Fault::Ended(_), error) if in_order && is_over => Failure::Closed(error),
            (_, error) => Failure::of(error),
        };
        self.fail_link_to((ep, peer), key, error, failure);
    }

    /// Handles that the rest of a message will not arrive.
    fn abandon(&mut self, course: super::link::Course, error: Errno) {
        if let Course::Place(placing) = course
            && let Then::Receive(receipt) = &placing.then
        {
            let memory = placing.place.into_memory();
            self.endpoints.received(receipt, memory, Err(error));
        }
    }

    /// Sends what is queued for an endpoint.
    pub(super) fn flush_last(&mut self, ep: EpKey) -> Option<Pause> {
        // Completions of sends may be behind any number of peers' writes, which are not reported
        // any more.
        if self.poller.is_own() {
            self.unreported.clear();
        }
        self.send_by_driving(ep, |core, link| {
            let link = core.links.get(link);
            link.is_some_and(|link| link.is_open() && (!link.queue.is_empty() || link.lent != 0))
        })
    }
}

impl Linked for Core {
    fn links_of(&self, ep: EpKey) -> Vec<LinkKey> {
        let mine = self.links.iter().filter(|(_, link)| link.ep == ep);
        mine.map(|(key, _)| key).collect()
    }

    fn take_down(&mut self, key: LinkKey, error: Errno) -> Vec<Ticket> {
        let Some(link) = self.links.remove(key) else {
            return Vec::new();
        };
        let Link {
            ep,
            stage,
            below: endpoint,
            id,
            queue,
            pending,
            fetches,
            assembly,
            receives,
            held,
            resumed,
            ..
        } = link;
        if stage != super::link::Stage::Open {
            self.connecting -= 1;
        }
        self.strangers.remove(key);
        self.ids.remove(id);
        self.names.remove(&endpoint.name());
        let mut tickets = Vec::new();
        if let Some(below) = &mut self.below {
            below.has_ended(receives);
            for (slot, _) in held {
                below.slots.give_back(slot);
            }
            let whats = endpoint.close(&mut below.slots);
            tickets.extend(whats.into_iter().filter_map(|what| match what {
                What::Op(_, ticket, _) => Some(ticket),
                _ => None,
            }));
        }
        tickets.extend(pending.into_iter().map(|(_, pending)| match pending {
            Pending::Announced { ticket, .. } | Pending::Atomic { ticket, .. } => ticket,
        }));
        tickets.extend(queue.into_iter().filter_map(|out| match out {
            Out::Segments(rest) => rest.ticket,
            Out::Again(_, ticket) => Some(ticket),
            Out::Packet(..) | Out::Fetch(_) | Out::Push(_) => None,
        }));
        for (_, fetching) in fetches {
            drop(fetching.regions);
            self.endpoints
                .received(&fetching.receipt, fetching.memory, Err(error));
        }
        if let Some(assembly) = assembly {
            if let Some(in_place) = assembly.in_place {
                self.endpoints.discharge(in_place.charge);
            }
            self.abandon(assembly.course, error);
        }
        if let Some(course) = resumed {
            self.abandon(course, error);
        }
        self.endpoints.link_ended(ep, key, error);
        tickets
    }

    fn takes_leave(&mut self, key: LinkKey) {
        let link = self.links.get(key);
        let link = link.filter(|link| link.takes_leave && link.can_send() && link.queue.is_empty());
        if let Some(link) = link {
            let head = Head::note(Kind::Leave, link.far_id, 0);
            // Without room below, the peer sees the connection break.
            let _ = self.send_packet(key, &head, &[]);
        }
    }

    fn closes(&mut self, ep: EpKey) {
        if let Some(below) = self.below.take_if(|below| below.ep == ep) {
            for side in [QueueSide::In, QueueSide::Out] {
                if let Ok(fd) = below.queue(side).wait_fd() {
                    self.poller.forget(fd);
                }
            }
            if let Ok(fd) = below.wiring.eq.wait_fd() {
                self.poller.forget(fd);
            }
        }
        self.buffered = None;
    }

    fn closed(&mut self, own: Box<Rdm>) {
        own.peers.abandon();
    }
}

impl Sided for Core {
    fn has_memory_of(&self, key: LinkKey, side: Side) -> bool {
        let (Some(link), Some(below)) = (self.links.get(key), &self.below) else {
            return false;
        };
        let mut under_way = link.below.outstanding(&below.slots);
        link.has_memory_of(side)
            || side == Side::Transmit && under_way.any(|what| matches!(what, What::Op(..)))
    }

    fn break_off(&mut self, key: LinkKey, error: Errno) {
        self.break_link(key, Fault::Ended(error));
    }
}
