//! Packets with sequence numbers: each is handled once, in order, or put where it belongs before its
//! turn.

use prov_base::errno::Errno;

use super::endpoint::Shared;
use super::host::{
    Admission, AtomicArrival, Failure, Form, Host, MessageArrival, Time, WriteArrival,
};
use super::jobs::{Job, What};
use super::peer::{AckDue, Early, Inbound, Peer, WINDOW};
use super::recovery::Ack;
use super::wire::{self, AckField, Base, Extended, Operation, RefusalPacket, flag, form_of, kind};

/// Time that an acknowledgement waits for a packet that takes it along.
const ACK_DELAY: Time = 100_000;
/// Number of packets after which it does not wait.
const ACK_EVERY: u32 = 8;
/// Most bytes of packets of one peer that are kept until their turn.
const MAX_EARLY: usize = 1 << 20;
/// Most responses and refusals for one peer that are not acknowledged.
const MAX_FOREIGN: u32 = 1024;

/// What has become of a packet whose turn it was.
enum Step {
    /// It was handled, and so many sequence numbers were used.
    Taken(u64),
    /// It has to wait until the host has room.
    Held,
    /// It is not valid, or there is no room: as if it had not arrived.
    Dropped,
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
            self.in_turn(now, peer, base, rest, datagram, host);
            return;
        }
        if (ahead as i64) < 0 || ahead == 0 {
            if base.flags & flag::PROBE == 0 {
                peer.receiving.duplicates = peer.receiving.duplicates.wrapping_add(1);
            }
        } else if ahead < u64::from(WINDOW) {
            self.out_of_turn(peer, base, rest, datagram, host);
        }
        self.ack_now(peer);
    }

    fn ack_now(&mut self, peer: &mut Peer<H>) {
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

    /// A packet has arrived in order: when is it acknowledged?
    #[inline(always)]
    fn note_in_order(&mut self, now: Time, peer: &mut Peer<H>) {
        let is_extended = peer.is_extended();
        let receiving = &mut peer.receiving;
        receiving.unacked += 1;
        let waits = is_extended && receiving.is_interactive && receiving.unacked < ACK_EVERY;
        match receiving.ack {
            AckDue::No if waits => {
                receiving.ack = AckDue::At(now + ACK_DELAY);
                self.acks_wait_until = now + ACK_DELAY;
            }
            AckDue::At(_) if waits => {}
            _ => self.ack_now(peer),
        }
    }

    /// So many sequence numbers have been used.
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
                    early.bytes -= packet.len();
                    self.buffered -= packet.len();
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
            early.bytes -= datagram.len();
            self.buffered -= datagram.len();
            if !self.replay(peer, &datagram, host) {
                break;
            }
        }
    }

    /// Handles a packet that was kept; returns whether it was taken.
    fn replay(&mut self, peer: &mut Peer<H>, datagram: &[u8], host: &mut H) -> bool {
        let Some((base, mut rest)) = Base::read(datagram) else {
            return false;
        };
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

    /// The host has no room for the message in this packet.
    fn hold(&mut self, peer: &mut Peer<H>, datagram: &[u8]) {
        peer.receiving.is_held = true;
        self.keep(peer, peer.receiving.next, datagram);
    }

    /// Keeps a packet until its turn; returns `false` if there is no room.
    fn keep(&mut self, peer: &mut Peer<H>, seq: u64, datagram: &[u8]) -> bool {
        let len = datagram.len();
        let early = peer.receiving.early.get_or_insert_default();
        if early.bytes + len > MAX_EARLY || self.buffered + len > self.config.max_buffered {
            return false;
        }
        early.bytes += len;
        self.buffered += len;
        early.packets.insert(seq, datagram.into());
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
            early.bytes -= datagram.len();
            self.buffered -= datagram.len();
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
            peer.receiving.duplicates = peer.receiving.duplicates.wrapping_add(1);
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
        }
    }

    /// Handles a packet whose turn it is.
    #[inline]
    fn handle(&mut self, peer: &mut Peer<H>, base: &Base, rest: &[u8], host: &mut H) -> Step {
        let taken = |is: bool| match is {
            true => Step::Taken(1),
            false => Step::Dropped,
        };
        match base.kind {
            kind::DATA => taken(self.data(peer, base, rest, true, host)),
            kind::RESULT => taken(self.result(peer, rest, host)),
            kind::REFUSAL => taken(peer.is_extended() && self.refusal(peer, rest, host)),
            kind::MESSAGE
            | kind::TAGGED
            | kind::WRITE
            | kind::READ
            | kind::ATOMIC
            | kind::FETCH
            | kind::COMPARE => {
                // The first packet of a message does not come within another one.
                if peer.receiving.inbound.is_some() {
                    return Step::Dropped;
                }
                match Operation::read(base, rest) {
                    None => Step::Dropped,
                    Some((operation, payload)) => {
                        self.operation(peer, base, &operation, payload, host)
                    }
                }
            }
            _ => Step::Dropped,
        }
    }

    /// Handles the rest of a message or of a write; returns whether it has reached its destination.
    fn data(
        &mut self,
        peer: &mut Peer<H>,
        base: &Base,
        rest: &[u8],
        in_order: bool,
        host: &mut H,
    ) -> bool {
        let segment = peer.segment();
        let id = peer.id;
        let Some((extended, payload)) = Extended::read(rest) else {
            return false;
        };
        let Some(inbound) = &mut peer.receiving.inbound else {
            return false;
        };
        let part = base.seq.wrapping_sub(inbound.start).wrapping_sub(1);
        if part >= inbound.parts - 1 || extended.part != part {
            return false;
        }
        let place = usize::try_from(part).ok();
        let place = place.and_then(|part| part.checked_mul(segment));
        let Some(offset) = place.and_then(|place| place.checked_add(inbound.first)) else {
            return false;
        };
        if payload.len() != segment.min(inbound.len.saturating_sub(offset)) {
            return false;
        }
        if !inbound.is_discarded && !host.segment(id, offset, payload, in_order) && !in_order {
            return false;
        }
        inbound.got += 1;
        if inbound.got == inbound.parts - 1 {
            let is_discarded = inbound.is_discarded;
            peer.receiving.inbound = None;
            if !is_discarded {
                host.finished(id);
            }
        }
        true
    }

    /// Handles a part of the result of a read or an atomic operation of this side.
    fn result(&mut self, peer: &mut Peer<H>, rest: &[u8], host: &mut H) -> bool {
        let segment = peer.segment();
        let Some((extended, payload)) = Extended::read(rest) else {
            return false;
        };
        let Some(job) = self.jobs.get_mut(extended.tx_id & 0xffff) else {
            return false;
        };
        let What::Own(op) = job.what else {
            return false;
        };
        let part = extended.part;
        if job.peer != peer.id.index
            || part >= u64::from(job.result_parts)
            || job.result_got >= job.result_parts
        {
            return false;
        }
        let Some(offset) = usize::try_from(part)
            .ok()
            .and_then(|part| part.checked_mul(segment))
        else {
            return false;
        };
        let len = job.operation.remote.len();
        if payload.len() as u64 != (segment as u64).min(len.saturating_sub(offset as u64)) {
            return false;
        }
        host.result(op, offset, payload);
        job.result_got += 1;
        if job.is_over() {
            self.finish_awaiting(peer, extended.tx_id & 0xffff, host);
        }
        true
    }

    /// Handles the peer's refusal of an operation. It is reported when the operation is acknowledged.
    fn refusal(&mut self, peer: &mut Peer<H>, rest: &[u8], host: &mut H) -> bool {
        let Some(refusal) = RefusalPacket::read(rest) else {
            return false;
        };
        for &number in &peer.sending.begun {
            if let Some(job) = self.jobs.get_mut(number)
                && job.start == refusal.of
                && matches!(job.what, What::Own(_))
            {
                let errno = i32::try_from(refusal.errno).ok().filter(|errno| *errno > 0);
                let errno = errno.map_or(Errno::EACCES, Errno::new);
                job.failure = Some(Failure::Refused(errno));
            }
        }
        peer.sending.know_refusal();
        self.complete(peer, host);
        true
    }

    /// Handles the first packet of an operation.
    #[inline]
    fn operation(
        &mut self,
        peer: &mut Peer<H>,
        base: &Base,
        operation: &Operation,
        payload: &[u8],
        host: &mut H,
    ) -> Step {
        match base.kind {
            kind::MESSAGE | kind::TAGGED => {
                let Some((len, parts)) = extent_of(peer.segment(), operation, payload) else {
                    return Step::Dropped;
                };
                let message = MessageArrival {
                    tag: operation.tag,
                    data: operation.data,
                    len,
                };
                match host.message(peer.id, &message, payload) {
                    Admission::Held => return Step::Held,
                    Admission::Taken => {}
                }
                peer.begin_inbound(base.seq, parts, payload.len(), len, false);
                Step::Taken(1)
            }
            kind::WRITE => self.write(peer, base, operation, payload, host),
            kind::READ => self.read(peer, base, operation, host),
            _ => self.atomic(peer, base, operation, payload, host),
        }
    }

    fn write(
        &mut self,
        peer: &mut Peer<H>,
        base: &Base,
        operation: &Operation,
        payload: &[u8],
        host: &mut H,
    ) -> Step {
        let Some((len, parts)) = extent_of(peer.segment(), operation, payload) else {
            return Step::Dropped;
        };
        let mut remote = operation.remote;
        let outcome = match remote.len() < len as u64 {
            true => Err(Errno::EINVAL),
            false => {
                remote.truncate(len as u64);
                let data = operation.data;
                host.write(peer.id, &WriteArrival { remote, data }, payload)
            }
        };
        let step = match outcome {
            Ok(()) => Step::Taken(1),
            Err(errno) => self.refuse(peer, base.seq, errno),
        };
        if let Step::Taken(_) = step {
            peer.begin_inbound(base.seq, parts, payload.len(), len, outcome.is_err());
        }
        step
    }

    fn read(
        &mut self,
        peer: &mut Peer<H>,
        base: &Base,
        operation: &Operation,
        host: &mut H,
    ) -> Step {
        let Some(extent) = operation.extent else {
            return Step::Dropped;
        };
        if !self.has_room_for_foreign(peer) {
            return Step::Dropped;
        }
        let mut remote = operation.remote;
        let len = usize::try_from(extent.size).ok();
        let len = len.filter(|&len| {
            remote.len() >= len as u64
                && len <= isize::MAX as usize
                && len / peer.segment() < u32::MAX as usize
        });
        let Some(len) = len else {
            return self.refuse(peer, base.seq, Errno::EINVAL);
        };
        remote.truncate(len as u64);
        match host.read(peer.id, &remote) {
            Err(errno) => self.refuse(peer, base.seq, errno),
            Ok(response) => {
                self.respond(peer, response, extent.id, len, host);
                Step::Taken(1)
            }
        }
    }

    fn atomic(
        &mut self,
        peer: &mut Peer<H>,
        base: &Base,
        operation: &Operation,
        payload: &[u8],
        host: &mut H,
    ) -> Step {
        let Some((datatype, op)) = operation.atomic else {
            return Step::Dropped;
        };
        let form = form_of(base.kind);
        if form != Form::Base && (operation.extent.is_none() || !self.has_room_for_foreign(peer)) {
            return Step::Dropped;
        }
        let len = operation.remote.len();
        if len > peer.segment() as u64 {
            return self.refuse(peer, base.seq, Errno::EINVAL);
        }
        let arrival = AtomicArrival {
            form,
            op,
            datatype,
            data: operation.data,
            remote: operation.remote,
            operands: payload,
        };
        match host.atomic(peer.id, &arrival) {
            Err(errno) => return self.refuse(peer, base.seq, errno),
            Ok(Some(response)) if form != Form::Base => {
                let id = operation.extent.map_or(0, |extent| extent.id);
                self.respond(peer, response, id, len as usize, host);
            }
            Ok(_) => {}
        }
        // The C library uses as many sequence numbers as it says there were packets, which is left
        // over from another operation.
        let parts = operation.extent.map_or(1, |extent| extent.parts.max(1));
        match peer.is_extended() {
            false => Step::Taken(parts.min(u64::from(u32::MAX))),
            true => Step::Taken(1),
        }
    }

    fn has_room_for_foreign(&self, peer: &Peer<H>) -> bool {
        peer.sending.foreign < MAX_FOREIGN && self.jobs.has_room_for_foreign()
    }

    /// Queues a response.
    fn respond(
        &mut self,
        peer: &mut Peer<H>,
        response: H::Response,
        id: u32,
        len: usize,
        host: &mut H,
    ) {
        if len == 0 {
            host.responded(peer.id, response, true);
            return;
        }
        let mut job = Job::new(
            peer.id.index,
            What::Response(response),
            kind::RESULT,
            Operation::default(),
            len,
        );
        job.id = id;
        if !self.post_foreign(peer, job) {
            host.responded(peer.id, response, false);
        }
    }

    fn post_foreign(&mut self, peer: &mut Peer<H>, job: Job<H>) -> bool {
        let Some(number) = self.jobs.add(job) else {
            return false;
        };
        peer.sending.foreign += 1;
        peer.sending.queue.push_back(number);
        self.serve(peer);
        true
    }

    /// Refuses the operation that begins with this packet.
    #[cold]
    fn refuse(&mut self, peer: &mut Peer<H>, of: u64, errno: Errno) -> Step {
        if !peer.is_extended() {
            // There is no way to say so: the peer tries again, and gives up in the end.
            peer.receiving.is_refusing = true;
            self.ack_now(peer);
            return Step::Dropped;
        }
        if !self.has_room_for_foreign(peer) {
            return Step::Dropped;
        }
        let errno = errno.number().unsigned_abs();
        let what = What::Refusal { of, errno };
        let job = Job::new(peer.id.index, what, kind::REFUSAL, Operation::default(), 0);
        match self.post_foreign(peer, job) {
            true => {
                peer.receiving.refusals = peer.receiving.refusals.wrapping_add(1);
                Step::Taken(1)
            }
            false => Step::Dropped,
        }
    }
}

/// Length of a message or a write and number of its packets; `None` if they contradict each other.
#[inline]
fn extent_of(segment: usize, operation: &Operation, payload: &[u8]) -> Option<(usize, u64)> {
    let Some(extent) = &operation.extent else {
        return Some((payload.len(), 1));
    };
    let len = usize::try_from(extent.size).ok()?;
    let rest = len.checked_sub(payload.len())?;
    let parts = 1 + rest.div_ceil(segment) as u64;
    (extent.parts == parts && len <= isize::MAX as usize).then_some((len, parts))
}

impl<H: Host> Peer<H> {
    /// The first packet of a message or a write has been taken.
    #[inline(always)]
    fn begin_inbound(
        &mut self,
        start: u64,
        parts: u64,
        first: usize,
        len: usize,
        is_discarded: bool,
    ) {
        if parts > 1 {
            self.receiving.inbound = Some(Inbound {
                is_discarded,
                start,
                parts,
                first,
                len,
                got: 0,
            });
        }
    }
}

const _: () = assert!(wire::EXTENDED_LEN + WINDOW as usize / 8 <= 168);
