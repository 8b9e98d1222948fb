//! Loss recovery: handles acknowledgements, retransmits what is lost (RACK and tail loss probes, RFC 8985;
//! go-back-N for peers of the C library), and gives up peers that are silent.

use super::congestion::MAX_PROBES;
use super::endpoint::Shared;
use super::host::{Failure, Host, Time};
use super::jobs::What;
use super::peer::{AckDue, Flight, NEAR_WINDOW, NEVER, Peer, Sending, Setup, Stage, WINDOW};
use super::wire::{Base, Extended, NO_DELAY, flag};

/// Time in nanoseconds between probes of a peer that has acknowledged everything, but still owes a result
/// or the rest of a message.
const KEEPALIVE: Time = 500_000_000;
/// Limit of RACK's reordering window, in quarters of the least round trip.
const MAX_REORDERS: u32 = 8;
/// Number of round trips without spurious retransmissions after which the reordering window is reduced by
/// a quarter of a round trip (RFC 8985 counts 16 recoveries).
const CALM_ROUNDS: u8 = 16;
/// Number of duplicate acknowledgements of a peer of the C library that mean a loss: it drops packets out
/// of order, and acknowledges each of them.
const REPEATS: u32 = 2;
/// Time after which a peer of this library that is silent is asked whether it still knows of the
/// connection: each time it is probed, or everything is repeated, from then on.
const ASK_AGAIN: Time = 1_000_000_000;
/// Shortest time in nanoseconds between two go-back-N retransmissions.
const GO_BACK_PAUSE: Time = 200_000;

/// An acknowledgement.
pub struct Ack<'a> {
    /// All packets before this one have arrived.
    pub next: u64,
    /// Number of packets from there on for which there is room.
    pub window: u32,
    /// Number of refusals that have been sent because of packets before `next`.
    pub refusals: u16,
    /// Microseconds since the last packet that it acknowledges has arrived, or [`NO_DELAY`].
    pub delay: u16,
    /// The flags of that packet, with [`flag::ECHO`]; 0 from a peer that does not tell.
    pub echo: u16,
    pub selective: Option<Selective<'a>>,
}

/// What an acknowledgement says beyond all before a number.
#[derive(Clone, Copy)]
pub struct Selective<'a> {
    /// Number of packets that had come before.
    pub duplicates: u32,
    /// Words of bits for the packets behind the first missing one.
    pub words: &'a [u8],
}

/// What an acknowledgement says that had not been known.
#[derive(Default)]
struct News {
    packets: u32,
    /// The acknowledgement's [`Ack::echo`].
    echo: u16,
    /// Time since the last packet was sent, if no later one has been acknowledged before, and it is known
    /// which transmission of it has arrived.
    sample: Option<Time>,
    /// Packets that had been taken for lost wrongly, and were not sent again.
    spurious: u32,
    /// Whether a packet was sent more than once, so that others may have waited for it.
    was_repeated: bool,
}

impl Sending {
    /// A packet has arrived.
    #[inline(always)]
    fn arrival(&mut self, now: Time, seq: u64, flight: &Flight, news: &mut News) {
        match flight.state {
            Stage::Arrived => return,
            Stage::Flying => {
                self.flying -= 1;
                if flight.is_repeated() {
                    self.repeated -= 1;
                }
            }
            Stage::Lost => {
                self.lost -= 1;
                news.spurious += 1;
            }
        }
        news.packets += 1;
        news.was_repeated |= flight.is_repeated();
        let took = now.saturating_sub(flight.sent_at);
        if (seq.wrapping_sub(self.arrived_to) as i64) >= 0 {
            self.arrived_to = seq.wrapping_add(1);
            news.sample = match flight.is_repeated() {
                false => Some(took),
                true => flight.took(now, news.echo),
            };
        }
        if flight.is_repeated() && took < self.round_trip.least {
            // It is the first one that has arrived.
            return;
        }
        if (flight.sent_at, seq) > self.newest {
            self.newest = (flight.sent_at, seq);
            self.newest_took = took;
        }
    }

    /// A refusal is here.
    pub fn know_refusal(&mut self) {
        self.refusals_known = self.refusals_known.wrapping_add(1);
        if (self.refusals_known.wrapping_sub(self.refusals_told) as i16) > 0 {
            self.refusals_told = self.refusals_known;
        }
    }

    /// The first packet that is missing cannot have arrived, unless the peer holds it back: it was
    /// dropped when its turn came, and is sent again.
    #[inline(always)]
    fn check_first(&mut self, window: u32) {
        if self.arrived != 0
            && window != 0
            && let Some(first) = self.flights.front_mut()
            && first.state == Stage::Arrived
        {
            first.state = Stage::Lost;
            self.arrived -= 1;
            self.lost += 1;
            self.lost_from = self.una;
        }
    }

    /// Takes a flying packet for lost.
    fn lose(&mut self, index: usize) {
        if let Some(flight) = self.flights.get_mut(index)
            && flight.state == Stage::Flying
        {
            flight.state = Stage::Lost;
            self.flying -= 1;
            self.lost += 1;
            if flight.is_repeated() {
                self.repeated -= 1;
            }
            let seq = self.una.wrapping_add(index as u64);
            if self.lost == 1 || (seq.wrapping_sub(self.lost_from) as i64) < 0 {
                self.lost_from = seq;
            }
        }
    }
}

impl<H: Host> Shared<H> {
    /// Handles a packet that acknowledges.
    pub fn ack_packet(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &[u8],
        host: &mut H,
    ) {
        let Some((extended, words)) = Extended::read(rest) else {
            return;
        };
        let selective = Selective {
            duplicates: extended.tx_id,
            words,
        };
        let selective = peer.is_extended().then_some(selective);
        let [refusals, delay, echo] = match peer.is_extended() {
            true => [0, 16, 32].map(|shift| (extended.part >> shift) as u16),
            false => [0; 3],
        };
        let ack = Ack {
            next: base.seq,
            window: extended.rx_id,
            refusals,
            delay,
            echo,
            selective,
        };
        self.acknowledged(now, peer, &ack, host);
        if base.flags & flag::CLOSING != 0 && peer.is_extended() {
            peer.has_closed = true;
            self.disconnect(now, peer, Failure::Restarted, host);
        }
    }

    /// Handles an acknowledgement.
    #[inline]
    pub fn acknowledged(&mut self, now: Time, peer: &mut Peer<H>, ack: &Ack<'_>, host: &mut H) {
        let newly = ack.next.wrapping_sub(peer.sending.una);
        if newly > peer.sending.flights.len() as u64 {
            // Old, or nonsense.
            return;
        }
        let is_progress = newly != 0 || peer.sending.flights.is_empty();
        if !peer.is_extended() && is_progress && !peer.owes_packets() {
            // A peer of the C library that refuses an operation only repeats itself, and one that has
            // forgotten what it owes acknowledges nevertheless.
            peer.silent_since = now;
        }
        let sending = &mut peer.sending;
        let most = match sending.round_trip.is_paced() {
            false => NEAR_WINDOW,
            true => WINDOW,
        };
        sending.window = ack.window.min(most);
        if (ack.refusals.wrapping_sub(sending.refusals_told) as i16) > 0 {
            sending.refusals_told = ack.refusals;
        }
        let mut news = News {
            echo: ack.echo,
            ..News::default()
        };
        for _ in 0..newly {
            let Some(flight) = sending.flights.pop_front() else {
                break;
            };
            let seq = sending.una;
            sending.una = seq.wrapping_add(1);
            match flight.state {
                Stage::Arrived => sending.arrived -= 1,
                Stage::Flying | Stage::Lost => {}
            }
            sending.arrival(now, seq, &flight, &mut news);
        }
        if (sending.lost_from.wrapping_sub(sending.una) as i64) < 0 {
            sending.lost_from = sending.una;
        }
        sending.check_first(ack.window);
        if let Some(selective) = &ack.selective {
            self.take_selective(now, peer, selective, &mut news);
        }
        if newly != 0 {
            self.complete(peer, host);
        }
        let is_extended = peer.is_extended();
        let sending = &mut peer.sending;
        if news.packets != 0 {
            sending.round_trip.progressed();
            // Without selective acknowledgements, what has arrived behind a hole is heard of late.
            if let Some(took) = news.sample.filter(|_| is_extended || !news.was_repeated)
                && ack.delay != NO_DELAY
            {
                // An acknowledgement that repeats one that was lost is older than it looks.
                let delay = Time::from(ack.delay) * 1_000;
                sending.round_trip.sample(now, took.saturating_sub(delay));
            }
            if news.spurious != 0 {
                sending.congestion.uncount_losses(news.spurious);
            } else if (sending.una.wrapping_sub(sending.recover) as i64) >= 0 {
                sending.congestion.confirm();
            }
            sending
                .congestion
                .delivered(news.packets, most.min(ack.window.max(1)));
            if (sending.una.wrapping_sub(sending.round_end) as i64) >= 0 {
                sending.congestion.round(now);
                sending.calm_rounds += 1;
                if sending.calm_rounds >= CALM_ROUNDS {
                    sending.calm_rounds = 0;
                    sending.reorders = (sending.reorders - 1).max(1);
                }
                sending.round_end = sending.next();
            }
            sending.probes = 0;
            sending.probe_due = false;
            sending.timer = NEVER;
            sending.repeats = 0;
        }
        if is_extended {
            if sending.arrived != 0 || sending.repeated != 0 {
                self.detect(now, peer);
            }
        } else if news.packets == 0 && sending.flying != 0 {
            self.repeated_ack(now, peer);
        }
        let sending = &peer.sending;
        if !sending.queue.is_empty() || sending.lost != 0 {
            self.serve(peer);
        }
        self.arm(now, peer);
    }

    /// Notes which packets have arrived behind a missing one.
    #[cold]
    fn take_selective(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        selective: &Selective<'_>,
        news: &mut News,
    ) {
        let sending = &mut peer.sending;
        let more = selective.duplicates.wrapping_sub(sending.duplicates);
        if more != 0 && more < u32::MAX / 2 {
            sending.duplicates = selective.duplicates;
            sending.reorders = (sending.reorders + 1).min(MAX_REORDERS);
            sending.calm_rounds = 0;
            sending.congestion.uncount_losses(more);
        }
        let words = selective.words.as_chunks::<8>().0;
        for (place, word) in words.iter().enumerate() {
            let mut word = u64::from_ne_bytes(*word);
            while word != 0 {
                // The first missing packet has no bit.
                let index = place * 64 + word.trailing_zeros() as usize + 1;
                word &= word - 1;
                let Some(&flight) = sending.flights.get(index) else {
                    return;
                };
                if flight.state != Stage::Arrived {
                    let seq = sending.una.wrapping_add(index as u64);
                    sending.arrival(now, seq, &flight, news);
                    if let Some(flight) = sending.flights.get_mut(index) {
                        flight.state = Stage::Arrived;
                        sending.arrived += 1;
                    }
                }
            }
        }
    }

    /// Completes the jobs of which all packets are acknowledged.
    #[inline]
    pub fn complete(&mut self, peer: &mut Peer<H>, host: &mut H) {
        if peer.sending.refusals_told != peer.sending.refusals_known {
            return;
        }
        while let Some(&number) = peer.sending.begun.front() {
            if let Some(job) = self.jobs.get(number) {
                let end = job.start.wrapping_add(u64::from(job.parts));
                if (peer.sending.una.wrapping_sub(end) as i64) < 0 {
                    break;
                }
            }
            peer.sending.begun.pop_front();
            self.complete_job(peer, number, host);
        }
    }

    #[inline]
    fn complete_job(&mut self, peer: &mut Peer<H>, number: u32, host: &mut H) {
        let Some(job) = self.jobs.get_mut(number) else {
            return;
        };
        job.is_acked = true;
        if matches!(job.what, What::Own(_)) && !job.is_over() {
            peer.sending.awaiting += 1;
            return;
        }
        let Some(job) = self.jobs.remove(number) else {
            return;
        };
        match job.what {
            What::Own(op) => host.done(op, job.failure.map_or(Ok(()), Err)),
            What::Response(response) => {
                peer.sending.foreign = peer.sending.foreign.saturating_sub(1);
                host.responded(peer.id, response, job.failure.is_none());
            }
            What::Refusal { .. } => {
                peer.sending.foreign = peer.sending.foreign.saturating_sub(1);
            }
        }
    }

    /// The result of an acknowledged operation is here.
    pub fn finish_awaiting(&mut self, peer: &mut Peer<H>, number: u32, host: &mut H) {
        peer.sending.awaiting = peer.sending.awaiting.saturating_sub(1);
        if let Some(job) = self.jobs.remove(number)
            && let What::Own(op) = job.what
        {
            host.done(op, job.failure.map_or(Ok(()), Err));
        }
    }

    /// Finds lost packets: those that were sent before one that has arrived, so long ago that they
    /// should have arrived, too (RACK, RFC 8985).
    #[cold]
    fn detect(&mut self, now: Time, peer: &mut Peer<H>) {
        let sending = &mut peer.sending;
        sending.reorder_at = NEVER;
        if !self.config.retry {
            return;
        }
        let trip = &sending.round_trip;
        let quarters = Time::from(sending.reorders);
        let allowed = (trip.least / 4 * quarters).min(trip.smoothed);
        let (newest, took) = (sending.newest, sending.newest_took);
        let mut first_lost = None;
        for index in 0..sending.flights.len() {
            let Some(flight) = sending.flights.get(index) else {
                break;
            };
            let seq = sending.una.wrapping_add(index as u64);
            if flight.state != Stage::Flying || (flight.sent_at, seq) >= newest {
                continue;
            }
            let due = flight.sent_at + took + allowed;
            if due <= now {
                sending.lose(index);
                sending.congestion.count_loss();
                first_lost = first_lost.or(Some(seq));
            } else {
                sending.reorder_at = sending.reorder_at.min(due);
            }
        }
        if let Some(seq) = first_lost {
            if (seq.wrapping_sub(sending.recover) as i64) >= 0 {
                sending.recover = sending.next();
                sending.congestion.lost(&sending.round_trip);
            }
            self.serve(peer);
        }
    }

    /// A peer of the C library has acknowledged what was acknowledged before.
    #[cold]
    fn repeated_ack(&mut self, now: Time, peer: &mut Peer<H>) {
        let sending = &mut peer.sending;
        sending.repeats += 1;
        let trip = sending.round_trip.smoothed;
        let Some(oldest) = sending.flights.front() else {
            return;
        };
        let age = now.saturating_sub(oldest.sent_at);
        let is_lost = age >= trip && (sending.repeats >= REPEATS || age > 2 * trip);
        let pause = trip.max(GO_BACK_PAUSE);
        if !self.config.retry || !is_lost || now.saturating_sub(sending.went_back_at) < pause {
            return;
        }
        sending.went_back_at = now;
        sending.congestion.count_loss();
        if (sending.una.wrapping_sub(sending.recover) as i64) >= 0 {
            sending.recover = sending.next();
            sending.congestion.lost(&sending.round_trip);
        }
        self.go_back(peer);
    }

    /// Takes all packets on the way for lost.
    fn go_back(&mut self, peer: &mut Peer<H>) {
        for index in 0..peer.sending.flights.len() {
            peer.sending.lose(index);
        }
        peer.sending.asked_to = peer.sending.una;
        peer.sending.repeats = 0;
        self.serve(peer);
    }

    /// Limits the time until a peer is probed to which nothing is on the way, so that one that is there has
    /// several chances to say so before it would be given up.
    fn in_time(&self, wait: Time) -> Time {
        wait.min(self.keep_alive_every())
    }

    /// Starts the timer for what the peer owes, unless it runs.
    #[inline]
    pub fn arm(&mut self, now: Time, peer: &mut Peer<H>) {
        let sending = &peer.sending;
        let is_empty = sending.flights.is_empty();
        let runs = sending.timer != NEVER && (is_empty || !sending.keeps_alive);
        if runs || !self.config.retry || peer.setup != Setup::Open {
            return;
        }
        peer.sending.keeps_alive = is_empty;
        let sending = &peer.sending;
        peer.sending.timer = match is_empty {
            false => now + sending.patience(peer.is_extended()),
            true if !sending.queue.is_empty() => now + self.in_time(sending.round_trip.timeout()),
            true if peer.owes_answer() => now + self.in_time(KEEPALIVE),
            true if peer.is_awaited => now + self.keep_alive_every(),
            true => NEVER,
        };
    }

    /// Does what is due for a peer.
    #[cold]
    pub fn timed(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) {
        match peer.setup {
            Setup::Idle | Setup::Twin { .. } => return,
            Setup::Asking { since, .. } => {
                if self.config.retry && now.saturating_sub(since) >= self.config.give_up {
                    self.disconnect(now, peer, Failure::Silent, host);
                } else {
                    self.serve(peer);
                }
                return;
            }
            Setup::Open => {}
        }
        if matches!(peer.receiving.ack, AckDue::At(when) if when <= now) {
            peer.receiving.is_interactive = false;
            peer.receiving.ack = AckDue::Now;
            self.serve(peer);
        }
        if peer.sending.reorder_at <= now {
            self.detect(now, peer);
        }
        if peer.sending.paced_until <= now {
            peer.sending.paced_until = NEVER;
            self.serve(peer);
        }
        if peer.sending.timer <= now {
            self.silence(now, peer, host);
        }
    }

    /// The peer has not answered in time.
    fn silence(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) {
        if !peer.owes() {
            peer.sending.timer = NEVER;
            return;
        }
        if now.saturating_sub(peer.silent_since) >= self.config.give_up {
            self.disconnect(now, peer, Failure::Silent, host);
            return;
        }
        let is_extended = peer.is_extended();
        let asks_after = match peer.owes_answer() {
            true => ASK_AGAIN,
            // One sign of life is missing, at least.
            false => ASK_AGAIN + self.keep_alive_every(),
        };
        let asks_again = is_extended && now.saturating_sub(peer.silent_since) >= asks_after;
        if asks_again && peer.is_confirmed && host.is_gone(&peer.name) {
            self.disconnect(now, peer, Failure::Silent, host);
            return;
        }
        peer.asks_again |= asks_again;
        let sending = &mut peer.sending;
        if sending.flying == 0 && sending.lost == 0 {
            // Nothing is on the way: there is no room for what would be, or everything has come.
            sending.probe_due = true;
            sending.keeps_alive = true;
            if !peer.owes_answer() {
                peer.sending.timer = now + self.keep_alive_every();
                self.serve(peer);
                return;
            }
            let sending = &mut peer.sending;
            sending.round_trip.back_off();
            let wait = match sending.queue.is_empty() {
                true => KEEPALIVE,
                false => 0,
            };
            let wait = sending.round_trip.timeout().max(wait);
            sending.timer = now + self.in_time(wait);
        } else if sending.is_to_be_probed(is_extended) {
            sending.probes += 1;
            sending.probe_due = true;
            sending.timer = now + sending.patience(is_extended);
        } else {
            sending.probes = MAX_PROBES;
            sending.congestion.timed_out();
            sending.round_trip.back_off();
            sending.recover = sending.next();
            sending.timer = now + sending.round_trip.timeout();
            self.go_back(peer);
        }
        self.serve(peer);
    }
}
