//! An endpoint's socket with what waits at it, and how its peers are found.

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

/// Whose messages completions tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Senders {
    /// Nobody's.
    None,
    /// Those of peers that the address vector has (`FI_SOURCE`).
    Known,
    /// Those of anybody: an error names the address of one that the vector does not have
    /// (`FI_SOURCE_ERR`).
    All,
}

/// See the [module](self) description.
pub struct Port {
    pub socket: Arc<OwnedFd>,
    peers: Peers,
    /// What has come and waits for a receive.
    pub arrivals: Arrivals,
    /// Whether the last look for datagrams has found some: more may have come with them.
    pub has_brought: bool,
    /// Whether the last look has found the socket empty. What comes then is told by the poller.
    pub is_drained: bool,
    /// Whether the poller tells what can be read.
    pub is_watched: bool,
    /// Whether it tells of room for sending, too.
    pub is_watched_for_room: bool,
    /// What waits to be sent.
    pub outbox: Outbox,
    /// The operations of what waits there.
    pub ops: VecDeque<Ticket>,
    /// Operations that have ended while the application was elsewhere.
    pub ended: Vec<(Ticket, Result)>,
    pub burst: Burst,
    /// Whether the socket had no room for what waits.
    pub is_stalled: bool,
}

/// The addresses of those whom an endpoint sends to and receives from.
pub struct Peers {
    av: Use<Av>,
    pub senders: Senders,
    /// Where the last message went: its number, the vectors as they were, and the address.
    last: Option<(fi_addr_t, Changes, Encoded)>,
    /// Where the last datagram came from, the vectors as they were, and its number there.
    last_sender: Option<(SocketAddr, Changes, u64)>,
    /// The multicast groups that were joined, by number.
    groups: Vec<(fi_addr_t, Encoded)>,
}

impl Port {
    /// Of an endpoint with this socket and these peers.
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
            arrivals: Arrivals::default(),
            has_brought: false,
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

    /// Whom the endpoint knows, and what has come.
    #[inline(always)]
    pub fn receiving(&mut self) -> (&mut Peers, &mut Arrivals) {
        (&mut self.peers, &mut self.arrivals)
    }

    /// Where a message for this number goes: an address of the vector, or a group that was
    /// joined.
    ///
    /// # Errors
    /// `-FI_EINVAL` where it is neither.
    #[inline(always)]
    pub fn destination(&mut self, number: fi_addr_t) -> Result<Encoded> {
        match &self.peers.last {
            Some((last, changes, to)) if *last == number && *changes == Changes::now() => Ok(*to),
            _ => self.peers.look_up(number),
        }
    }

    /// A multicast group has this number from now on.
    pub fn joined(&mut self, number: fi_addr_t, address: &SocketAddr) {
        self.peers.groups.push((number, sockaddr::encode(address)));
    }

    /// The number of a multicast group means nothing any more.
    pub fn left(&mut self, number: fi_addr_t) {
        self.peers.groups.retain(|(group, _)| *group != number);
        self.peers.last = None;
    }

    /// Gives up what is not sent or not reported, without a word.
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

    /// The number of a sender's address; [`ANY_SOURCE`] where the vector does not have it, or
    /// nobody wants to know.
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
