//! Destinations of datagrams.

use std::collections::HashMap;
use std::sync::Arc;

use fabric_abi::fi_addr_t;

use super::Name;
use crate::device::AddressHandle;
use crate::lane::Seat;

/// A destination.
pub struct Peer {
    name: Name,
    /// The device's handle.
    pub handle: AddressHandle,
    /// The number of the peer's queue pair.
    pub pair: u32,
}

/// The destinations that an endpoint has sent to.
#[derive(Default)]
pub struct Peers {
    known: HashMap<fi_addr_t, Arc<Peer>>,
    /// Those that were replaced, and for which a thread may be about to post a request.
    former: Vec<Arc<Peer>>,
    /// Those for which no more requests can be posted, with the number of requests that the sender
    /// had posted at that time: outstanding requests may refer to them.
    gone: Vec<(u32, Arc<Peer>)>,
}

impl Peers {
    /// Returns the peer with this index, unless the index refers to another peer now.
    pub fn find(&self, number: fi_addr_t, name: &Name) -> Option<&Arc<Peer>> {
        let peer = self.known.get(&number)?;
        (peer.name == *name).then_some(peer)
    }

    /// Adds a peer, and frees those to which no outstanding request of the seat's sender refers.
    pub fn add(
        &mut self,
        number: fi_addr_t,
        name: Name,
        handle: AddressHandle,
        seat: &Seat,
    ) -> Arc<Peer> {
        let peer = Arc::new(Peer {
            pair: name.pair,
            handle,
            name,
        });
        self.former.extend(self.known.insert(number, peer.clone()));
        self.let_go(seat);
        peer
    }

    fn let_go(&mut self, seat: &Seat) {
        let is_unused = |peer: &mut Arc<Peer>| Arc::get_mut(peer).is_some();
        let mut unused: Vec<_> = self.former.extract_if(.., is_unused).collect();
        // Read after that: a thread that had one of them has posted its request by now.
        let Ok(sender) = seat.lane.advance(seat.name) else {
            self.former.append(&mut unused);
            return;
        };
        let unused = unused.into_iter().map(|peer| (sender.posted, peer));
        self.gone.extend(unused);
        self.gone
            .retain(|(posted, _)| !sender.has_completed(*posted));
    }
}

#[cfg(test)]
mod tests {
    use prov_base::sync::LockKind;

    use super::*;
    use crate::device::{Destination, ProtectionDomain, fake};
    use crate::lane::tests::{complete_oldest, endpoint, send};

    #[test]
    fn handles_of_peers_that_others_have_followed_are_given_back() {
        let context = fake::context("fake");
        let pd = ProtectionDomain::new(context).unwrap();
        let (_pair, seats) = endpoint(context, LockKind::Real);
        let seat = seats.send.as_ref().unwrap();
        let mut peers = Peers::default();
        let mut replace = |pair| {
            let name = Name {
                pair,
                ..Name::default()
            };
            assert!(peers.find(0, &name).is_none());
            let to = Destination {
                gid: None,
                lid: 1,
                service_level: 0,
                port: 1,
                gid_index: 0,
            };
            let handle = AddressHandle::new(&pd, &to).unwrap();
            let peer = peers.add(0, name, handle, seat);
            assert_eq!(peers.find(0, &name).unwrap().pair, pair);
            peer
        };
        for round in 0..1000 {
            let peer = replace(round);
            send(&seats).unwrap();
            drop(peer);
            // Some requests are always outstanding.
            if round >= 3 {
                complete_oldest(&seat.lane, seat.name, round - 3);
            }
            assert!(fake::handles() <= 7, "{}", fake::handles());
        }
        // Outstanding requests refer to their peers.
        for round in 1000..1005 {
            drop(replace(round));
            send(&seats).unwrap();
        }
        assert!(fake::handles() >= 8);
        // So does a request that is about to be posted.
        complete_oldest(&seat.lane, seat.name, 1004);
        let late = replace(1005);
        drop(replace(1006));
        drop(replace(1007));
        assert_eq!(fake::handles(), 2);
        send(&seats).unwrap();
        drop(late);
        drop(replace(1008));
        assert_eq!(fake::handles(), 3);
        complete_oldest(&seat.lane, seat.name, 1005);
        drop(replace(1009));
        assert_eq!(fake::handles(), 1);
    }
}
