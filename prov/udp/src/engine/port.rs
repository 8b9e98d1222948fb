//! An endpoint's socket with its send and receive buffers, and how its peers' addresses are found.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fabric_abi::fi_addr_t;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr::{self, Encoded};
use prov_base::socket::udp::arrivals::Arrivals;
use prov_base::socket::udp::outbox::Outbox;
use prov_message::{Burst, Ticket};
use prov_util::av::{Av, Changes};
use prov_util::ffi::Use;
use prov_util::matching::ANY_SOURCE;

/// Which sources completions name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Senders {
    /// None.
    None,
    /// Peers in the address vector (`FI_SOURCE`).
    Known,
    /// All peers: an error completion has the address of one that is not in the vector
    /// (`FI_SOURCE_ERR`).
    All,
}

/// Consecutive reads with datagrams after which the next one reads several at a time. That one takes longer
/// if there is nothing, as after a lone message.
pub const SEVERAL: u8 = 2;

/// See the [module](self) description.
pub struct Port {
    pub socket: Arc<OwnedFd>,
    peers: Peers,
    /// Datagrams that were read from the socket and wait for a receive.
    pub arrivals: Arrivals,
    /// Consecutive reads of the socket that returned datagrams, up to [`SEVERAL`].
    pub brought: u8,
    /// Whether the last read found the socket empty. The poller reports later datagrams.
    pub is_drained: bool,
    /// Whether the poller reports that the socket is readable.
    pub is_watched: bool,
    /// Whether it also reports that the socket is writable.
    pub is_watched_for_room: bool,
    /// Datagrams to be sent.
    pub outbox: Outbox,
    /// The operations of the datagrams in the outbox, in the same order.
    pub ops: VecDeque<Ticket>,
    /// Operations that have ended and are reported in the application's next call.
    pub ended: Vec<(Ticket, Result)>,
    pub burst: Burst,
    /// Whether the socket's send buffer was full.
    pub is_stalled: bool,
}

/// The addresses of an endpoint's peers, with a cache of the last one in each direction.
pub struct Peers {
    av: Use<Av>,
    pub senders: Senders,
    /// The last destination: its number, the state of the address vectors, and the address.
    last: Option<(fi_addr_t, Changes, Encoded)>,
    /// The last source: its address, the state of the address vectors, and its number.
    last_sender: Option<(SocketAddr, Changes, u64)>,
    /// The multicast groups that were joined, by number.
    groups: Vec<(fi_addr_t, Encoded)>,
}

impl Port {
    /// Creates the port of an endpoint with this socket and this address vector.
    pub fn new(socket: Arc<OwnedFd>, av: Use<Av>, senders: Senders) -> Self {
        Port {
            socket,
            peers: Peers {
                av,
                senders,
                last: None,
                last_sender: None,
                groups: Vec::new(),
            },
            arrivals: Arrivals::new(senders != Senders::None),
            brought: 0,
            is_drained: false,
            is_watched: false,
            is_watched_for_room: false,
            outbox: Outbox::default(),
            ops: VecDeque::new(),
            ended: Vec::new(),
            burst: Burst::default(),
            is_stalled: false,
        }
    }

    /// The peers, and the datagrams that have arrived.
    #[inline(always)]
    pub fn receiving(&mut self) -> (&mut Peers, &mut Arrivals) {
        (&mut self.peers, &mut self.arrivals)
    }

    /// Returns the address for this number: one of the address vector, or a multicast group that was
    /// joined.
    ///
    /// # Errors
    /// `-FI_EINVAL` if it is neither.
    #[inline(always)]
    pub fn destination(&mut self, number: fi_addr_t) -> Result<Encoded> {
        match &self.peers.last {
            Some((last, changes, to)) if *last == number && *changes == Changes::now() => Ok(*to),
            _ => self.peers.look_up(number),
        }
    }

    /// Gives a multicast group its number.
    pub fn joined(&mut self, number: fi_addr_t, address: &SocketAddr) {
        self.peers.groups.push((number, sockaddr::encode(address)));
    }

    /// Removes the number of a multicast group.
    pub fn left(&mut self, number: fi_addr_t) {
        self.peers.groups.retain(|(group, _)| *group != number);
        self.peers.last = None;
    }

    /// Drops the operations that were not sent or not reported, without completions.
    pub fn abandon(self) {
        let ended = self.ended.into_iter().map(|(ticket, _)| ticket);
        self.ops.into_iter().chain(ended).for_each(Ticket::abandon);
    }
}

impl Peers {
    #[cold]
    #[inline(never)]
    fn look_up(&mut self, number: fi_addr_t) -> Result<Encoded> {
        let changes = Changes::now();
        let to = match self.av.lookup(number) {
            Some(addr) => sockaddr::encode(&addr),
            None => {
                let mut groups = self.groups.iter();
                let group = groups.find(|(group, _)| *group == number);
                group.ok_or(Errno::EINVAL)?.1
            }
        };
        self.last = Some((number, changes, to));
        Ok(to)
    }

    /// Returns the number of a sender's address; [`ANY_SOURCE`] if it is not in the vector, or if
    /// completions do not name sources.
    #[inline(always)]
    pub fn source(&mut self, from: Option<SocketAddr>) -> u64 {
        let (Some(from), Senders::Known | Senders::All) = (from, self.senders) else {
            return ANY_SOURCE;
        };
        match self.last_sender {
            Some((last, changes, src)) if last == from && changes == Changes::now() => src,
            _ => self.look_for(from),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_for(&mut self, from: SocketAddr) -> u64 {
        let changes = Changes::now();
        // The application may have inserted a link-local address without its interface.
        let found = self.av.find(&from).or_else(|| {
            let anywhere = sockaddr::without_scope(&from)?;
            self.av.find(&anywhere)
        });
        let src = found.unwrap_or(ANY_SOURCE);
        self.last_sender = Some((from, changes, src));
        src
    }
}
