//! RDM endpoints reach their peers over links: carries out the decisions of [`Peers`], whatever the
//! kind of link.

use std::collections::HashSet;
use std::fmt::Display;
use std::time::Instant;

use prov_base::errno::{Errno, Result};

use crate::endpoints::left::LeftKey;
use crate::endpoints::transport::Transport;
use crate::lane::Core;
use crate::operation::EpKey;
use crate::operation::{Context, Op, Ticket};
use crate::peers::{
    AddressVector, ConnectStep, ConnectTarget, Deferred, Destination, Ended, Failure, GivenUp,
    PeerKey, Peers,
};
use crate::receipt::Dependent;

/// An operation that waits for its link, with its ticket.
pub type DeferredOp = (Deferred, Ticket);

/// A core's key of a link.
type Link<C> = <<C as Core>::Transport as Transport>::Link;

/// The peers of an endpoint of a core.
pub type PeersOf<C> = Peers<Link<C>, <C as Reaching>::Vector, DeferredOp>;

/// The address type of a core's peers.
type Address<C> = <<C as Reaching>::Vector as AddressVector>::Address;

impl<L: Copy + Eq, V: AddressVector> Peers<L, V, DeferredOp> {
    /// Gives up the operations that wait for links, without completions.
    pub fn abandon(mut self) {
        self.drain().for_each(|(_, ticket)| ticket.abandon());
    }
}

/// A core with RDM endpoints, which defines how a peer is reached.
pub trait Reaching: Core {
    /// The address vector in which peers are found.
    type Vector: AddressVector<Address: Display>;

    /// The target of its log messages, such as `tcp::ep_ctrl`.
    const LOG_TARGET: &'static str;

    /// Returns the peers of an endpoint; `None` if it is closed, or is connected to a single peer.
    fn peers(&mut self, ep: EpKey) -> Option<&mut PeersOf<Self>>;

    /// Begins to connect to a peer.
    ///
    /// # Errors The reason why it is impossible.
    fn ask(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        target: &ConnectTarget<Address<Self>>,
    ) -> Result<Link<Self>>;

    /// Classifies the error of [`Reaching::ask`] for the operations that wait.
    fn not_asked(&mut self, _ep: EpKey, _peer: PeerKey, error: Errno) -> Failure {
        Failure::of(error)
    }

    /// Schedules a call of [`Reaching::due`] at this time.
    fn call_at(&mut self, at: Instant, ep: EpKey, peer: PeerKey);

    /// Sets the source of a link's messages.
    fn has_source(&mut self, link: Link<Self>, source: u64);

    /// Returns the destination of an operation to the peer `addr`.
    ///
    /// # Errors Those of [`Peers::destination`], `-FI_EOPBADSTATE` without peers.
    #[inline]
    fn reach(&mut self, ep: EpKey, addr: u64) -> Result<Destination<Link<Self>>> {
        let peers = self.peers(ep).ok_or(Errno::EOPBADSTATE)?;
        let destination = peers.destination(addr);
        if peers.is_relabelled() {
            // The update may end the link.
            self.follow_av(ep);
            return self.reach(ep, addr);
        }
        destination
    }

    /// Queues an operation until there is a link to its peer.
    ///
    /// # Errors `-FI_EAGAIN` if too many operations are outstanding, or the reason why the peer is
    /// unreachable.
    fn defer(&mut self, peer: PeerKey, op: Op, request: impl FnOnce() -> Deferred) -> Result {
        let endpoint = self.endpoints().get_mut(op.ep).ok_or(Errno::EOPBADSTATE)?;
        if !endpoint.ledger.has_room() {
            return Err(Errno::EAGAIN);
        }
        let waiting = (request(), endpoint.ledger.count(op));
        let deferred = match self.peers(op.ep) {
            Some(peers) => peers.defer(peer, waiting, Instant::now()),
            None => Err(crate::peers::Declined {
                error: Errno::EOPBADSTATE,
                request: waiting,
            }),
        };
        match deferred {
            Ok(step) => {
                self.take_step(op.ep, step);
                Ok(())
            }
            Err(declined) => {
                let (_, ticket) = declined.request;
                self.endpoints().settle(ticket);
                Err(declined.error)
            }
        }
    }

    /// [`Core::take_back`] of an operation that waits for a link.
    fn take_back_waiting(&mut self, ep: EpKey, context: Context) -> Option<Ticket> {
        let peers = self.peers(ep)?;
        let waiting = peers.take_waiting(|(_, ticket)| ticket.op().can_be_cancelled_by(context));
        waiting.map(|(_, ticket)| ticket)
    }

    /// Gives up all operations of an endpoint that wait for links, without a word.
    fn give_up_waiting(&mut self, ep: EpKey) {
        let waiting: Vec<DeferredOp> = match self.peers(ep) {
            Some(peers) => peers.drain().collect(),
            None => Vec::new(),
        };
        for (_, ticket) in waiting {
            self.endpoints().settle(ticket);
        }
    }

    /// Begins an attempt to reach a peer, if that is the step to be taken.
    fn take_step(&mut self, ep: EpKey, step: ConnectStep) {
        let ConnectStep::Start(peer) = step else {
            return;
        };
        let Some(target) = self.peers(ep).and_then(|peers| peers.target(peer)) else {
            return;
        };
        match self.ask(ep, peer, &target) {
            Ok(link) => {
                if let Some(peers) = self.peers(ep) {
                    peers.begun(peer, link);
                }
            }
            Err(error) => {
                let failure = self.not_asked(ep, peer, error);
                self.not_reached(ep, peer, failure);
            }
        }
    }

    /// Handles a failed attempt that had no link.
    fn not_reached(&mut self, ep: EpKey, peer: PeerKey, failure: Failure) {
        if let Some(peers) = self.peers(ep) {
            let ended = peers.not_begun(peer, failure, Instant::now());
            follow_end(self, ep, peer, failure.error(), ended);
        }
    }

    /// Handles the end of a link, whether it was open or not.
    fn link_ended(&mut self, ep: EpKey, peer: PeerKey, link: Link<Self>, failure: Failure) {
        let left = self.endpoints().left_of(link);
        if let Some(peers) = self.peers(ep) {
            if let Some(left) = left {
                peers.leaves(peer, left);
            }
            let ended = peers.ended(peer, link, failure, Instant::now());
            follow_end(self, ep, peer, failure.error(), ended);
        }
        if self.peers(ep).is_some_and(|peers| peers.has_left_much()) {
            self.forget_received(ep);
        }
    }

    /// Forgets the messages of ended links that have been received.
    #[cold]
    fn forget_received(&mut self, ep: EpKey) {
        let mut left = self.peers(ep).map(|peers| peers.all_left());
        if let Some(left) = &mut left {
            left.retain(|key| self.endpoints().is_left(*key));
        }
        if let (Some(left), Some(peers)) = (left, self.peers(ep)) {
            let left: HashSet<LeftKey> = left.into_iter().collect();
            peers.forget_left(|key| left.contains(&key));
        }
    }

    /// Handles the timer of a peer without a link.
    fn due(&mut self, ep: EpKey, peer: PeerKey, now: Instant) {
        if let Some(peers) = self.peers(ep) {
            let step = peers.due(peer, now);
            self.take_step(ep, step);
        }
    }

    /// Called before a receive for one peer is posted. Returns whether any peer is lost. See
    /// [`crate::Sources::expects`].
    #[inline]
    fn expects_one(&mut self, ep: EpKey) -> bool {
        let Some(peers) = self.peers(ep) else {
            return false;
        };
        let any_lost = peers.any_lost();
        if peers.av_changed() {
            self.follow_av(ep);
        }
        any_lost
    }

    /// Called after a receive for one peer was posted. If the peer is lost, finds out whether it is
    /// reachable again. See [`crate::Sources::awaits`].
    #[cold]
    fn look_for_peer(&mut self, ep: EpKey, addr: u64) {
        if let Some(peers) = self.peers(ep) {
            let step = peers.seek(addr, Instant::now());
            self.relabel(ep);
            self.take_step(ep, step);
        }
    }

    /// Called after a receive was posted whose owner has to learn of the end of this peer. See
    /// [`crate::Sources::depends`].
    fn expect_peer(&mut self, ep: EpKey, addr: u64) {
        if let Ok(Destination::Waits(peer)) = self.reach(ep, addr)
            && let Some(at) = self
                .peers(ep)
                .and_then(|peers| peers.expect(peer, Instant::now()))
        {
            self.call_at(at, ep, peer);
        }
    }

    /// Follows the changes of an endpoint's address vector. See [`crate::Sources::look`].
    fn follow_av(&mut self, ep: EpKey) {
        if let Some(peers) = self.peers(ep) {
            peers.follow();
            self.relabel(ep);
        }
    }

    /// Follows the address vectors that have changed, if messages of strangers are held back:
    /// their peers may be known now.
    #[inline]
    fn look_for_strangers(&mut self) {
        if self.endpoints().holds_back_strangers() {
            self.follow_vectors();
        }
    }

    /// Follows the address vectors that have changed.
    #[cold]
    fn follow_vectors(&mut self) {
        let eps = self.endpoints().iter().filter(|(_, ep)| ep.meets_strangers);
        let eps: Vec<EpKey> = eps.map(|(key, _)| key).collect();
        for ep in eps {
            if self.peers(ep).is_some_and(|peers| peers.av_changed()) {
                self.follow_av(ep);
            }
        }
    }

    /// Gives links the sources that their peers have in the address vector.
    fn relabel(&mut self, ep: EpKey) {
        let Some(peers) = self.peers(ep) else {
            return;
        };
        let left = peers.take_left_relabelled();
        for (link, source) in peers.take_relabelled() {
            self.has_source(link, source);
            self.endpoints().relabel(ep, link, source);
        }
        for (left, source) in left {
            self.endpoints().relabel_left(left, source);
        }
        self.follow_up();
    }
}

/// Handles the end of a link, or of an attempt to connect.
fn follow_end<C: Reaching>(
    core: &mut C,
    ep: EpKey,
    peer: PeerKey,
    error: Errno,
    ended: Ended<Address<C>, DeferredOp>,
) {
    core.follow_av(ep);
    match ended {
        Ended::Quietly => {}
        Ended::Again(at) => core.call_at(at, ep, peer),
        Ended::Lost {
            source,
            receives,
            again,
        } => {
            if let Some(at) = again {
                core.call_at(at, ep, peer);
            }
            end_directed_receives(core, ep, source, receives, error);
        }
        Ended::GivenUp(given_up) => give_up(core, ep, given_up),
    }
}

/// Fails the waiting operations after the last attempt to connect.
fn give_up<C: Reaching>(core: &mut C, ep: EpKey, given_up: GivenUp<Address<C>, DeferredOp>) {
    let error = given_up.error;
    log::warn!(
        target: C::LOG_TARGET,
        "no connection to {}: {error}; {} operations fail",
        given_up.addr,
        given_up.failed.len()
    );
    for (_, ticket) in given_up.failed {
        core.endpoints().finish(ticket, Err(error));
    }
    end_directed_receives(core, ep, given_up.source, given_up.receives, error);
}

/// Ends the posted receives that only messages of this source can match. Later ones end, too,
/// unless the peer is reachable again. Receives that match any source are left.
fn end_directed_receives<C: Reaching>(
    core: &mut C,
    ep: EpKey,
    source: Option<u64>,
    receives: Dependent,
    error: Errno,
) {
    if let (Some(source), Some(endpoint)) = (source, core.endpoints().get(ep))
        && (endpoint.directed || endpoint.reports.transfers.is_some())
    {
        core.endpoints()
            .cancel_receives_from(ep, source, receives, error);
    }
}
