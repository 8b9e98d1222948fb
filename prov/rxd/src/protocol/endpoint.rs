//! All that an endpoint knows of its peers.

use std::marker::PhantomData;

use prov_base::errno::Errno;

use super::host::{Host, Name, PeerId, Request, Time};

/// Settings of an [`Endpoint`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint's own name, sent to peers.
    pub name: Name,
    /// Bytes of the longest datagram: the lower provider's `max_msg_size`, at most
    /// [`MAX_MTU`](super::MAX_MTU), less its `msg_prefix_size`. Both sides must have the same to
    /// understand each other, where one is of the C library. At least [`MIN_MTU`](super::MIN_MTU).
    pub mtu: usize,
    /// `FI_OFI_RXD_MAX_UNACKED`: most datagrams that a peer of the C library may send without an
    /// acknowledgement.
    pub max_unacked: u16,
    /// `FI_OFI_RXD_RETRY`: whether anything is sent again. Without, the provider below must not lose
    /// datagrams.
    pub retry: bool,
    /// Whether selective acknowledgements, larger windows and so on are offered to peers.
    pub extended: bool,
    /// Time after which a peer that is silent, though it should answer, is given up.
    pub give_up: Time,
    /// Most strangers with an incomplete set-up at one time.
    pub max_strangers: usize,
    /// Most bytes of datagrams of all peers that have arrived too early or are held back. What exceeds
    /// it is dropped and sent again by the peer.
    pub max_buffered: usize,
    /// Random bits that nobody else knows, anew for each endpoint.
    pub secret: [u64; 2],
}

/// Why an operation was not taken: nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// As many operations as possible are outstanding: `-FI_EAGAIN`.
    Busy,
    /// The operands of an atomic operation do not fit into a datagram: `-FI_EINVAL`.
    TooLong,
    /// The peer does not exist (any longer).
    NoPeer,
}

impl From<Rejected> for Errno {
    fn from(rejected: Rejected) -> Errno {
        match rejected {
            Rejected::Busy => Errno::EAGAIN,
            Rejected::TooLong | Rejected::NoPeer => Errno::EINVAL,
        }
    }
}

/// See the [module](super) description.
pub struct Endpoint<H: Host> {
    config: Config,
    host: PhantomData<H>,
}

impl<H: Host> Endpoint<H> {
    /// Without peers.
    pub fn new(config: Config) -> Self {
        Endpoint {
            config,
            host: PhantomData,
        }
    }

    /// Returns the peer with this name, a new one if there is none. Nothing is sent until there is an
    /// operation for it.
    pub fn peer(&mut self, name: &Name, path: H::Path) -> PeerId {
        let _ = (name, path);
        PeerId {
            index: 0,
            generation: 0,
        }
    }

    /// Returns the peer with this name, if there is one.
    pub fn find(&self, name: &Name) -> Option<PeerId> {
        let _ = name;
        None
    }

    /// Queues an operation. Operations to one peer begin in the order in which they are submitted.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn submit(
        &mut self,
        now: Time,
        peer: PeerId,
        op: H::Op,
        request: &Request,
    ) -> Result<(), Rejected> {
        let _ = (now, peer, op, request);
        Err(Rejected::NoPeer)
    }

    /// Handles a datagram from `from`, `None` if the provider below does not tell. With it, datagrams
    /// of a peer that come by another path than its own are ignored.
    pub fn receive(&mut self, now: Time, from: Option<H::Path>, datagram: &[u8], host: &mut H) {
        let _ = (now, from, datagram, host);
    }

    /// Sends what may be sent, and does what is due by the time. Returns whether the host had room for
    /// all datagrams; if not, it is to be called again when there is room.
    pub fn transmit(&mut self, now: Time, host: &mut H) -> bool {
        let _ = (now, host);
        true
    }

    /// The time at which [`Endpoint::transmit`] has something to do, if nothing arrives before. It may
    /// be early.
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Continues with a peer that was held back ([`Admission::Held`](super::Admission::Held)).
    pub fn resume(&mut self, now: Time, peer: PeerId, host: &mut H) {
        let _ = (now, peer, host);
    }

    /// Takes back an operation of which nothing was sent; returns whether that is so. It is not
    /// reported as done.
    pub fn cancel(&mut self, peer: PeerId, op: H::Op) -> bool {
        let _ = (peer, op);
        false
    }

    /// Fails all operations to a peer with [`Failure::Abandoned`](super::Failure::Abandoned), and
    /// interrupts what arrives from it. The next operation sets up a new connection.
    pub fn abandon(&mut self, now: Time, peer: PeerId, host: &mut H) {
        let _ = (now, peer, host);
    }

    /// Number of operations and responses of which peers have not acknowledged everything.
    pub fn unfinished(&self) -> usize {
        0
    }

    /// Sends all acknowledgements that wait for company, as before the endpoint is closed.
    pub fn acknowledge_all(&mut self, now: Time, host: &mut H) {
        let _ = (now, host);
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
