//! Packets with sequence numbers: each is handled once, in order, or put where it belongs before its
//! turn.

use super::endpoint::Shared;
use super::handling::Step;
use super::host::{Host, Time};
use super::peer::{AckDue, Early, Peer, WINDOW};
use super::recovery::Ack;
use super::wire::{AckField, Base, flag, kind};

/// Time in nanoseconds for which an acknowledgement is delayed, in order to be piggybacked on a packet.
const ACK_DELAY: Time = 100_000;
/// Number of packets that are acknowledged without delay once they have arrived.
const ACK_EVERY: u32 = 8;
/// Most bytes of packets of one peer that are kept until their turn.
pub const MAX_EARLY: usize = 8 << 20;
/// Bytes of memory that a packet which is kept takes beyond its own: an allocation, and a place in a tree.
const KEPT_OVERHEAD: usize = 64;

/// Bytes of memory that a packet takes while it is kept.
fn cost(datagram: &[u8]) -> usize {
    datagram.len() + KEPT_OVERHEAD
}

impl<H: Host> Shared<H> {
    /// Handles a packet of a connection.
    #[inline]
    pub fn packet(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &[u8],
        datagram: &[u8],
        host: &mut H,
    ) {
        let Some(rest) = self.take_ack(now, peer, base, rest, host) else {
            return;
        };
        match base.kind {
            kind::ACK => self.ack_packet(now, peer, base, rest, host),
            _ => self.sequenced(now, peer, base, rest, datagram, host),
        }
    }

    /// Handles the acknowledgement within a packet, if it has one, and returns what follows.
    #[inline(always)]
    fn take_ack<'a>(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &'a [u8],
        host: &mut H,
    ) -> Option<&'a [u8]> {
        if base.flags & flag::ACK == 0 || !peer.is_extended() {
            return Some(rest);
        }
        let (field, rest) = AckField::read(rest)?;
        let una = peer.sending.una;
        let ahead = field.next.wrapping_sub(una as u32) as i32;
        let next = una.wrapping_add_signed(i64::from(ahead));
        let ack = Ack {
            next,
            window: u32::from(field.window),
            refusals: field.refusals,
            delay: field.delay,
            echo: field.echo,
            selective: None,
        };
        self.acknowledged(now, peer, &ack, host);
        Some(rest)
    }

    #[inline]
    fn sequenced(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &[u8],
        datagram: &[u8],
        host: &mut H,
    ) {
        let ahead = base.seq.wrapping_sub(peer.receiving.next);
        if ahead == 0 && !peer.receiving.is_held {
            peer.receiving.arrives(now, base);
            self.in_turn(now, peer, base, rest, datagram, host);
            return;
        }
        if (ahead as i64) < 0 || ahead == 0 {
            self.note_duplicate(peer, base);
            if base.flags & flag::AWAITED != 0 {
                self.note_awaited(now, peer, rest);
            }
        } else if ahead < u64::from(WINDOW) {
            self.out_of_turn(now, peer, base, rest, datagram, host);
        }
        self.ack_now(peer);
    }

    /// Counts a packet that had arrived before, if it is a retransmission. A packet that the network has
    /// duplicated does not show a spurious retransmission.
    fn note_duplicate(&mut self, peer: &mut Peer<H>, base: &Base) {
        if base.flags & flag::REPEATED != 0 {
            peer.receiving.duplicates = peer.receiving.duplicates.wrapping_add(1);
        }
    }

    pub fn ack_now(&mut self, peer: &mut Peer<H>) {
        peer.receiving.ack = AckDue::Now;
        self.serve(peer);
    }

    /// Handles the next packet, and those behind it that have come before.
    #[inline]
    fn in_turn(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &[u8],
        datagram: &[u8],
        host: &mut H,
    ) {
        match self.handle(peer, base, rest, host) {
            Step::Taken(used) => {
                self.advance(peer, used);
                peer.silent_since = now;
                self.note_in_order(now, peer);
                if peer.receiving.early.is_some() {
                    self.catch_up(peer, host);
                }
            }
            Step::Held => {
                self.hold(peer, datagram);
                self.ack_now(peer);
            }
            Step::Dropped => {}
        }
    }

    /// Decides when a packet that has arrived in order is acknowledged.
    #[inline(always)]
    fn note_in_order(&mut self, now: Time, peer: &mut Peer<H>) {
        let is_extended = peer.is_extended();
        let receiving = &mut peer.receiving;
        receiving.unacked += 1;
        let waits = is_extended && receiving.is_interactive && receiving.unacked < ACK_EVERY;
        match receiving.ack {
            AckDue::No if waits => {
                receiving.ack = AckDue::At(now + ACK_DELAY);
                self.acks_delayed_until = now + ACK_DELAY;
            }
            AckDue::At(_) if waits => {}
            _ => self.ack_now(peer),
        }
    }

    /// Moves the receive window by this many sequence numbers.
    #[inline(always)]
    fn advance(&mut self, peer: &mut Peer<H>, used: u64) {
        let receiving = &mut peer.receiving;
        let before = receiving.next;
        receiving.next = before.wrapping_add(used);
        receiving.is_refusing = false;
        if used > 1
            && let Some(early) = &mut receiving.early
        {
            // The C library leaves out numbers: nothing was sent with them.
            for skipped in 1..used.min(u64::from(WINDOW)) {
                let seq = before.wrapping_add(skipped);
                early.forget(seq);
                if let Some(packet) = early.packets.remove(&seq) {
                    early.bytes -= cost(&packet);
                    self.buffered -= cost(&packet);
                }
            }
        }
    }

    /// Handles the packets that have come before their turn, which is now.
    fn catch_up(&mut self, peer: &mut Peer<H>, host: &mut H) {
        while let Some(early) = &mut peer.receiving.early
            && early.forget(peer.receiving.next)
        {
            let Some(datagram) = early.packets.remove(&peer.receiving.next) else {
                // It has reached its destination already.
                self.advance(peer, 1);
                continue;
            };
            early.bytes -= cost(&datagram);
            self.buffered -= cost(&datagram);
            if !self.replay(peer, &datagram, host) {
                break;
            }
        }
    }

    /// Handles a packet that was kept; returns whether it was taken.
    fn replay(&mut self, peer: &mut Peer<H>, datagram: &[u8], host: &mut H) -> bool {
        let Some((mut base, mut rest)) = Base::read(datagram) else {
            return false;
        };
        // The datagram was checked when it came, and has only half of the number.
        base.seq = peer.receiving.next;
        if base.flags & flag::ACK != 0 && peer.is_extended() {
            // It was handled when the packet came.
            rest = AckField::read(rest).map_or(rest, |(_, rest)| rest);
        }
        match self.handle(peer, &base, rest, host) {
            Step::Taken(used) => {
                self.advance(peer, used);
                true
            }
            Step::Held => {
                self.hold(peer, datagram);
                false
            }
            Step::Dropped => false,
        }
    }

    /// The host has no room for the message in this packet. The packet is kept whatever the limits are:
    /// the host has a destination for this message and for no other, which the peer might send instead.
    fn hold(&mut self, peer: &mut Peer<H>, datagram: &[u8]) {
        peer.receiving.is_held = true;
        self.store(peer, peer.receiving.next, datagram);
    }

    fn store(&mut self, peer: &mut Peer<H>, seq: u64, datagram: &[u8]) {
        let early = peer.receiving.early.get_or_insert_default();
        early.bytes += cost(datagram);
        self.buffered += cost(datagram);
        early.packets.insert(seq, datagram.into());
    }

    /// Keeps a packet until its turn; returns `false` if there is no room.
    fn keep(&mut self, peer: &mut Peer<H>, seq: u64, datagram: &[u8]) -> bool {
        let len = cost(datagram);
        let early = peer.receiving.early.get_or_insert_default();
        if early.bytes + len > MAX_EARLY || self.buffered + len > self.config.max_buffered {
            return false;
        }
        self.store(peer, seq, datagram);
        true
    }

    /// The host has room again.
    pub fn resume(&mut self, _now: Time, peer: &mut Peer<H>, host: &mut H) {
        if !std::mem::take(&mut peer.receiving.is_held) {
            return;
        }
        if let Some(early) = &mut peer.receiving.early
            && let Some(datagram) = early.packets.remove(&peer.receiving.next)
        {
            early.bytes -= cost(&datagram);
            self.buffered -= cost(&datagram);
            if self.replay(peer, &datagram, host) {
                self.catch_up(peer, host);
            }
        }
        // It tells the peer that there is room.
        self.ack_now(peer);
    }

    /// Handles a packet that others have to precede.
    #[cold]
    fn out_of_turn(
        &mut self,
        now: Time,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &[u8],
        datagram: &[u8],
        host: &mut H,
    ) {
        let seq = base.seq;
        if peer
            .receiving
            .early
            .as_ref()
            .is_some_and(|early| early.has(seq))
        {
            self.note_duplicate(peer, base);
            return;
        }
        let has_place = match base.kind {
            kind::DATA => self.data(peer, base, rest, false, host),
            kind::RESULT => self.result(peer, rest, host),
            _ => false,
        };
        if has_place || self.keep(peer, seq, datagram) {
            let early = peer.receiving.early.get_or_insert_default();
            Early::note(early, seq);
            peer.receiving.arrives(now, base);
        }
    }
}
