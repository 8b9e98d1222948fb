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

    fn acknowledges_what_is_kept(ack: Ack) -> bool {
        // As the C library's shm does.
        ack != Ack::default() && !ack.until_placed
    }
}

/// The acknowledgement that the sender of a message requests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The sender's name for the message; 0 for no acknowledgement.
    pub name: u64,
    /// Whether it is due when the message is in the buffer of a receive (`FI_COMMIT_COMPLETE`), not
    /// when it is kept for one.
    pub until_placed: bool,
}

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
