//! Connections are set up, and end.
//!
//! A request and its answer tell both sides the other's address: what packets to it carry as a
//! number. A request alone changes nothing that exists, since anybody can send one: where there is a
//! connection already, its terms stay a candidate until a packet proves that the peer has received the
//! answer. Where there is none, no operation is sent until then, or until the peer has answered a
//! request of this side.
//!
//! A request that anybody can send costs memory: that of one of a limited number of strangers. While
//! there are so many, a peer of this library is sent a cookie, of which nothing is kept, and has room of
//! its own when it returns it.
//!
//! A peer of this library that is silent in the middle of a connection is sent the request once more. If it
//! is still the same, it gives the same answer; otherwise it was restarted, or has forgotten the
//! connection.

use std::collections::VecDeque;

use super::endpoint::{Endpoint, Shared};
use super::host::{Datagram, Failure, Host, Name, Payload, PeerId, Time};
use super::jobs::What;
use super::peer::{NEVER, Peer, Receiving, Sending, Setup, Terms, WINDOW};
use super::wire::{Base, Head, Hello, SetupAnswer, SetupRequest, kind};
use super::{MAX_MTU, MIN_MTU};

/// Time after which a request is repeated; doubled each time.
const FIRST_REPEAT: Time = 10_000_000;
/// Longest time between requests.
const LAST_REPEAT: Time = 1_000_000_000;
/// Time after which a guest that is idle gives way to another one.
const GUEST_IDLE: Time = 60_000_000_000;
/// Age at which a stranger gives way to another one.
const STRANGER_AGE: Time = 1_000_000_000;
/// Most paths that are held for cookies which have been sent.
const COOKIE_PATHS: usize = 32;
/// Sequence numbers behind those that are expected that may belong to old duplicates. What is
/// further away is not from this connection.
const OLD: u64 = 1 << 20;

/// Time between a request and the next one.
fn repeat_after(times: u32) -> Time {
    (FIRST_REPEAT << times.saturating_sub(1).min(16)).min(LAST_REPEAT)
}

impl<H: Host> Peer<H> {
    /// A connection is wanted.
    pub fn ask(&mut self, now: Time) {
        self.silent_since = now;
        self.cookie = 0;
        self.setup = Setup::Asking {
            since: now,
            times: 0,
            next: now,
        };
    }

    /// The request that is due, if one is; `own` makes one for the peer with a name.
    pub fn request(&mut self, now: Time, own: impl FnOnce(&Name) -> SetupRequest) -> Option<Head> {
        match &mut self.setup {
            Setup::Asking { times, next, .. } if *next <= now => {
                *times += 1;
                *next = now + repeat_after(*times);
            }
            Setup::Open if self.asks_again => self.asked_again_at = now,
            _ => return None,
        }
        self.asks_again = false;
        let own = own(&self.name);
        let request = SetupRequest {
            address: self.terms.local,
            hello: own.hello.map(|hello| Hello {
                first_seq: self.terms.first_seq,
                cookie: self.cookie,
                ..hello
            }),
            ..own
        };
        Some(request.write())
    }

    /// The peer's address is known, and nothing has been exchanged with it yet.
    fn begin(
        &mut self,
        now: Time,
        remote: u64,
        hello: Option<Hello>,
        most_unacked: u16,
        mtu: usize,
    ) {
        self.terms.remote = remote;
        self.terms.hello = hello;
        self.is_confirmed = false;
        self.silent_since = now;
        self.first_number = None;
        let (first, expected, window) = match hello {
            Some(hello) => (self.terms.first_seq, hello.first_seq, hello.window),
            None => (0, 0, u32::from(most_unacked)),
        };
        self.mtu = match hello {
            Some(hello) => mtu.min(hello.mtu as usize),
            None => mtu,
        };
        let queue = std::mem::take(&mut self.sending.queue);
        self.sending = Sending::new(first);
        self.sending.queue = queue;
        self.sending.window = window.min(WINDOW);
        self.receiving = Receiving::new(expected);
    }

    /// It has proved to receive at its path.
    fn open(&mut self) {
        self.setup = Setup::Open;
        // A peer of the C library shows no signs of life while its application computes.
        self.is_awaited &= self.is_extended();
    }

    /// Whether it was asked again who it is, and has not been heard of since then.
    fn is_asked_again(&self) -> bool {
        self.setup == Setup::Open && self.asked_again_at > self.silent_since
    }

    /// The answer to a request with this address.
    fn answer_to(&mut self, to: u64, terms: &Terms, own: Option<Hello>) {
        self.answer = Some(SetupAnswer {
            to,
            address: terms.local,
            hello: own.map(|hello| Hello {
                first_seq: terms.first_seq,
                ..hello
            }),
        });
    }
}

impl<H: Host> Shared<H> {
    /// What this side says of itself, apart from the sequence number.
    pub fn hello(&self) -> Option<Hello> {
        self.config.extended.then_some(Hello {
            mtu: self.config.mtu as u32,
            window: WINDOW,
            first_seq: 0,
            cookie: 0,
        })
    }

    /// What the peer says of itself, if it makes sense and is wanted.
    fn accepted(&self, hello: Option<Hello>) -> Option<Hello> {
        let makes_sense = |hello: &Hello| {
            (MIN_MTU..=MAX_MTU).contains(&(hello.mtu as usize)) && hello.window != 0
        };
        hello.filter(makes_sense).filter(|_| self.config.extended)
    }

    /// Begins with a peer that may have forged its address: operations wait.
    fn begin(&mut self, now: Time, peer: &mut Peer<H>, remote: u64, hello: Option<Hello>) {
        let (most, mtu) = (self.config.max_unacked, self.config.mtu);
        self.forget_early(peer);
        peer.begin(now, remote, hello, most, mtu);
        peer.awaits_until = 0;
        self.serve(peer);
    }

    /// Begins with a peer that has proved to receive at its path.
    fn open(&mut self, now: Time, peer: &mut Peer<H>, remote: u64, hello: Option<Hello>) {
        self.begin(now, peer, remote, hello);
        peer.open();
    }

    /// The strangers that have returned a cookie, or the others.
    fn strangers_of(&mut self, is_proven: bool) -> &mut VecDeque<PeerId> {
        match is_proven {
            true => &mut self.proven,
            false => &mut self.strangers,
        }
    }

    /// Takes back what is kept of the peer's packets.
    fn forget_early(&mut self, peer: &mut Peer<H>) {
        if let Some(early) = peer.receiving.early.take() {
            self.buffered -= early.bytes;
        }
    }

    /// Whether a packet is one of the connection, as its number, its checksum and its sequence number
    /// say. The latter is complete afterwards.
    #[inline]
    pub fn recognises(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &mut Base,
        datagram: &[u8],
        host: &mut H,
    ) -> bool {
        if peer.terms.local as u32 != base.number {
            if !self.recognises_new(now, peer, base, datagram, host) {
                return false;
            }
        } else if peer.is_extended() {
            let expected = match base.kind {
                kind::ACK => peer.sending.una,
                _ => peer.receiving.next,
            };
            if !base.unseal(expected, datagram) {
                return false;
            }
        }
        let (expected, most) = match base.kind {
            kind::ACK => (peer.sending.una, peer.sending.flights.len() as u64 + 1),
            _ => (peer.receiving.next, u64::from(WINDOW)),
        };
        if base.seq.wrapping_sub(expected).wrapping_add(OLD) >= OLD + most {
            return false;
        }
        if !peer.is_confirmed {
            self.confirm(now, peer);
        }
        if peer.is_extended() {
            peer.silent_since = now;
        }
        true
    }

    /// The first packet with the number that the peer was told: it has received it.
    #[cold]
    fn confirm(&mut self, now: Time, peer: &mut Peer<H>) {
        peer.is_confirmed = true;
        peer.is_stranger = false;
        if peer.setup != Setup::Open {
            peer.open();
            peer.silent_since = now;
            self.serve(peer);
        }
    }

    /// Handles a packet with another number than that of the connection: maybe the peer was restarted,
    /// and this is the first packet that proves it.
    #[cold]
    fn recognises_new(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &mut Base,
        datagram: &[u8],
        host: &mut H,
    ) -> bool {
        let number = base.number;
        if peer.first_number == Some(number) {
            return true;
        }
        let candidate = peer.candidate.as_deref();
        let Some(&terms) = candidate.filter(|terms| terms.local as u32 == number) else {
            return false;
        };
        let first = terms.hello.map_or(0, |hello| hello.first_seq);
        if terms.hello.is_some() && !base.unseal(first, datagram) {
            return false;
        }
        let is_new = base.kind != kind::ACK
            && base.seq.wrapping_sub(first) < u64::from(self.config.max_unacked.max(1));
        if terms.hello.is_none() && terms.remote == peer.terms.remote {
            // The C library repeats requests, and takes the last answer's number.
            if !is_new || base.seq != 0 {
                return true;
            }
            if peer.receiving.next == 0 {
                // When the packet comes again, it is no restart.
                peer.candidate = None;
                peer.first_number = Some(number);
                return true;
            }
        }
        if !is_new {
            return false;
        }
        self.fail(peer, Failure::Restarted, true, host);
        peer.candidate = None;
        peer.terms = terms;
        self.open(now, peer, terms.remote, terms.hello);
        true
    }

    /// The peer wants the request to be repeated with this cookie: at once if it is the first one.
    fn take_cookie(&mut self, now: Time, peer: &mut Peer<H>, cookie: u64) {
        if peer.cookie == 0 {
            match &mut peer.setup {
                Setup::Asking { next, .. } => *next = now,
                _ => peer.asks_again = peer.is_asked_again(),
            }
            self.serve(peer);
        }
        peer.cookie = cookie;
    }

    /// Fails the jobs of a peer, apart from those that have not begun if they are kept, and interrupts
    /// what arrives from it.
    fn fail(&mut self, peer: &mut Peer<H>, failure: Failure, keep: bool, host: &mut H) {
        let receiving = &mut peer.receiving;
        let inbound = receiving.inbound.take();
        let is_wanted = inbound.is_some_and(|inbound| !inbound.is_discarded);
        if std::mem::take(&mut receiving.is_held) || is_wanted {
            host.interrupted(peer.id, failure);
        }
        self.forget_early(peer);
        let sending = &mut peer.sending;
        let mut queue = std::mem::take(&mut sending.queue);
        let mut failed = Vec::new();
        if sending.awaiting != 0 {
            let of_peer = self.jobs.of_peer(peer.id.index);
            let is_acked = |number: &u32| self.jobs.get(*number).is_some_and(|job| job.is_acked);
            failed.extend(of_peer.into_iter().filter(is_acked));
        }
        failed.extend(sending.begun.drain(..));
        let jobs = &self.jobs;
        let stays = |number: &u32| {
            let job = jobs.get(*number);
            job.is_some_and(|job| keep && !job.has_begun() && matches!(job.what, What::Own(_)))
        };
        // Those that have begun are in both lists.
        failed.extend(queue.iter().filter(|number| {
            let begun = jobs.get(**number).is_none_or(|job| job.has_begun());
            !begun && !stays(number)
        }));
        queue.retain(stays);
        sending.queue = queue;
        sending.awaiting = 0;
        for number in failed {
            let Some(job) = self.jobs.remove(number) else {
                continue;
            };
            match job.what {
                What::Own(op) => host.done(op, Err(job.failure.unwrap_or(failure))),
                What::Response(response) => host.responded(peer.id, response, false),
                What::Refusal { .. } => {}
            }
        }
    }

    /// Ends the connection: everything that concerns it fails.
    pub fn disconnect(&mut self, now: Time, peer: &mut Peer<H>, failure: Failure, host: &mut H) {
        self.fail(peer, failure, false, host);
        if std::mem::take(&mut peer.is_awaited) && failure == Failure::Silent {
            host.interrupted(peer.id, failure);
        }
        peer.awaits_until = 0;
        peer.setup = Setup::Idle;
        peer.candidate = None;
        peer.first_number = None;
        peer.answer = None;
        peer.is_confirmed = false;
        peer.is_elsewhere = false;
        peer.silent_since = now;
        peer.terms = Terms {
            local: self.secret.address_of(peer.id.index),
            remote: 0,
            first_seq: self.secret.next(),
            hello: None,
        };
        peer.sending = Sending::new(0);
        peer.sending.timer = NEVER;
        peer.receiving = Receiving::new(0);
    }
}

impl<H: Host> Endpoint<H> {
    /// Handles a request.
    #[cold]
    pub(super) fn requested(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        packet: &[u8],
        host: &mut H,
    ) {
        let Some(request) =
            SetupRequest::read(packet).filter(|request| request.address as u32 != 0)
        else {
            return;
        };
        let name = host.canonical(&request.name);
        let request = SetupRequest { name, ..request };
        let known = self.find(&request.name);
        let id = known.or_else(|| self.admit(now, from, &request, host));
        let Some((peer, shared)) = id.and_then(|id| self.at(id)) else {
            return;
        };
        if known.is_some() && from.is_some_and(|from| from != peer.path) {
            return;
        }
        let (hello, own) = (shared.accepted(request.hello), shared.hello());
        // A request of this side is still to be answered, which settles the peer's address.
        let is_asking = matches!(peer.setup, Setup::Asking { .. });
        if is_asking || peer.terms.remote == 0 {
            shared.begin(now, peer, request.address, hello);
            let terms = peer.terms;
            peer.answer_to(request.address, &terms, own);
            return;
        }
        let is_same = peer.terms.remote == request.address;
        if is_same && (peer.is_extended() || !peer.is_confirmed) {
            let terms = peer.terms;
            peer.answer_to(request.address, &terms, own);
        } else {
            let candidate = peer.candidate.as_deref().copied();
            let known = candidate.filter(|terms| terms.remote == request.address);
            let terms = known.unwrap_or_else(|| Terms {
                local: shared.secret.address_of(peer.id.index),
                remote: request.address,
                first_seq: shared.secret.next(),
                hello,
            });
            peer.candidate = Some(Box::new(terms));
            peer.answer_to(request.address, &terms, own);
        }
        shared.serve(peer);
    }

    /// Makes a stranger a peer, if there is room for one.
    fn admit(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        request: &SetupRequest,
        host: &mut H,
    ) -> Option<PeerId> {
        // The address vector bounds how many of those there are.
        let is_expected = host.is_expected(&request.name);
        let is_proven = !is_expected && self.has_returned_cookie(now, request);
        if !is_expected && !self.has_room_for_stranger(now, is_proven, host) {
            if !is_proven {
                self.send_cookie(now, from, request, host);
            }
            return None;
        }
        let path = self.path_to(from, &request.name, host)?;
        let Some(id) = self.add(&request.name, path) else {
            host.released(path);
            return None;
        };
        if !is_expected {
            self.shared.strangers_of(is_proven).push_back(id);
            if let Some((peer, _)) = self.at(id) {
                peer.is_stranger = true;
                peer.since = now;
            }
        }
        host.appeared(id, &request.name, path);
        Some(id)
    }

    /// The path to a name that came from there; `None` if it is somebody else's.
    fn path_to(&mut self, from: Option<H::Path>, name: &Name, host: &mut H) -> Option<H::Path> {
        let cookies = &mut self.shared.cookies;
        let place = cookies.iter().position(|(known, _)| known == name);
        let path = match place.and_then(|place| cookies.remove(place)) {
            Some((_, path)) => path,
            None => host.resolve(name)?,
        };
        if from.is_some_and(|from| from != path && !H::is_unknown(from)) {
            host.released(path);
            return None;
        }
        Some(path)
    }

    /// Whether a request has the cookie that was sent to its path.
    fn has_returned_cookie(&self, now: Time, request: &SetupRequest) -> bool {
        let SetupRequest { address, name, .. } = request;
        let cookie = request.hello.map_or(0, |hello| hello.cookie);
        let secret = &self.shared.secret;
        cookie != 0 && secret.is_cookie(now, *address, name, cookie)
    }

    /// Asks a stranger for which there is no room to repeat its request with a cookie.
    fn send_cookie(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        request: &SetupRequest,
        host: &mut H,
    ) {
        let SetupRequest { address, name, .. } = request;
        let Some(own) = self.shared.hello() else {
            return;
        };
        if self.shared.accepted(request.hello).is_none() {
            return;
        }
        let Some(path) = self.path_to(from, name, host) else {
            return;
        };
        let answer = SetupAnswer {
            to: *address,
            address: 0,
            hello: Some(Hello {
                cookie: self.shared.secret.cookie(now, *address, name),
                ..own
            }),
        };
        // If there is no room, it is as if it was lost.
        host.transmit(&Datagram {
            path,
            header: answer.write().bytes(),
            payload: Payload::None,
        });
        // The provider below may still need the path.
        self.shared.cookies.push_back((*name, path));
        if self.shared.cookies.len() > COOKIE_PATHS
            && let Some((_, path)) = self.shared.cookies.pop_front()
        {
            host.released(path);
        }
    }

    /// Whether one more stranger may come; the oldest one that has been there for some time gives way.
    fn has_room_for_stranger(&mut self, now: Time, is_proven: bool, host: &mut H) -> bool {
        let most = self.shared.config.max_strangers;
        let strangers = self.shared.strangers_of(is_proven);
        if strangers.len() < most {
            return true;
        }
        let mut strangers = std::mem::take(strangers);
        strangers.retain(|id| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.id == *id && peer.is_stranger)
        });
        let is_full = strangers.len() >= most;
        let oldest = strangers.front().copied();
        *self.shared.strangers_of(is_proven) = strangers;
        let Some(oldest) = oldest.filter(|_| is_full) else {
            return !is_full;
        };
        match self.at(oldest) {
            Some((peer, _)) if now.saturating_sub(peer.since) < STRANGER_AGE => return false,
            _ => {}
        }
        self.shared.strangers_of(is_proven).pop_front();
        if let Some(peer) = self.remove(oldest) {
            host.disappeared(oldest, peer.path);
        }
        true
    }

    /// A stranger has completed the set-up: it becomes a guest, if there is room for one. Otherwise it is
    /// removed, and `false` returned. Who only pretends to be somebody else does not get here, and so
    /// takes nobody's place.
    #[cold]
    pub(super) fn settle(&mut self, now: Time, index: u32, host: &mut H) -> bool {
        let Some((peer, shared)) = self.at_index(index) else {
            return false;
        };
        let id = peer.id;
        if host.is_expected(&peer.name) {
            return true;
        }
        if shared.guests.len() >= shared.config.max_guests && !self.make_room_for_guest(now, host) {
            host.refused(id);
            self.dismiss(now, id, host);
            return false;
        }
        self.shared.guests.push(id);
        true
    }

    /// The guest that has been idle longest gives way, unless there is room. Returns whether there is.
    fn make_room_for_guest(&mut self, now: Time, host: &mut H) -> bool {
        let guests = std::mem::take(&mut self.shared.guests);
        let is_guest = |id: &PeerId| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.is_some_and(|peer| peer.id == *id && !host.is_expected(&peer.name))
        };
        self.shared.guests = guests.into_iter().filter(is_guest).collect();
        if self.shared.guests.len() < self.shared.config.max_guests {
            return true;
        }
        let idle_since = |id: &PeerId| {
            let peer = self.peers.get(id.index()).and_then(Option::as_deref);
            peer.filter(|peer| peer.is_idle())
                .map(|peer| peer.silent_since)
        };
        let guests = self.shared.guests.iter().enumerate();
        let idle = guests.filter_map(|(place, id)| Some((idle_since(id)?, place)));
        match idle.min() {
            Some((since, place)) if now.saturating_sub(since) >= GUEST_IDLE => {
                let id = self.shared.guests.swap_remove(place);
                self.dismiss(now, id, host);
                true
            }
            _ => false,
        }
    }

    /// Removes a peer that is to come again if it wants something.
    fn dismiss(&mut self, now: Time, id: PeerId, host: &mut H) {
        if let Some((peer, shared)) = self.at(id) {
            shared.part(now, peer, host);
        }
        if let Some(peer) = self.remove(id) {
            host.disappeared(id, peer.path);
        }
    }

    /// Handles an answer.
    #[cold]
    pub(super) fn answered(
        &mut self,
        now: Time,
        from: Option<H::Path>,
        packet: &[u8],
        host: &mut H,
    ) {
        let Some(answer) = SetupAnswer::read(packet) else {
            return;
        };
        let index = self.shared.secret.index_of(answer.to as u32);
        let Some((peer, shared)) = self.at_index(index as u32) else {
            return;
        };
        if peer.terms.local != answer.to {
            return;
        }
        // Only who has got the request, which was sent to the peer's path, knows its address.
        let is_elsewhere = from.is_some_and(|from| from != peer.path);
        match peer.setup {
            Setup::Asking { .. } => peer.is_elsewhere = is_elsewhere,
            _ if is_elsewhere && !peer.is_elsewhere => return,
            _ => {}
        }
        let hello = shared.accepted(answer.hello);
        if answer.address as u32 == 0 {
            // Without one there is nothing to repeat the request with.
            if let Some(hello) = hello.filter(|hello| hello.cookie != 0) {
                shared.take_cookie(now, peer, hello.cookie);
            }
            return;
        }
        match peer.setup {
            Setup::Idle => {}
            Setup::Asking { times, next, .. } => {
                shared.open(now, peer, answer.address, hello);
                if times == 1 {
                    let sent_at = next.saturating_sub(repeat_after(times));
                    let took = now.saturating_sub(sent_at);
                    peer.sending.round_trip.sample(now, took);
                }
            }
            Setup::Open if peer.terms.remote == answer.address => {}
            // It does not know of the connection.
            Setup::Open if peer.is_asked_again() => {
                shared.fail(peer, Failure::Restarted, true, host);
                peer.candidate = None;
                shared.open(now, peer, answer.address, hello);
            }
            Setup::Open if peer.is_confirmed => {}
            // The one that answered first has been restarted since then.
            Setup::Open if peer.sending.flights.is_empty() => {
                shared.open(now, peer, answer.address, hello);
            }
            Setup::Open => {}
        }
        shared.schedule(peer);
    }
}
