//! How links and endpoints end, and what depends on them.

use std::os::fd::AsFd;

use prov_message::lane::{Pause, short_pause};
use prov_message::peers::Failure;
use prov_message::{Core as _, EpKey, Reaching as _, Ticket};
use prov_util::errno::Errno;

use super::Core;
use super::keys::LinkKey;
use super::link::{Fault, Link, Pending, Stage};
use crate::LOG;

impl Core {
    /// Ends a link, and with it all operations on it.
    #[cold]
    pub(super) fn break_link(&mut self, key: LinkKey, fault: Fault) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (ep, peer) = (link.ep, link.peer);
        let error = match fault {
            Fault::Ended(error) => error,
            Fault::Refused => Errno::ECONNREFUSED,
            Fault::Protocol(what) => {
                log::warn!(
                    target: LOG.ep_ctrl,
                    "process {} broke the protocol and loses its link: {what}", link.wire.pid
                );
                Errno::EPROTO
            }
        };
        let ops = self.take_down(key, error);
        for op in ops {
            self.endpoints.finish(op, Err(error));
        }
        if let Some(peer) = peer {
            self.link_ended(ep, peer, key, Failure::Unreached(error));
        } else if let Some(rdm) = self.rdm(ep) {
            rdm.peers.loopback_ended(key);
        }
        // Others may go on where it has left room.
        self.finish_acting();
    }

    /// Removes a link without a word: it was never open.
    pub(super) fn remove_link(&mut self, key: LinkKey) {
        if let Some(link) = self.links.remove(key) {
            self.poller.forget(link.wire.as_fd());
            self.no_longer_entered(link.ep, key);
        }
    }

    /// Removes a link with what was on its way. Returns the operations that end
    /// with it; its seal has ended when they are reported.
    fn take_down(&mut self, key: LinkKey, error: Errno) -> Vec<Ticket> {
        let Some(link) = self.links.remove(key) else {
            return Vec::new();
        };
        self.poller.forget(link.wire.as_fd());
        if link.stage == Stage::Entered {
            self.no_longer_entered(link.ep, key);
        }
        self.open.remove(key);
        self.copier.link_ended(key);
        let Link {
            ep,
            seal,
            pending,
            coming,
            mut pulls,
            ..
        } = link;
        seal.destroy();
        let placings = coming.into_iter().map(|(_, coming)| coming.placing);
        let placings = placings.chain(pulls.drain().filter_map(|pull| pull.to.abandon()));
        let mut tickets: Vec<Ticket> = placings
            .filter_map(|placing| self.endpoints.abandon(placing, error))
            .collect();
        self.endpoints.link_ended(ep, key, error);
        tickets.extend(pending.into_all().filter_map(|pending| match pending {
            Pending::Op(ticket) | Pending::Result { ticket, .. } => Some(ticket),
            Pending::Offer { ticket, .. } => ticket,
        }));
        tickets
    }

    /// Sends what is due for an endpoint.
    pub(super) fn flush_last(&mut self, ep: EpKey) -> Option<Pause> {
        if !self.poller.is_own() {
            return None;
        }
        self.do_what_is_ready();
        let mut links = self.links.values().filter(|link| link.ep == ep);
        let is_due = links.any(|link| link.is_open() && link.has_something_to_send());
        is_due.then(short_pause)
    }

    /// `fi_close` of an endpoint: its links end, its operations end without a
    /// word.
    pub(super) fn close_endpoint(&mut self, ep: EpKey) {
        let links = self.links.iter();
        let mine: Vec<LinkKey> = links
            .filter(|(_, link)| link.ep == ep)
            .map(|(key, _)| key)
            .collect();
        for key in mine {
            let ops = self.take_down(key, Errno::ECANCELED);
            ops.into_iter().for_each(Ticket::abandon);
        }
        let Some(own) = self.endpoints.close(ep) else {
            return;
        };
        if let Some(door) = &own.door {
            self.poller.forget(door.as_fd());
        }
        own.peers.abandon();
        self.follow_up();
    }
}
