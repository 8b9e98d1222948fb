//! What an endpoint has besides its messages: its peers.

use std::net::SocketAddr;
use std::sync::Weak;

use prov_message::peers::{AddressVector, Patience, Peers};
use prov_message::reaching::Waiting;
use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

use super::keys::LinkKey;
use crate::params::Params;

/// See the [module](self) description.
pub struct Rdm {
    pub peers: Peers<LinkKey, Vector, Waiting>,
}

impl Rdm {
    /// Without peers.
    pub fn new(av: Use<Av>, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.connect_timeout()));
        peers.bind_av(Vector(av));
        Rdm { peers }
    }

    /// Gives up what waits for links, without a word.
    pub fn abandon(mut self) {
        self.peers.drain().for_each(|(_, ticket)| ticket.abandon());
    }
}

/// An address vector of socket addresses.
pub struct Vector(Use<Av>);

impl AddressVector for Vector {
    type Address = SocketAddr;

    fn lookup(&self, fi_addr: u64) -> Option<SocketAddr> {
        self.0.lookup(fi_addr)
    }

    fn find(&self, addr: &SocketAddr) -> Option<u64> {
        self.0.find(addr)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        self.0.observe(observer);
    }
}
