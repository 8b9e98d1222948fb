//! Packets leave: answers and requests, what is repeated, what is new, and acknowledgements.

use super::endpoint::Shared;
use super::host::{Datagram, Failure, Host, Name, Obstacle, Payload, Time};
use super::jobs::{Job, What};
use super::peer::{AckDue, Flight, NEVER, Peer, Setup, Stage, Turn, WINDOW};
use super::wire::{
    ACK_FIELD_LEN, AckField, BASE_LEN, EXTENDED_LEN, EXTENT_LEN, Extended, Extent, Head,
    SetupRequest, flag, head_len, kind,
};
use prov_base::errno::Errno;

/// Limit of packets that are sent to one peer before it is the next peer's turn.
const QUANTUM: u32 = 32;
/// Least number of new packets that are sent together while more than twice as many are in flight, so that
/// acknowledgements keep arriving: the provider below sends them with few system calls, and they are
/// acknowledged together.
const TOGETHER: u32 = 32;
/// Bytes of the longest acknowledgement.
const LONG_ACK: usize = EXTENDED_LEN + WINDOW as usize / 8;
/// Time in nanoseconds between an acknowledgement and a packet within which the former could have been
/// piggybacked.
const SOON: Time = 100_000;

/// Which transmission of a packet it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nth {
    /// It has not been sent before.
    First,
    /// It was taken for lost, or is a tail loss probe (RFC 8985), whose acknowledgement tells what is lost:
    /// as these flags say.
    Again(u16),
}

/// Why a packet was not sent.
enum Stop {
    /// The host has no room.
    NoRoom,
    /// Its bytes are not there yet.
    NotYet,
    /// Its bytes cannot be read, and it cannot be left out.
    Unreadable,
}

impl<H: Host> Shared<H> {
    /// Sends what may be sent to a peer.
    pub fn turn(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) -> Turn {
        match self.try_turn(now, peer, host) {
            Ok(turn) => turn,
            Err(Stop::NoRoom) => Turn::NoRoom,
            Err(Stop::NotYet) => Turn::NotYet,
            Err(Stop::Unreadable) => {
                self.part(now, peer, host);
                self.disconnect(now, peer, Failure::Abandoned, host);
                Turn::Done
            }
        }
    }

    fn try_turn(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) -> Result<Turn, Stop> {
        if peer.answer.is_some() || peer.asks_again || matches!(peer.setup, Setup::Asking { .. }) {
            self.set_up(now, peer, host)?;
        }
        if peer.setup != Setup::Open {
            return Ok(match peer.setup {
                Setup::Twin { .. } => Turn::Twins,
                _ => Turn::Done,
            });
        }
        if peer.sending.probe_due {
            self.probe(now, peer, host)?;
        }
        peer.sending.paced_until = NEVER;
        let (mut budget, mut is_late) = (QUANTUM, false);
        while peer.sending.lost != 0 && self.may_send(now, peer) {
            if budget == 0 {
                return Ok(Turn::More);
            }
            budget -= 1;
            match self.repeat(now, peer, host) {
                Err(Stop::NotYet) => {
                    is_late = true;
                    break;
                }
                sent => sent?,
            }
        }
        let waits = self.waits_for_more(peer);
        while peer.sending.lost == 0
            && !waits
            && let Some(&number) = peer.sending.queue.front()
        {
            if peer.sending.flights.len() >= peer.sending.window as usize
                || !self.may_send(now, peer)
            {
                break;
            }
            if budget == 0 {
                return Ok(Turn::More);
            }
            budget -= 1;
            match self.send_next(now, peer, number, host) {
                Err(Stop::NotYet) => {
                    is_late = true;
                    break;
                }
                sent => sent?,
            }
        }
        if !peer.is_extended() {
            self.ask_for_ack(peer, host)?;
        }
        if matches!(peer.receiving.ack, AckDue::Now | AckDue::Last) {
            self.send_ack(now, peer, host)?;
        }
        self.arm(now, peer);
        Ok(match is_late {
            true => Turn::NotYet,
            false => Turn::Done,
        })
    }

    /// Returns whether the congestion window and pacing allow another packet.
    #[inline]
    fn may_send(&mut self, now: Time, peer: &mut Peer<H>) -> bool {
        let sending = &mut peer.sending;
        if sending.flying >= sending.congestion.window {
            sending.congestion.limits = true;
            return false;
        }
        let departure = sending.congestion.next_departure(&sending.round_trip);
        if departure > now {
            sending.paced_until = departure;
            sending.congestion.limits = true;
            return false;
        }
        true
    }

    /// Whether new packets wait until more can leave with them: the windows are nearly full, and not
    /// paced.
    #[inline]
    fn waits_for_more(&mut self, peer: &mut Peer<H>) -> bool {
        let sending = &mut peer.sending;
        if sending.flying <= 2 * TOGETHER || sending.round_trip.is_paced() {
            return false;
        }
        let room = sending.congestion.window.saturating_sub(sending.flying);
        let accepted = sending.window.saturating_sub(sending.flights.len() as u32);
        let waits = room.min(accepted) < TOGETHER;
        sending.congestion.limits |= waits && room < TOGETHER;
        waits
    }

    /// Sends an answer and a request, if they are due.
    #[cold]
    fn set_up(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        self.send_answer(peer, host)?;
        let hello = self.hello();
        let own = |peer: &Name| SetupRequest {
            address: 0,
            name: host.own_name(peer).unwrap_or(self.config.name),
            hello,
        };
        if let Some(request) = peer.request(now, own) {
            // If there is no room, it is as if it was lost.
            self.post(peer, &request, Payload::None, host)?;
        }
        Ok(())
    }

    /// Sends an answer to a request at once, unless there is no room: another request may come before the
    /// peer's turn, and have an answer of its own.
    pub fn answer(&mut self, peer: &mut Peer<H>, host: &mut H) {
        let _ = self.send_answer(peer, host);
        self.serve(peer);
    }

    fn send_answer(&mut self, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        if let Some(answer) = peer.answer {
            self.post(peer, &answer.write(), Payload::None, host)?;
            peer.answer = None;
        }
        Ok(())
    }

    /// Sends a packet of the connection.
    #[inline(always)]
    fn send<const ROOM: usize>(
        &mut self,
        peer: &Peer<H>,
        head: &mut Head<ROOM>,
        payload: Payload<H::Op, H::Response>,
        host: &mut H,
    ) -> Result<(), Stop> {
        if peer.is_extended() {
            head.seal(payload.len());
        }
        self.post(peer, head, payload, host)
    }

    #[inline(always)]
    fn post<const ROOM: usize>(
        &mut self,
        peer: &Peer<H>,
        head: &Head<ROOM>,
        payload: Payload<H::Op, H::Response>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let datagram = Datagram {
            path: peer.path,
            header: head.bytes(),
            payload,
        };
        match host.transmit(&datagram) {
            true => Ok(()),
            false => Err(match host.obstacle() {
                Obstacle::NoRoom => Stop::NoRoom,
                Obstacle::NotYet => Stop::NotYet,
                Obstacle::Unreadable => Stop::Unreadable,
            }),
        }
    }

    /// Makes the peer acknowledge, so that it is known what has arrived: with the last packet that is not
    /// known to be there, or with one that has come long ago.
    #[cold]
    fn probe(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        let mut flights = peer.sending.flights.iter();
        let last = flights.rposition(|flight| flight.state == Stage::Flying);
        match last.filter(|_| peer.is_extended()) {
            Some(index) => self.send_flight(now, peer, index, host)?,
            None => self.send_probe(peer, host)?,
        }
        peer.sending.probe_due = false;
        Ok(())
    }

    fn send_probe(&mut self, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        let seq = peer.sending.una.wrapping_sub(1);
        let (awaited, every) = match peer.is_awaited && peer.is_extended() {
            true => (flag::AWAITED, self.keep_alive_every() / 1_000_000),
            false => (0, 0),
        };
        let flags = flag::PROBE | awaited;
        let mut head: Head = Head::new(kind::DATA, flags, peer.terms.remote as u32, seq);
        head.extended(&Extended {
            tx_id: 0,
            rx_id: u32::try_from(every).unwrap_or(u32::MAX),
            part: 0,
        });
        self.send(peer, &mut head, Payload::None, host)
    }

    /// Asks a peer of the C library for an acknowledgement, if it sends none for what is on the way:
    /// it acknowledges the packets at the ends of messages, and one in each of its windows.
    fn ask_for_ack(&mut self, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        let sending = &peer.sending;
        let next = sending.next();
        let elicits = (sending.elicits.wrapping_sub(sending.una) as i64) > 0;
        if sending.flying == 0 || elicits || sending.asked_to == next {
            return Ok(());
        }
        self.send_probe(peer, host)?;
        peer.sending.asked_to = next;
        Ok(())
    }

    /// Sends the first lost packet again.
    fn repeat(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        let sending = &mut peer.sending;
        let from = sending.lost_from.wrapping_sub(sending.una) as usize;
        let mut flights = sending.flights.iter().enumerate().skip(from);
        let lost = flights.find(|(_, flight)| flight.state == Stage::Lost);
        let Some((index, _)) = lost else {
            sending.lost = 0;
            return Ok(());
        };
        sending.lost_from = sending.una.wrapping_add(index as u64);
        self.send_flight(now, peer, index, host)
    }

    /// Sends a packet again.
    fn send_flight(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        index: usize,
        host: &mut H,
    ) -> Result<(), Stop> {
        let seq = peer.sending.una.wrapping_add(index as u64);
        let Some(&flight) = peer.sending.flights.get(index) else {
            return Ok(());
        };
        let mut flags = flight.repeats_flag();
        if flight.state == Stage::Lost {
            flags |= flag::REPEATED;
        }
        let time = Nth::Again(flags);
        self.send_part(now, peer, flight.job, flight.part, seq, time, host)?;
        let sending = &mut peer.sending;
        if let Some(flight) = sending.flights.get_mut(index) {
            if flight.state == Stage::Lost {
                flight.state = Stage::Flying;
                sending.lost -= 1;
                sending.flying += 1;
                sending.repeated += 1;
            } else if !flight.is_repeated() {
                sending.repeated += 1;
            }
            flight.sent_again(now);
        }
        sending.congestion.departs(now, &sending.round_trip);
        Ok(())
    }

    /// Sends the next packet of the first job that has some.
    #[inline]
    fn send_next(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        number: u32,
        host: &mut H,
    ) -> Result<(), Stop> {
        let Some(job) = self.jobs.get_mut(number) else {
            peer.sending.queue.pop_front();
            return Ok(());
        };
        if !job.has_begun() && !begin(job, peer) {
            let failure = Failure::Refused(Errno::EMSGSIZE);
            self.cannot_begin(peer, number, failure, host);
            return Ok(());
        }
        let part = job.sent;
        let seq = peer.sending.next();
        match self.send_part(now, peer, number, part, seq, Nth::First, host) {
            Err(Stop::Unreadable) if part == 0 => {
                self.cannot_begin(peer, number, Failure::Unreadable, host);
                return Ok(());
            }
            sent => sent?,
        }
        if part == 0 {
            peer.sending.begun.push_back(number);
        }
        let mut parts = part + 1;
        if let Some(job) = self.jobs.get_mut(number) {
            job.sent = part + 1;
            parts = job.parts;
        }
        let sending = &mut peer.sending;
        if part + 1 == parts {
            sending.queue.pop_front();
        }
        if sending.flights.is_empty() {
            // It waited for what the peer owes, which may take longer.
            sending.timer = NEVER;
        }
        sending.flights.push_back(Flight::first(now, number, part));
        sending.flying += 1;
        sending.congestion.departs(now, &sending.round_trip);
        let window = u64::from(sending.window.max(1));
        if part == 0 || part + 1 == parts || seq.wrapping_add(1).is_multiple_of(window) {
            sending.elicits = seq.wrapping_add(1);
        }
        Ok(())
    }

    /// Nothing of the job can be sent: it does not fit into a datagram of this peer, which has shorter ones
    /// than this side, or its payload cannot be read.
    #[cold]
    fn cannot_begin(&mut self, peer: &mut Peer<H>, number: u32, failure: Failure, host: &mut H) {
        peer.sending.queue.pop_front();
        let Some(job) = self.jobs.remove(number) else {
            return;
        };
        match job.what {
            What::Own(op) => host.done(op, Err(failure)),
            What::Response(response) => {
                peer.sending.foreign = peer.sending.foreign.saturating_sub(1);
                host.responded(peer.id, response, false);
            }
            What::Refusal { .. } => {
                peer.sending.foreign = peer.sending.foreign.saturating_sub(1);
            }
        }
    }

    /// The bytes of a packet cannot be read. Of a result, the peer gets a refusal in its place, and none of
    /// what follows; where there is no such thing, the peer is told nothing.
    #[cold]
    fn send_no_part(
        &mut self,
        peer: &mut Peer<H>,
        number: u32,
        part: u32,
        seq: u64,
        time: Nth,
        host: &mut H,
    ) -> Result<(), Stop> {
        let is_extended = peer.is_extended();
        let Some(job) = self.jobs.get_mut(number) else {
            return Ok(());
        };
        job.failure = Some(Failure::Unreadable);
        if !is_extended || !matches!(job.what, What::Response(_)) {
            return Err(Stop::Unreadable);
        }
        let (flags, parts) = match time {
            Nth::First => (0, job.parts - part),
            Nth::Again(repeats) if part + 1 == job.parts => (repeats, job.refused.max(1)),
            Nth::Again(repeats) => (repeats, 1),
        };
        let mut head: Head = Head::new(kind::REFUSAL, flags, peer.terms.remote as u32, seq);
        head.u64(u64::from(job.id));
        head.u32(Errno::EIO.number().unsigned_abs());
        head.u32(parts);
        self.send(peer, &mut head, Payload::None, host)?;
        if time == Nth::First
            && let Some(job) = self.jobs.get_mut(number)
        {
            (job.parts, job.refused) = (part + 1, parts);
        }
        Ok(())
    }

    /// Sends a packet of a job. A retransmission has a piggybacked acknowledgement in any case, since that of
    /// the first transmission may be lost as well.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "one packet")]
    fn send_part(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        number: u32,
        part: u32,
        seq: u64,
        time: Nth,
        host: &mut H,
    ) -> Result<(), Stop> {
        let Some(job) = self.jobs.get(number) else {
            return Ok(());
        };
        if job.refused != 0 && part + 1 == job.parts {
            return self.send_no_part(peer, number, part, seq, time, host);
        }
        let (offset, len) = span(job, part, peer.segment());
        let has_extended_head = part != 0 || matches!(job.what, What::Response(_));
        let head = match (&job.what, has_extended_head) {
            (_, true) => EXTENDED_LEN,
            (What::Refusal { .. }, _) => BASE_LEN + 16,
            (..) => head_len(&job.operation),
        };
        let receiving = &peer.receiving;
        let is_extended = peer.is_extended();
        let ack = (receiving.ack != AckDue::No || time != Nth::First)
            && is_extended
            && head + len + ACK_FIELD_LEN <= peer.mtu;
        let mut flags = match ack {
            true => flag::ACK,
            false => 0,
        };
        if let Nth::Again(repeats) = time
            && is_extended
        {
            flags |= repeats;
        }
        let (kind, flags) = match (&job.what, part) {
            (What::Own(_), 0) => (job.kind, flags | flags_of(job)),
            (What::Own(_), _) => (kind::DATA, flags),
            (What::Response(_), _) => (kind::RESULT, flags),
            (What::Refusal { .. }, _) => (kind::REFUSAL, flags),
        };
        let mut head: Head = Head::new(kind, flags, peer.terms.remote as u32, seq);
        if ack {
            head.ack(&AckField {
                next: receiving.next as u32,
                window: receiving.window(WINDOW) as u16,
                refusals: receiving.refusals,
                delay: receiving.delay(now, receiving.next),
                echo: receiving.newest_flags,
            });
        }
        let payload = match job.what {
            What::Own(op) if len != 0 => Payload::Op { op, offset, len },
            What::Response(response) if len != 0 => Payload::Response {
                response,
                offset,
                len,
            },
            _ => Payload::None,
        };
        match (&job.what, has_extended_head) {
            (What::Own(_), true) => head.extended(&Extended {
                tx_id: job.id,
                rx_id: 0,
                part: u64::from(part - 1),
            }),
            (_, true) => head.extended(&Extended {
                tx_id: job.id,
                rx_id: 0,
                part: u64::from(part),
            }),
            (&What::Refusal { of, errno }, _) => {
                head.u64(of);
                head.u32(errno);
                head.u32(0);
            }
            (..) => head.operation(&job.operation),
        }
        match self.send(peer, &mut head, payload, host) {
            Err(Stop::Unreadable) => {
                return self.send_no_part(peer, number, part, seq, time, host);
            }
            sent => sent?,
        }
        let receiving = &mut peer.receiving;
        if ack {
            receiving.is_interactive |= receiving.ack != AckDue::No;
            receiving.unacked = 0;
            // Which packets have come behind a missing one is still to be told.
            if receiving
                .early
                .as_ref()
                .is_none_or(|early| early.count == 0)
            {
                receiving.ack = AckDue::No;
            }
        } else if now.saturating_sub(receiving.acked_at) < SOON && receiving.acked_at != 0 {
            receiving.is_interactive = true;
        }
        Ok(())
    }

    /// Tells a peer that it is forgotten, twice, since datagrams get lost. One that does not learn of it
    /// gives up when it wants something.
    pub fn part(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) {
        for _ in 0..2 {
            peer.receiving.ack = AckDue::Last;
            if self.send_ack(now, peer, host).is_err() {
                break;
            }
        }
    }

    /// Sends an acknowledgement.
    fn send_ack(&mut self, now: Time, peer: &mut Peer<H>, host: &mut H) -> Result<(), Stop> {
        let early = peer.receiving.early.as_deref();
        match early.filter(|early| peer.is_extended() && early.count != 0) {
            None => {
                let mut head: Head = self.ack_head(now, peer, peer.receiving.next);
                self.send(peer, &mut head, Payload::None, host)?;
            }
            Some(early) => {
                let mut head: Head<LONG_ACK> = self.ack_head(now, peer, early.end);
                let first = peer.receiving.next.wrapping_add(1);
                let count = early.end.wrapping_sub(first).min(u64::from(WINDOW));
                let words = count.div_ceil(64).min((peer.mtu - EXTENDED_LEN) as u64 / 8);
                for word in 0..words {
                    head.u64(early.word(first.wrapping_add(word * 64)));
                }
                self.send(peer, &mut head, Payload::None, host)?;
            }
        }
        let receiving = &mut peer.receiving;
        receiving.ack = AckDue::No;
        receiving.unacked = 0;
        receiving.acked_at = now;
        self.note_ack_sent(now);
        Ok(())
    }

    /// The headers of an acknowledgement of packets up to `end`.
    #[inline]
    fn ack_head<const ROOM: usize>(&self, now: Time, peer: &Peer<H>, end: u64) -> Head<ROOM> {
        let (receiving, number) = (&peer.receiving, peer.terms.remote as u32);
        let is_last = receiving.ack == AckDue::Last;
        let (flags, extended) = match peer.is_extended() {
            true => {
                let (refusals, delay) = (receiving.refusals, receiving.delay(now, end));
                let extended = Extended {
                    tx_id: receiving.duplicates,
                    rx_id: receiving.window(WINDOW),
                    part: u64::from(refusals)
                        | u64::from(delay) << 16
                        | u64::from(receiving.newest_flags) << 32,
                };
                (if is_last { flag::CLOSING } else { 0 }, extended)
            }
            false => {
                let extended = Extended {
                    tx_id: 0,
                    rx_id: receiving.window(u32::from(self.config.max_unacked)),
                    part: 0,
                };
                (0, extended)
            }
        };
        let mut head = Head::new(kind::ACK, flags, number, receiving.next);
        head.extended(&extended);
        head
    }
}

/// The payload of a packet of a job: offset and length.
#[inline(always)]
fn span<H: Host>(job: &Job<H>, part: u32, segment: usize) -> (usize, usize) {
    let offset = match (&job.what, part) {
        (_, 0) => return (0, job.first),
        (What::Own(_), part) => job.first + (part as usize - 1) * segment,
        (_, part) => part as usize * segment,
    };
    (offset, segment.min(job.len.saturating_sub(offset)))
}

/// Flags of the first packet of an operation.
#[inline(always)]
fn flags_of<H: Host>(job: &Job<H>) -> u16 {
    let operation = &job.operation;
    let mut flags = 0;
    if operation.tag.is_some() {
        flags |= flag::TAG;
    }
    if operation.data.is_some() {
        flags |= flag::DATA;
    }
    if operation.extent.is_none() {
        flags |= flag::INLINE;
    }
    flags
}

/// Divides a job into packets, before the first is sent, now that it is known who the peer is; `false` if that is not possible.
#[inline]
fn begin<H: Host>(job: &mut Job<H>, peer: &Peer<H>) -> bool {
    let (segment, mtu) = (peer.segment(), peer.mtu);
    job.start = peer.sending.next();
    job.operation.extent = None;
    let (first, parts) = match job.what {
        What::Refusal { .. } => (0, 1),
        What::Response(_) => (job.len.min(segment), job.len.div_ceil(segment)),
        What::Own(_) => {
            let pieces = job.operation.remote.pieces().len();
            let has_result = matches!(job.kind, kind::READ | kind::FETCH | kind::COMPARE);
            let is_remote = has_result || matches!(job.kind, kind::WRITE | kind::ATOMIC);
            let head = head_len(&job.operation);
            let result = job.operation.remote.len();
            let mut extent = Extent {
                size: job.len as u64,
                parts: 1,
                id: job.id,
                pieces: pieces as u8,
            };
            if has_result {
                let parts = result.div_ceil(segment as u64);
                extent.size = result;
                if job.kind == kind::READ {
                    extent.parts = parts;
                }
                job.result_parts = u32::try_from(parts).unwrap_or(u32::MAX);
                job.operation.extent = Some(extent);
                if head + EXTENT_LEN + job.len > mtu {
                    return false;
                }
                (job.len, 1)
            } else if head + job.len <= mtu && (!is_remote || pieces == 1) {
                (job.len, 1)
            } else {
                let first = job.len.min(mtu - head - EXTENT_LEN);
                let parts = 1 + (job.len - first).div_ceil(segment);
                if job.kind == kind::ATOMIC && parts != 1 {
                    return false;
                }
                extent.parts = parts as u64;
                job.operation.extent = Some(extent);
                (first, parts)
            }
        }
    };
    job.first = first;
    job.parts = u32::try_from(parts).unwrap_or(u32::MAX);
    true
}
