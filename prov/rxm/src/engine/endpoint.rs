//! The peers of an endpoint.

use prov_message::peers::{Patience, Peers, RdmVector};
use prov_message::reaching::DeferredOp;
use prov_util::av::Av;
use prov_util::ffi::Use;

use super::keys::LinkKey;
use crate::params::Params;

/// See the [module](self) description.
pub struct Rdm {
    pub peers: Peers<LinkKey, RdmVector, DeferredOp>,
    /// Which context of a scalable endpoint it is; 0 where it is none.
    pub context: u8,
}

impl Rdm {
    /// Creates it without peers.
    pub fn new(av: Use<Av>, context: u8, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.connect_timeout()));
        peers.bind_av(RdmVector(av));
        Rdm { peers, context }
    }
}
