//! How links and endpoints end, and what depends on them.

use std::os::fd::AsFd as _;

use prov_base::errno::Errno;
use prov_base::warn_again;
use prov_local::link::Ended;
use prov_message::lane::Pause;
use prov_message::peers::Failure;
use prov_message::{EpKey, Linked, Sided, Ticket};
use prov_util::endpoint::Side;

use super::Core;
use super::endpoint::Rdm;
use super::keys::LinkKey;
use super::link::{Fault, LEAVES, Stage};
use crate::LOG;

impl Core {
    /// Ends a link, and all operations on it.
    #[cold]
    pub(super) fn break_link(&mut self, key: LinkKey, fault: Fault) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (ep, peer) = (link.ep, link.peer);
        let pid = link.wire.pid;
        let error = match fault {
            Fault::Ended(error @ (Errno::ESHUTDOWN | Errno::ECANCELED)) => {
                log::info!(target: LOG.ep_ctrl, "the link with process {pid} has ended: {error}");
                error
            }
            Fault::Ended(error) => {
                warn_again!(
                    target: LOG.ep_ctrl,
                    "the link with process {pid} is lost: {error}"
                );
                error
            }
            Fault::Refused => {
                log::info!(target: LOG.ep_ctrl, "process {pid} refuses the link");
                Errno::ECONNREFUSED
            }
            Fault::Protocol(what) => {
                log::warn!(
                    target: LOG.ep_ctrl,
                    "process {pid} broke the protocol and loses its link: {what}"
                );
                Errno::EPROTO
            }
        };
        let failure = match fault {
            Fault::Ended(error) if link.has_left => Failure::Closed(error),
            _ => Failure::Unreached(error),
        };
        self.fail_link_to((ep, peer), key, error, failure);
    }

    /// Removes a link that was never open, without a report.
    pub(super) fn remove_link(&mut self, key: LinkKey) {
        if let Some(link) = self.links.remove(key) {
            if let Some(socket) = link.wire.socket() {
                self.poller.forget(socket);
            }
            self.no_longer_entered(link.ep, key);
        }
    }

    /// Sends the acknowledgements and replies that are due for an endpoint.
    pub(super) fn flush_last(&mut self, ep: EpKey) -> Option<Pause> {
        self.send_by_driving(ep, |core, link| {
            let link = core.links.get(link);
            link.is_some_and(|link| link.is_open() && link.has_something_to_send())
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
        if let Some(socket) = link.wire.socket() {
            self.poller.forget(socket);
        }
        self.tell_end(&link, false);
        if link.stage == Stage::Entered {
            self.no_longer_entered(link.ep, key);
        }
        self.open.remove(key);
        self.copier.link_ended(key);
        link.seal.destroy();
        let (ep, local) = (link.ep, link.local);
        let Ended { abandoned, ended } = local.end(&mut self.endpoints, error);
        self.endpoints.link_ended(ep, key, error);
        for (ticket, outcome) in ended {
            self.endpoints.finish(ticket, outcome);
        }
        abandoned
    }

    fn takes_leave(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key) {
            // Those that are left reach the memory when the peer makes progress.
            let _left = link.settle_ring_writes();
        }
        if let Some(link) = self.links.get(key).filter(|link| link.is_open()) {
            // Without room for it, there are packets that the peer has not read for long.
            let _ = link.wire.send(LEAVES, None);
            self.tell_end(link, true);
        }
    }

    fn closed(&mut self, own: Box<Rdm>) {
        if let Some(listener) = &own.listener {
            self.poller.forget(listener.as_fd());
        }
        own.peers.abandon();
    }
}

impl Sided for Core {
    fn has_memory_of(&self, key: LinkKey, side: Side) -> bool {
        let link = self.links.get(key);
        link.is_some_and(|link| link.has_memory_of(side))
    }

    fn break_off(&mut self, key: LinkKey, error: Errno) {
        self.break_link(key, Fault::Ended(error));
    }
}
