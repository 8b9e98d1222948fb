//! The state of a link: what an endpoint and a peer exchange from the first datagram until one of
//! them is silent or restarted.

use prov_base::poller;
use prov_message::Transport;
use prov_message::peers::{Patience, PeerKey, Peers, UNKNOWN_SOURCE};
use prov_message::reaching::DeferredOp;
use slotmap::new_key_type;

pub use prov_message::EpKey;

use crate::address::{Address, Vector};
use crate::params::Params;
use crate::protocol::PeerId;

new_key_type! {
    /// See the [module](self) description.
    pub struct LinkKey;
    /// An operation of this side.
    pub struct OpKey;
    /// What a peer reads.
    pub struct ServedKey;
}

/// The types of this provider's messages.
pub enum Rxd {}

impl Transport for Rxd {
    type Link = LinkKey;
    type Ack = ();
    /// No message is announced.
    type Name = ();
    type Endpoint = Box<Rdm>;
}

pub type Endpoints = prov_message::Endpoints<Rxd>;
pub type Action = prov_message::Action<Rxd>;
pub type Arrival = prov_message::Arrival<Rxd>;
pub type Course = prov_message::Course<Rxd>;

/// The peers of the endpoint.
pub struct Rdm {
    pub peers: Peers<LinkKey, Vector, DeferredOp>,
}

impl Rdm {
    /// Creates it without peers.
    pub fn new(av: Vector, params: &Params) -> Self {
        let mut peers = Peers::new(Patience::within(params.timeout()));
        peers.bind_av(av);
        Rdm { peers }
    }
}

/// What a descriptor in the poller belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The completion queue below.
    Completions,
    Timer,
}

impl poller::Source for Source {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            Source::Completions => 0,
            Source::Timer => 1,
        }
    }

    fn of_token(token: u64) -> Self {
        match token {
            0 => Source::Completions,
            _ => Source::Timer,
        }
    }
}

/// What a timer is for: a peer without a link. The protocol has its own times.
pub type Due = (EpKey, PeerKey);

/// See the [module](self) description.
pub struct Link {
    pub ep: EpKey,
    /// The peer, as the endpoint knows it.
    pub peer: PeerKey,
    /// The peer, as the protocol knows it.
    pub id: PeerId,
    pub addr: Address,
    /// The peer's number in the address vector, or [`UNKNOWN_SOURCE`].
    pub src: u64,
    /// Number of operations to the peer that were posted on it and have not ended.
    pub outstanding: usize,
    /// The message or the write that is arriving in parts.
    pub incoming: Option<Incoming>,
    /// The destination of the message for which the link was held back.
    pub course: Option<Course>,
}

impl Link {
    /// Returns whether plain messages use the fast path.
    #[inline(always)]
    pub fn takes_plain(&self) -> bool {
        self.src != UNKNOWN_SOURCE && self.course.is_none()
    }
}

/// A message or a write that is arriving in parts.
pub struct Incoming {
    pub course: Course,
    /// Length of the whole in bytes.
    pub len: usize,
}
