//! The parameters of tcp for the parts of `prov_message`.

use prov_message::Transport;

use crate::engine::link::endpoint::OwnPart;
use crate::engine::link::keys::ConnKey;

/// The transport of messages over TCP.
pub enum Tcp {}

impl Transport for Tcp {
    type Link = ConnKey;
    type Ack = Ack;
    type Name = Rendezvous;
    type Endpoint = OwnPart;

    fn acknowledges_what_is_kept(ack: Ack) -> bool {
        // As the C library does for messages that it has received.
        ack == Ack::Next
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
}

/// The sender's name for a message that it has announced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rendezvous {
    /// In the C library's protocol.
    Narrow(u8),
    /// Between two endpoints of this library.
    Wide(u64),
    /// Between two processes of one host; the memory of the message is known.
    Direct(u64),
}
