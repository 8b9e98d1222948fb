//! The parameters of shm for the parts of `prov_message`.

use prov_base::logging::Targets;
use prov_local::link::{Ack, LocalTransport, Offered, Rules};
use prov_message::Transport;

use super::endpoint::Rdm;
use super::keys::LinkKey;
use crate::LOG;
use crate::listener::Wire;

/// The transport of this provider, by which its messages differ from those of others.
pub enum Shm {}

impl Transport for Shm {
    type Link = LinkKey;
    type Ack = Ack;
    type Name = Offered;
    type Endpoint = Box<Rdm>;

    /// The value of the C library's shm.
    const MIN_MULTI_RECV: usize = 4096;

    fn acknowledges_what_is_kept(ack: Ack) -> bool {
        // As the C library's shm does.
        ack != Ack::default() && !ack.until_placed
    }
}

impl LocalTransport for Shm {
    type Wire = Wire;

    const LOG: Targets = LOG;

    fn ack(ack: Ack) -> Ack {
        ack
    }

    fn name(offered: Offered) -> Offered {
        offered
    }

    fn rules(own: &Box<Rdm>) -> Rules {
        own.rules
    }

    fn own_link(own: &Box<Rdm>) -> Option<LinkKey> {
        own.peers.own_link()
    }
}

pub type Endpoints = prov_message::Endpoints<Shm>;
pub type Action = prov_message::Action<Shm>;
