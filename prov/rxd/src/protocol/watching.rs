//! Peers for whose messages the application waits, though it has sent them nothing that they should
//! answer: they are asked for signs of life from time to time, and given up like any other peer that
//! is silent.
//!
//! A peer whose application computes does not look at what arrives. Its library goes on with the
//! signs of life on its own meanwhile, since it has been told that it is awaited, and how often one
//! is asked for. Peers of the C library would have to answer by themselves, so they are not awaited.

use super::endpoint::{Endpoint, Shared};
use super::host::{Host, PeerId, Time};
use super::peer::{AckDue, Peer, Setup};
use super::wire::Extended;

/// Signs of life within the time after which a silent peer is given up.
const SIGNS: Time = 8;
/// Times between signs of life after which a peer is taken to wait no longer.
const STALE: Time = 4;
/// Shortest time between two signs of life, whatever a peer asks for.
const LIFE_MIN: Time = 10_000_000;
/// Longest time in nanoseconds between two signs of life: for how long a peer that is gone without a word
/// has the library's thread look after the endpoint follows from it.
const LIFE_MAX: Time = 600_000_000_000;

/// The time between two signs of life of a peer that is awaited, where silent peers are given up
/// after `give_up`. As often, the host calls [`Endpoint::watch`].
pub fn watch_every(give_up: Time) -> Time {
    (give_up / SIGNS).max(LIFE_MIN)
}

impl<H: Host> Shared<H> {
    /// The time between two signs of life of a peer that is awaited.
    pub fn keep_alive_every(&self) -> Time {
        watch_every(self.config.give_up)
    }

    fn seek(&mut self, now: Time, peer: &mut Peer<H>) {
        if peer.setup == Setup::Idle {
            peer.is_stranger = false;
            peer.is_awaited = true;
            peer.ask(now);
            self.serve(peer);
        }
    }

    /// The peer's application waits for messages of this side.
    #[cold]
    pub fn note_awaited(&mut self, now: Time, peer: &mut Peer<H>, rest: &[u8]) {
        let Some((extended, _)) = Extended::read(rest).filter(|_| peer.is_extended()) else {
            return;
        };
        let every = (Time::from(extended.rx_id) * 1_000_000).clamp(LIFE_MIN, LIFE_MAX);
        peer.life_every = every;
        peer.life_at = now + every;
        peer.awaits_until = now + STALE * every;
        self.awaited_until = self.awaited_until.max(peer.awaits_until);
    }
}

impl<H: Host> Endpoint<H> {
    /// The host waits, or does not wait any longer, for messages of this peer and nobody else's. Has
    /// no effect for peers of the C library; one whose connection has ended is
    /// [sought](Endpoint::seek). A peer that stays silent is given up ([`Host::interrupted`]). The host calls this again from time to time
    /// ([`watch_every`]).
    pub fn watch(&mut self, now: Time, peer: PeerId, is_awaited: bool) {
        let Some((peer, shared)) = self.at(peer) else {
            return;
        };
        if peer.setup == Setup::Idle && is_awaited {
            // One that has closed its endpoint may come back, and is not asked.
            if !peer.has_closed {
                shared.seek(now, peer);
            }
            return;
        }
        if peer.setup != Setup::Open || !peer.is_extended() || peer.is_awaited == is_awaited {
            return;
        }
        if is_awaited && !peer.owes() {
            peer.silent_since = now;
        }
        peer.is_awaited = is_awaited;
        shared.arm(now, peer);
        shared.schedule(peer);
    }

    /// [`Endpoint::watch`] for a peer that was given up: sets up a connection, and gives the peer up
    /// again if that is not possible.
    pub fn seek(&mut self, now: Time, peer: PeerId) {
        if let Some((peer, shared)) = self.at(peer) {
            shared.seek(now, peer);
        }
    }

    /// Whether this peer's endpoint has been closed, and no connection was set up since.
    pub fn has_closed(&mut self, peer: PeerId) -> bool {
        self.at(peer).is_some_and(|(peer, _)| peer.has_closed)
    }

    /// Whether peers have said lately that they wait for messages of this side.
    #[inline]
    pub fn is_awaited(&self, now: Time) -> bool {
        self.shared.awaited_until > now
    }

    /// Shows peers that wait for messages that this side is there, for a host that has not handled
    /// what arrived since `driven`.
    pub fn show_life(&mut self, now: Time, driven: Time, host: &mut H) {
        if self.shared.awaited_until <= driven {
            return;
        }
        self.shared.awaited_until = 0;
        let peers = self.peers.iter_mut().flatten();
        for peer in peers.filter(|peer| peer.setup == Setup::Open && peer.awaits_until > driven) {
            let until = &mut self.shared.awaited_until;
            *until = peer.awaits_until.max(*until);
            if peer.life_at <= now {
                peer.life_at = now + peer.life_every;
                peer.receiving.ack = AckDue::Now;
                self.shared.serve(peer);
            }
        }
        self.transmit(now, host);
    }
}
