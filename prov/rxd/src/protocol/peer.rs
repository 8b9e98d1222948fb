//! What an endpoint knows of one peer.

use std::collections::{BTreeMap, VecDeque};

use prov_base::errno::Errno;

use super::congestion::{Congestion, MAX_PROBES, RoundTrip};
use super::host::{Host, Name, PeerId, Time};
use super::wire::{
    Base, EXTENDED_LEN, Hello, MAX_REPEATS, NO_DELAY, SetupAnswer, flag, repeats_of,
};

/// A time that does not come.
pub const NEVER: Time = Time::MAX;

/// Receive window in packets, from the first missing one on, and limit of packets in flight to a peer of
/// this library.
pub const WINDOW: u32 = 4096;
/// Limit of packets in flight to a peer for which they are not
/// [paced](super::congestion::RoundTrip::is_paced): the socket buffers hold fewer than [`WINDOW`].
pub const NEAR_WINDOW: u32 = 1024;

/// How far the set-up of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// There is no connection; a request of the peer may have come.
    Idle,
    /// Requests have been sent, or are to be sent; one of the peer may have come.
    Asking {
        /// Since when.
        since: Time,
        /// Number of requests sent.
        times: u32,
        /// Time of the next one.
        next: Time,
    },
    /// The peer has answered a request, or has sent a packet with the number that it was told.
    Open,
    /// It is the endpoint of another peer, whose packets carry this address.
    Twin { of: PeerId, at: u64 },
}

/// How a peer's turn to send has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// There is nothing more to send for the time being.
    Done,
    /// It is the others' turn.
    More,
    /// The host has no room.
    NoRoom,
    /// The bytes of its next packet are not there yet.
    NotYet,
    /// It is another peer's, which this one is the twin of.
    Twins,
}

/// Both ends' parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// What the peer's packets carry, with the proof of who answers.
    pub local: u64,
    /// The same of the peer; 0 if not known.
    pub remote: u64,
    /// Sequence number of this side's first packet to a peer of this library.
    pub first_seq: u64,
    /// What the peer has said of itself; `None` for one of the C library.
    pub hello: Option<Hello>,
}

/// The part of a message or of a write that is still to come.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    /// Whether it is not wanted, since it was refused.
    pub is_discarded: bool,
    /// The error with which it is refused when all of it is here.
    pub failure: Option<Errno>,
    /// Sequence number of its first packet.
    pub start: u64,
    /// Number of packets, with the first.
    pub parts: u64,
    /// Bytes in the first packet.
    pub first: usize,
    /// Bytes of all.
    pub len: usize,
    /// Packets behind the first that are here.
    pub got: u64,
}

/// Packets that came before others that are missing.
pub struct Early {
    /// Which packets of the window are here: the bit is the sequence number modulo [`WINDOW`].
    bits: [u64; WINDOW as usize / 64],
    /// Number of bits.
    pub count: u32,
    /// One behind the highest sequence number that is here.
    pub end: u64,
    /// Those that wait for their turn. The others have reached their destination.
    pub packets: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of memory of them.
    pub bytes: usize,
}

impl Default for Early {
    fn default() -> Self {
        Early {
            bits: [0; WINDOW as usize / 64],
            count: 0,
            end: 0,
            packets: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl Early {
    fn at(seq: u64) -> (usize, u64) {
        let place = (seq % u64::from(WINDOW)) as usize;
        (place / 64, 1 << (place % 64))
    }

    /// Whether the packet is here.
    #[inline]
    pub fn has(&self, seq: u64) -> bool {
        let (word, bit) = Self::at(seq);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }

    /// A bit for each of 64 packets from this one on.
    pub fn word(&self, from: u64) -> u64 {
        let ((word, _), shift) = (Self::at(from), from % 64);
        let low = self.bits.get(word).copied().unwrap_or(0);
        let next = (word + 1) % self.bits.len();
        let high = self.bits.get(next).copied().unwrap_or(0);
        match shift {
            0 => low,
            shift => low >> shift | high << (64 - shift),
        }
    }

    /// Notes a packet that was not here.
    pub fn note(&mut self, seq: u64) {
        let (word, bit) = Self::at(seq);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
        if self.count == 0 || (seq.wrapping_sub(self.end) as i64) >= 0 {
            self.end = seq.wrapping_add(1);
        }
        self.count += 1;
    }

    /// Forgets a packet, whose turn has come; returns whether it was here.
    #[inline]
    pub fn forget(&mut self, seq: u64) -> bool {
        let (word, bit) = Self::at(seq);
        match self.bits.get_mut(word) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.count -= 1;
                true
            }
            _ => false,
        }
    }
}

/// Whether the peer is due an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDue {
    No,
    /// Delayed until this time, unless it is piggybacked on a packet before.
    At(Time),
    Now,
    /// Now, and it is the last one.
    Last,
}

/// What comes from a peer.
pub struct Receiving {
    /// Sequence number of the next packet.
    pub next: u64,
    pub early: Option<Box<Early>>,
    pub inbound: Option<Inbound>,
    /// Whether the packet `next` is a message for which there is no room.
    pub is_held: bool,
    /// Whether an operation of a peer of the C library was refused last.
    pub is_refusing: bool,
    /// Number of refusals that are sent or queued.
    pub refusals: u16,
    pub ack: AckDue,
    /// Packets that have arrived in order since the last acknowledgement.
    pub unacked: u32,
    /// When an acknowledgement was last sent on its own.
    pub acked_at: Time,
    /// Whether packets to the peer usually follow those from it, so that acknowledgements are delayed in
    /// order to be piggybacked on them.
    pub is_interactive: bool,
    /// Repeated packets that had come before.
    pub duplicates: u32,
    /// One behind the newest packet, which may be held or have come before others, when it arrived,
    /// and its flags, with [`flag::ECHO`].
    pub newest: u64,
    pub newest_at: Time,
    pub newest_flags: u16,
}

/// A packet on the way.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    pub sent_at: Time,
    /// The job and the part of it.
    pub job: u32,
    pub part: u32,
    /// If it was sent more than once: when it was sent first, in microseconds modulo 2^32.
    first_at: u32,
    pub state: Stage,
    /// How often it was sent again.
    repeats: u8,
}

const _: () = assert!(size_of::<Flight>() == 24);

impl Flight {
    /// A packet that is sent for the first time.
    #[inline(always)]
    pub fn first(now: Time, job: u32, part: u32) -> Self {
        Flight {
            sent_at: now,
            job,
            part,
            first_at: 0,
            state: Stage::Flying,
            repeats: 0,
        }
    }

    /// Whether it was sent more than once.
    #[inline(always)]
    pub fn is_repeated(&self) -> bool {
        self.repeats != 0
    }

    /// What its flags say of how often it was sent before, when it is sent once more.
    pub fn repeats_flag(&self) -> u16 {
        let repeats = self.repeats.saturating_add(1).min(MAX_REPEATS);
        u16::from(repeats) << flag::REPEATS_SHIFT
    }

    /// It is sent once more.
    pub fn sent_again(&mut self, now: Time) {
        if self.repeats == 0 {
            self.first_at = micros(self.sent_at);
        }
        self.repeats = self.repeats.saturating_add(1);
        self.sent_at = now;
    }

    /// The time since the transmission that an echo names, if it is known: the first or the last one.
    #[cold]
    pub fn took(&self, now: Time, echo: u16) -> Option<Time> {
        match repeats_of(echo) {
            Some(repeats) if repeats == self.repeats => Some(now.saturating_sub(self.sent_at)),
            Some(0) => Some(Time::from(micros(now).wrapping_sub(self.first_at)) * 1_000),
            _ => None,
        }
    }
}

/// A time in microseconds, modulo 2^32.
fn micros(time: Time) -> u32 {
    (time / 1_000) as u32
}

/// What is known of a packet that has not been acknowledged with all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On the way.
    Flying,
    /// Selectively acknowledged.
    Arrived,
    /// Taken for lost, and to be sent again.
    Lost,
}

/// What goes to a peer.
pub struct Sending {
    /// Sequence number of the first packet that is not acknowledged.
    pub una: u64,
    /// The packets from there on.
    pub flights: VecDeque<Flight>,
    /// Jobs of which packets are still to be sent for the first time.
    pub queue: VecDeque<u32>,
    /// Jobs that have begun and are not acknowledged, in order.
    pub begun: VecDeque<u32>,
    /// Jobs that are acknowledged and wait for their result.
    pub awaiting: u32,
    /// Responses and refusals.
    pub foreign: u32,
    /// Number of refusals that the peer says it has sent, and of those that are here. While there are
    /// more of the former, it is not known which operation was refused, and none is complete.
    pub refusals_told: u16,
    pub refusals_known: u16,
    /// Packets for which the peer has room.
    pub window: u32,
    /// Packets in each [`Stage`].
    pub flying: u32,
    pub arrived: u32,
    pub lost: u32,
    /// No packet before this sequence number is lost.
    pub lost_from: u64,
    /// Flying packets that were sent more than once.
    pub repeated: u32,
    pub congestion: Congestion,
    pub round_trip: RoundTrip,
    /// Losses of packets before this sequence number belong to the current recovery (RFC 6582), in which
    /// the window was reduced already.
    pub recover: u64,
    /// Sequence number whose acknowledgement ends the round trip in which losses are counted.
    pub round_end: u64,
    /// One behind the last packet that has arrived.
    pub arrived_to: u64,
    /// Time and sequence number of the latest packet sent that has arrived, and its round trip (RACK,
    /// RFC 8985).
    pub newest: (Time, u64),
    pub newest_took: Time,
    /// The reordering window of RACK, in quarters of the least round trip.
    pub reorders: u32,
    /// Round trips without a report of duplicates since `reorders` was changed.
    pub calm_rounds: u8,
    /// Duplicates that the peer had reported.
    pub duplicates: u32,
    /// When a packet may be taken for lost.
    pub reorder_at: Time,
    /// When the peer is probed, or everything is taken for lost.
    pub timer: Time,
    /// Number of probes since the last sign of progress; [`MAX_PROBES`] after a timeout.
    pub probes: u8,
    /// Whether the timer is one of a peer to which nothing is on the way.
    pub keeps_alive: bool,
    /// Whether a probe is to be sent.
    pub probe_due: bool,
    /// Time until which pacing delays a packet that could leave otherwise.
    pub paced_until: Time,
    /// For a peer of the C library: one behind the last packet that it acknowledges at once.
    pub elicits: u64,
    /// For a peer of the C library: one behind the last packet for which a probe has asked for an
    /// acknowledgement.
    pub asked_to: u64,
    /// For a peer of the C library: the number of duplicate acknowledgements, and when everything was last
    /// sent again (go-back-N).
    pub repeats: u32,
    pub went_back_at: Time,
}

impl Sending {
    /// Sequence number of the next new packet.
    #[inline(always)]
    pub fn next(&self) -> u64 {
        self.una.wrapping_add(self.flights.len() as u64)
    }

    /// Time from now until the peer is probed, or everything on the way is taken for lost.
    #[inline]
    pub fn patience(&self, is_extended: bool) -> Time {
        match is_extended {
            true => self.round_trip.probe_timeout(self.probes),
            false if self.probes == 0 => self.round_trip.only_probe_timeout(),
            false => self.round_trip.timeout(),
        }
    }

    /// Whether the peer is probed when that time is over.
    pub fn is_to_be_probed(&self, is_extended: bool) -> bool {
        let trip = &self.round_trip;
        let before_timeout = || trip.probe_timeout(self.probes) < trip.timeout();
        let again = is_extended && self.probes < MAX_PROBES && before_timeout();
        trip.smoothed != 0 && (self.probes == 0 || again)
    }
}

// A peer without traffic costs no more than this, and its name.
const _: () = assert!(size_of::<Sending>() + size_of::<Receiving>() <= 700);

/// See the [module](self) description.
pub struct Peer<H: Host> {
    pub id: PeerId,
    pub name: Name,
    pub path: H::Path,
    pub setup: Setup,
    pub terms: Terms,
    /// Terms for the peer after a restart, of which it is not known whether it has happened.
    pub candidate: Option<Box<Terms>>,
    /// When the request with these terms came first, and last.
    pub candidate_since: Time,
    pub candidate_at: Time,
    /// The number that the first packet from a peer of the C library carried, if it is another than
    /// that of the terms: such a peer takes the number of the last answer.
    pub first_number: Option<u32>,
    /// Bytes of the longest datagram to and from it.
    pub mtu: usize,
    /// Whether it has proved to receive at its path.
    pub is_confirmed: bool,
    /// Whether the connection has the address of a request, which may be forged, though an answer
    /// had another one of the same endpoint; until it is confirmed.
    pub is_presumed: bool,
    /// Whether it has answered a request of this side from another address than its path, as hosts with
    /// several do: its packets are recognised by their numbers alone.
    pub is_elsewhere: bool,
    /// Whether it may be removed: it has come by itself, and is not confirmed.
    pub is_stranger: bool,
    /// When it was added.
    pub since: Time,
    /// An answer that is to be sent.
    pub answer: Option<SetupAnswer>,
    /// What the peer wants requests to be repeated with, or 0.
    pub cookie: u64,
    /// Whether a request is to be sent to a peer with which there is a connection, since it is silent,
    /// and when that was done last.
    pub asks_again: bool,
    pub asked_again_at: Time,
    /// Whether a connection with it was given up because it answered with another address, and the
    /// next one is not confirmed: an address of it that is known may be of that connection, then.
    pub is_renewed: bool,
    pub sending: Sending,
    pub receiving: Receiving,
    /// Whether the application waits for its messages, and for nobody else's.
    pub is_awaited: bool,
    /// Whether its endpoint has said that it is closed, and no connection was set up since.
    pub has_closed: bool,
    /// Until when the peer said that its application waits for messages of this side, how often it
    /// asks for a sign of life, and when the next one is due.
    pub awaits_until: Time,
    pub life_every: Time,
    pub life_at: Time,
    /// Since when the peer has been silent although it should answer.
    pub silent_since: Time,
    /// Whether it is in the list of peers to be served.
    pub is_ready: bool,
    /// The time for which it is in the timers.
    pub wakes_at: Time,
}

impl<H: Host> Peer<H> {
    /// A peer without a connection.
    pub fn new(id: PeerId, name: Name, path: H::Path, terms: Terms, mtu: usize) -> Self {
        Peer {
            id,
            name,
            path,
            setup: Setup::Idle,
            terms,
            candidate: None,
            candidate_since: 0,
            candidate_at: 0,
            first_number: None,
            mtu,
            is_confirmed: false,
            is_presumed: false,
            is_elsewhere: false,
            is_stranger: false,
            since: 0,
            answer: None,
            cookie: 0,
            asks_again: false,
            asked_again_at: 0,
            is_renewed: false,
            sending: Sending::new(0),
            receiving: Receiving::new(0),
            is_awaited: false,
            has_closed: false,
            awaits_until: 0,
            life_every: 0,
            life_at: 0,
            silent_since: 0,
            is_ready: false,
            wakes_at: NEVER,
        }
    }

    /// Whether a packet with a number that the peer was told may come from there, if that is known.
    #[inline(always)]
    pub fn sends_from(&self, from: Option<H::Path>) -> bool {
        from.is_none_or(|from| from == self.path) || self.is_elsewhere
    }

    /// Whether it is of this library and extensions are in use.
    #[inline(always)]
    pub fn is_extended(&self) -> bool {
        self.terms.hello.is_some()
    }

    /// Bytes of payload of a packet behind the first.
    #[inline(always)]
    pub fn segment(&self) -> usize {
        self.mtu - EXTENDED_LEN
    }

    /// Whether nothing is underway to or from it.
    pub fn is_idle(&self) -> bool {
        let (sending, receiving) = (&self.sending, &self.receiving);
        !self.owes()
            && sending.foreign == 0
            && receiving.inbound.is_none()
            && !receiving.is_held
            && receiving
                .early
                .as_ref()
                .is_none_or(|early| early.count == 0)
            && self.answer.is_none()
    }

    /// Whether the peer's silence means something: it should answer, or is waited for.
    pub fn owes(&self) -> bool {
        self.is_awaited || self.owes_answer()
    }

    /// Whether packets with sequence numbers should come from the peer. They cannot while the host has
    /// no room for what is before them.
    pub fn owes_packets(&self) -> bool {
        let receiving = &self.receiving;
        (self.sending.awaiting != 0 || receiving.inbound.is_some()) && !receiving.is_held
    }

    /// Whether the peer should answer something.
    pub fn owes_answer(&self) -> bool {
        let sending = &self.sending;
        let receiving = &self.receiving;
        !sending.begun.is_empty()
            || !sending.queue.is_empty()
            || sending.awaiting != 0
            || (receiving.inbound.is_some() && !receiving.is_held)
    }
}

impl Sending {
    pub fn new(first: u64) -> Self {
        Sending {
            una: first,
            flights: VecDeque::new(),
            queue: VecDeque::new(),
            begun: VecDeque::new(),
            awaiting: 0,
            foreign: 0,
            refusals_told: 0,
            refusals_known: 0,
            window: 0,
            flying: 0,
            arrived: 0,
            lost: 0,
            lost_from: first,
            repeated: 0,
            congestion: Congestion::default(),
            round_trip: RoundTrip::default(),
            recover: first,
            round_end: first,
            arrived_to: first,
            newest: (0, first),
            newest_took: 0,
            reorders: 1,
            calm_rounds: 0,
            duplicates: 0,
            reorder_at: NEVER,
            timer: NEVER,
            probes: 0,
            keeps_alive: false,
            probe_due: false,
            paced_until: NEVER,
            elicits: first,
            asked_to: first,
            repeats: 0,
            went_back_at: 0,
        }
    }
}

impl Receiving {
    pub fn new(first: u64) -> Self {
        Receiving {
            next: first,
            early: None,
            inbound: None,
            is_held: false,
            is_refusing: false,
            refusals: 0,
            ack: AckDue::No,
            unacked: 0,
            acked_at: 0,
            is_interactive: false,
            duplicates: 0,
            newest: first,
            newest_at: 0,
            newest_flags: 0,
        }
    }

    /// Notes that a packet has arrived that is neither old nor a duplicate.
    #[inline(always)]
    pub fn arrives(&mut self, now: Time, base: &Base) {
        if (base.seq.wrapping_sub(self.newest) as i64) >= 0 {
            self.newest = base.seq.wrapping_add(1);
            self.newest_at = now;
            self.newest_flags = base.flags | flag::ECHO;
        }
    }

    /// What is said of the time since the newest packet has arrived, if `end` is one behind the last
    /// packet that is acknowledged.
    #[inline(always)]
    pub fn delay(&self, now: Time, end: u64) -> u16 {
        let delay = now.wrapping_sub(self.newest_at) / 1_000;
        match self.newest == end {
            true => u16::try_from(delay).unwrap_or(NO_DELAY),
            false => NO_DELAY,
        }
    }

    /// Packets for which there is room, for a peer that may have `most` on the way.
    #[inline(always)]
    pub fn window(&self, most: u32) -> u32 {
        match self.is_held || self.is_refusing {
            true => 0,
            false => most,
        }
    }
}
