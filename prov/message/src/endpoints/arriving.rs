//! Messages that arrive: they find the receive that they are for, or are kept.

use fabric_abi::{FI_COMPLETION, FI_REMOTE_CQ_DATA};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::matching::{Matched, Message};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::{
    Action, Body, Course, Fetch, Inbox, Kept, Placing, Then, Transport, Unexpected,
};
use crate::endpoints::keeping::{HeldBack, Room, Wish};
use crate::endpoints::whole::Whole;
use crate::operation::EpKey;
use crate::operation::{Context, Ticket};
use crate::receipt::{Buffer, InboxKey, Receipt};
use crate::reports::Reports;
use crate::spare::Spare;

/// A message begins, or is announced.
#[derive(Clone, Copy)]
pub struct Arrival<T: Transport> {
    /// What it comes on.
    pub link: T::Link,
    /// The endpoint that it comes to.
    pub ep: EpKey,
    /// The sender, or [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE) while the
    /// address vector does not know it.
    pub src: u64,
    pub tagged: bool,
    pub tag: u64,
    /// Bytes in the message.
    pub len: usize,
    /// Immediate data.
    pub data: Option<u64>,
    pub ack: T::Ack,
    /// Whether the sender could announce its messages.
    pub announces: bool,
}

/// The receive for a message that is arriving.
pub struct Expected<A> {
    /// Where it goes; if this is shorter than the message, the receive completes
    /// with `-FI_ETRUNC`.
    pub memory: AppIov,
    /// To be handed to [`Endpoints::received`] when it is there.
    pub receipt: Receipt<A>,
}

/// What becomes of a message that found no receive.
pub enum Unmatched {
    /// Its bytes go to the inbox.
    Keep(Kept),
    /// It has no bytes, and waits in the inbox.
    Complete,
    /// There is no room for it: it stays on the link, and nothing behind it is
    /// taken in until an action says how it goes on.
    HeldBack,
    /// The endpoint is closed.
    Gone,
}

/// What becomes of a message that is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// It is asked for, or noted.
    Taken,
    /// There is no room to note it: the link is held back as for
    /// [`Unmatched::HeldBack`], and goes on with [`Course::Done`].
    HeldBack,
    /// The endpoint is closed.
    Gone,
}

/// Bytes of a message that is kept for which memory is taken before they have
/// come.
const AHEAD: usize = 1 << 20;

/// Takes in whole messages that have nothing special about them, one after the
/// other from the same sender.
pub struct Plain<'a, T: Transport> {
    inbox: &'a mut Inbox<T>,
    key: InboxKey,
    ep: EpKey,
    reports: &'a Reports,
}

impl<T: Transport> Plain<'_, T> {
    /// Takes in a message; `false` if nobody waits for it.
    #[inline(always)]
    pub fn take(&mut self, src: u64, tag: Option<u64>, payload: &(impl Whole + ?Sized)) -> bool {
        // Either kind has code of its own.
        match tag {
            Some(tag) => self.take_one::<true>(src, tag, payload),
            None => self.take_one::<false>(src, 0, payload),
        }
    }

    #[inline(always)]
    fn take_one<const TAGGED: bool>(
        &mut self,
        src: u64,
        tag: u64,
        payload: &(impl Whole + ?Sized),
    ) -> bool {
        let Some(single) = self.inbox.queue(TAGGED).take_single(src, tag) else {
            return self.take_into_many(src, TAGGED, tag, payload);
        };
        let (reports, len) = (self.reports, payload.len());
        if len <= single.buf.len() && single.flags & FI_COMPLETION != 0 {
            payload.copy_to(single.buf);
            reports.plain_receive::<TAGGED>(&single, src, tag, len);
        } else {
            payload.copy_to(single.buf);
            reports.whole_receive(&single, src, TAGGED, tag, len);
        }
        true
    }

    /// Takes in a message that goes into a buffer for many.
    #[inline(never)]
    fn take_into_many(
        &mut self,
        src: u64,
        tagged: bool,
        tag: u64,
        payload: &(impl Whole + ?Sized),
    ) -> bool {
        let queue = self.inbox.queue(tagged);
        let Some(matched) = queue.arrive(src, tag, payload.len()) else {
            return false;
        };
        payload.copy_to(&matched.buf);
        let release = match matched.multi {
            None => false,
            Some(multi) => queue.finish_multi(multi),
        };
        let receipt = Receipt {
            inbox: self.key,
            ep: self.ep,
            tagged,
            context: Context(matched.context),
            flags: matched.flags,
            buffer: Buffer::of(matched.multi),
            src,
            tag,
            data: None,
            len: payload.len(),
            ack: (),
        };
        self.reports
            .receive(&receipt, &matched.buf, release, Ok(()));
        true
    }
}

impl<T: Transport> Endpoints<T> {
    /// For whole messages to an endpoint that have nothing special about them.
    #[inline(always)]
    pub fn plain(&mut self, key: EpKey) -> Option<Plain<'_, T>> {
        let ep = self.eps.get(key)?;
        Some(Plain {
            inbox: self.inboxes.get_mut(ep.inbox)?,
            key: ep.inbox,
            ep: key,
            reports: &ep.reports,
        })
    }

    /// Finds the receive for a message; if there is none, the message is for
    /// [`Endpoints::unmatched`] or [`Endpoints::announced`].
    #[inline]
    pub fn arrive(&mut self, arrival: &Arrival<T>) -> Option<Expected<T::Ack>> {
        let key = self.eps.get(arrival.ep)?.inbox;
        let inbox = self.inboxes.get_mut(key)?;
        let queue = inbox.queue(arrival.tagged);
        let Some(matched) = queue.arrive(arrival.src, arrival.tag, arrival.len) else {
            return inbox.foreign.as_mut()?.arrive(key, arrival);
        };
        Some(Expected {
            memory: matched.buf,
            receipt: Receipt {
                inbox: key,
                ep: arrival.ep,
                tagged: arrival.tagged,
                context: Context(matched.context),
                flags: matched.flags,
                buffer: Buffer::of(matched.multi),
                src: arrival.src,
                tag: arrival.tag,
                data: arrival.data,
                len: arrival.len,
                ack: arrival.ack,
            },
        })
    }

    /// A message begins for which there is no receive.
    #[inline(never)]
    pub fn unmatched(&mut self, arrival: &Arrival<T>) -> Unmatched {
        let wish = self.wish(arrival);
        let room = self.room_for(&wish);
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
            self.hold_back(wish, kept);
        }
        self.throttle(arrival.link, arrival.announces);
        match (room, arrival.len) {
            (None, _) => Unmatched::HeldBack,
            (Some(_), 0) => Unmatched::Complete,
            (Some(_), _) => Unmatched::Keep(kept),
        }
    }

    /// A message is announced: it is asked for if there is a receive for it, or
    /// noted. `false`: there is no room for that, and nothing has become of it.
    pub fn announced(&mut self, arrival: &Arrival<T>, name: T::Name) -> bool {
        if self.ask_for(arrival, name) {
            return true;
        }
        match self.room_for(&self.wish_to_announce(arrival)) {
            Some(room) => self.note(arrival, name, room),
            None => false,
        }
    }

    /// [`Endpoints::announced`], where the link is held back for want of room.
    pub fn announced_in_order(&mut self, arrival: &Arrival<T>, name: T::Name) -> Notice {
        if self.ask_for(arrival, name) {
            return Notice::Taken;
        }
        let wish = self.wish_to_announce(arrival);
        if let Some(room) = self.room_for(&wish) {
            return match self.note(arrival, name, room) {
                true => Notice::Taken,
                false => Notice::Gone,
            };
        }
        let body = Body::HeldBack(Some(name));
        let Some(kept) = self.keep(arrival, arrival.ack, body, Room::NONE) else {
            return Notice::Gone;
        };
        self.hold_back(wish, kept);
        Notice::HeldBack
    }

    /// Asks for a message that is announced; `false` where there is no receive for it.
    fn ask_for(&mut self, arrival: &Arrival<T>, name: T::Name) -> bool {
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
    ) -> Option<Kept> {
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
        Some(Kept {
            inbox,
            tagged: arrival.tagged,
            id,
        })
    }

    /// More bytes of a message that is kept, with `more` to come behind them;
    /// `false` if nobody wants it any longer.
    pub fn append(&mut self, kept: Kept, bytes: &[u8], more: usize) -> bool {
        let Some((body, spare)) = self.kept_body(kept) else {
            return false;
        };
        if body.capacity() - body.len() < bytes.len() {
            // Memory for all of a long message is taken as it comes.
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

    /// [`Endpoints::append`] of bytes that are taken over with their memory, where
    /// they are the first ones.
    pub fn append_all(&mut self, kept: Kept, bytes: &mut Vec<u8>) -> bool {
        match self.kept_body(kept) {
            Some((body, _)) if body.is_empty() => {
                std::mem::swap(body, bytes);
                true
            }
            _ => self.append(kept, bytes, 0),
        }
    }

    /// Memory for `len` bytes that may be kept, with something in it, if there is
    /// some to spare.
    pub fn spare(&mut self, len: usize) -> Vec<u8> {
        self.kept.spare.take(len)
    }

    /// What has come of a message that is kept.
    fn kept_body(&mut self, kept: Kept) -> Option<(&mut Vec<u8>, &mut Spare)> {
        let message = self.inboxes.get_mut(kept.inbox)?.payload_mut(kept)?;
        match &mut message.body {
            Body::Arriving(body) => Some((body, &mut self.kept.spare)),
            _ => None,
        }
    }

    /// A message that is kept has come in full.
    pub fn kept(&mut self, kept: Kept) {
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

    fn kept_mut(&mut self, kept: Kept) -> Option<&mut Unexpected<T>> {
        self.inboxes.get_mut(kept.inbox)?.payload_mut(kept)
    }

    /// Tells the sender of a message that is kept, if it is to be told now.
    pub(crate) fn acknowledge_kept(&mut self, link: T::Link, ack: &mut T::Ack) {
        if T::acknowledges_what_is_kept(*ack) {
            self.acknowledge(link, std::mem::take(ack));
        }
    }

    fn acknowledge(&mut self, link: T::Link, ack: T::Ack) {
        if ack != T::Ack::default() {
            self.actions.push_back(Action::Acknowledge(link, ack));
        }
    }

    /// What was on its way to its place will not come there: a receive ends with
    /// `error`. Returns the operation that is to end.
    #[must_use]
    pub fn abandon(&mut self, placing: Placing<T>, error: Errno) -> Option<Ticket> {
        match placing.then {
            Then::Receive(receipt) => {
                let memory = placing.place.memory();
                self.received(&receipt, &memory, Err(error));
                None
            }
            Then::Read(ticket) => Some(ticket),
            Then::RemoteWrite { .. } => None,
        }
    }

    /// A receive has got its message, or `outcome` says why not. Returns what
    /// its sender is to be told.
    #[inline]
    pub fn received(
        &mut self,
        receipt: &Receipt<T::Ack>,
        memory: &AppIov,
        outcome: Result,
    ) -> T::Ack {
        let release = match receipt.buffer {
            Buffer::Single => false,
            Buffer::Multi(multi) => self
                .inboxes
                .get_mut(receipt.inbox)
                .is_some_and(|inbox| inbox.queue(receipt.tagged).finish_multi(multi)),
            Buffer::Foreign(given) => {
                return self.received_elsewhere(given, receipt, memory, outcome);
            }
        };
        if let Some(ep) = self.eps.get(receipt.ep) {
            ep.reports.receive(receipt, memory, release, outcome);
        }
        match outcome {
            Ok(()) => receipt.ack,
            Err(_) => T::Ack::default(),
        }
    }

    /// Brings a message that came before to the receive that took it.
    pub(crate) fn deliver(
        &mut self,
        inbox: InboxKey,
        matched: Matched<AppIov>,
        message: Message<Unexpected<T>>,
    ) {
        let buffer = Buffer::of(matched.multi);
        self.deliver_to(inbox, matched, buffer, message);
    }

    /// As [`Endpoints::deliver`], for a receive with a buffer of this kind.
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
                let ack = self.received(&receipt, &memory, Ok(()));
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
                    let ack = self.received(&receipt, &memory, Ok(()));
                    self.acknowledge(link, ack);
                    Action::Resume(link, Course::Done)
                }
            }
            Body::Announced(name) | Body::HeldBack(Some(name)) => {
                if is_held_back {
                    self.go_on(link);
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
                self.received(&receipt, &memory, Err(error));
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
                    self.go_on(link);
                }
                let refusal = Action::Refuse(link, name, ack, message.len);
                return self.actions.push_back(refusal);
            }
        }
        self.acknowledge(link, ack);
    }

    /// The message that is arriving on a link takes another course; if the link
    /// is yet to go on with it, this one from the start.
    fn redirect(&mut self, link: T::Link, course: Course<T>) {
        let is_resumed = |action: &Action<T>| matches!(action, Action::Resume(_, Course::Keep(_)));
        match self.actions.find_of(link, is_resumed) {
            Some(resumed) => *resumed = Action::Resume(link, course),
            None => self.actions.push_back(Action::Redirect(link, course)),
        }
    }

    /// Lets links go on that were held back for want of room, as far as there is
    /// room for their messages now.
    pub fn admit_held_back(&mut self) {
        self.unthrottle();
        while let Some((next, room)) = self.next_with_room() {
            if self.is_held_back(next.kept) {
                self.admit(&next, room);
            }
        }
    }

    fn admit(&mut self, waits: &HeldBack<T>, room: Room) {
        let Wish { link, len, .. } = waits.wish;
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
        if !waits.wish.is_announcement && len == 0 {
            self.kept(waits.kept);
        }
        self.actions.push_back(Action::Resume(link, course));
    }

    /// Whether a message still waits on its link.
    fn is_held_back(&mut self, kept: Kept) -> bool {
        let message = self.kept_mut(kept);
        message.is_some_and(|message| matches!(message.body, Body::HeldBack(_)))
    }

    /// A link goes on behind an announcement that it was held back for.
    fn go_on(&mut self, link: T::Link) {
        self.release(link);
        self.actions.push_back(Action::Resume(link, Course::Done));
    }

    /// A link is held back no longer.
    fn release(&mut self, link: T::Link) {
        self.kept.held_back.remove(link);
    }
}

impl<T: Transport> Course<T> {
    fn receive(memory: AppIov, done: usize, receipt: Receipt<T::Ack>) -> Self {
        Course::Place(Box::new(crate::endpoints::inbox::Placing {
            persists: false,
            place: crate::endpoints::target::Place::App(memory),
            done,
            then: crate::endpoints::inbox::Then::Receive(receipt),
        }))
    }
}
