//! What packets say, handled when it is their turn: operations that begin, the rest of their payload,
//! results and refusals.

use prov_base::errno::Errno;

use super::endpoint::Shared;
use super::host::{Admission, AtomicArrival, Failure, Form, Host, MessageArrival, WriteArrival};
use super::jobs::{Job, What};
use super::peer::{Inbound, Peer};
use super::wire::{Base, Extended, Operation, RefusalPacket, form_of, kind};

/// Most responses and refusals for one peer that are not acknowledged.
const MAX_FOREIGN: u32 = 1024;

/// What has become of a packet whose turn it was.
pub enum Step {
    /// It was handled, and so many sequence numbers were used.
    Taken(u64),
    /// It has to wait until the host has room.
    Held,
    /// It is not valid, or there is no room: as if it had not arrived.
    Dropped,
}

impl<H: Host> Shared<H> {
    /// Handles a packet whose turn it is.
    #[inline]
    pub fn handle(&mut self, peer: &mut Peer<H>, base: &Base, rest: &[u8], host: &mut H) -> Step {
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
    pub fn data(
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
            return self.finish_inbound(peer, host);
        }
        true
    }

    /// All of a message or of a write is here. Returns `false` if its last packet has to come again.
    #[inline]
    fn finish_inbound(&mut self, peer: &mut Peer<H>, host: &mut H) -> bool {
        let Some(inbound) = peer.receiving.inbound.take() else {
            return true;
        };
        let outcome = match (inbound.is_discarded, inbound.failure) {
            (false, _) => host.finished(peer.id),
            (true, None) => Ok(()),
            (true, Some(errno)) => Err(errno),
        };
        match outcome {
            Ok(()) => true,
            Err(errno) => self.refuse_whole(peer, inbound, errno),
        }
    }

    /// Refuses a write all of which is here.
    #[cold]
    fn refuse_whole(&mut self, peer: &mut Peer<H>, inbound: Inbound, errno: Errno) -> bool {
        if let Step::Taken(_) = self.refuse(peer, inbound.start, errno) {
            return true;
        }
        peer.receiving.inbound = Some(Inbound {
            is_discarded: true,
            failure: Some(errno),
            got: inbound.got - 1,
            ..inbound
        });
        false
    }

    /// Handles a part of the result of a read or an atomic operation of this side.
    pub fn result(&mut self, peer: &mut Peer<H>, rest: &[u8], host: &mut H) -> bool {
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
        if refusal.parts != 0 {
            return self.result_refused(peer, &refusal, host);
        }
        for &number in &peer.sending.begun {
            if let Some(job) = self.jobs.get_mut(number)
                && job.start == refusal.of
                && matches!(job.what, What::Own(_))
            {
                job.failure = Some(Failure::Refused(refusal.error()));
                job.result_parts = job.result_got;
            }
        }
        peer.sending.know_refusal();
        self.complete(peer, host);
        true
    }

    /// Handles that the peer does not have parts of the result of a read of this side.
    #[cold]
    fn result_refused(
        &mut self,
        peer: &mut Peer<H>,
        refusal: &RefusalPacket,
        host: &mut H,
    ) -> bool {
        let number = refusal.of as u32 & 0xffff;
        let Some(job) = self.jobs.get_mut(number) else {
            return false;
        };
        let left = job.result_parts - job.result_got;
        let is_own = job.peer == peer.id.index && matches!(job.what, What::Own(_));
        if !is_own || refusal.parts > left {
            return false;
        }
        job.failure = Some(Failure::Refused(refusal.error()));
        job.result_got += refusal.parts;
        if job.is_over() {
            self.finish_awaiting(peer, number, host);
        }
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
                failure: None,
                start,
                parts,
                first,
                len,
                got: 0,
            });
        }
    }
}
