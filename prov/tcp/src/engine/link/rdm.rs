//! The state of RDM endpoints besides their peers.

use std::net::{IpAddr, SocketAddr};

use prov_message::peers::{Patience, Peers};
use prov_message::reaching::Waiting;
use prov_util::av::Av;
use prov_util::ffi::Use;

use crate::engine::link::keys::{ConnKey, ListenerKey};
use crate::params::Params;

/// The part of an endpoint's state that RDM endpoints have.
pub struct Rdm {
    /// The address at which it listens.
    pub addr: SocketAddr,
    pub listener: Option<ListenerKey>,
    /// Identifies this endpoint towards peers, see [`crate::wire::handshake::Message::instance`].
    pub instance: u64,
    /// Other endpoints, with their connections.
    pub peers: Peers<ConnKey, Use<Av>, Waiting>,
    /// The host that was last found to have no endpoint of the RDM type.
    pub foreign: Option<IpAddr>,
}

impl Rdm {
    /// Creates the state, at this address, with an address vector and without peers.
    pub fn new(av: Use<Av>, addr: SocketAddr, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.connect_timeout()));
        peers.bind_av(av);
        Rdm {
            addr,
            listener: None,
            instance: prov_base::random::number() | 1,
            peers,
            foreign: None,
        }
    }
}
