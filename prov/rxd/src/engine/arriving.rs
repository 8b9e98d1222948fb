//! Messages that arrive, and how the application's receives direct them.

use prov_base::device_memory::has_failures;
use prov_base::errno::Errno;
use prov_message::peers::UNKNOWN_SOURCE;
use prov_message::{
    Course, Expected, PayloadBuffer, Placing, Reaching as _, RmaTarget, Taken, Then, Unmatched,
};

use super::Core;
use super::link::{self, Action, Arrival, Endpoints, Incoming, LinkKey, Rxd};
use crate::protocol::{Admission, MessageArrival, PeerId};

impl Core {
    /// Handles a message that begins, with its first bytes.
    #[inline]
    pub(super) fn message_begins(
        &mut self,
        peer: PeerId,
        message: &MessageArrival,
        payload: &[u8],
    ) -> Admission {
        if let Some(key) = self.peers.link(peer)
            && let Some(link) = self.links.get(key)
            && link.takes_plain()
            && payload.len() == message.len
            && message.data.is_none()
            && let Some(mut plain) = self.endpoints.plain(link.ep)
            && plain.take(link.src, message.tag, payload)
        {
            return Admission::Taken;
        }
        self.message_in_turn(peer, message, payload)
    }

    /// Handles any other message.
    #[inline(never)]
    fn message_in_turn(
        &mut self,
        peer: PeerId,
        message: &MessageArrival,
        payload: &[u8],
    ) -> Admission {
        let Some(key) = self.link_of(peer) else {
            return Admission::Taken;
        };
        let Some(arrival) = self.arrival(key, message) else {
            return Admission::Taken;
        };
        let link = self.links.get_mut(key);
        let course = match link.and_then(|link| link.course.take()) {
            Some(course) => course,
            None if payload.len() == message.len => match self.take_whole(&arrival, payload) {
                Some(admission) => return admission,
                None => return Admission::Held,
            },
            None => match self.course_of(&arrival) {
                Some(course) => course,
                None => return Admission::Held,
            },
        };
        let mut incoming = Incoming {
            course,
            len: message.len,
        };
        let more = message.len - payload.len();
        put(
            &mut self.endpoints,
            &mut self.target,
            &mut incoming,
            0,
            payload,
            more,
        );
        if more == 0 {
            self.arrived(key, incoming.course);
        } else if let Some(link) = self.links.get_mut(key) {
            link.incoming = Some(incoming);
        }
        Admission::Taken
    }

    /// Looks up the source of a link whose peer the address vector did not know.
    pub(super) fn find_source(&mut self, key: LinkKey) {
        let link = self.links.get(key);
        let Some(link) = link.filter(|link| link.src == UNKNOWN_SOURCE) else {
            return;
        };
        let ep = link.ep;
        if self.peers(ep).is_some_and(|peers| peers.av_changed()) {
            self.follow_av(ep);
        }
    }

    fn arrival(&mut self, key: LinkKey, message: &MessageArrival) -> Option<Arrival> {
        self.find_source(key);
        let link = self.links.get(key)?;
        Some(Arrival {
            link: key,
            ep: link.ep,
            src: link.src,
            tagged: message.tag.is_some(),
            tag: message.tag.unwrap_or(0),
            len: message.len,
            data: message.data,
            ack: (),
            announces: false,
        })
    }

    /// Receives or buffers a message that is here in one piece. Returns `None` if there is no room.
    fn take_whole(&mut self, arrival: &Arrival, payload: &[u8]) -> Option<Admission> {
        match self.endpoints.take_in(arrival, payload) {
            Taken::Received(()) | Taken::Kept => return Some(Admission::Taken),
            Taken::Refused => {}
        }
        match self.endpoints.unmatched(arrival) {
            Unmatched::HeldBack => return None,
            Unmatched::Keep(kept) => {
                self.endpoints.append(kept, payload, 0);
                self.endpoints.kept(kept);
            }
            Unmatched::Complete | Unmatched::Gone => {}
        }
        Some(Admission::Taken)
    }

    /// Returns the destination of a message; `None` if there is no room for it.
    fn course_of(&mut self, arrival: &Arrival) -> Option<link::Course> {
        if let Some(Expected { memory, receipt }) = self.endpoints.arrive(arrival) {
            return Some(Course::Place(Box::new(Placing::receive(memory, receipt))));
        }
        match self.endpoints.unmatched(arrival) {
            Unmatched::Keep(kept) => Some(Course::Keep(kept)),
            Unmatched::Complete | Unmatched::Gone => Some(Course::Discard),
            Unmatched::HeldBack => None,
        }
    }

    /// Handles a part of what is arriving. Returns whether it was taken.
    pub(super) fn part(
        &mut self,
        peer: PeerId,
        offset: usize,
        bytes: &[u8],
        in_order: bool,
    ) -> bool {
        let link = self
            .peers
            .link(peer)
            .and_then(|key| self.links.get_mut(key));
        let Some(incoming) = link.and_then(|link| link.incoming.as_mut()) else {
            return true;
        };
        if !in_order && matches!(incoming.course, Course::Keep(_)) {
            return false;
        }
        let more = incoming.len.saturating_sub(offset + bytes.len());
        put(
            &mut self.endpoints,
            &mut self.target,
            incoming,
            offset,
            bytes,
            more,
        );
        true
    }

    /// Handles that all parts are here.
    ///
    /// # Errors
    /// `-FI_EIO` for a write to memory of a device that has not copied all of it.
    pub(super) fn parts_end(&mut self, peer: PeerId) -> Result<(), Errno> {
        let Some(key) = self.peers.link(peer) else {
            return Ok(());
        };
        let link = self.links.get_mut(key);
        let Some(Incoming { course, .. }) = link.and_then(|link| link.incoming.take()) else {
            return Ok(());
        };
        if has_failures()
            && let Course::Place(placing) = &course
            && let PayloadBuffer::Registered(grants) = &placing.place
            && let Some(target) = &mut self.target
            && let Err(error) = grants.take_failure(&mut target.memory)
        {
            self.abandon_course(course, error);
            return Err(error);
        }
        self.arrived(key, course);
        Ok(())
    }

    /// Handles that a message or a write is here.
    pub(super) fn arrived(&mut self, key: LinkKey, course: link::Course) {
        match course {
            Course::Place(placing) => self.placed(key, *placing),
            Course::Keep(kept) => self.endpoints.kept(kept),
            Course::Discard | Course::Done => {}
        }
    }

    /// Handles that a message is in its receive's memory, or a write in registered memory.
    pub(super) fn placed(&mut self, key: LinkKey, placing: Placing<Rxd>) {
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (ep, src) = (link.ep, link.src);
        match &placing.then {
            Then::RemoteWrite {
                data: Some(data), ..
            } => {
                let data = *data;
                self.written_with_data(ep, key, placing, data);
            }
            _ => {
                self.endpoints
                    .placed(&mut self.target, ep, src, placing, Ok(()));
            }
        }
    }

    /// Handles that the rest of a message will not arrive.
    pub(super) fn abandon_course(&mut self, course: link::Course, error: Errno) {
        if let Course::Place(placing) = course
            && let Some(ticket) = self.endpoints.abandon(*placing, error)
        {
            self.endpoints.finish(ticket, Err(error));
        }
    }

    /// Carries out what receives have caused.
    pub(super) fn act_on(&mut self, action: Action) {
        match action {
            Action::Redirect(key, course) => {
                let link = self.links.get_mut(key);
                if let Some(incoming) = link.and_then(|link| link.incoming.as_mut()) {
                    incoming.course = course;
                }
            }
            Action::Resume(key, course) => {
                if let Some(link) = self.links.get_mut(key) {
                    link.course = Some(course);
                    self.resumed.push(key);
                }
                if self.protocol.is_some() {
                    self.settle();
                }
            }
            // Messages are acknowledged by the protocol, and none is announced.
            Action::Acknowledge(..)
            | Action::Fetch(..)
            | Action::Refuse(..)
            | Action::Throttle(..) => {}
        }
    }
}

/// Writes bytes of a message at this offset of its destination; `more` bytes follow.
fn put(
    endpoints: &mut Endpoints,
    target: &mut Option<RmaTarget>,
    incoming: &mut Incoming,
    offset: usize,
    bytes: &[u8],
    more: usize,
) {
    match &mut incoming.course {
        Course::Place(placing) => {
            match &placing.place {
                PayloadBuffer::App(memory) => {
                    memory.write_at(offset, bytes);
                }
                registered => registered.write_at(target, offset, bytes),
            }
            placing.done += bytes.len();
        }
        Course::Keep(kept) => {
            endpoints.append(*kept, bytes, more);
        }
        Course::Discard | Course::Done => {}
    }
}
