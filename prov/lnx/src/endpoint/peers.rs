//! The peers of an endpoint, by number: the paths to each, which are decided when its address is
//! inserted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use fabric_abi::fi_addr_t;
use parking_lot::RwLock;
use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;
use prov_util::av::Av;
use prov_util::av::format::Address;
use prov_util::ffi::linked::Link;

use super::ways::{OnlyWays, Way};
use crate::LOG;
use crate::address::Composite;
use crate::params::Selection;
use crate::resources::LinkedDomain;

struct Peer {
    /// At least one.
    ways: Vec<Way>,
    /// The next way, or the way of all operations, depending on the selection.
    next: AtomicU32,
}

/// See the [module](self) description.
pub struct Peers {
    known: RwLock<Known>,
    /// The paths of the peers that have one.
    only: OnlyWays,
    selection: Selection,
    uses_shm: bool,
    /// The ways that were selected for peers so far, by which the next ones differ.
    selected: AtomicU32,
}

#[derive(Default)]
struct Known {
    by_number: Vec<Option<Peer>>,
    /// Numbers that no peer had when they were looked at.
    free: Vec<fi_addr_t>,
}

impl Peers {
    /// Knows no peers.
    pub fn new(selection: Selection, uses_shm: bool) -> Self {
        Peers {
            known: RwLock::default(),
            only: OnlyWays::default(),
            selection,
            uses_shm,
            selected: AtomicU32::new(0),
        }
    }

    /// Returns the path for the next operation with a peer.
    ///
    /// # Errors
    /// `-FI_EINVAL` for a number of no peer, `-FI_EHOSTUNREACH` for a peer without a path.
    #[inline]
    pub fn way(&self, number: fi_addr_t) -> Result<Way> {
        match self.only.get(number) {
            Some(way) => Ok(way),
            None => self.way_of_known(number),
        }
    }

    #[inline(never)]
    fn way_of_known(&self, number: fi_addr_t) -> Result<Way> {
        let known = self.known.read();
        let index = usize::try_from(number).map_err(|_| Errno::EINVAL)?;
        let peer = known.by_number.get(index).and_then(Option::as_ref);
        let peer = peer.ok_or(Errno::EINVAL)?;
        let at = match (self.selection, &*peer.ways) {
            (Selection::PerPeer, _) => peer.next.load(Ordering::Relaxed),
            (Selection::PerMessage, _) => peer.next.fetch_add(1, Ordering::Relaxed),
        };
        let at = (at as usize).checked_rem(peer.ways.len());
        let way = at.and_then(|at| peer.ways.get(at));
        way.copied().ok_or(Errno::EHOSTUNREACH)
    }

    /// Returns the path that shows whether a peer is there: that of the operations with it, or the
    /// first. `None` for a peer without a path.
    pub fn usual_way(&self, number: fi_addr_t) -> Option<Way> {
        let known = self.known.read();
        let peer = known
            .by_number
            .get(usize::try_from(number).ok()?)?
            .as_ref()?;
        let at = match self.selection {
            Selection::PerPeer => peer.next.load(Ordering::Relaxed) as usize,
            Selection::PerMessage => 0,
        };
        peer.ways.get(at.checked_rem(peer.ways.len())?).copied()
    }

    /// Looks for new addresses in the vector, and inserts them in those of the linked endpoints.
    pub fn follow(&self, av: &Av, host: &str, links: &[Link], domains: &[LinkedDomain]) {
        let fresh: Vec<fi_addr_t> = {
            let known = self.known.read();
            let beyond = known.by_number.len() as fi_addr_t..av.end();
            known.free.iter().copied().chain(beyond).collect()
        };
        for number in fresh {
            let copied = av.with_address(number, |address| match address {
                Address::Bytes(bytes) => Composite::read(bytes),
                Address::Internet(_) => None,
            });
            let peer = copied.flatten().map(|address| {
                let ways = self.ways(&address, number, host, links, domains);
                Peer {
                    ways,
                    next: AtomicU32::new(self.selected.fetch_add(1, Ordering::Relaxed)),
                }
            });
            self.set(number, peer);
        }
    }

    fn set(&self, number: fi_addr_t, peer: Option<Peer>) {
        let mut known = self.known.write();
        let only = match peer.as_ref().map(|peer| &*peer.ways) {
            Some([only]) => Some(*only),
            _ => None,
        };
        self.only.set(number, only);
        let Known { by_number, free } = &mut *known;
        let index = number as usize;
        while by_number.len() <= index {
            by_number.push(None);
            bounded!(by_number, PEERS);
        }
        free.retain(|&other| other != number);
        if peer.is_none() {
            free.push(number);
            bounded!(free, PEERS);
        }
        if let Some(place) = by_number.get_mut(index) {
            *place = peer;
        }
    }

    /// Inserts a peer's addresses where they belong, and returns the paths to it.
    fn ways(
        &self,
        address: &Composite,
        source: fi_addr_t,
        host: &str,
        links: &[Link],
        domains: &[LinkedDomain],
    ) -> Vec<Way> {
        let is_local = address.host.is(host);
        let mut ways = Vec::new();
        let mut add = |link: usize, address: &[u8]| {
            let Some(ep) = links.get(link) else {
                return;
            };
            match ep.addresses().insert_as(address, source) {
                Ok(number) => ways.push(Way { link, number }),
                Err(error) => log::info!(
                    target: LOG.av,
                    "a linked provider does not take an address of a peer: {error}"
                ),
            }
        };
        let shm = domains.iter().position(|domain| domain.is_shm);
        if let (true, true, Some(link), Some(address)) =
            (is_local, self.uses_shm, shm, address.shm())
        {
            add(link, address);
        } else {
            for (fabric, address) in &address.parts {
                if !is_local && is_of_one_host(address) {
                    continue;
                }
                for (link, domain) in domains.iter().enumerate() {
                    let name = domain.info.fabric.name.as_deref();
                    if !domain.is_shm && name.is_some_and(|name| fabric.is(name)) {
                        add(link, address);
                    }
                }
            }
        }
        if ways.is_empty() {
            log::warn!(
                target: LOG.av,
                "no linked provider has a path to a peer on host {}: its links differ",
                address.host
            );
        }
        ways
    }

    /// Forgets a peer whose address was removed.
    pub fn forget(&self, number: fi_addr_t, links: &[Link]) {
        let peer = {
            let mut known = self.known.write();
            self.only.set(number, None);
            let place = known.by_number.get_mut(number as usize);
            let peer = place.and_then(Option::take);
            if peer.is_some() {
                known.free.push(number);
                bounded!(known.free, PEERS);
            }
            peer
        };
        for way in peer.into_iter().flat_map(|peer| peer.ways) {
            if let Some(link) = links.get(way.link)
                && let Err(error) = link.addresses().remove(way.number)
            {
                log::info!(target: LOG.av, "a linked provider keeps an address: {error}");
            }
        }
    }
}

/// Whether an address is one that each host has for itself.
fn is_of_one_host(address: &[u8]) -> bool {
    match sockaddr::decode(address) {
        Some(SocketAddr::V4(v4)) => v4.ip().is_loopback(),
        Some(SocketAddr::V6(v6)) => v6.ip().is_loopback(),
        None => false,
    }
}
