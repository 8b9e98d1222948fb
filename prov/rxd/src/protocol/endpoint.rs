//! All that an endpoint knows of its peers, and the calls of its host.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use prov_base::errno::Errno;
use prov_util::request::RemoteIov;

use super::host::{Failure, Form, Host, Name, PeerId, Request, Time};
use super::jobs::{Job, Jobs, What};
use super::peer::{AckDue, Peer, Setup, Terms, Turn};
use super::secret::{MAX_PEERS, Secret};
use super::wire::{self, Base, EXTENT_LEN, Operation, kind};
use super::{MAX_MTU, MIN_MTU};

/// Settings of an [`Endpoint`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint's own name, sent to peers.
    pub name: Name,
    /// Bytes of the longest datagram: the lower provider's `max_msg_size`, at most [`MAX_MTU`], less
    /// its `msg_prefix_size`. Both sides must have the same to understand each other, where one is
    /// of the C library. At least [`MIN_MTU`].
    pub mtu: usize,
    /// `FI_OFI_RXD_MAX_UNACKED`: most datagrams that a peer of the C library may send without an
    /// acknowledgement.
    pub max_unacked: u16,
    /// `FI_OFI_RXD_RETRY`: whether anything is sent again. Without, the provider below must not lose
    /// datagrams, and silent peers are waited for.
    pub retry: bool,
    /// Whether selective acknowledgements, larger windows and so on are offered to peers.
    pub extended: bool,
    /// Time after which a peer that is silent, though it should answer, is given up.
    pub give_up: Time,
    /// Most strangers with an incomplete set-up at one time, and as many that have returned a cookie.
    pub max_strangers: usize,
    /// Most peers that have come by themselves, have completed the set-up and are not
    /// [expected](Host::is_expected). Another one takes the place of the one that has been idle longest,
    /// and of one that is not idle if that one's host has more than a quarter of the places, and its
    /// own has less.
    pub max_guests: usize,
    /// Most bytes of memory of datagrams of all peers that have arrived too early or are held back. What exceeds
    /// it is dropped and sent again by the peer.
    pub max_buffered: usize,
    /// Random bits that nobody else knows, anew for each endpoint.
    pub secret: [u64; 2],
}

/// Default of [`Config::give_up`]: as long as the C library tries, so that a peer may compute for
/// this long without calling the library.
pub const GIVE_UP: Time = 120_000_000_000;

/// Why an operation was not taken: nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// As many operations as possible are outstanding: `-FI_EAGAIN`.
    Busy,
    /// The operands of an atomic operation or its result do not fit into a datagram, or a message has
    /// more than 2^32 packets: `-FI_EMSGSIZE`.
    TooLong,
    /// The peer does not exist (any longer).
    NoPeer,
}

impl From<Rejected> for Errno {
    fn from(rejected: Rejected) -> Errno {
        match rejected {
            Rejected::Busy => Errno::EAGAIN,
            Rejected::TooLong => Errno::EMSGSIZE,
            Rejected::NoPeer => Errno::EINVAL,
        }
    }
}

/// What the peers of an endpoint share.
pub(super) struct Shared<H: Host> {
    pub config: Config,
    pub jobs: Jobs<H>,
    pub secret: Secret,
    /// A random number that tells this endpoint from one at the same address after a restart.
    pub instance: u32,
    /// Peers to be served, by index.
    pub ready: VecDeque<u32>,
    /// Peers by the time at which something is due.
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    /// Bytes of memory of packets that are kept.
    pub buffered: usize,
    /// Until when the acknowledgement that was delayed last is, or was, delayed.
    pub acks_delayed_until: Time,
    /// Until when a peer may show that an acknowledgement was lost which was sent on its own.
    pub may_be_asked_until: Time,
    /// Until when one of the peers has said that it waits for messages of this side.
    pub awaited_until: Time,
    /// Strangers, in the order in which they came, and some that are none any longer.
    pub strangers: VecDeque<PeerId>,
    /// The same for those that have returned a cookie.
    pub proven: VecDeque<PeerId>,
    /// Names and paths to which cookies were sent last.
    pub cookies: VecDeque<(Name, H::Path)>,
    /// Peers that came as strangers and have completed the set-up, and some that are gone.
    pub guests: Vec<PeerId>,
}

impl<H: Host> Shared<H> {
    /// Has the peer served by the next [`Endpoint::transmit`].
    #[inline(always)]
    pub fn serve(&mut self, peer: &mut Peer<H>) {
        if !peer.is_ready {
            peer.is_ready = true;
            self.ready.push_back(peer.id.index);
        }
    }

    /// Number of entries of the timers.
    #[cfg(debug_assertions)]
    pub fn timers_len(&self) -> usize {
        self.timers.len()
    }

    /// Has the peer woken at what is due next.
    #[inline]
    pub fn schedule(&mut self, peer: &mut Peer<H>) {
        let due = peer.due();
        if due < peer.wakes_at {
            peer.wakes_at = due;
            self.timers.push(Reverse((due, peer.id.index)));
        }
    }
}

impl<H: Host> Peer<H> {
    /// The time at which something is to be done for it.
    fn due(&self) -> Time {
        let ack = match self.receiving.ack {
            AckDue::At(when) => when,
            AckDue::No | AckDue::Now | AckDue::Last => Time::MAX,
        };
        match self.setup {
            Setup::Idle | Setup::Twin { .. } => Time::MAX,
            Setup::Asking { next, .. } => next,
            Setup::Open => {
                let sending = &self.sending;
                let first = sending.timer.min(sending.reorder_at);
                first.min(sending.paced_until).min(ack)
            }
        }
    }
}

/// See the [module](super) description.
pub struct Endpoint<H: Host> {
    pub(super) peers: Vec<Option<Box<Peer<H>>>>,
    free: Vec<u32>,
    pub(super) names: HashMap<Name, u32>,
    pub(super) shared: Shared<H>,
    generation: u32,
}

impl<H: Host> Endpoint<H> {
    /// Without peers.
    pub fn new(config: Config) -> Self {
        let config = Config {
            mtu: config.mtu.clamp(MIN_MTU, MAX_MTU),
            ..config
        };
        let mut secret = Secret::new(config.secret);
        let instance = (secret.next() as u32).max(1);
        Endpoint {
            peers: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            shared: Shared {
                secret,
                instance,
                config,
                jobs: Jobs::default(),
                ready: VecDeque::new(),
                timers: BinaryHeap::new(),
                buffered: 0,
                acks_delayed_until: 0,
                may_be_asked_until: 0,
                awaited_until: 0,
                strangers: VecDeque::new(),
                proven: VecDeque::new(),
                cookies: VecDeque::new(),
                guests: Vec::new(),
            },
            generation: 0,
        }
    }

    /// Returns the peer with this name, a new one if there is none. Nothing is sent until there is an
    /// operation for it. `None` if there are too many peers (2^20).
    pub fn peer(&mut self, name: &Name, path: H::Path) -> Option<PeerId> {
        let id = match self.find(name) {
            Some(id) => id,
            None => self.add(name, path)?,
        };
        if let Some((peer, _)) = self.at(id) {
            // The host wants it.
            peer.is_stranger = false;
        }
        Some(id)
    }

    /// Returns the peer with this name, if there is one.
    pub fn find(&self, name: &Name) -> Option<PeerId> {
        let index = *self.names.get(name)?;
        let peer = self.peers.get(index as usize)?.as_ref()?;
        Some(peer.id)
    }

    /// Adds a peer, which has no connection.
    pub(super) fn add(&mut self, name: &Name, path: H::Path) -> Option<PeerId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.peers.len() >= MAX_PEERS => return None,
            None => {
                self.peers.push(None);
                (self.peers.len() - 1) as u32
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let id = PeerId { index, generation };
        let terms = Terms {
            local: self.shared.secret.address_of(index),
            remote: 0,
            first_seq: self.shared.secret.next(),
            hello: None,
        };
        let peer = Peer::new(id, *name, path, terms, self.shared.config.mtu);
        if let Some(place) = self.peers.get_mut(index as usize) {
            *place = Some(Box::new(peer));
        }
        self.names.insert(*name, index);
        Some(id)
    }

    /// Removes a peer to which nothing refers.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<Box<Peer<H>>> {
        let place = self.peers.get_mut(id.index())?;
        let peer = place.take_if(|peer| peer.id == id)?;
        self.names.remove(&peer.name);
        self.free.push(id.index);
        if peer.is_ready {
            self.shared.ready.retain(|index| *index != id.index);
        }
        if let Some(early) = &peer.receiving.early {
            self.shared.buffered -= early.bytes;
        }
        Some(peer)
    }

    /// The peer, and what it shares.
    #[inline(always)]
    pub(super) fn at(&mut self, id: PeerId) -> Option<(&mut Peer<H>, &mut Shared<H>)> {
        let peer = self.peers.get_mut(id.index())?.as_deref_mut()?;
        (peer.id == id).then_some((peer, &mut self.shared))
    }

    /// The peer with this index, and what it shares.
    #[inline(always)]
    pub(super) fn at_index(&mut self, index: u32) -> Option<(&mut Peer<H>, &mut Shared<H>)> {
        let peer = self.peers.get_mut(index as usize)?.as_deref_mut()?;
        Some((peer, &mut self.shared))
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
        let (peer, shared) = self.at(peer).ok_or(Rejected::NoPeer)?;
        let job = job_of(peer.id.index, op, request);
        let head = wire::head_len(&job.operation) + EXTENT_LEN;
        // What has to fit into one datagram, and what is sent in packets without end.
        let (whole, packets) = match *request {
            Request::Message { len, .. } => (0, len),
            Request::Write { .. } => (0, job.len),
            Request::Read { remote } => (0, usize::try_from(remote.len()).unwrap_or(usize::MAX)),
            Request::Atomic { len, remote, .. } => {
                let result = usize::try_from(remote.len()).unwrap_or(usize::MAX);
                (len.max(result), 0)
            }
        };
        let mtu = shared.config.mtu;
        if whole > mtu.saturating_sub(head) || packets / mtu > (u32::MAX / 2) as usize {
            return Err(Rejected::TooLong);
        }
        let number = shared.jobs.add(job).ok_or(Rejected::Busy)?;
        peer.is_stranger = false;
        if !peer.owes() {
            peer.silent_since = now;
        }
        peer.sending.queue.push_back(number);
        if peer.setup == Setup::Idle {
            peer.ask(now);
        }
        shared.serve(peer);
        Ok(())
    }

    /// Handles a datagram from `from`, `None` if the provider below does not tell. With it, datagrams
    /// of a peer that come by another path than its own are ignored, unless it has answered by that.
    #[inline]
    pub fn receive(&mut self, now: Time, from: Option<H::Path>, datagram: &[u8], host: &mut H) {
        let Some((mut base, rest)) = Base::read(datagram) else {
            return;
        };
        match base.kind {
            kind::REQUEST => self.requested(now, from, datagram, host),
            kind::ANSWER => self.answered(now, from, datagram, host),
            _ => {
                let index = self.shared.secret.index_of(base.number);
                let Some((peer, shared)) = self.at_index(index as u32) else {
                    return;
                };
                if peer.terms.remote == 0 || !peer.sends_from(from) {
                    return;
                }
                let was_stranger = peer.is_stranger;
                if !shared.recognises(now, peer, &mut base, datagram, host) {
                    return;
                }
                if was_stranger {
                    let index = index as u32;
                    return self.first_packet(now, index, &base, rest, datagram, host);
                }
                shared.packet(now, peer, &base, rest, datagram, host);
                shared.schedule(peer);
            }
        }
    }

    /// Handles the first packet of a connection that a stranger has set up, if there is room for it.
    #[cold]
    fn first_packet(
        &mut self,
        now: Time,
        index: u32,
        base: &Base,
        rest: &[u8],
        datagram: &[u8],
        host: &mut H,
    ) {
        if self.settle(now, index, host)
            && let Some((peer, shared)) = self.at_index(index)
        {
            shared.packet(now, peer, base, rest, datagram, host);
            shared.schedule(peer);
        }
    }

    /// Sends what may be sent, and does what is due by the time. Returns whether the host had room for
    /// all datagrams, and their bytes; if not, it is to be called again when there may be.
    pub fn transmit(&mut self, now: Time, host: &mut H) -> bool {
        self.wake(now, host);
        #[cfg(debug_assertions)]
        self.check_bounds();
        let mut turns = self.shared.ready.len();
        let mut late = Vec::new();
        while let Some(index) = self.shared.ready.pop_front() {
            let Some((peer, shared)) = self.at_index(index) else {
                continue;
            };
            let turn = shared.turn(now, peer, host);
            #[cfg(debug_assertions)]
            peer.check_bounds();
            match turn {
                Turn::Done => peer.is_ready = false,
                Turn::More => shared.ready.push_back(index),
                Turn::NoRoom => shared.ready.push_front(index),
                Turn::NotYet => late.push(index),
                Turn::Twins => {
                    peer.is_ready = false;
                    self.pass_on(now, index);
                    continue;
                }
            }
            shared.schedule(peer);
            if turn == Turn::NoRoom {
                self.shared.ready.extend(late);
                return false;
            }
            turns = turns.saturating_sub(1);
        }
        let are_sent = late.is_empty();
        self.shared.ready.extend(late);
        are_sent
    }

    /// Limit of the entries of the timers, of which each peer has one that counts.
    pub(super) fn most_timers(&self) -> usize {
        4 * self.peers.len() + 64
    }

    /// Removes the entries of the timers that count no longer.
    #[cold]
    fn tidy_timers(&mut self) {
        let peers = &self.peers;
        let counts = |Reverse((when, index)): &Reverse<(Time, u32)>| {
            let peer = peers.get(*index as usize).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.wakes_at == *when)
        };
        let mut entries = std::mem::take(&mut self.shared.timers).into_sorted_vec();
        entries.retain(counts);
        entries.dedup();
        self.shared.timers = entries.into();
    }

    /// Does what is due by the time.
    fn wake(&mut self, now: Time, host: &mut H) {
        if self.shared.timers.len() > self.most_timers() {
            self.tidy_timers();
        }
        while let Some(&Reverse((when, index))) = self.shared.timers.peek() {
            if when > now {
                break;
            }
            self.shared.timers.pop();
            let Some((peer, shared)) = self.at_index(index) else {
                continue;
            };
            // Otherwise there is an entry for an earlier time, or this one is of another peer.
            if peer.wakes_at == when {
                peer.wakes_at = Time::MAX;
                if peer.due() <= now {
                    shared.timed(now, peer, host);
                }
                // What is to be sent is sent in the peer's turn, after which it is known what is due.
                if !peer.is_ready {
                    shared.schedule(peer);
                }
            }
        }
    }

    /// The time at which [`Endpoint::transmit`] has something to do, if nothing arrives before.
    pub fn next_timeout(&mut self) -> Option<Time> {
        loop {
            let &Reverse((when, index)) = self.shared.timers.peek()?;
            let peer = self.peers.get_mut(index as usize);
            let peer = peer.and_then(|peer| peer.as_deref_mut());
            let peer = peer.filter(|peer| peer.wakes_at == when);
            if peer.as_ref().is_some_and(|peer| peer.due() <= when) {
                return Some(when);
            }
            // What was due then has been done, or is due later.
            self.shared.timers.pop();
            if let Some(peer) = peer {
                peer.wakes_at = Time::MAX;
                self.shared.schedule(peer);
            }
        }
    }

    /// Continues with a peer that was held back ([`Admission::Held`](super::Admission::Held)).
    pub fn resume(&mut self, now: Time, peer: PeerId, host: &mut H) {
        if let Some((peer, shared)) = self.at(peer) {
            shared.resume(now, peer, host);
            shared.schedule(peer);
        }
    }

    /// Takes back an operation of which nothing was sent; returns whether that is so. It is not
    /// reported as done.
    pub fn cancel(&mut self, peer: PeerId, op: H::Op) -> bool {
        let peer = self.sender_to(peer, op);
        let Some((peer, shared)) = self.at(peer) else {
            return false;
        };
        let place = peer.sending.queue.iter().position(|&number| {
            let job = shared.jobs.get(number);
            job.is_some_and(|job| {
                !job.has_begun() && matches!(job.what, What::Own(own) if own == op)
            })
        });
        let number = place.and_then(|place| peer.sending.queue.remove(place));
        number
            .and_then(|number| shared.jobs.remove(number))
            .is_some()
    }

    /// Fails all operations to a peer with [`Failure::Abandoned`], and interrupts what arrives from
    /// it. The next operation sets up a new connection.
    pub fn abandon(&mut self, now: Time, peer: PeerId, host: &mut H) {
        if let Some((peer, shared)) = self.at(peer) {
            shared.disconnect(now, peer, Failure::Abandoned, host);
        }
    }

    /// Number of operations and responses of which peers have not acknowledged everything.
    pub fn unfinished(&self) -> usize {
        self.shared.jobs.len()
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }
}

/// The job of an operation.
fn job_of<H: Host>(peer: u32, op: H::Op, request: &Request) -> Job<H> {
    let mut operation = Operation {
        tag: None,
        data: None,
        extent: None,
        remote: RemoteIov::default(),
        atomic: None,
    };
    let (kind, len) = match *request {
        Request::Message { tag, data, len } => {
            operation.tag = tag;
            operation.data = data;
            let kind = match tag {
                None => kind::MESSAGE,
                Some(_) => kind::TAGGED,
            };
            (kind, len)
        }
        Request::Write { data, remote } => {
            operation.data = data;
            operation.remote = remote;
            (kind::WRITE, remote.len() as usize)
        }
        Request::Read { remote } => {
            operation.remote = remote;
            (kind::READ, 0)
        }
        Request::Atomic {
            form,
            op,
            datatype,
            data,
            len,
            remote,
        } => {
            operation.data = data;
            operation.remote = remote;
            operation.atomic = Some((datatype, op));
            let kind = match form {
                Form::Base => kind::ATOMIC,
                Form::Fetch => kind::FETCH,
                Form::Compare => kind::COMPARE,
            };
            (kind, len)
        }
    };
    Job::new(peer, What::Own(op), kind, operation, len)
}
