//! What the parts of `prov_message` are told about tcp.

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
        // As the C library does with what it has taken in.
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

/// What a sender wants to hear about its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ack {
    /// Nothing.
    #[default]
    None,
    /// That the oldest message which asked has come.
    Next,
    /// That the message of this name has come.
    Named(u64),
}

/// The sender's name for a message that it announced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rendezvous {
    /// In the C library's protocol.
    Narrow(u8),
    /// Between two of this library.
    Wide(u64),
    /// Between two processes of one host: where it is is known.
    Direct(u64),
}
