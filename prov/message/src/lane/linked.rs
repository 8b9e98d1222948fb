//! How the links of an endpoint end, whatever the kind of link.

use prov_base::errno::Errno;
use prov_util::endpoint::Side;

use crate::endpoints::transport::Transport;
use crate::lane::reaching::Reaching;
use crate::lane::wakeups::Woken;
use crate::lane::{Core, Pause, short_pause};
use crate::operation::{EpKey, Ticket};
use crate::peers::{Failure, PeerKey};

/// A core's key of a link.
type Link<C> = <<C as Core>::Transport as Transport>::Link;
/// A core's own part of an endpoint.
type Own<C> = <<C as Core>::Transport as Transport>::Endpoint;

/// A core whose endpoints have links.
pub trait Linked: Reaching + Woken {
    /// Returns the links of an endpoint.
    fn links_of(&self, ep: EpKey) -> Vec<Link<Self>>;

    /// Removes a link with everything that was under way on it. Returns the operations that end
    /// with it; neither the peer nor an errand is at their memory any more.
    fn take_down(&mut self, link: Link<Self>, error: Errno) -> Vec<Ticket>;

    /// Tells the peer of an open link that the endpoint is closed in good order, as far as the link
    /// takes that at once: the peer's receives then wait for another endpoint at its address.
    fn takes_leave(&mut self, _link: Link<Self>) {}

    /// Ends what an endpoint has besides its links and messages, before these end.
    fn closes(&mut self, _ep: EpKey) {}

    /// Ends the own part of an endpoint that is closed.
    fn closed(&mut self, own: Own<Self>);

    /// Removes a link, and ends its operations without completions.
    fn drop_link(&mut self, link: Link<Self>) {
        let operations = self.take_down(link, Errno::ECANCELED);
        let injected = operations.iter().filter(|ticket| ticket.op().is_inject);
        let injected = injected.count();
        if injected != 0 && self.wakeups().is_own() {
            log::warn!(
                target: Self::LOG_TARGET,
                "an endpoint is closed with {injected} injected operations that have not ended"
            );
        }
        operations.into_iter().for_each(Ticket::abandon);
    }

    /// Removes a link, and fails its operations.
    fn fail_link(&mut self, link: Link<Self>, error: Errno) {
        for operation in self.take_down(link, error) {
            self.endpoints().finish(operation, Err(error));
        }
    }

    /// [`Linked::fail_link`] for a link to a peer of an RDM endpoint, or, without a peer, to the
    /// endpoint itself.
    fn fail_link_to(
        &mut self,
        (ep, peer): (EpKey, Option<PeerKey>),
        link: Link<Self>,
        error: Errno,
        failure: Failure,
    ) {
        self.fail_link(link, error);
        match peer {
            Some(peer) => self.link_ended(ep, peer, link, failure),
            None => {
                if let Some(peers) = self.peers(ep) {
                    peers.loopback_ended(link);
                }
            }
        }
        // Others may go on where it has left room.
        self.follow_up();
    }

    /// `fi_close` of an endpoint: its links end, and its operations without completions.
    fn close_with_links(&mut self, ep: EpKey) {
        for link in self.links_of(ep) {
            if self.wakeups().is_own() {
                self.takes_leave(link);
            }
            self.drop_link(link);
        }
        self.closes(ep);
        if let Some(own) = self.endpoints().close(ep) {
            self.closed(own);
            self.follow_up();
        }
    }

    /// The part of [`Core::send_last`] that comes before all others: waits for the links that injected
    /// operations wait for. The application has been told that these are complete.
    fn connect_for_last(&mut self, ep: EpKey) -> Option<Pause> {
        let waits = |core: &mut Self| {
            let peers = core.peers(ep);
            peers.is_some_and(|peers| peers.any_waiting(|(request, _)| request.is_injected()))
        };
        if !self.wakeups().is_own() || !waits(self) {
            return None;
        }
        self.progress();
        waits(self).then(short_pause)
    }

    /// [`Core::send_last`] for links that send only when the core is driven; `is_due` tells
    /// whether one has data that is still to be sent.
    fn send_by_driving(
        &mut self,
        ep: EpKey,
        is_due: impl Fn(&Self, Link<Self>) -> bool,
    ) -> Option<Pause> {
        if !self.wakeups().is_own() {
            return None;
        }
        self.progress();
        let links = self.links_of(ep);
        let any = links.into_iter().any(|link| is_due(self, link));
        any.then(short_pause)
    }
}

/// A core whose endpoints may be the contexts of scalable endpoints, each of which has one side.
pub trait Sided: Linked {
    /// Whether operations of this side of the endpoint are in progress on a link, so that their
    /// memory may be accessed.
    fn has_memory_of(&self, link: Link<Self>, side: Side) -> bool;

    /// Ends a link and all operations on it with this error.
    fn break_off(&mut self, link: Link<Self>, error: Errno);

    /// [`Core::close_side`]: a link that has memory of the side's operations ends with them.
    fn end_side(&mut self, ep: EpKey, side: Side) {
        match side {
            Side::Receive => self.endpoints().cancel_receives(ep, Errno::ECANCELED),
            Side::Transmit => self.give_up_waiting(ep),
        }
        for link in self.links_of(ep) {
            if self.has_memory_of(link, side) {
                self.break_off(link, Errno::ECANCELED);
            }
        }
        self.follow_up();
    }
}
