//! Handling of received packets.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::warn_again;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{
    Core as _, Course, Expected, Notice, PayloadBuffer, Placing, Reaching as _, Taken, Then,
    Unmatched,
};
use prov_util::below::{Refused, Slot};

use super::Core;
use super::below::What;
use super::keys::LinkKey;
use super::link::{self, Announced, Arrival, Assembly, Fault, Hold, InPlace, Receives};
use crate::LOG;
use crate::wire::packet::{Body, Envelope, Packet, Plain, Position};

/// Upper limit, in bytes, of the memory that is reserved for a segmented message before its payload
/// arrives.
const AHEAD: usize = 64 << 10;

impl Core {
    /// The fast path: receives a plain message for which a receive is posted, on the link that the
    /// packet buffer was posted for or that the packet names. Returns what the packet buffer was
    /// posted for, and `None` for any other packet.
    #[inline(always)]
    pub(super) fn take_plain(&mut self, slot: &Slot, len: usize) -> Option<Option<LinkKey>> {
        let Core {
            below: Some(below),
            buffered: None,
            links,
            ids,
            endpoints,
            ..
        } = self
        else {
            return None;
        };
        let (bytes, Some(&What::Packet(of))) = below.slots.look(slot) else {
            return None;
        };
        let Plain {
            connection,
            tag,
            payload,
        } = Plain::read(bytes.get(..len).unwrap_or(bytes))?;
        let link = links.get(of.or_else(|| ids.find(connection))?)?;
        if !link.takes_plain {
            return None;
        }
        let mut plain = endpoints.plain(link.ep)?;
        plain.take(link.src, tag, payload).then_some(of)
    }

    /// Handles any other packet.
    pub(super) fn packet(&mut self, slot: Slot, len: usize, of: Option<LinkKey>) {
        let link = of.and_then(|key| self.links.get_mut(key));
        match link.filter(|link| link.hold.is_some()) {
            Some(link) => {
                link.held.push_back((slot, len));
                bounded!(link.held, OPERATIONS);
            }
            None => self.packet_in_turn(slot, len, of),
        }
    }

    /// Handles a packet on a link on which no packet waits.
    fn packet_in_turn(&mut self, slot: Slot, len: usize, of: Option<LinkKey>) {
        if let Some((key, Err(fault))) = self.take_any(&slot, len, of) {
            self.break_link(key, fault);
        }
        let link = of.and_then(|key| self.links.get_mut(key));
        match link.filter(|link| link.hold == Some(Hold::Message)) {
            Some(link) => link.held.push_front((slot, len)),
            None => self.receive_again(slot, of),
        }
    }

    /// Continues with a link that was held back; its message has this destination.
    pub(super) fn resume(&mut self, key: LinkKey, course: link::Course) {
        let Some(link) = self.links.get_mut(key) else {
            return;
        };
        if link.set_hold(None) == Some(Hold::Message) {
            link.resumed = Some(course);
        }
        while let Some(link) = self.links.get_mut(key)
            && link.hold.is_none()
            && let Some((slot, len)) = link.held.pop_front()
        {
            self.packet_in_turn(slot, len, Some(key));
        }
        let link = self.links.get(key);
        if link.is_some_and(|link| link.ending.is_some()) {
            // In a later progress call.
            self.is_busy(key);
        }
    }

    /// Holds a link back: nothing behind this packet is handled until there is room.
    fn hold_back(&mut self, key: LinkKey, hold: Hold) {
        if let Some(link) = self.links.get_mut(key) {
            link.set_hold(Some(hold));
        }
    }

    /// A link that cannot be held back goes on behind a message for which there is no room, and so does one
    /// whose peer owes an answer, which comes behind it. An application that reads messages in place, and
    /// is told of all, has the budgets as its limit.
    pub(super) fn note_what_is_awaited(&mut self, key: LinkKey) {
        let link = self.links.get(key);
        let awaits_answers = link.is_some_and(|link| !link.pending.is_empty());
        let is_shared = !self.can_be_held_back(key) && self.buffered.is_none();
        let goes_on = awaits_answers || is_shared;
        self.endpoints.has_to_go_on(key, goes_on);
    }

    /// After an operation that the peer answers was posted.
    pub(super) fn expects_answer(&mut self, key: LinkKey) {
        if self.links.get(key).is_some_and(|link| link.hold.is_some()) {
            self.note_what_is_awaited(key);
            self.follow_up();
        }
    }

    /// Returns whether a link can be held back: that requires packet buffers of its own.
    fn can_be_held_back(&self, key: LinkKey) -> bool {
        let link = self.links.get(key);
        link.is_some_and(|link| link.receives != Receives::Shared)
    }

    /// Posts the buffer of a handled packet again.
    #[inline(always)]
    pub(super) fn receive_again(&mut self, slot: Slot, of: Option<LinkKey>) {
        match (of, &mut self.below) {
            (None, Some(below)) => below.expect_again(slot),
            (Some(key), _) => self.receive_on_link(slot, key),
            (_, None) => {}
        }
        self.follow_up();
    }

    #[inline(never)]
    fn receive_on_link(&mut self, slot: Slot, key: LinkKey) {
        let Some(below) = &mut self.below else {
            return;
        };
        let Some(link) = self.links.get(key) else {
            return below.slots.give_back(slot);
        };
        if let Err(Refused { slot, .. }) = link.below.receive(&mut below.slots, slot) {
            // The link is ending.
            below.slots.give_back(slot);
        }
    }

    /// Handles a packet. Returns its link, and whether the link may continue.
    #[inline(never)]
    fn take_any(
        &mut self,
        slot: &Slot,
        len: usize,
        of: Option<LinkKey>,
    ) -> Option<(LinkKey, Result<(), Fault>)> {
        let below = self.below.as_ref()?;
        let bytes = below.slots.bytes(slot);
        let packet = match Packet::read(bytes.get(..len).unwrap_or(bytes)) {
            Ok(packet) => packet,
            Err(malformed) => {
                if of.is_none() {
                    packet_of_nobody(malformed.0);
                }
                return of.map(|key| (key, Err(malformed.into())));
            }
        };
        let Some(key) = of.or_else(|| self.ids.find(packet.connection)) else {
            // The packet was sent before its connection ended.
            log::debug!(target: LOG.ep_data, "a packet of a connection that has ended");
            return None;
        };
        let message = packet.message;
        let outcome = match packet.body {
            Body::Eager(envelope, _) => self.message(key, slot, &envelope),
            Body::Segment(envelope, position, payload) => {
                let len = payload.len();
                self.segment(key, slot, message, &envelope, position, len)
            }
            Body::Announced(envelope, memory, front) => {
                let in_place = self.buffered.as_deref();
                let front = in_place.map(|buffered| buffered.front(&envelope, front));
                self.announced(key, &envelope, Announced { message, memory }, front)
            }
            Body::ReadDone => self.read_done(key, message),
            Body::WriteTo(memory) => self.write_to(key, message, memory),
            Body::WriteDone => self.write_done(key, message),
            Body::Atomic(atomic) => {
                self.operands.clear();
                self.operands.extend_from_slice(atomic.operands);
                let (operation, elements) = (atomic.operation, atomic.elements);
                let memory = atomic.memory;
                self.find_source(key);
                self.atomic_requested(key, message, operation, elements, &memory)
            }
            Body::AtomicResult(status, result) => {
                self.operands.clear();
                self.operands.extend_from_slice(result);
                self.atomic_done(key, message, status)
            }
            // This side does not use the credits of the protocol.
            Body::Credit => Ok(()),
            Body::Leave => {
                if let Some(link) = self.links.get_mut(key) {
                    link.has_left = true;
                }
                Ok(())
            }
        };
        Some((key, outcome))
    }

    /// Looks up the source of a link whose peer the address vector did not know.
    pub(super) fn find_source(&mut self, key: LinkKey) {
        let link = self.links.get_mut(key);
        let Some(link) = link.filter(|link| link.src == UNKNOWN_SOURCE) else {
            return;
        };
        link.used = self.looked_at_events;
        let ep = link.ep;
        if self.rdm(ep).is_some_and(|rdm| rdm.peers.av_changed()) {
            self.follow_av(ep);
        }
    }

    fn arrival(&mut self, key: LinkKey, envelope: &Envelope) -> Result<Arrival, Fault> {
        self.find_source(key);
        let link = self.links.get(key);
        let link = link.ok_or(Fault::Protocol("a packet of nobody"))?;
        let len = usize::try_from(envelope.len).ok();
        let len = len.filter(|len| *len <= isize::MAX as usize);
        Ok(Arrival {
            link: key,
            ep: link.ep,
            src: link.src,
            tagged: envelope.tag.is_some(),
            tag: envelope.tag.unwrap_or(0),
            len: len.ok_or(Fault::Protocol("length of a message"))?,
            data: envelope.data,
            ack: (),
            announces: false,
        })
    }

    /// Handles a whole message (eager).
    fn message(&mut self, key: LinkKey, slot: &Slot, envelope: &Envelope) -> Result<(), Fault> {
        let arrival = self.arrival(key, envelope)?;
        let Some(below) = &self.below else {
            return Ok(());
        };
        let bytes = payload(below.slots.bytes(slot), arrival.len);
        if self.buffered.is_some() {
            let charge = self.endpoints.charge_whole(&arrival);
            let charge = charge.ok_or(Fault::Flooded)?;
            let whole = bytes.into();
            self.tell_of(&arrival, whole, None, charge);
            return Ok(());
        }
        let link = self.links.get_mut(key);
        if let Some(mut course) = link.and_then(|link| link.resumed.take()) {
            put(&mut self.endpoints, &mut course, bytes, 0);
            self.assembled(course);
            return Ok(());
        }
        match self.endpoints.take_in(&arrival, bytes) {
            Taken::Received(()) | Taken::Kept => return Ok(()),
            Taken::Refused => {}
        }
        if !self.can_be_held_back(key) {
            return Err(Fault::Flooded);
        }
        self.note_what_is_awaited(key);
        match self.endpoints.unmatched(&arrival) {
            Unmatched::HeldBack => self.hold_back(key, Hold::Message),
            Unmatched::Keep(kept) => {
                let Some(below) = &self.below else {
                    return Ok(());
                };
                let bytes = payload(below.slots.bytes(slot), arrival.len);
                let mut course = Course::Keep(kept);
                put(&mut self.endpoints, &mut course, bytes, 0);
                self.assembled(course);
            }
            Unmatched::Complete | Unmatched::Gone => {}
        }
        Ok(())
    }

    fn announced(
        &mut self,
        key: LinkKey,
        envelope: &Envelope,
        name: Announced,
        front: Option<Box<[u8]>>,
    ) -> Result<(), Fault> {
        let arrival = self.arrival(key, envelope)?;
        if let Some(front) = front {
            let charge = self.endpoints.charge_announced(&arrival, front.len());
            let charge = charge.ok_or(Fault::Flooded)?;
            self.tell_of(&arrival, front, Some(name), charge);
            return Ok(());
        }
        if !self.can_be_held_back(key) {
            return match self.endpoints.announced(&arrival, name) {
                true => Ok(()),
                false => Err(Fault::Flooded),
            };
        }
        self.note_what_is_awaited(key);
        match self.endpoints.announced_in_order(&arrival, name) {
            Notice::Taken | Notice::Gone => {}
            Notice::HeldBack => self.hold_back(key, Hold::Announcement),
        }
        Ok(())
    }

    /// Handles a segment of a message.
    fn segment(
        &mut self,
        key: LinkKey,
        slot: &Slot,
        message: u64,
        envelope: &Envelope,
        position: Position,
        len: usize,
    ) -> Result<(), Fault> {
        if position == Position::First && !self.begin(key, message, envelope)? {
            return Ok(());
        }
        let Some((endpoints, link, below)) = self.at_link(key) else {
            return Ok(());
        };
        let assembly = link.assembly.as_mut();
        let assembly = assembly.filter(|assembly| assembly.message == message);
        let assembly = assembly.ok_or(Fault::Protocol("a part without a beginning"))?;
        if !is_told_of(&assembly.arrival, envelope) {
            return Err(Fault::Protocol("a part of another message"));
        }
        let left = assembly.arrival.len - assembly.done;
        let is_last = position == Position::Last;
        if len > left || is_last && len != left {
            return Err(Fault::Protocol("length of a part"));
        }
        let bytes = payload(below.slots.bytes(slot), len);
        if let Some(InPlace { bytes: whole, .. }) = &mut assembly.in_place {
            if whole.capacity() - whole.len() < len {
                // Memory for a long message is reserved step by step, as its payload arrives.
                whole.reserve_exact(whole.len().max(AHEAD).min(left).max(len));
            }
            whole.extend_from_slice(bytes);
        }
        put(endpoints, &mut assembly.course, bytes, left - len);
        assembly.done += len;
        if is_last && let Some(assembly) = link.assembly.take() {
            if let Some(InPlace { bytes, charge }) = assembly.in_place {
                self.find_source(key);
                let src = self.links.get(key).map(|link| link.src);
                let arrival = Arrival {
                    src: src.unwrap_or(assembly.arrival.src),
                    ..assembly.arrival
                };
                self.tell_of(&arrival, bytes.into(), None, charge);
                return Ok(());
            }
            self.assembled(assembly.course);
        }
        Ok(())
    }

    /// Handles the first segment of a message. Returns `false` if there is no room for it, and it
    /// waits.
    fn begin(&mut self, key: LinkKey, message: u64, envelope: &Envelope) -> Result<bool, Fault> {
        let arrival = self.arrival(key, envelope)?;
        if self
            .links
            .get(key)
            .is_some_and(|link| link.assembly.is_some())
        {
            return Err(Fault::Protocol("a message within another one"));
        }
        let in_place = match self.buffered {
            Some(_) => {
                let charge = self.endpoints.charge_whole(&arrival);
                let charge = charge.ok_or(Fault::Flooded)?;
                let bytes = Vec::new();
                Some(InPlace { bytes, charge })
            }
            None => None,
        };
        let link = self.links.get_mut(key);
        let resumed = link.and_then(|link| link.resumed.take());
        let course = match resumed {
            Some(course) => course,
            None if in_place.is_some() => Course::Discard,
            None => match self.course_of(key, &arrival)? {
                Some(course) => course,
                None => return Ok(false),
            },
        };
        if let Some(link) = self.links.get_mut(key) {
            link.assembly = Some(Assembly {
                message,
                arrival,
                course,
                in_place,
                done: 0,
            });
        }
        Ok(true)
    }

    /// Returns the destination of a message; `None` if it waits on its link.
    fn course_of(
        &mut self,
        key: LinkKey,
        arrival: &Arrival,
    ) -> Result<Option<link::Course>, Fault> {
        if let Some(Expected { memory, receipt }) = self.endpoints.arrive(arrival) {
            let placing = Box::new(Placing::receive(memory, receipt));
            return Ok(Some(Course::Place(placing)));
        }
        self.note_what_is_awaited(key);
        match self.endpoints.unmatched(arrival) {
            Unmatched::Keep(kept) => Ok(Some(Course::Keep(kept))),
            Unmatched::Complete | Unmatched::Gone => Ok(Some(Course::Discard)),
            Unmatched::HeldBack if self.can_be_held_back(key) => {
                self.hold_back(key, Hold::Message);
                Ok(None)
            }
            Unmatched::HeldBack => Err(Fault::Flooded),
        }
    }

    fn assembled(&mut self, course: link::Course) {
        match course {
            Course::Place(placing) => {
                if let Then::Receive(receipt) = &placing.then {
                    let memory = placing.place.into_memory();
                    self.endpoints.received(receipt, memory, Ok(()));
                }
            }
            Course::Keep(kept) => self.endpoints.kept(kept),
            Course::Discard | Course::Done => {}
        }
    }

    /// Directs the rest of the message that is arriving to this destination.
    pub(super) fn redirect(&mut self, key: LinkKey, course: link::Course) {
        let link = self.links.get_mut(key);
        if let Some(assembly) = link.and_then(|link| link.assembly.as_mut()) {
            assembly.course = course;
        }
    }
}

/// Writes the next bytes of a message to its destination; `more` bytes follow.
fn put(endpoints: &mut link::Endpoints, course: &mut link::Course, bytes: &[u8], more: usize) {
    match course {
        Course::Place(placing) => {
            // Only buffers of receives occur here, never registered memory.
            if let PayloadBuffer::App(memory) = &placing.place {
                memory.write_at(placing.done, bytes);
            }
            placing.done += bytes.len();
        }
        Course::Keep(kept) => {
            endpoints.append(*kept, bytes, more);
        }
        Course::Discard | Course::Done => {}
    }
}

/// Returns whether a segment describes its message as the first one does.
fn is_told_of(first: &Arrival, part: &Envelope) -> bool {
    let tag = first.tagged.then_some(first.tag);
    (tag, first.data, first.len as u64) == (part.tag, part.data, part.len)
}

/// Returns this many bytes after the header of a packet.
#[inline]
fn payload(packet: &[u8], len: usize) -> &[u8] {
    use crate::wire::packet::HEAD;
    packet.get(HEAD..HEAD + len).unwrap_or_default()
}

/// Logs an invalid packet on a queue that all peers share.
#[cold]
#[inline(never)]
fn packet_of_nobody(what: &str) {
    warn_again!(target: LOG.ep_data, "a packet of nobody: {what}");
}
