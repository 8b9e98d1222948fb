//! Messages that arrive: each is matched with a posted receive or buffered as unexpected.

use fabric_abi::FI_REMOTE_CQ_DATA;
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_util::matching::{Matched, Message};

use crate::endpoints::Endpoints;
use crate::endpoints::actions::{Action, Course, Fetch};
use crate::endpoints::arrival::{Arrival, Expected};
use crate::endpoints::behind::Behind;
use crate::endpoints::inbox::cross_lane_srx::Sought;
use crate::endpoints::keeping::{Demand, HeldBack};
use crate::endpoints::placing::{Placing, Then};
use crate::endpoints::room::Room;
use crate::endpoints::transport::Transport;
use crate::endpoints::unexpected::{Body, Unexpected, UnexpectedHandle};
use crate::operation::{Context, Ticket};
use crate::receipt::{Buffer, InboxKey, Receipt};
use crate::spare::Spare;

/// What happens to a message that matched no receive.
pub enum Unmatched {
    /// Its payload is to be appended to the inbox.
    Keep(UnexpectedHandle),
    /// It has no payload, and waits in the inbox.
    Complete,
    /// There is no room for it (flow control): it stays on the link, and nothing behind it is read
    /// until an [`Action`] says how the link continues.
    HeldBack,
    /// The endpoint is closed.
    Gone,
}

/// What happens to an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// It was matched and will be fetched, or it was recorded.
    Taken,
    /// There is no room to record it: the link is held back as for [`Unmatched::HeldBack`], and
    /// continues with [`Course::Done`].
    HeldBack,
    /// The endpoint is closed.
    Gone,
}

/// Upper limit, in bytes, of the memory that is reserved for the rest of an unexpected message
/// before it arrives: a sender must not be able to allocate memory by a header alone.
const AHEAD: usize = 1 << 20;

impl<T: Transport> Endpoints<T> {
    /// Matches a message with a posted receive. If there is none, the caller passes the message to
    /// [`Endpoints::unmatched`] or [`Endpoints::announced`].
    #[inline]
    pub fn arrive(&mut self, arrival: &Arrival<T>) -> Option<Expected<T::Ack>> {
        let key = self.eps.get(arrival.ep)?.inbox;
        let inbox = self.inboxes.get_mut(key)?;
        let queue = inbox.queue(arrival.tagged);
        match queue.arrive(arrival.src, arrival.tag, arrival.len) {
            Some(matched) => Some(Expected::of(arrival, key, matched)),
            None if inbox.other_srx.is_none() => None,
            None => self.arrive_at_other_srx(key, arrival),
        }
    }

    /// The same, where another provider or another lane has the receives.
    #[inline(never)]
    fn arrive_at_other_srx(
        &mut self,
        key: InboxKey,
        arrival: &Arrival<T>,
    ) -> Option<Expected<T::Ack>> {
        if let Some(imported) = self.inboxes.get_mut(key)?.imported() {
            return imported.arrive(key, arrival);
        }
        let sought = Sought {
            tagged: arrival.tagged,
            src: arrival.src,
            tag: arrival.tag,
            len: arrival.len,
        };
        let matched = self.arrive_cross_lane(key, &sought)?;
        Some(Expected::of(arrival, key, matched))
    }

    /// Handles the beginning of a message that matched no receive.
    #[inline(never)]
    pub fn unmatched(&mut self, arrival: &Arrival<T>) -> Unmatched {
        let demand = self.demand(arrival);
        let room = self.room_for(&demand);
        let mut ack = arrival.ack;
        let body = match (room, arrival.len) {
            (Some(_), 0) => {
                self.acknowledge_kept(arrival.link, &mut ack);
                Body::Complete(Vec::new())
            }
            (Some(_), _) => Body::Arriving(Vec::new()),
            (None, _) => Body::HeldBack(None),
        };
        let Some(kept) = self.keep(arrival, ack, body, room.unwrap_or(Room::NONE)) else {
            return Unmatched::Gone;
        };
        if room.is_none() {
            self.hold_back(demand, kept);
        }
        self.throttle(arrival.link, arrival.announces);
        match (room, arrival.len) {
            (None, _) => Unmatched::HeldBack,
            (Some(_), 0) => Unmatched::Complete,
            (Some(_), _) => Unmatched::Keep(kept),
        }
    }

    /// Handles an announcement: it is fetched if a receive matches, or recorded. Returns `false`,
    /// without any effect, if there is no room to record it.
    pub fn announced(&mut self, arrival: &Arrival<T>, name: T::Name) -> bool {
        if self.ask_for(arrival, name) {
            return true;
        }
        match self.room_for(&self.demand_of_announcement(arrival)) {
            Some(room) => self.note(arrival, name, room),
            None => false,
        }
    }

    /// Like [`Endpoints::announced`], but holds the link back if there is no room.
    pub fn announced_in_order(&mut self, arrival: &Arrival<T>, name: T::Name) -> Notice {
        if self.ask_for(arrival, name) {
            return Notice::Taken;
        }
        let demand = self.demand_of_announcement(arrival);
        if let Some(room) = self.room_for(&demand) {
            return match self.note(arrival, name, room) {
                true => Notice::Taken,
                false => Notice::Gone,
            };
        }
        let body = Body::HeldBack(Some(name));
        let Some(kept) = self.keep(arrival, arrival.ack, body, Room::NONE) else {
            return Notice::Gone;
        };
        self.hold_back(demand, kept);
        Notice::HeldBack
    }

    /// Fetches an announced message; returns `false`, without any effect, if no receive matches.
    pub fn ask_for(&mut self, arrival: &Arrival<T>, name: T::Name) -> bool {
        let Some(Expected { memory, receipt }) = self.arrive(arrival) else {
            return false;
        };
        let fetch = Fetch {
            name,
            memory,
            receipt,
            len: arrival.len,
        };
        self.actions.push_back(Action::Fetch(arrival.link, fetch));
        true
    }

    fn note(&mut self, arrival: &Arrival<T>, name: T::Name, room: Room) -> bool {
        let body = Body::Announced(name);
        self.keep(arrival, arrival.ack, body, room).is_some()
    }

    pub(crate) fn keep(
        &mut self,
        arrival: &Arrival<T>,
        ack: T::Ack,
        body: Body<T::Name>,
        room: Room,
    ) -> Option<UnexpectedHandle> {
        let inbox = self.eps.get(arrival.ep)?.inbox;
        let payload = Unexpected {
            link: arrival.link,
            ep: arrival.ep,
            tagged: arrival.tagged,
            ack,
            body,
            room,
        };
        let cost = payload.cost(arrival.len);
        let id = self.inboxes.get_mut(inbox)?.keep(Message {
            src: arrival.src,
            tag: arrival.tag,
            len: arrival.len,
            data: arrival.data.unwrap_or(0),
            flags: arrival.data.map_or(0, |_| FI_REMOTE_CQ_DATA),
            payload,
        })?;
        self.charge(arrival.link, cost);
        Some(UnexpectedHandle {
            inbox,
            tagged: arrival.tagged,
            id,
        })
    }

    /// Appends payload to a message that is being buffered; `more` bytes of it follow later.
    /// Returns `false` if the message is not wanted by anyone.
    pub fn append(&mut self, kept: UnexpectedHandle, bytes: &[u8], more: usize) -> bool {
        let Some((body, spare)) = self.kept_body(kept) else {
            return false;
        };
        if body.capacity() - body.len() < bytes.len() {
            // Memory for a long message is reserved step by step, as its payload arrives.
            let ahead = body.len().max(AHEAD).min(bytes.len().saturating_add(more));
            let ahead = ahead.max(bytes.len());
            if body.is_empty() {
                *body = spare.take(ahead);
                body.clear();
            }
            body.reserve_exact(ahead);
        }
        body.extend_from_slice(bytes);
        true
    }

    /// Like [`Endpoints::append`], but takes over the vector itself if these are the first bytes.
    pub fn append_all(&mut self, kept: UnexpectedHandle, bytes: &mut Vec<u8>) -> bool {
        match self.kept_body(kept) {
            Some((body, _)) if body.is_empty() => {
                std::mem::swap(body, bytes);
                true
            }
            _ => self.append(kept, bytes, 0),
        }
    }

    /// Takes a spare buffer for `len` bytes; it may have old contents. Returns an empty vector if
    /// there is none.
    pub fn spare(&mut self, len: usize) -> Vec<u8> {
        self.kept.spare.take(len)
    }

    /// The part of a buffered message that has arrived.
    fn kept_body(&mut self, kept: UnexpectedHandle) -> Option<(&mut Vec<u8>, &mut Spare)> {
        let message = self.inboxes.get_mut(kept.inbox)?.payload_mut(kept)?;
        match &mut message.body {
            Body::Arriving(body) => Some((body, &mut self.kept.spare)),
            _ => None,
        }
    }

    /// Records that a buffered message is complete.
    pub fn kept(&mut self, kept: UnexpectedHandle) {
        let Some(message) = self.kept_mut(kept) else {
            return;
        };
        if let Body::Arriving(bytes) = &mut message.body {
            message.body = Body::Complete(std::mem::take(bytes));
        }
        let (link, mut ack) = (message.link, std::mem::take(&mut message.ack));
        self.acknowledge_kept(link, &mut ack);
        if let Some(message) = self.kept_mut(kept) {
            message.ack = ack;
        }
    }

    fn kept_mut(&mut self, kept: UnexpectedHandle) -> Option<&mut Unexpected<T>> {
        self.inboxes.get_mut(kept.inbox)?.payload_mut(kept)
    }

    /// Acknowledges a buffered message to its sender, if the acknowledgement is due at buffering.
    pub(crate) fn acknowledge_kept(&mut self, link: T::Link, ack: &mut T::Ack) {
        if T::acknowledges_what_is_kept(*ack) || self.is_own_link(link) {
            self.acknowledge(link, std::mem::take(ack));
        }
    }

    fn acknowledge(&mut self, link: T::Link, ack: T::Ack) {
        if ack != T::Ack::default() {
            self.actions.push_back(Action::Acknowledge(link, ack));
        }
    }

    /// Handles a payload that will not arrive. A receive ends with `error`; of a read, the
    /// operation is returned, for the caller to end it.
    #[must_use]
    pub fn abandon(&mut self, placing: Placing<T>, error: Errno) -> Option<Ticket> {
        match placing.then {
            Then::Receive(receipt) => {
                self.received(&receipt, placing.place.into_memory(), Err(error));
                None
            }
            Then::Read(ticket) => Some(ticket),
            Then::RemoteWrite { .. } => None,
        }
    }

    /// Completes a receive with `outcome`, which ends the loan of its memory. Returns the acknowledgement that the sender is due.
    #[inline]
    pub fn received(
        &mut self,
        receipt: &Receipt<T::Ack>,
        memory: AppIov,
        outcome: Result,
    ) -> T::Ack {
        match memory.is_settled() {
            true => self.received_wholly(receipt, memory, outcome),
            false => self.received_behind(receipt, memory, outcome),
        }
    }

    /// The same for a receive whose bytes a device still copies.
    #[cold]
    #[inline(never)]
    fn received_behind(
        &mut self,
        receipt: &Receipt<T::Ack>,
        memory: AppIov,
        outcome: Result,
    ) -> T::Ack {
        // Who waits for the acknowledgement waits for the bytes.
        if receipt.ack != T::Ack::default() {
            return self.received_wholly(receipt, memory, outcome);
        }
        let behind = Behind::receive(*receipt, memory, outcome);
        self.behind.push(behind);
        bounded!(self.behind, OPERATIONS);
        T::Ack::default()
    }

    #[inline]
    fn received_wholly(
        &mut self,
        receipt: &Receipt<T::Ack>,
        memory: AppIov,
        outcome: Result,
    ) -> T::Ack {
        let release = match receipt.buffer {
            Buffer::Single => false,
            Buffer::Multi(multi) => self.finish_multi(receipt.inbox, receipt.tagged, multi),
            Buffer::Imported(given) => {
                return self.received_imported(given, receipt, memory, outcome);
            }
        };
        if let Some(ep) = self.eps.get(receipt.ep) {
            ep.reports.receive(receipt, &memory, release, outcome);
        }
        match outcome {
            Ok(()) => receipt.ack,
            Err(_) => T::Ack::default(),
        }
    }

    /// Delivers an unexpected message to the receive that took it.
    pub(crate) fn deliver(
        &mut self,
        inbox: InboxKey,
        matched: Matched<AppIov>,
        message: Message<Unexpected<T>>,
    ) {
        let buffer = Buffer::of(matched.multi);
        self.deliver_to(inbox, matched, buffer, message);
    }

    /// Like [`Endpoints::deliver`], for a receive with this kind of buffer.
    pub(crate) fn deliver_to(
        &mut self,
        inbox: InboxKey,
        matched: Matched<AppIov>,
        buffer: Buffer,
        message: Message<Unexpected<T>>,
    ) {
        self.refund(&message);
        let Unexpected {
            link,
            ep,
            tagged,
            ack,
            body,
            ..
        } = message.payload;
        let receipt = Receipt {
            inbox,
            ep,
            tagged,
            context: Context(matched.context),
            flags: matched.flags,
            buffer,
            src: message.src,
            tag: message.tag,
            data: (message.flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            len: message.len,
            ack,
        };
        let memory = matched.buf;
        let is_held_back = matches!(body, Body::HeldBack(_));
        let action = match body {
            Body::Complete(bytes) => {
                memory.write_at(0, &bytes);
                self.kept.spare.give(bytes);
                let ack = self.received(&receipt, memory, Ok(()));
                return self.acknowledge(link, ack);
            }
            Body::Arriving(bytes) => {
                memory.write_at(0, &bytes);
                let course = Course::receive(memory, bytes.len(), receipt);
                self.kept.spare.give(bytes);
                return self.redirect(link, course);
            }
            Body::HeldBack(None) => {
                self.release(link);
                if message.len > 0 {
                    Action::Resume(link, Course::receive(memory, 0, receipt))
                } else {
                    let ack = self.received(&receipt, memory, Ok(()));
                    self.acknowledge(link, ack);
                    Action::Resume(link, Course::Done)
                }
            }
            Body::Announced(name) | Body::HeldBack(Some(name)) => {
                if is_held_back {
                    self.resume(link);
                }
                Action::Fetch(
                    link,
                    Fetch {
                        name,
                        memory,
                        receipt,
                        len: message.len,
                    },
                )
            }
            Body::Lost(error) => {
                self.received(&receipt, memory, Err(error));
                return;
            }
        };
        self.actions.push_back(action);
    }

    /// Drops a message that nobody will receive.
    pub(crate) fn drop_message(&mut self, message: Message<Unexpected<T>>) {
        self.refund(&message);
        let Unexpected {
            link, ack, body, ..
        } = message.payload;
        let is_held_back = matches!(body, Body::HeldBack(_));
        match body {
            Body::Complete(_) | Body::Lost(_) => {}
            Body::Arriving(_) => self.redirect(link, Course::Discard),
            Body::HeldBack(None) => {
                self.release(link);
                let course = match message.len {
                    0 => Course::Done,
                    _ => Course::Discard,
                };
                self.actions.push_back(Action::Resume(link, course));
            }
            Body::Announced(name) | Body::HeldBack(Some(name)) => {
                if is_held_back {
                    self.resume(link);
                }
                let refusal = Action::Refuse(link, name, ack, message.len);
                return self.actions.push_back(refusal);
            }
        }
        self.acknowledge(link, ack);
    }

    /// Changes the destination of the message that is arriving on a link. If an action to resume
    /// the link is still queued, that action gets the new destination.
    pub(crate) fn redirect(&mut self, link: T::Link, course: Course<T>) {
        let is_resumed = |action: &Action<T>| matches!(action, Action::Resume(_, Course::Keep(_)));
        match self.actions.find_of(link, is_resumed) {
            Some(resumed) => *resumed = Action::Resume(link, course),
            None => self.actions.push_back(Action::Redirect(link, course)),
        }
    }

    /// Releases links that were held back, as far as there is room for their messages.
    pub fn admit_held_back(&mut self) {
        self.unthrottle();
        while let Some((next, room)) = self.next_with_room() {
            if self.is_held_back(next.kept) {
                self.admit(&next, room);
            }
        }
    }

    pub(crate) fn admit(&mut self, waits: &HeldBack<T>, room: Room) {
        let Demand { link, len, .. } = waits.demand;
        let Some(message) = self.kept_mut(waits.kept) else {
            return;
        };
        let (body, course) = match (&message.body, len) {
            (&Body::HeldBack(Some(name)), _) => (Body::Announced(name), Course::Done),
            (_, 0) => (Body::Arriving(Vec::new()), Course::Done),
            _ => (Body::Arriving(Vec::new()), Course::Keep(waits.kept)),
        };
        (message.body, message.room) = (body, room);
        let cost = message.cost(len);
        self.charge(link, cost);
        if !waits.demand.is_announcement && len == 0 {
            self.kept(waits.kept);
        }
        self.actions.push_back(Action::Resume(link, course));
    }

    /// Returns whether a message still waits on its link.
    pub(crate) fn is_held_back(&mut self, kept: UnexpectedHandle) -> bool {
        let message = self.kept_mut(kept);
        message.is_some_and(|message| matches!(message.body, Body::HeldBack(_)))
    }

    /// Releases a link that was held back with an announcement.
    fn resume(&mut self, link: T::Link) {
        self.release(link);
        self.actions.push_back(Action::Resume(link, Course::Done));
    }

    /// Removes a link from those that are held back.
    fn release(&mut self, link: T::Link) {
        self.stop_holding_back(link);
    }
}
