//! The parameters of tcp for the parts of `prov_message`.

use prov_base::logging::Targets;
use prov_local::link::{self, LocalTransport, Offered, Rules};
use prov_message::Transport;

use crate::engine::link::endpoint::{Kind, OwnPart};
use crate::engine::link::keys::ConnKey;
use crate::local::path::shortcut::Wire;

/// The transport of messages over TCP.
pub enum Tcp {}

impl Transport for Tcp {
    type Link = ConnKey;
    type Ack = Ack;
    type Name = Rendezvous;
    type Endpoint = OwnPart;

    fn acknowledges_what_is_kept(ack: Ack) -> bool {
        // As the C library does for messages that it has received.
        match ack {
            Ack::Local(ack) => !ack.until_placed,
            Ack::Next => true,
            Ack::None | Ack::Named(_) => false,
        }
    }
}

impl LocalTransport for Tcp {
    type Wire = Wire;

    const LOG: Targets = crate::LOG;
    const HAS_STREAM: bool = true;
    const FETCHES_FIRST: bool = true;

    fn ack(ack: link::Ack) -> Ack {
        match ack.name {
            0 => Ack::None,
            _ => Ack::Local(ack),
        }
    }

    fn name(offered: Offered) -> Rendezvous {
        Rendezvous::Local(offered)
    }

    fn rules(own: &OwnPart) -> Rules {
        own.rules
    }

    fn own_link(own: &OwnPart) -> Option<ConnKey> {
        match &own.kind {
            Kind::Rdm(rdm) => rdm.peers.own_link(),
            Kind::Msg(_) => None,
        }
    }
}

pub type Action = prov_message::Action<Tcp>;
pub type Arrival = prov_message::Arrival<Tcp>;
pub type Fetch = prov_message::Fetch<Tcp>;
pub type Endpoints = prov_message::Endpoints<Tcp>;
pub type Placing = prov_message::Placing<Tcp>;
pub type Receipt = prov_message::Receipt<Ack>;
pub type Then = prov_message::Then<Tcp>;

/// The acknowledgement that the sender of a message requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ack {
    /// None.
    #[default]
    None,
    /// That of the oldest message that requested one.
    Next,
    /// That of the message with this name.
    Named(u64),
    /// That of a message that came by the link within the host.
    Local(link::Ack),
}

/// The sender's name for a message that it has announced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rendezvous {
    /// By the socket.
    Announced(Announced),
    /// By the link within the host.
    Local(Offered),
}

/// The sender's name for a message that it has announced by the socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Announced {
    /// In the C library's protocol.
    Narrow(u8),
    /// Between two endpoints of this library.
    Wide(u64),
}
