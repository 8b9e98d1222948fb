//! Two peers that are one endpoint: the application sends to it under two of its addresses.
//!
//! Each of the two sends a request, and the other side knows this one by its name: it sees a second
//! request of a peer with which it has a connection. An endpoint that was restarted sends one, too; so
//! requests and answers contain a random number of the endpoint ([`Hello::instance`]). If it is the
//! same, the answer names the connection that exists ([`Hello::cookie`]), and the second peer becomes
//! the *twin* of the first one, which sends what is submitted for it.

use super::endpoint::{Endpoint, Shared};
use super::host::{Host, PeerId, Time};
use super::jobs::What;
use super::peer::{Peer, Setup, Terms};
use super::wire::Hello;

/// Time within which the set-up of a connection is over, usually. A request under another address that
/// comes during that time is left unanswered, and repeated by its sender.
pub const SETTLES_WITHIN: Time = 1_000_000_000;

impl Terms {
    /// Whether the peer's endpoint is the one that says this of itself.
    pub fn is_of(&self, hello: Option<&Hello>) -> bool {
        let both = self.hello.as_ref().zip(hello);
        both.is_some_and(|(known, hello)| known.instance == hello.instance && hello.instance != 0)
    }
}

impl<H: Host> Peer<H> {
    /// Whether a request or an answer of this peer is of the endpoint whose address is known already, though
    /// it contains another address.
    pub fn is_same_endpoint(&self, address: u64, hello: Option<&Hello>) -> bool {
        self.terms.remote != 0 && self.terms.remote != address && self.terms.is_of(hello)
    }

    /// The same, while this side's own request is still to be answered. Of two sides that begin anew at
    /// the same time, each may know an address that the other one has given up: there the latest one counts.
    pub fn is_settling(&self, now: Time, address: u64, hello: Option<&Hello>) -> bool {
        matches!(self.setup, Setup::Asking { .. })
            && !self.is_renewed
            && self.is_same_endpoint(address, hello)
            && now.saturating_sub(self.silent_since) < SETTLES_WITHIN
    }
}

impl<H: Host> Shared<H> {
    /// Makes a peer one of its own again: it asks for a connection if there is something to be sent.
    pub fn part_from_twin(&mut self, now: Time, peer: &mut Peer<H>) {
        peer.setup = Setup::Idle;
        if !peer.sending.queue.is_empty() {
            peer.ask(now);
            self.serve(peer);
        }
    }
}

impl<H: Host> Endpoint<H> {
    /// The peer whose packets carry this address, other than the one with this index.
    pub(super) fn twin_at(&self, address: u64, index: u32) -> Option<PeerId> {
        let place = self.shared.secret.index_of(address as u32);
        let peer = self.peers.get(place)?.as_deref()?;
        (address != 0 && peer.terms.local == address && peer.id.index != index).then_some(peer.id)
    }

    /// Makes a peer, which has no connection, the twin of another one.
    pub(super) fn join(&mut self, now: Time, id: PeerId, twin: PeerId) {
        let Some(address) = self.at(twin).map(|(twin, _)| twin.terms.local) else {
            return;
        };
        if let Some((peer, shared)) = self.at(id) {
            let queue = std::mem::take(&mut peer.sending.queue);
            shared.forget(now, peer);
            peer.sending.queue = queue;
            peer.is_awaited = false;
            peer.setup = Setup::Twin {
                of: twin,
                at: address,
            };
            shared.serve(peer);
        }
    }

    /// Has a twin's jobs sent by the peer that it is the twin of; if that has another connection since then,
    /// or none, the twin is a peer of its own again.
    #[cold]
    pub(super) fn pass_on(&mut self, now: Time, index: u32) {
        let Some((peer, _)) = self.at_index(index) else {
            return;
        };
        let Setup::Twin { of, at } = peer.setup else {
            return;
        };
        let queue = std::mem::take(&mut peer.sending.queue);
        if let Some((twin, shared)) = self.at(of)
            && twin.terms.local == at
            && matches!(twin.setup, Setup::Open | Setup::Asking { .. })
        {
            if !twin.owes() && !queue.is_empty() {
                twin.silent_since = now;
            }
            for number in queue {
                if let Some(job) = shared.jobs.get_mut(number) {
                    job.peer = of.index;
                    twin.sending.queue.push_back(number);
                }
            }
            shared.serve(twin);
        } else if let Some((peer, shared)) = self.at_index(index) {
            peer.sending.queue = queue;
            shared.part_from_twin(now, peer);
        }
    }

    /// The peer in whose queue an operation to a peer may be.
    pub(super) fn sender_to(&mut self, id: PeerId, op: H::Op) -> PeerId {
        let Some((peer, shared)) = self.at(id) else {
            return id;
        };
        let is_it = |number: &u32| {
            let job = shared.jobs.get(*number);
            job.is_some_and(|job| matches!(job.what, What::Own(own) if own == op))
        };
        match peer.setup {
            Setup::Twin { of, .. } if !peer.sending.queue.iter().any(is_it) => of,
            _ => id,
        }
    }
}
