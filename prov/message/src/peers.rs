//! The peers of an endpoint that communicates with many: a link to each, established on first use,
//! and the operations that wait for it.
//!
//! Only the provider knows what a *link* is: a connection, a queue in shared memory, a session.
//! Here it is a key that is never reused (slotmap), so that the key of a link that has ended is
//! invalid. The provider reports events and carries out the answers:
//!
//! - An operation is posted: [`Peers::open_link`], otherwise [`Peers::destination`]. Without an
//!   open link the operation waits here ([`Peers::defer`]), or the application has to post it again
//!   ([`Peers::await_link`]).
//! - [`ConnectStep::Start`] asks for an attempt to reach a peer, whose address [`Peers::target`] returns.
//!   [`Peers::begun`] records the link that is being established, or [`Peers::not_begun`] the
//!   reason why there is none.
//! - A peer asks for a link: [`Peers::peer_at`], then [`Peers::adopt`] until it is open.
//! - A link is open: [`Peers::opened`], and then [`Peers::next_waiting`] until it returns `None`. A
//!   link has ended, whether it was open or not: [`Peers::ended`].
//! - The time that an answer named has come: [`Peers::due`].
//!
//! At most one link per peer is established or open at a time. The operations of one peer keep
//! their order. Peers that are not needed are forgotten: memory grows with the peers in use, not
//! with the size of the address vector.

mod address_vector;
mod answer;
mod attempt;
mod deadline;
mod deferred;
mod following;
mod leaving;
mod linking;
mod peer;
mod rdm_address;
mod routes;

use prov_base::bounded;
use prov_base::bounds::{OPERATIONS, PEERS};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_util::matching::ANY_SOURCE;
use slotmap::{SlotMap, new_key_type};

pub(crate) use self::address_vector::{Removals, VectorState};
use self::attempt::{Attempt, Stage};
use self::leaving::LeftOf;
use self::linking::EXPECTED_FOR;
use self::peer::{Asked, LinkState, Peer, Reach, Standing};
use self::routes::Routes;

pub use self::address_vector::AddressVector;
pub use self::answer::{ConnectStep, ConnectTarget, Declined, Destination, Ended, GivenUp, Opened};
pub use self::attempt::{Failure, Patience};
pub use self::deadline::Deadline;
pub use self::deferred::{Bytes, Copies, Deferred, Lent, Replay, Request};
pub use self::rdm_address::{RdmAddress, RdmVector};

new_key_type! {
    /// The key of a peer of an endpoint.
    pub struct PeerKey;
}

/// The source of messages from a peer that the address vector does not know. A receive cannot name
/// it.
pub const UNKNOWN_SOURCE: u64 = ANY_SOURCE;

/// The peers of an endpoint, for links with keys `L`, addresses of a vector `V`, and waiting
/// requests `W`.
pub struct Peers<L, V: AddressVector, W> {
    routes: Routes<L>,
    /// Counts the addresses that were removed from the address vector.
    removals: Arc<Removals>,
    /// The state of the address vector when `routes` and the peers' sources were looked up.
    seen: VectorState,
    table: SlotMap<PeerKey, Peer<L, V::Address, W>>,
    by_addr: HashMap<V::Address, PeerKey>,
    av: Option<V>,
    /// The peers that the address vector does not know.
    strangers: HashSet<PeerKey>,
    /// Number of peers that are lost.
    lost: usize,
    /// The endpoint as its own peer, and the far end of its link to itself.
    loopback: Option<(PeerKey, L)>,
    /// Links whose messages have a new source, with that source.
    relabelled: Vec<(L, u64)>,
    /// Complete messages of links that have ended.
    left: LeftOf<V::Address>,
    patience: Patience,
}

impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// Creates an empty set.
    pub fn new(patience: Patience) -> Self {
        Peers {
            routes: Routes::new(),
            removals: Arc::default(),
            seen: VectorState::default(),
            table: SlotMap::with_key(),
            by_addr: HashMap::new(),
            av: None,
            strangers: HashSet::new(),
            lost: 0,
            loopback: None,
            relabelled: Vec::new(),
            left: LeftOf::new(),
            patience,
        }
    }

    /// Sets the address vector.
    pub fn bind_av(&mut self, av: V) {
        self.removals.watch(&av);
        self.av = Some(av);
    }

    /// Returns the address vector.
    pub fn av(&self) -> Option<&V> {
        self.av.as_ref()
    }

    /// Returns the link that messages for an address used last. It may have ended; if it has not,
    /// no operation waits for it.
    #[inline]
    pub fn open_link(&self, fi_addr: u64) -> Option<L> {
        if self.removals.count() != self.seen.removals {
            return None;
        }
        self.routes.link(fi_addr)
    }

    /// Returns the destination of an operation for an address.
    ///
    /// # Errors `-FI_EINVAL` if the address vector has no such address, `-FI_ENOAV` without an
    /// address vector.
    #[inline]
    pub fn destination(&mut self, fi_addr: u64) -> Result<Destination<L>> {
        let key = self.route(fi_addr)?;
        match self.table.get(key) {
            Some(Peer {
                link: LinkState::Open(link),
                waiting,
                ..
            }) if waiting.is_empty() => {
                self.routes.set(fi_addr, key, Some(*link));
                Ok(Destination::Open(*link))
            }
            Some(_) => Ok(Destination::Waits(key)),
            // The peer was added while the vector changed, and was forgotten as a stranger.
            None => {
                self.find_route(fi_addr)?;
                self.destination(fi_addr)
            }
        }
    }

    /// Queues a request until there is a link to its peer, which [`Peers::destination`] has
    /// returned. Declined with `-FI_EFIREWALLADDR` if only the peer can establish one, with
    /// `-FI_EISCONN` if there is one that nothing waits for.
    pub fn defer(
        &mut self,
        key: PeerKey,
        request: W,
        now: Instant,
    ) -> std::result::Result<ConnectStep, Declined<W>> {
        let declined = |error, request| Err(Declined { error, request });
        let step = match self.table.get(key) {
            Some(peer) if matches!(peer.link, LinkState::Open(_)) && peer.waiting.is_empty() => {
                return declined(Errno::EISCONN, request);
            }
            _ => self.connect(key, now),
        };
        match (step, self.table.get_mut(key)) {
            (Ok(step), Some(peer)) => {
                peer.waiting.push_back(request);
                bounded!(peer.waiting, OPERATIONS);
                Ok(step)
            }
            (Ok(_), None) => declined(Errno::EINVAL, request),
            (Err(error), _) => declined(error, request),
        }
    }

    /// Begins to establish a link for an operation that cannot wait here, because only the link
    /// shows whether the peer supports it: the application has to post it again (`-FI_EAGAIN`). If
    /// the attempt has failed since the last call, the reason is returned, once.
    pub fn await_link(&mut self, key: PeerKey, now: Instant) -> Result<ConnectStep> {
        let peer = self.table.get_mut(key).ok_or(Errno::EINVAL)?;
        if let Asked::Failed(at, error) = std::mem::replace(&mut peer.asked, Asked::No)
            // A failure of long ago is no answer to this call.
            && now.saturating_duration_since(at) < self.patience.connect
        {
            return Err(error);
        }
        let step = self.connect(key, now)?;
        if let Some(peer) = self.table.get_mut(key)
            && !matches!(peer.link, LinkState::Open(_))
        {
            peer.asked = Asked::Yes;
        }
        Ok(step)
    }

    /// Returns whether this peer is lost.
    pub fn is_lost(&self, key: PeerKey) -> bool {
        self.table.get(key).is_some_and(Peer::is_lost)
    }

    /// Returns whether any peer is lost: its link has ended, or could not be established, and it is
    /// not reachable again.
    #[inline]
    pub fn any_lost(&self) -> bool {
        self.lost != 0
    }

    /// Called when a receive was posted for messages from this address only. If the peer is lost,
    /// begins an attempt to reach it, whose failure ends the receive.
    pub fn seek(&mut self, fi_addr: u64, now: Instant) -> ConnectStep {
        self.follow();
        let addr = self.av.as_ref().and_then(|av| av.lookup(fi_addr));
        let key = addr.and_then(|addr| self.find(&addr));
        let Some((key, peer)) = key.and_then(|key| Some((key, self.table.get_mut(key)?))) else {
            return ConnectStep::Wait;
        };
        if !peer.is_lost() {
            return ConnectStep::Wait;
        }
        peer.standing = Standing::Missed;
        // A peer that only its own request can bring back is waited for.
        self.connect(key, now).unwrap_or(ConnectStep::Wait)
    }

    /// Called when a receive was posted that only messages of this peer can match, and whose owner
    /// has to learn of the peer's end even if there has never been a link. Returns the time at which
    /// [`Peers::due`] is to be called: if there is no link by then, this side establishes one.
    pub fn expect(&mut self, key: PeerKey, now: Instant) -> Option<Instant> {
        let peer = self.table.get_mut(key)?;
        if peer.standing != Standing::Good || matches!(peer.link, LinkState::Open(_)) {
            return None;
        }
        peer.standing = Standing::Expected;
        matches!(peer.link, LinkState::None).then(|| now + EXPECTED_FOR)
    }

    /// Returns the target of the attempt that is to be started; `None` if no attempt is under way.
    pub fn target(&self, key: PeerKey) -> Option<ConnectTarget<V::Address>> {
        let peer = self.table.get(key)?;
        match &peer.link {
            LinkState::Attempted(attempt) if matches!(attempt.stage, Stage::UnderWay { .. }) => {
                Some(ConnectTarget {
                    addr: peer.addr.clone(),
                    source: peer.source,
                    deadline: attempt.deadline,
                })
            }
            _ => None,
        }
    }

    /// Records the link that the current attempt establishes.
    pub fn begun(&mut self, key: PeerKey, made: L) {
        if let Some(Stage::UnderWay { link, .. }) = self.stage(key) {
            *link = Some(made);
        }
    }

    /// Handles an attempt that failed before its link had a key. As for [`Peers::ended`], links are
    /// to be relabelled before anything else.
    pub fn not_begun(
        &mut self,
        key: PeerKey,
        failure: Failure,
        now: Instant,
    ) -> Ended<V::Address, W> {
        self.follow();
        match self.stage(key) {
            Some(Stage::UnderWay { link: None, .. }) => self.attempt_failed(key, failure, now),
            _ => Ended::Quietly,
        }
    }

    /// Replaces any attempt of this side by a link that the peer has begun: the end of that link is
    /// then the end of the attempt. Returns the link of the replaced attempt, to be closed. An open
    /// link has to be ended before.
    pub fn adopt(&mut self, key: PeerKey, link: L, now: Instant) -> Option<L> {
        let patience = self.patience;
        let peer = self.table.get_mut(key)?;
        if let LinkState::None = peer.link {
            peer.link = LinkState::Attempted(Box::new(Attempt::begin(&patience, now)));
        }
        let LinkState::Attempted(attempt) = &mut peer.link else {
            return None;
        };
        match &mut attempt.stage {
            Stage::UnderWay { link: made, .. } => made.replace(link).filter(|old| *old != link),
            stage @ Stage::Pausing(_) => {
                *stage = Stage::under_way(Some(link));
                None
            }
        }
    }

    /// Records that the link to a peer is open. The waiting requests have to be sent next, before
    /// anything else ([`Peers::next_waiting`]). Returns `None` if the peer is unknown.
    pub fn opened(&mut self, key: PeerKey, link: L) -> Option<Opened<L>> {
        self.stand(key, Standing::Good);
        let peer = self.table.get_mut(key)?;
        peer.asked = Asked::No;
        let before = std::mem::replace(&mut peer.link, LinkState::Open(link));
        let crossing = match &before {
            LinkState::Attempted(attempt) => match attempt.stage {
                Stage::UnderWay { crossing, .. } => crossing,
                Stage::Pausing(_) => None,
            },
            LinkState::None | LinkState::Open(_) => None,
        };
        Some(Opened {
            source: peer.source,
            crossing: crossing.filter(|crossing| *crossing != link),
            displaced: before.name().filter(|displaced| *displaced != link),
        })
    }

    /// Removes and returns the oldest request that waits for a link, if that link is open.
    pub fn next_waiting(&mut self, key: PeerKey, link: L) -> Option<W> {
        let peer = self.table.get_mut(key)?;
        if peer.link.is_open(link) {
            peer.waiting.pop_front()
        } else {
            None
        }
    }

    /// Puts back the request that [`Peers::next_waiting`] returned last, for want of room: it stays
    /// first. Returns it if the peer is unknown.
    #[must_use]
    pub fn put_back(&mut self, key: PeerKey, request: W) -> Option<W> {
        match self.table.get_mut(key) {
            Some(peer) => {
                peer.waiting.push_front(request);
                None
            }
            None => Some(request),
        }
    }

    /// Handles the end of a link to a peer, whether it was open or not. Returns [`Ended::Quietly`]
    /// if it is neither the link of the attempt nor the open one.
    ///
    /// The source in the answer is the current one of the address vector, so links are to be
    /// relabelled ([`Peers::take_relabelled`]) before receives are ended.
    pub fn ended(
        &mut self,
        key: PeerKey,
        link: L,
        failure: Failure,
        now: Instant,
    ) -> Ended<V::Address, W> {
        self.follow();
        let Some(peer) = self.table.get(key) else {
            return Ended::Quietly;
        };
        match peer.link.name() {
            Some(name) if name == link => match peer.link {
                LinkState::Open(_) => self.lose(key, failure, now),
                _ => self.attempt_failed(key, failure, now),
            },
            _ => Ended::Quietly,
        }
    }

    /// Handles the timer of a peer without a link.
    pub fn due(&mut self, key: PeerKey, now: Instant) -> ConnectStep {
        if let Some(Peer {
            link: LinkState::None,
            standing: Standing::Expected,
            ..
        }) = self.table.get(key)
        {
            // A peer that only its own request can reach is waited for.
            return self.connect(key, now).unwrap_or(ConnectStep::Wait);
        }
        match self.stage(key) {
            Some(stage @ Stage::Pausing(_)) => {
                if let Stage::Pausing(at) = *stage
                    && at > now
                {
                    return ConnectStep::Wait;
                }
                *stage = Stage::under_way(None);
                ConnectStep::Start(key)
            }
            _ => ConnectStep::Wait,
        }
    }

    /// Removes all waiting requests, for an endpoint that is being closed.
    pub fn drain(&mut self) -> impl Iterator<Item = W> {
        let peers = self.table.values_mut();
        peers.flat_map(|peer| peer.waiting.drain(..))
    }

    /// Removes the oldest waiting request to a peer for which `is` is true.
    pub fn take_waiting(&mut self, is: impl Fn(&W) -> bool) -> Option<W> {
        self.table.values_mut().find_map(|peer| {
            let at = peer.waiting.iter().position(&is)?;
            peer.waiting.remove(at)
        })
    }

    /// Whether a request waits for a link to any peer, of those for which `is` is true.
    pub fn any_waiting(&self, is: impl Fn(&W) -> bool) -> bool {
        self.table.values().any(|peer| peer.waiting.iter().any(&is))
    }

    /// Iterates over the requests that wait for the link to a peer, oldest first.
    pub fn waiting(&self, key: PeerKey) -> impl Iterator<Item = &W> {
        let peer = self.table.get(key).into_iter();
        peer.flat_map(|peer| &peer.waiting)
    }
}

/// The identity of peers.
impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// Returns the peer with this address, if it is known.
    pub fn find(&self, addr: &V::Address) -> Option<PeerKey> {
        self.by_addr.get(addr).copied()
    }

    /// Returns the address by which a peer that has asked for a link is known: its own, or the less
    /// specific one that `widened` returns for it.
    pub fn known_as(
        &self,
        addr: &V::Address,
        widened: impl FnOnce(&V::Address) -> Option<V::Address>,
    ) -> V::Address {
        let is_known =
            |addr: &V::Address| self.find(addr).is_some() || self.source_of(addr) != UNKNOWN_SOURCE;
        match widened(addr) {
            Some(other) if !is_known(addr) && is_known(&other) => other,
            _ => addr.clone(),
        }
    }

    /// Returns the peer with this address, which is added if necessary: it has asked for a link. If
    /// it does not get one, [`Peers::forget_idle`] has to be called.
    pub fn peer_at(&mut self, addr: &V::Address) -> PeerKey {
        if let Some(key) = self.find(addr) {
            return key;
        }
        let source = self.source_of(addr);
        let key = self.table.insert(Peer::new(addr.clone(), source));
        bounded!(self.table, PEERS);
        self.by_addr.insert(addr.clone(), key);
        bounded!(self.by_addr, PEERS);
        if source == UNKNOWN_SOURCE {
            self.strangers.insert(key);
            bounded!(self.strangers, PEERS);
        }
        key
    }

    /// Forgets a peer that has no link and is not in the address vector, unless requests wait for
    /// it.
    pub fn forget_idle(&mut self, key: PeerKey) {
        if !self.table.get(key).is_some_and(Peer::is_idle_stranger) {
            return;
        }
        self.stand(key, Standing::Good);
        self.strangers.remove(&key);
        if let Some(peer) = self.table.remove(key) {
            self.by_addr.remove(&peer.addr);
        }
    }

    /// Returns a peer's address.
    pub fn address(&self, key: PeerKey) -> Option<&V::Address> {
        Some(&self.table.get(key)?.addr)
    }

    /// Returns the source of a peer's messages, [`UNKNOWN_SOURCE`] without one.
    pub fn source(&self, key: PeerKey) -> u64 {
        self.table
            .get(key)
            .map_or(UNKNOWN_SOURCE, |peer| peer.source)
    }

    /// Returns a peer's link, open or being established.
    pub fn link(&self, key: PeerKey) -> Option<L> {
        self.table.get(key)?.link.name()
    }

    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no peers.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Records that only the peer can establish a link: it said that it cannot be connected to.
    pub fn only_calls(&mut self, key: PeerKey) {
        if let Some(peer) = self.table.get_mut(key) {
            peer.reach = Reach::PeerOnly;
        }
    }

    /// Records that the peer's own request for a link has crossed the attempt of this side. It is
    /// to be answered when the attempt has ended: [`Opened::crossing`] and [`Peers::take_crossing`]
    /// return it. Returns `false` if no attempt is under way.
    pub fn crosses(&mut self, key: PeerKey, theirs: L) -> bool {
        match self.stage(key) {
            Some(Stage::UnderWay { crossing, .. }) => {
                *crossing = Some(theirs);
                true
            }
            _ => false,
        }
    }

    /// Takes the peer's own request that has crossed ours. To be called, and the request answered,
    /// after an attempt has failed and before [`Peers::ended`] is called.
    pub fn take_crossing(&mut self, key: PeerKey) -> Option<L> {
        match self.stage(key) {
            Some(Stage::UnderWay { crossing, .. }) => crossing.take(),
            _ => None,
        }
    }

    /// Records that a peer is this endpoint itself; the far end of its link is `link`.
    pub fn loops_back(&mut self, key: PeerKey, link: L) {
        self.loopback = Some((key, link));
    }

    /// Returns the far end of the endpoint's link to itself.
    pub fn loopback(&self) -> Option<L> {
        self.loopback.map(|(_, link)| link)
    }

    /// Returns the end of that link on which the endpoint sends.
    pub fn own_link(&self) -> Option<L> {
        let (peer, _) = self.loopback?;
        self.link(peer)
    }

    /// Handles the end of the far end of the endpoint's link to itself, if it is this link.
    pub fn loopback_ended(&mut self, link: L) {
        if self.loopback() == Some(link) {
            self.loopback = None;
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
