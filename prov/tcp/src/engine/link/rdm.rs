//! The state of RDM endpoints besides their peers.

use std::net::{IpAddr, SocketAddr};

use prov_message::peers::{Patience, Peers, RdmVector};
use prov_message::reaching::DeferredOp;
use prov_util::av::Av;
use prov_util::ffi::Use;

use crate::engine::link::keys::{ConnKey, ListenerKey};
use crate::params::Params;

/// The part of an endpoint's state that RDM endpoints have.
pub struct Rdm {
    /// The address at which it listens.
    pub addr: SocketAddr,
    /// Which context of a scalable endpoint it is; 0 where it is none.
    pub context: u8,
    pub listener: Option<ListenerKey>,
    /// Identifies this endpoint towards peers, see [`crate::wire::handshake::Message::instance`].
    pub instance: u64,
    /// Other endpoints, with their connections.
    pub peers: Peers<ConnKey, RdmVector, DeferredOp>,
    /// The host that was last found to have no endpoint of the RDM type.
    pub foreign: Option<IpAddr>,
}

impl Rdm {
    /// Creates the state, at this address, with an address vector and without peers.
    pub fn new(av: Use<Av>, addr: SocketAddr, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.connect_timeout()));
        peers.bind_av(RdmVector(av));
        Rdm {
            addr,
            context: 0,
            listener: None,
            instance: prov_base::random::number() | 1,
            peers,
            foreign: None,
        }
    }
}
