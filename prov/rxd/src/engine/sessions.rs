//! Links to peers: made for the first operation or the first datagram, and ended when the peer is
//! silent or restarted. The protocol sets up the connection behind them.

use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_base::warn_again;
use prov_message::peers::{ConnectTarget, Destination, Failure, PeerKey};
use prov_message::reaching::PeersOf;
use prov_message::{Linked, Reaching, Sources, Ticket};

use super::Core;
use super::below::Path;
use super::link::{EpKey, Link, LinkKey, Rdm};
use crate::LOG;
use crate::address::{Address, Vector};
use crate::protocol::PeerId;

/// The peers that the protocol knows, and their links.
#[derive(Default)]
pub struct PeerTable {
    /// By [`PeerId::index`].
    places: Vec<Option<KnownPeer>>,
}

struct KnownPeer {
    id: PeerId,
    addr: Address,
    link: Option<LinkKey>,
}

impl PeerTable {
    fn get(&self, peer: PeerId) -> Option<&KnownPeer> {
        let place = self.places.get(peer.index())?.as_ref()?;
        (place.id == peer).then_some(place)
    }

    fn put(&mut self, known: KnownPeer) {
        let at = known.id.index();
        if at >= self.places.len() {
            self.places.resize_with(at + 1, || None);
        }
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(known);
        }
    }

    /// Returns the link of a peer, if it has one.
    #[inline(always)]
    pub fn link(&self, peer: PeerId) -> Option<LinkKey> {
        self.get(peer)?.link
    }

    /// Adds a peer that has begun.
    pub fn add(&mut self, id: PeerId, addr: Address) {
        self.put(KnownPeer {
            id,
            addr,
            link: None,
        });
    }

    /// Removes a peer. Returns its link.
    pub fn remove(&mut self, peer: PeerId) -> Option<LinkKey> {
        let place = self.places.get_mut(peer.index())?;
        let known = place.take_if(|known| known.id == peer)?;
        known.link
    }

    /// Forgets a link that ends, unless the peer has another one.
    pub fn detach(&mut self, peer: PeerId, link: LinkKey) {
        if self.link(peer) == Some(link) {
            self.set_link(peer, None);
        }
    }

    fn set_link(&mut self, peer: PeerId, link: Option<LinkKey>) {
        let place = self.places.get_mut(peer.index());
        if let Some(known) = place.and_then(Option::as_mut)
            && known.id == peer
        {
            known.link = link;
        }
    }
}

/// Sources of messages: the peers of links.
pub enum BySessions {}

impl Sources<Core> for BySessions {
    #[inline]
    fn expects(core: &mut Core, ep: EpKey) -> bool {
        core.expects_one(ep)
    }

    fn awaits(core: &mut Core, ep: EpKey, peer: u64) {
        core.seek(ep, peer);
    }

    fn look(core: &mut Core, ep: EpKey) {
        core.follow_av(ep);
    }
}

impl Reaching for Core {
    type Vector = Vector;

    const LOG_TARGET: &'static str = LOG.ep_ctrl;

    fn peers(&mut self, ep: EpKey) -> Option<&mut PeersOf<Self>> {
        Some(&mut self.endpoints.get_mut(ep)?.own.peers)
    }

    fn ask(
        &mut self,
        ep: EpKey,
        peer: PeerKey,
        target: &ConnectTarget<Address>,
    ) -> Result<LinkKey> {
        let id = self.protocol_peer(&target.addr)?;
        Ok(self.new_link(ep, peer, id, target.addr))
    }

    fn call_at(&mut self, at: Instant, ep: EpKey, peer: PeerKey) {
        self.poller.call_at(at, (ep, peer));
    }

    fn has_source(&mut self, link: LinkKey, source: u64) {
        if let Some(link) = self.links.get_mut(link) {
            link.src = source;
        }
    }
}

impl Core {
    /// Returns the link to a peer, which is made if there is none.
    ///
    /// # Errors
    /// Those of the address vector, and of the provider below.
    #[inline(never)]
    pub(super) fn reach_slowly(&mut self, ep: EpKey, addr: u64) -> Result<LinkKey> {
        let peer = match self.reach(ep, addr)? {
            Destination::Open(key) => return Ok(key),
            Destination::Waits(peer) => peer,
        };
        let peers = self.peers(ep).ok_or(Errno::EOPBADSTATE)?;
        let known = peers.link(peer);
        let addr = *peers.address(peer).ok_or(Errno::EINVAL)?;
        let key = match known {
            Some(key) => key,
            None => {
                let id = self.protocol_peer(&addr)?;
                match self.peers.link(id) {
                    Some(key) => key,
                    None => self.new_link(ep, peer, id, addr),
                }
            }
        };
        self.opened(ep, peer, key);
        Ok(key)
    }

    /// Returns the protocol's peer with an address.
    fn protocol_peer(&mut self, addr: &Address) -> Result<PeerId> {
        let protocol = self.protocol.as_mut().ok_or(Errno::EOPBADSTATE)?;
        let below = self.below.as_ref().ok_or(Errno::EOPBADSTATE)?;
        let name = addr.seen_from(&below.name.bound).0;
        if let Some(id) = protocol.find(&name) {
            return Ok(id);
        }
        let path = below.path(addr)?;
        let id = protocol.peer(&name, path).ok_or(Errno::ENOMEM)?;
        self.peers.put(KnownPeer {
            id,
            addr: *addr,
            link: None,
        });
        Ok(id)
    }

    fn new_link(&mut self, ep: EpKey, peer: PeerKey, id: PeerId, addr: Address) -> LinkKey {
        let src = self.peers(ep).map_or(u64::MAX, |peers| peers.source(peer));
        let key = self.links.insert(Link {
            ep,
            peer,
            id,
            addr,
            src,
            outstanding: 0,
            incoming: None,
            course: None,
        });
        self.peers.set_link(id, Some(key));
        self.watch_from_now();
        key
    }

    /// Makes a link the one on which operations to a peer are posted.
    fn opened(&mut self, ep: EpKey, peer: PeerKey, key: LinkKey) {
        if let Some(peers) = self.peers(ep) {
            peers.adopt(peer, key, Instant::now());
            if let Some(opened) = peers.opened(peer, key) {
                self.has_source(key, opened.source);
            }
        }
    }

    /// Returns the link of a peer that sends something; it gets one if it has none.
    #[inline]
    pub(super) fn link_of(&mut self, peer: PeerId) -> Option<LinkKey> {
        match self.peers.link(peer) {
            Some(key) => Some(key),
            None => self.link_for(peer),
        }
    }

    #[cold]
    #[inline(never)]
    fn link_for(&mut self, id: PeerId) -> Option<LinkKey> {
        let addr = self.peers.get(id)?.addr;
        let ep = self.endpoints.iter().next()?.0;
        let peers = self.peers(ep)?;
        peers.follow();
        let peer = peers.peer_at(&addr);
        let key = self.new_link(ep, peer, id, addr);
        self.opened(ep, peer, key);
        Some(key)
    }

    /// Returns the path to a stranger that wants to set up a connection; `None` if nothing can be sent to
    /// it.
    pub(super) fn path_of_stranger(&mut self, addr: &Address) -> Option<Path> {
        self.below.as_ref()?.path(addr).ok()
    }

    /// Says that there is no room for a stranger.
    pub(super) fn stranger_is_refused(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get(peer) {
            warn_again!(
                target: LOG.ep_ctrl,
                "{} and others are not served: there are FI_OFI_RXD_MAX_PEERS peers",
                known.addr
            );
        }
    }

    /// Returns whether the address vector has an address.
    pub(super) fn is_known(&mut self, addr: &Address) -> bool {
        use prov_message::peers::AddressVector as _;
        let ep = self.endpoints.iter().next().map(|(ep, _)| ep);
        let peers = ep.and_then(|ep| self.peers(ep));
        peers.is_some_and(|peers| peers.av().is_some_and(|av| av.find(addr).is_some()))
    }

    /// Does what the protocol's calls have caused, and what follows from that.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&mut self) {
        loop {
            if let Some((key, error)) = self.ended.pop() {
                self.end_link(key, error);
            } else if let Some(key) = self.resumed.pop() {
                let Some(link) = self.links.get(key) else {
                    continue;
                };
                let (id, now) = (link.id, prov_base::lately::nanoseconds());
                let Some(mut protocol) = self.protocol.take() else {
                    self.resumed.push(key);
                    return;
                };
                protocol.resume(now, id, self);
                self.protocol = Some(protocol);
            } else {
                return;
            }
        }
    }

    /// Has a link end when the protocol has returned. What its peer sends from now on, as one does
    /// that was restarted, comes on another link.
    pub(super) fn ends(&mut self, key: LinkKey, error: Errno) {
        if let Some(link) = self.links.get(key) {
            self.peers.detach(link.id, key);
        }
        self.ended.push((key, error));
    }

    /// Ends a link with everything on it. Operations have failed before.
    fn end_link(&mut self, key: LinkKey, error: Errno) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (ep, peer, id, addr) = (link.ep, link.peer, link.id, link.addr);
        log::info!(target: LOG.ep_ctrl, "{addr} is given up: {error}");
        let protocol = self.protocol.as_mut();
        let failure = match protocol.is_some_and(|protocol| protocol.has_closed(id)) {
            true => Failure::Closed(error),
            false => Failure::of(error),
        };
        self.fail_link_to((ep, Some(peer)), key, error, failure);
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
            id,
            incoming,
            course,
            ..
        } = link;
        self.peers.detach(id, key);
        let courses = incoming.map(|incoming| incoming.course).into_iter();
        for course in courses.chain(course) {
            self.abandon_course(course, error);
        }
        self.endpoints.link_ended(ep, key, error);
        Vec::new()
    }

    fn closes(&mut self, _: EpKey) {
        self.protocol = None;
        for (_, operation) in self.operations.drain() {
            operation.ticket.abandon();
        }
        self.served.clear();
        self.peers = PeerTable::default();
        self.resumed.clear();
        self.ended.clear();
        self.postponed.clear();
        if let Some(below) = &self.below
            && let Ok(fd) = below.wait_fd()
        {
            self.poller.forget(fd);
        }
        self.arrivals = None;
        self.below = None;
    }

    fn closed(&mut self, own: Box<Rdm>) {
        own.peers.abandon();
    }
}
