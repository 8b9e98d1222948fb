//! The parameters of shm for the parts of `prov_message`.

use prov_base::process_memory::OtherIov;
use prov_message::Transport;

use super::endpoint::Rdm;
use super::keys::LinkKey;

/// The transport of this provider, by which its messages differ from those of others.
pub enum Shm {}

impl Transport for Shm {
    type Link = LinkKey;
    type Ack = Ack;
    type Name = Offered;
    type Endpoint = Box<Rdm>;

    /// The value of the C library's shm.
    const MIN_MULTI_RECV: usize = 4096;
}

/// The sender's name for a message to be acknowledged; 0 if it need not be.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ack(pub u64);

/// A rendezvous message, whose payload the sender has kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Offered {
    /// The sender's name for the message.
    pub name: u64,
    /// Location of the payload in the sender's memory.
    pub from: OtherIov,
}

pub type Endpoints = prov_message::Endpoints<Shm>;
pub type Action = prov_message::Action<Shm>;
pub type Arrival = prov_message::Arrival<Shm>;
pub type Placing = prov_message::Placing<Shm>;
pub type Then = prov_message::Then<Shm>;
