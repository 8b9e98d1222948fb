//! RDM endpoints: what they have besides their peers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;

use prov_message::peers::{AddressVector, Patience, Peers};
use prov_message::reaching::Waiting;
use prov_util::av::{Av, Observer};
use prov_util::ffi::Use;

use crate::engine::link::keys::{ConnKey, ListenerKey};
use crate::params::Params;

/// The part of an endpoint's state that RDM endpoints have.
pub struct Rdm {
    /// Where it listens.
    pub addr: SocketAddr,
    pub listener: Option<ListenerKey>,
    /// Names this endpoint towards peers, see
    /// [`crate::wire::handshake::Message::instance`].
    pub instance: u64,
    /// Other endpoints, with their connections.
    pub peers: Peers<ConnKey, Vector, Waiting>,
    /// Who was last found to have no endpoint of the RDM type.
    pub foreign: Option<IpAddr>,
}

impl Rdm {
    /// Without peers, at this address, and with an address vector.
    pub fn new(av: Use<Av>, addr: SocketAddr, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.connect_timeout()));
        peers.bind_av(Vector(av));
        Rdm {
            addr,
            listener: None,
            instance: prov_util::random::number() | 1,
            peers,
            foreign: None,
        }
    }

    /// Gives up what waits for connections, without a word.
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
