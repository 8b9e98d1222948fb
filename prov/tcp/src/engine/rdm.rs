//! RDM endpoints: peers, and connections to them on first use.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prov_util::av::Observer;
use prov_util::errno::{Errno, Result};
use slotmap::{Key, SlotMap};

use super::connection::UNKNOWN_SOURCE;
use super::keys::{ConnKey, ListenerKey, PeerKey};
use super::request::Request;
use prov_util::av::Av;
use prov_util::ffi::Use;

/// The part of an endpoint's state that RDM endpoints have.
pub struct Rdm {
    av: Use<Av>,
    /// Where it listens.
    pub addr: SocketAddr,
    pub listener: Option<ListenerKey>,
    /// The near end of a connection from this endpoint to itself.
    pub loopback: Option<ConnKey>,
    /// Names this endpoint towards peers, see
    /// [`crate::wire::handshake::Message::instance`].
    pub instance: u64,
    pub peers: SlotMap<PeerKey, Peer>,
    by_addr: HashMap<SocketAddr, PeerKey>,
    /// Peers whose connection has ended and that are not back, where receives
    /// can name their peer.
    pub lost: HashSet<PeerKey>,
    /// Who was last found to have no endpoint of the RDM type.
    pub foreign: Option<IpAddr>,
    routes: Routes,
    /// Connections whose peers have another source than their messages say.
    pub changed: Vec<(ConnKey, u64)>,
    /// Addresses that were removed from the address vector, as it counts them.
    removals: Arc<Removals>,
    /// What the address vector was like when `routes` and the peers' sources
    /// were looked up.
    seen: Seen,
}

/// Counts addresses that leave the address vector.
#[derive(Default)]
struct Removals(AtomicU64);

impl Observer for Removals {
    fn removed(&self, _: u64) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// What tells one state of an address vector from another.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    removals: u64,
    len: usize,
}

/// Another endpoint with which there is a connection, or ought to be.
pub struct Peer {
    pub addr: SocketAddr,
    /// Its connection, of whatever age.
    pub conn: Option<ConnKey>,
    /// Its place in the address vector, or [`UNKNOWN_SOURCE`].
    pub src: u64,
    /// What waits for the connection, oldest first.
    pub pending: VecDeque<Request>,
    /// Whether operations wait outside, in the application's hands.
    pub awaited: Awaited,
    /// While there is no connection: what the attempts to make one have come to.
    pub attempt: Option<Attempt>,
    /// The peer's own request, which has met one of ours and waits for that to
    /// be refused.
    pub crossing: Option<ConnKey>,
    /// The peer said that it cannot be connected to.
    pub behind_firewall: bool,
}

/// Whether the application was told to come back with an operation that takes
/// a connection ([`super::Core::negotiated`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// Nobody waits.
    No,
    /// It was.
    Yes,
    /// It was, and the connection did not come about, at this time for this
    /// reason.
    Failed(Instant, Errno),
}

impl Peer {
    /// Whether there is something to make a connection for.
    pub fn is_wanted(&self) -> bool {
        !self.pending.is_empty() || self.awaited == Awaited::Yes
    }
}

/// The making of a connection, over several attempts.
pub struct Attempt {
    /// When everything that waits fails.
    pub deadline: Instant,
    /// When to try again; `None` while an attempt is under way.
    pub retry_at: Option<Instant>,
    /// How long to wait before the attempt after the next.
    pub pause: Duration,
    /// Why the last attempt failed.
    pub error: Errno,
}

/// Which peer an address of the address vector is, found by index.
#[derive(Default)]
struct Routes {
    pages: Vec<Option<Box<[Route; PAGE]>>>,
}

const PAGE: usize = 256;

/// Where messages for an address go.
#[derive(Clone, Copy, Default)]
struct Route {
    peer: PeerKey,
    /// The peer's connection, if it was open when last looked at. Once it has
    /// ended its name means nothing.
    conn: ConnKey,
}

impl Routes {
    #[inline]
    fn get(&self, addr: u64) -> Option<Route> {
        let page = self.pages.get((addr as usize) / PAGE)?.as_ref()?;
        let route = page[(addr as usize) % PAGE];
        (!route.peer.is_null()).then_some(route)
    }

    /// `addr` is an index that the address vector gave out. With the bits of a
    /// receive context (fi_rx_addr(3)) it has no place here, and is looked up
    /// every time.
    fn set(&mut self, addr: u64, route: Route) {
        if addr > u32::MAX.into() {
            return;
        }
        let page = addr as usize / PAGE;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([Route::default(); PAGE]));
        page[addr as usize % PAGE] = route;
    }
}

impl Rdm {
    /// Without peers, at this address, and with an address vector.
    pub fn new(av: Use<Av>, addr: SocketAddr) -> Self {
        let removals = Arc::new(Removals::default());
        let observer: Arc<dyn Observer> = removals.clone();
        av.observe(Arc::downgrade(&observer));
        Rdm {
            av,
            addr,
            listener: None,
            loopback: None,
            instance: crate::random::number() | 1,
            peers: SlotMap::with_key(),
            by_addr: HashMap::new(),
            lost: HashSet::new(),
            foreign: None,
            routes: Routes::default(),
            changed: Vec::new(),
            removals,
            seen: Seen::default(),
        }
    }

    /// The peer at an address of the address vector; `-FI_EINVAL` where that
    /// has none.
    #[inline]
    pub fn route(&mut self, addr: u64) -> Result<PeerKey> {
        if self.removals.0.load(Ordering::Acquire) == self.seen.removals
            && let Some(route) = self.routes.get(addr)
        {
            return Ok(route.peer);
        }
        self.find_route(addr)
    }

    /// The open connection over which messages for an address went last; it may
    /// have ended since.
    #[inline]
    pub fn known_connection(&self, addr: u64) -> Option<ConnKey> {
        if self.removals.0.load(Ordering::Acquire) != self.seen.removals {
            return None;
        }
        self.routes.get(addr).map(|route| route.conn)
    }

    /// Remembers the open connection for an address that has a route.
    pub fn remember_connection(&mut self, addr: u64, conn: ConnKey) {
        if let Some(route) = self.routes.get(addr) {
            self.routes.set(addr, Route { conn, ..route });
        }
    }

    #[cold]
    fn find_route(&mut self, addr: u64) -> Result<PeerKey> {
        self.follow_av();
        let socket_addr = self.av.lookup(addr).ok_or(Errno::EINVAL)?;
        let key = self.peer_at(socket_addr);
        let conn = ConnKey::null();
        self.routes.set(addr, Route { peer: key, conn });
        Ok(key)
    }

    /// The peer with this address, new if it was not known.
    pub fn peer_at(&mut self, addr: SocketAddr) -> PeerKey {
        if let Some(&key) = self.by_addr.get(&addr) {
            return key;
        }
        let src = self.av.find(&addr).unwrap_or(UNKNOWN_SOURCE);
        let key = self.peers.insert(Peer {
            addr,
            conn: None,
            src,
            pending: VecDeque::new(),
            awaited: Awaited::No,
            attempt: None,
            crossing: None,
            behind_firewall: false,
        });
        self.by_addr.insert(addr, key);
        key
    }

    /// Forgets a peer without connection, if nothing waits for one.
    pub fn forget_idle(&mut self, key: PeerKey) {
        if let Some(peer) = self.peers.get(key)
            && peer.conn.is_none()
            && peer.pending.is_empty()
            && peer.attempt.is_none()
            && peer.src == UNKNOWN_SOURCE
            && let Some(peer) = self.peers.remove(key)
        {
            self.by_addr.remove(&peer.addr);
            self.lost.remove(&key);
        }
    }

    /// Gives up what waits for connections, without a word.
    pub fn abandon(mut self) {
        for (_, peer) in self.peers.drain() {
            for request in peer.pending {
                request.ticket.abandon();
            }
        }
    }

    fn look_at_av(&self) -> Seen {
        Seen {
            removals: self.removals.0.load(Ordering::Acquire),
            len: self.av.len(),
        }
    }

    /// Whether the address vector has changed since the sources were looked up.
    #[inline]
    pub fn av_changed(&self) -> bool {
        self.look_at_av() != self.seen
    }

    /// Takes in what changed in the address vector.
    pub fn follow_av(&mut self) {
        let now = self.look_at_av();
        if now == self.seen {
            return;
        }
        if now.removals != self.seen.removals {
            self.routes = Routes::default();
        }
        self.seen = now;
        for peer in self.peers.values_mut() {
            let src = self.av.find(&peer.addr).unwrap_or(UNKNOWN_SOURCE);
            if src != peer.src {
                peer.src = src;
                if let Some(conn) = peer.conn {
                    self.changed.push((conn, src));
                }
                if let Some(loopback) = self.loopback
                    && peer.addr == self.addr
                {
                    self.changed.push((loopback, src));
                }
            }
        }
    }
}
