//! Connections are set up, and end.
//!
//! A request and its answer tell both sides the other's address: what packets to it carry as a
//! number. A request alone changes nothing that exists, since anybody can send one: where there is a
//! connection already, its terms stay a candidate until a packet proves that the peer has received the
//! answer. Where there is none, no operation is sent until then, or until the peer has answered a
//! request of this side.
//!
//! A peer of this library that is silent in the middle of a connection is sent the request once more. If it
//! is still the same, it gives the same answer; otherwise it was restarted, or has forgotten the
//! connection.

use super::endpoint::{Endpoint, Shared};
use super::host::{Failure, Host, Name, Time};
use super::jobs::What;
use super::peer::{NEVER, Peer, Receiving, Sending, Setup, Terms, WINDOW};
use super::twins::SETTLES_WITHIN;
use super::wire::{Base, Head, Hello, SetupAnswer, SetupRequest, kind};
use super::{MAX_MTU, MIN_MTU};

/// Time after which a request is repeated; doubled each time.
const FIRST_REPEAT: Time = 10_000_000;
/// Longest time between requests.
const LAST_REPEAT: Time = 1_000_000_000;
/// Time for which the terms of a request of this library do not give way to those of one that could have been
/// forged: one of the C library, which returns no cookies.
const CANDIDATE_AGE: Time = 10_000_000_000;
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
        self.is_presumed = false;
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
        self.has_closed = false;
        // A peer of the C library shows no signs of life while its application computes.
        self.is_awaited &= self.is_extended();
    }

    /// Whether it was asked again who it is, and has not been heard of since then.
    pub fn is_asked_again(&self) -> bool {
        self.setup == Setup::Open && self.asked_again_at > self.silent_since
    }

    /// The answer to a request with this address; `existing` is the address of the connection that the
    /// same endpoint has, or 0.
    fn answer_to(&mut self, to: u64, terms: &Terms, own: Option<Hello>, existing: u64) {
        self.answer = Some(SetupAnswer {
            to,
            address: terms.local,
            hello: own.map(|hello| Hello {
                first_seq: terms.first_seq,
                cookie: existing,
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
            instance: self.instance,
        })
    }

    /// What the peer says of itself, if it makes sense and is wanted.
    pub fn accepted(&self, hello: Option<Hello>) -> Option<Hello> {
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
        peer.is_presumed = false;
        peer.is_renewed = false;
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

    /// Takes back what has been sent to an address that the peer never had: it is sent once more when
    /// the right one is known.
    fn take_back(&mut self, peer: &mut Peer<H>) {
        let sending = &mut peer.sending;
        let begun = std::mem::take(&mut sending.begun);
        let jobs = &self.jobs;
        sending
            .queue
            .retain(|number| jobs.get(*number).is_none_or(|job| !job.has_begun()));
        for number in begun.into_iter().rev() {
            if let Some(job) = self.jobs.get_mut(number) {
                job.take_back();
                sending.queue.push_front(number);
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
        self.forget(now, peer);
    }

    /// Forgets the terms and the state of a connection. Another one has another address and another
    /// first sequence number: packets of this one do not belong to it, and the peer can tell.
    pub fn forget(&mut self, now: Time, peer: &mut Peer<H>) {
        peer.setup = Setup::Idle;
        peer.candidate = None;
        peer.first_number = None;
        peer.answer = None;
        peer.is_confirmed = false;
        peer.is_presumed = false;
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
        if peer.is_settling(now, request.address, hello.as_ref()) {
            return;
        }
        if let Setup::Twin { .. } = peer.setup {
            shared.part_from_twin(now, peer);
        }
        let is_proven = hello.is_some() && shared.has_returned_cookie(now, &request);
        // A request of this side is still to be answered, which settles the peer's address.
        let is_asking = matches!(peer.setup, Setup::Asking { .. });
        // Of two that pretend to be the peer, the one that can prove it is.
        let is_other = peer.terms.remote != 0 && peer.terms.remote != request.address;
        if is_asking && is_other && hello.is_some() && !is_proven {
            return shared.ask_for_cookie(now, peer.path, &request, host);
        }
        let is_mistaken = peer.is_presumed && is_proven && is_other;
        if is_asking && is_other || peer.terms.remote == 0 || is_mistaken {
            shared.take_back(peer);
            shared.begin(now, peer, request.address, hello);
            let terms = peer.terms;
            peer.answer_to(request.address, &terms, own, 0);
            return shared.answer(peer, host);
        }
        let is_same = peer.terms.remote == request.address;
        if is_same && (peer.is_extended() || !peer.is_confirmed) {
            let terms = peer.terms;
            peer.answer_to(request.address, &terms, own, 0);
            return shared.answer(peer, host);
        }
        let candidate = peer.candidate.as_deref().copied();
        let known = candidate.filter(|terms| terms.remote == request.address);
        if known.is_none()
            && let Some(candidate) = candidate
        {
            if candidate.is_of(hello.as_ref())
                && now.saturating_sub(peer.candidate_since) < SETTLES_WITHIN
            {
                return;
            }
            // Who can prove that the request is its own does so. It may be the peer's whose terms these are.
            if hello.is_some() && !is_proven {
                return shared.ask_for_cookie(now, peer.path, &request, host);
            }
            let age = now.saturating_sub(peer.candidate_at);
            if candidate.hello.is_some() && !is_proven && age < CANDIDATE_AGE {
                return;
            }
        }
        let existing = match peer.is_same_endpoint(request.address, hello.as_ref()) {
            true => peer.terms.remote,
            false => 0,
        };
        let terms = known.unwrap_or_else(|| Terms {
            local: shared.secret.address_of(peer.id.index),
            remote: request.address,
            first_seq: shared.secret.next(),
            hello,
        });
        if known.is_none() {
            peer.candidate_since = now;
        }
        peer.candidate = Some(Box::new(terms));
        peer.candidate_at = now;
        peer.answer_to(request.address, &terms, own, existing);
        shared.answer(peer, host);
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
        let id = peer.id;
        let is_new = matches!(peer.setup, Setup::Asking { .. }) || peer.is_asked_again();
        let existing = hello.as_ref().map_or(0, |hello| hello.cookie);
        if is_new && let Some(twin) = self.twin_at(existing, id.index) {
            if let Some((peer, shared)) = self.at(id) {
                shared.fail(peer, Failure::Restarted, true, host);
            }
            return self.join(now, id, twin);
        }
        let Some((peer, shared)) = self.at(id) else {
            return;
        };
        match peer.setup {
            Setup::Idle | Setup::Twin { .. } => {}
            // It has asked this side under another address meanwhile, and uses that connection.
            Setup::Asking { .. } if peer.is_settling(now, answer.address, hello.as_ref()) => {
                peer.open();
                peer.is_presumed = true;
                shared.serve(peer);
            }
            Setup::Asking { times, next, .. } => {
                shared.open(now, peer, answer.address, hello);
                if times == 1 {
                    let sent_at = next.saturating_sub(repeat_after(times));
                    let took = now.saturating_sub(sent_at);
                    peer.sending.round_trip.sample(now, took);
                }
            }
            Setup::Open if peer.terms.remote == answer.address => {}
            // The address of the request was forged, or that of another connection.
            Setup::Open if peer.is_asked_again() && peer.is_presumed => {
                shared.take_back(peer);
                shared.open(now, peer, answer.address, hello);
            }
            // It does not know of the connection, or this is an old answer that was late. A new
            // connection does for either.
            Setup::Open if peer.is_asked_again() => {
                shared.fail(peer, Failure::Restarted, true, host);
                let queue = std::mem::take(&mut peer.sending.queue);
                shared.forget(now, peer);
                peer.sending.queue = queue;
                peer.is_renewed = true;
                peer.ask(now);
                shared.serve(peer);
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
