//! The peers of an endpoint.

use prov_message::peers::{Patience, Peers};
use prov_message::reaching::DeferredOp;
use prov_util::av::Av;
use prov_util::ffi::Use;

use super::keys::LinkKey;
use crate::params::Params;

/// See the [module](self) description.
pub struct Rdm {
    pub peers: Peers<LinkKey, Use<Av>, DeferredOp>,
}

impl Rdm {
    /// Creates it without peers.
    pub fn new(av: Use<Av>, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.connect_timeout()));
        peers.bind_av(av);
        Rdm { peers }
    }
}
