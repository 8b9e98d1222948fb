//! Peers of an endpoint that talks to many: a link to each, made on first use,
//! and what waits for it.
//!
//! What a *link* is, only the provider knows: a connection, a queue in shared
//! memory, a session. Here it is a name that is never used twice (a slotmap
//! key), so that the name of a link that has ended means nothing. The provider
//! tells what happened and does what it is answered:
//!
//! - An operation is posted: [`Peers::open_link`], or else
//!   [`Peers::destination`]. Without an open link it waits here
//!   ([`Peers::defer`]), or the application comes again with it
//!   ([`Peers::await_link`]).
//! - [`Step::Start`] asks for an attempt to reach a peer; [`Peers::target`] says
//!   where it is. [`Peers::begun`] names the link that is being made, or
//!   [`Peers::not_begun`] says why there is none.
//! - A peer asks for a link: [`Peers::peer_at`], then [`Peers::adopt`] until it
//!   is open.
//! - A link is open: [`Peers::opened`], and then [`Peers::next_waiting`] until
//!   there is no more. It has ended, open or not: [`Peers::ended`].
//! - A time has come that an answer named: [`Peers::due`].
//!
//! At most one link per peer is made or open at a time. Operations of one peer
//! keep their order. What nobody needs is forgotten: memory grows with the
//! peers in use, not with those the address vector knows.

mod address_vector;
mod answer;
mod attempt;
mod deferred;
mod following;
mod leaving;
mod linking;
mod peer;
mod routes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use prov_util::errno::{Errno, Result};
use prov_util::matching::ANY_SOURCE;
use slotmap::{SlotMap, new_key_type};

pub(crate) use self::address_vector::{Removals, Seen};
use self::attempt::{Attempt, Stage};
use self::leaving::LeftOf;
use self::peer::{Asked, Link, Peer, Reach, Standing};
use self::routes::Routes;

pub use self::address_vector::AddressVector;
pub use self::answer::{Declined, Destination, Ended, GivenUp, Opened, Step, Target};
pub use self::attempt::{Failure, Patience};
pub use self::deferred::{Bytes, Deferred, Replay, Request};

new_key_type! {
    /// A peer of an endpoint.
    pub struct PeerKey;
}

/// The source of messages from a peer that the address vector does not know.
/// No receive can name it.
pub const UNKNOWN_SOURCE: u64 = ANY_SOURCE;

/// The peers of an endpoint, for links named `L`, addresses of a vector `V`,
/// and requests `W` that wait.
pub struct Peers<L, V: AddressVector, W> {
    routes: Routes<L>,
    /// Addresses that were removed from the address vector, as it counts them.
    removals: Arc<Removals>,
    /// What the address vector was like when `routes` and the peers' sources
    /// were looked up.
    seen: Seen,
    table: SlotMap<PeerKey, Peer<L, V::Address, W>>,
    by_addr: HashMap<V::Address, PeerKey>,
    av: Option<V>,
    /// Peers that the address vector does not know.
    strangers: HashSet<PeerKey>,
    /// How many peers are lost.
    lost: usize,
    /// The endpoint as its own peer, and the far end of its link to itself.
    loopback: Option<(PeerKey, L)>,
    /// Links whose messages come from another source than they say.
    relabelled: Vec<(L, u64)>,
    /// What links have left that have ended.
    left: LeftOf<V::Address>,
    patience: Patience,
}

impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// Without peers.
    pub fn new(patience: Patience) -> Self {
        Peers {
            routes: Routes::new(),
            removals: Arc::default(),
            seen: Seen::default(),
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

    /// Uses an address vector from now on.
    pub fn bind_av(&mut self, av: V) {
        self.removals.watch(&av);
        self.av = Some(av);
    }

    /// The address vector.
    pub fn av(&self) -> Option<&V> {
        self.av.as_ref()
    }

    /// The link over which messages for an address went last. It may have ended
    /// since; if not, nothing waits for it.
    #[inline]
    pub fn open_link(&self, fi_addr: u64) -> Option<L> {
        if self.removals.count() != self.seen.removals {
            return None;
        }
        self.routes.link(fi_addr)
    }

    /// Where an operation for an address goes. `-FI_EINVAL` where the address
    /// vector has no such address, `-FI_ENOAV` without one.
    #[inline]
    pub fn destination(&mut self, fi_addr: u64) -> Result<Destination<L>> {
        let key = self.route(fi_addr)?;
        match self.table.get(key) {
            Some(Peer {
                link: Link::Open(link),
                waiting,
                ..
            }) if waiting.is_empty() => {
                self.routes.set(fi_addr, key, Some(*link));
                Ok(Destination::Open(*link))
            }
            Some(_) => Ok(Destination::Waits(key)),
            // It came while the vector changed, and was forgotten as a stranger.
            None => {
                self.find_route(fi_addr)?;
                self.destination(fi_addr)
            }
        }
    }

    /// Keeps a request until there is a link to its peer, which
    /// [`Peers::destination`] has named. Declined with `-FI_EFIREWALLADDR` if
    /// only the peer can make one, with `-FI_EISCONN` if there is one that
    /// nothing waits for.
    pub fn defer(
        &mut self,
        key: PeerKey,
        request: W,
        now: Instant,
    ) -> std::result::Result<Step, Declined<W>> {
        let declined = |error, request| Err(Declined { error, request });
        let step = match self.table.get(key) {
            Some(peer) if matches!(peer.link, Link::Open(_)) && peer.waiting.is_empty() => {
                return declined(Errno::EISCONN, request);
            }
            _ => self.connect(key, now),
        };
        match (step, self.table.get_mut(key)) {
            (Ok(step), Some(peer)) => {
                peer.waiting.push_back(request);
                Ok(step)
            }
            (Ok(_), None) => declined(Errno::EINVAL, request),
            (Err(error), _) => declined(error, request),
        }
    }

    /// For an operation that cannot wait here, since it shows only with the
    /// link whether the peer can take it: the application is to come again
    /// (`-FI_EAGAIN`), for which this sees to it that there will be a link.
    /// Where that has failed since it came last, it is told the reason, once.
    pub fn await_link(&mut self, key: PeerKey, now: Instant) -> Result<Step> {
        let peer = self.table.get_mut(key).ok_or(Errno::EINVAL)?;
        if let Asked::Failed(at, error) = std::mem::replace(&mut peer.asked, Asked::No)
            // What failed long ago is no answer to this call.
            && now.saturating_duration_since(at) < self.patience.connect
        {
            return Err(error);
        }
        let step = self.connect(key, now)?;
        if let Some(peer) = self.table.get_mut(key)
            && !matches!(peer.link, Link::Open(_))
        {
            peer.asked = Asked::Yes;
        }
        Ok(step)
    }

    /// Whether this peer is lost.
    pub fn is_lost(&self, key: PeerKey) -> bool {
        self.table.get(key).is_some_and(Peer::is_lost)
    }

    /// Whether a peer is lost: its link has ended, or could not be made, and it
    /// is not back.
    #[inline]
    pub fn any_lost(&self) -> bool {
        self.lost != 0
    }

    /// A receive was posted for messages from this address only. If the peer is
    /// lost, this finds out whether it is back, or else has the receive ended.
    pub fn seek(&mut self, fi_addr: u64, now: Instant) -> Step {
        self.follow();
        let addr = self.av.as_ref().and_then(|av| av.lookup(fi_addr));
        let key = addr.and_then(|addr| self.find(&addr));
        let Some((key, peer)) = key.and_then(|key| Some((key, self.table.get_mut(key)?))) else {
            return Step::Wait;
        };
        if !peer.is_lost() {
            return Step::Wait;
        }
        peer.standing = Standing::Missed;
        // Whom only its own request can bring back is waited for.
        self.connect(key, now).unwrap_or(Step::Wait)
    }

    /// Where the attempt goes that is to be started; `None` if there is none
    /// under way.
    pub fn target(&self, key: PeerKey) -> Option<Target<V::Address>> {
        let peer = self.table.get(key)?;
        match &peer.link {
            Link::Attempted(attempt) if matches!(attempt.stage, Stage::UnderWay { .. }) => {
                Some(Target {
                    addr: peer.addr.clone(),
                    source: peer.source,
                    deadline: attempt.deadline,
                })
            }
            _ => None,
        }
    }

    /// The attempt that is under way makes this link.
    pub fn begun(&mut self, key: PeerKey, made: L) {
        if let Some(Stage::UnderWay { link, .. }) = self.stage(key) {
            *link = Some(made);
        }
    }

    /// The attempt has failed before its link had a name. As with
    /// [`Peers::ended`], links are to be relabelled before anything else.
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

    /// A link that the peer has begun takes the place of any attempt to make
    /// one: its end is the attempt's. Returns the link of the attempt that gives
    /// way, to be closed. An open link has to be ended before.
    pub fn adopt(&mut self, key: PeerKey, link: L, now: Instant) -> Option<L> {
        let patience = self.patience;
        let peer = self.table.get_mut(key)?;
        if let Link::None = peer.link {
            peer.link = Link::Attempted(Box::new(Attempt::begin(&patience, now)));
        }
        let Link::Attempted(attempt) = &mut peer.link else {
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

    /// The link to a peer is open. What has waited leaves next, before anything
    /// else ([`Peers::next_waiting`]). `None` if the peer is not known.
    pub fn opened(&mut self, key: PeerKey, link: L) -> Option<Opened<L>> {
        self.stand(key, Standing::Good);
        let peer = self.table.get_mut(key)?;
        peer.asked = Asked::No;
        let before = std::mem::replace(&mut peer.link, Link::Open(link));
        let crossing = match &before {
            Link::Attempted(attempt) => match attempt.stage {
                Stage::UnderWay { crossing, .. } => crossing,
                Stage::Pausing(_) => None,
            },
            Link::None | Link::Open(_) => None,
        };
        Some(Opened {
            source: peer.source,
            crossing: crossing.filter(|crossing| *crossing != link),
            displaced: before.name().filter(|displaced| *displaced != link),
        })
    }

    /// The request that has waited longest for a link, if that is open.
    pub fn next_waiting(&mut self, key: PeerKey, link: L) -> Option<W> {
        let peer = self.table.get_mut(key)?;
        if peer.link.is_open(link) {
            peer.waiting.pop_front()
        } else {
            None
        }
    }

    /// There is no room for the request that [`Peers::next_waiting`] returned
    /// last: it waits on, and so does what comes after it. Returned if the peer
    /// is not known any more.
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

    /// A link to a peer has ended, whether it was open or not. Quietly if it is
    /// not the link of the attempt, or the open one.
    ///
    /// The source that the answer names is what the address vector says now, so
    /// links are to be relabelled ([`Peers::take_relabelled`]) before receives
    /// end.
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
                Link::Open(_) => self.lose(key, now),
                _ => self.attempt_failed(key, failure, now),
            },
            _ => Ended::Quietly,
        }
    }

    /// The time has come to look after a peer without a link.
    pub fn due(&mut self, key: PeerKey, now: Instant) -> Step {
        match self.stage(key) {
            Some(stage @ Stage::Pausing(_)) => {
                if let Stage::Pausing(at) = *stage
                    && at > now
                {
                    return Step::Wait;
                }
                *stage = Stage::under_way(None);
                Step::Start(key)
            }
            _ => Step::Wait,
        }
    }

    /// Takes everything that waits, for whatever peer: the endpoint closes.
    pub fn drain(&mut self) -> impl Iterator<Item = W> {
        let peers = self.table.values_mut();
        peers.flat_map(|peer| peer.waiting.drain(..))
    }

    /// What waits for the link to a peer, oldest first.
    pub fn waiting(&self, key: PeerKey) -> impl Iterator<Item = &W> {
        let peer = self.table.get(key).into_iter();
        peer.flat_map(|peer| &peer.waiting)
    }
}

/// Who is a peer.
impl<L: Copy + Eq, V: AddressVector, W> Peers<L, V, W> {
    /// The peer with this address, if it is known.
    pub fn find(&self, addr: &V::Address) -> Option<PeerKey> {
        self.by_addr.get(addr).copied()
    }

    /// The address by which a peer is known that has asked for a link: its own, or
    /// else what `widened` makes of that, which matches less closely.
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

    /// The peer with this address, new if it was not known: it has asked for a
    /// link. One that then gets none is to be taken back with
    /// [`Peers::forget_idle`].
    pub fn peer_at(&mut self, addr: &V::Address) -> PeerKey {
        if let Some(key) = self.find(addr) {
            return key;
        }
        let source = self.source_of(addr);
        let key = self.table.insert(Peer::new(addr.clone(), source));
        self.by_addr.insert(addr.clone(), key);
        if source == UNKNOWN_SOURCE {
            self.strangers.insert(key);
        }
        key
    }

    /// Forgets a peer without a link that the address vector does not know, if
    /// nothing waits for one.
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

    /// A peer's address.
    pub fn address(&self, key: PeerKey) -> Option<&V::Address> {
        Some(&self.table.get(key)?.addr)
    }

    /// The source of a peer's messages, [`UNKNOWN_SOURCE`] without one.
    pub fn source(&self, key: PeerKey) -> u64 {
        self.table
            .get(key)
            .map_or(UNKNOWN_SOURCE, |peer| peer.source)
    }

    /// A peer's link, open or being made.
    pub fn link(&self, key: PeerKey) -> Option<L> {
        self.table.get(key)?.link.name()
    }

    /// How many peers are known.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no peer is known.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Only the peer can make a link: it said that it cannot be connected to.
    pub fn only_calls(&mut self, key: PeerKey) {
        if let Some(peer) = self.table.get_mut(key) {
            peer.reach = Reach::PeerOnly;
        }
    }

    /// The peer's own request for a link has met the attempt under way, and is
    /// to be answered when that has ended: [`Opened::crossing`] and
    /// [`Peers::take_crossing`] have it. `false` if no attempt is under way.
    pub fn crosses(&mut self, key: PeerKey, theirs: L) -> bool {
        match self.stage(key) {
            Some(Stage::UnderWay { crossing, .. }) => {
                *crossing = Some(theirs);
                true
            }
            _ => false,
        }
    }

    /// The peer's own request that has met ours. To be asked for, and answered,
    /// when an attempt has failed and before [`Peers::ended`] is told.
    pub fn take_crossing(&mut self, key: PeerKey) -> Option<L> {
        match self.stage(key) {
            Some(Stage::UnderWay { crossing, .. }) => crossing.take(),
            _ => None,
        }
    }

    /// A peer that is this endpoint itself; the far end of its link is `link`.
    pub fn loops_back(&mut self, key: PeerKey, link: L) {
        self.loopback = Some((key, link));
    }

    /// The far end of the endpoint's link to itself.
    pub fn loopback(&self) -> Option<L> {
        self.loopback.map(|(_, link)| link)
    }

    /// The far end of the endpoint's link to itself has ended, if it is this.
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
