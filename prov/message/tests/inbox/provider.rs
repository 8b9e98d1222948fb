//! A provider whose peers send what the test says: it handles its links as a provider does, and
//! checks every answer and action against the model.

use std::collections::VecDeque;

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::lane::NoErrand;
use prov_message::{
    Action, Arrival, Core, Course, Endpoints, EpKey, Expected, Fetch, Idling, InboxKey, Placing,
    Receipt, Then, Transport, UnexpectedHandle, Unmatched,
};
use prov_util::cq::Cq;
use prov_util::ffi::Use;
use prov_util::request::Transmit;
use slotmap::SlotMap;

use crate::model::{Given, LinkKey, MessageState, Model, Number};
use crate::step::ArrivalMode;

pub enum Fake {}

impl Transport for Fake {
    const MIN_MULTI_RECV: usize = 64;
    type Link = LinkKey;
    /// The number of the message, and the acknowledgement that its sender asks for.
    type Ack = (Number, u32);
    type Name = Number;
    type Endpoint = ();

    fn acknowledges_what_is_kept((_, ack): (Number, u32)) -> bool {
        ack == 1
    }
}

pub struct Ep {
    pub key: EpKey,
    pub cq: Use<Cq>,
    pub inbox: usize,
    pub is_open: bool,
    /// Its only link has ended.
    pub has_ended: bool,
}

pub struct Link {
    pub ep: usize,
    pub src: u64,
    /// Whether its sender can announce messages.
    pub announces: bool,
    pub is_held_back: bool,
    pub is_throttled: bool,
    pub incoming: Option<Incoming>,
    pub sent: VecDeque<Sent>,
}

/// The message that is arriving.
pub enum Incoming {
    Keep(Number, UnexpectedHandle, usize),
    Place(Number, Box<Placing<Fake>>),
    Discard(Number, usize),
}

/// Messages that the peer has sent and that have not begun to arrive.
pub enum Sent {
    Message(Number),
    /// Messages that were requested.
    Data(Number, Fetch<Fake>),
}

pub struct Provider {
    pub endpoints: Endpoints<Fake>,
    pub model: Model,
    pub eps: Vec<Ep>,
    pub inboxes: Vec<InboxKey>,
    pub links: SlotMap<LinkKey, Link>,
    /// Number of actions until the link of one ends with it.
    pub end_at: Option<usize>,
    pub acting: bool,
}

/// The error with which links end.
pub const LOST: Errno = Errno::ECONNRESET;

impl Core for Provider {
    type Transport = Fake;
    type Errand = NoErrand;
    type Sources = prov_message::sources::Known;

    fn endpoints(&mut self) -> &mut Endpoints<Fake> {
        &mut self.endpoints
    }

    fn transmit(&mut self, _: EpKey, _: &mut Transmit) -> Result {
        Ok(())
    }

    fn act(&mut self, action: Action<Fake>) {
        assert!(!self.acting, "an action leads to another before it is done");
        self.acting = true;
        let key = self.act_on(action);
        match self.end_at.take() {
            Some(0) if !self.may_be_going_on(key) => self.end_link(key),
            left => self.end_at = left.map(|left| left.saturating_sub(1)),
        }
        self.acting = false;
    }

    fn progress(&mut self) -> Idling {
        Idling::No
    }

    fn prepare_wait(&mut self, _sleeper: prov_message::Sleeper) -> bool {
        true
    }

    fn close(&mut self, _: EpKey) {}
}

impl Provider {
    /// Whether a link is held back for an empty message: it may have been released, and the message
    /// let go, and the message be complete, without the model's knowing yet.
    fn may_be_going_on(&self, key: LinkKey) -> bool {
        let Some(link) = self.links.get(key) else {
            return false;
        };
        match link.incoming {
            Some(Incoming::Discard(number, 0)) => self.model.messages[number].len == 0,
            _ => false,
        }
    }

    fn act_on(&mut self, action: Action<Fake>) -> LinkKey {
        match action {
            Action::Acknowledge(key, ack) => {
                self.acknowledge(key, ack);
                key
            }
            Action::Redirect(key, course) => {
                let link = &mut self.links[key];
                let Some(Incoming::Keep(number, _, done)) = link.incoming.take() else {
                    panic!("nothing is arriving that could be redirected");
                };
                self.take_course(key, number, done, course);
                key
            }
            Action::Resume(key, course) => {
                let link = &mut self.links[key];
                assert!(
                    std::mem::take(&mut link.is_held_back),
                    "it was not held back"
                );
                let Some(Incoming::Discard(number, 0)) = link.incoming.take() else {
                    panic!("it was held back for a message");
                };
                self.take_course(key, number, 0, course);
                // Messages behind it.
                self.rush(key);
                key
            }
            Action::Fetch(key, fetch) => {
                let number = fetch.name;
                assert_eq!(self.model.messages[number].link, key);
                assert_eq!(fetch.len, self.model.messages[number].len);
                self.check_receipt(number, &fetch.receipt, &fetch.memory);
                self.links[key].sent.push_back(Sent::Data(number, fetch));
                key
            }
            Action::Refuse(key, number, ack, len) => {
                assert!(self.links.contains_key(key));
                let message = &self.model.messages[number];
                assert_eq!((message.link, message.len), (key, len));
                assert_eq!(message.place, MessageState::Dropped);
                if ack != (0, 0) {
                    self.acknowledge(key, ack);
                }
                key
            }
            Action::Throttle(key, on) => {
                let link = &mut self.links[key];
                assert!(link.announces && link.is_throttled != on);
                link.is_throttled = on;
                key
            }
        }
    }

    /// Continues with the message that a link was receiving, or was held back for.
    fn take_course(&mut self, key: LinkKey, number: Number, done: usize, course: Course<Fake>) {
        let message = &mut self.model.messages[number];
        let len = message.len;
        let incoming = match course {
            Course::Place(placing) => {
                assert_eq!(placing.done, done);
                let Then::Receive(receipt) = &placing.then else {
                    panic!("no receive");
                };
                let prov_message::PayloadBuffer::App(memory) = &placing.place else {
                    panic!("no receive");
                };
                self.check_receipt(number, receipt, memory);
                Some(Incoming::Place(number, placing))
            }
            Course::Keep(kept) => {
                // There is room for it, even if a receive is about to take it.
                assert!(len > 0);
                if message.place == MessageState::HeldBack {
                    message.place = MessageState::Arriving;
                }
                Some(Incoming::Keep(number, kept, done))
            }
            Course::Discard => {
                assert_eq!(message.place, MessageState::Dropped);
                Some(Incoming::Discard(number, done))
            }
            Course::Done => {
                assert_eq!(len, 0);
                if message.place == MessageState::HeldBack {
                    message.place = MessageState::Complete;
                }
                None
            }
        };
        self.links[key].incoming = incoming;
    }

    pub fn acknowledge(&mut self, key: LinkKey, (number, ack): (Number, u32)) {
        let message = &mut self.model.messages[number];
        assert_eq!((message.link, message.ack), (key, ack));
        message.acknowledged += 1;
        assert_eq!(message.acknowledged, 1, "message {number}");
    }

    fn check_receipt(&self, number: Number, receipt: &Receipt<(Number, u32)>, memory: &AppIov) {
        let message = &self.model.messages[number];
        let MessageState::Given(Given {
            receive,
            offset,
            room,
        }) = message.place
        else {
            panic!("message {number} has no receive: {:?}", message.place);
        };
        assert_eq!(receipt.context.0, self.model.receives[receive].context);
        let seen = (
            receipt.src,
            receipt.tagged,
            receipt.tag,
            receipt.len,
            receipt.data,
        );
        let sent = (
            message.src,
            message.tagged,
            message.tag,
            message.len,
            message.data,
        );
        assert_eq!(seen, sent);
        assert_eq!(memory.len(), room);
        if room > 0 {
            let buffer = &self.model.receives[receive].buffer;
            let place = buffer.as_ptr().wrapping_add(offset);
            assert_eq!(memory.address().cast_const().cast(), place);
        }
    }

    /// All messages that were sent arrive, as far as flow control allows.
    pub fn rush(&mut self, key: LinkKey) {
        while self.move_on(key, usize::MAX) {}
    }

    /// So many bytes of the current message arrive, or another one begins. Returns whether anything
    /// happened.
    pub fn move_on(&mut self, key: LinkKey, bytes: usize) -> bool {
        let Some(link) = self.links.get_mut(key) else {
            return false;
        };
        if link.is_held_back {
            return false;
        }
        if link.incoming.is_some() {
            self.continue_with(key, bytes);
            return true;
        }
        match link.sent.pop_front() {
            None => return false,
            Some(Sent::Message(number)) => self.begin(key, number),
            Some(Sent::Data(number, fetch)) => {
                let placing = Placing {
                    persists: false,
                    place: prov_message::PayloadBuffer::App(fetch.memory),
                    done: 0,
                    then: Then::Receive(fetch.receipt),
                };
                self.links[key].incoming = Some(Incoming::Place(number, Box::new(placing)));
                self.continue_with(key, 0);
            }
        }
        true
    }

    fn begin(&mut self, key: LinkKey, number: Number) {
        let link = &self.links[key];
        let message = &mut self.model.messages[number];
        message.src = link.src;
        let bytes = message.bytes(number);
        let arrival = Arrival {
            link: key,
            ep: self.eps[link.ep].key,
            src: link.src,
            tagged: message.tagged,
            tag: message.tag,
            len: message.len,
            data: message.data,
            ack: match message.ack {
                0 => (0, 0),
                ack => (number, ack),
            },
            announces: link.announces,
        };
        let (way, announces) = (message.way, link.announces);
        let is_plain = way == ArrivalMode::Plain && message.data.is_none() && message.ack == 0;
        // Other links that continue are counted when that is decided; the model counts them when
        // they do.
        let admitted = self.endpoints.kept_bytes().checked_sub(self.model.kept());
        let admitted = admitted.expect("all is counted that is kept");
        let fits = self.model.has_room(key, arrival.len, announces, admitted);
        let given = self.model.arrive(number);
        if is_plain {
            let mut plain = self.endpoints.plain(arrival.ep).unwrap();
            let tag = arrival.tagged.then_some(arrival.tag);
            assert_eq!(plain.take(arrival.src, tag, &bytes[..]), given);
            if given {
                return;
            }
        }
        if way == ArrivalMode::Announced {
            assert!(self.endpoints.announced(&arrival, number));
            if !given {
                self.model.messages[number].place = MessageState::Announced;
            }
            return self.follow_up();
        }
        match self.endpoints.arrive(&arrival) {
            Some(Expected { memory, receipt }) => {
                assert!(given);
                self.check_receipt(number, &receipt, &memory);
                let placing = Placing {
                    persists: false,
                    place: prov_message::PayloadBuffer::App(memory),
                    done: 0,
                    then: Then::Receive(receipt),
                };
                self.links[key].incoming = Some(Incoming::Place(number, Box::new(placing)));
            }
            None => {
                assert!(!given);
                self.keep(key, number, &arrival, fits);
            }
        }
        let at_once = if way == ArrivalMode::Pieces {
            0
        } else {
            usize::MAX
        };
        if self.links.get(key).is_some_and(|link| !link.is_held_back) {
            self.continue_with(key, at_once);
        }
        self.follow_up();
    }

    fn keep(&mut self, key: LinkKey, number: Number, arrival: &Arrival<Fake>, fits: bool) {
        let unmatched = self.endpoints.unmatched(arrival);
        let link = &mut self.links[key];
        let message = &mut self.model.messages[number];
        match unmatched {
            Unmatched::Keep(kept) => {
                assert!(fits && arrival.len > 0);
                message.place = MessageState::Arriving;
                link.incoming = Some(Incoming::Keep(number, kept, 0));
            }
            Unmatched::Complete => {
                assert!(fits && arrival.len == 0);
                message.place = MessageState::Complete;
            }
            Unmatched::HeldBack => {
                assert!(!fits);
                message.place = MessageState::HeldBack;
                link.is_held_back = true;
                link.incoming = Some(Incoming::Discard(number, 0));
            }
            Unmatched::Gone => panic!("the endpoint is open"),
        }
    }

    fn continue_with(&mut self, key: LinkKey, bytes: usize) {
        let link = &mut self.links[key];
        let Some(incoming) = &mut link.incoming else {
            return;
        };
        let (number, done) = match incoming {
            Incoming::Keep(number, _, done) | Incoming::Discard(number, done) => (*number, done),
            Incoming::Place(number, placing) => (*number, &mut placing.done),
        };
        let message = &mut self.model.messages[number];
        let (from, to) = (*done, message.len.min(done.saturating_add(bytes)));
        *done = to;
        let part = &message.bytes(number)[from..to];
        match incoming {
            Incoming::Keep(_, kept, _) => {
                let is_wanted =
                    part.is_empty() || self.endpoints.append(*kept, part, message.len - to);
                assert!(
                    is_wanted,
                    "the link was not told that nobody wants the rest"
                );
            }
            Incoming::Place(_, placing) => placing.place.write_at(&mut None, from, part),
            Incoming::Discard(..) => {}
        }
        if to < message.len {
            return;
        }
        match link.incoming.take() {
            Some(Incoming::Keep(_, kept, _)) => {
                assert_eq!(message.place, MessageState::Arriving);
                message.place = MessageState::Complete;
                self.endpoints.kept(kept);
            }
            Some(Incoming::Place(_, placing)) => {
                let Then::Receive(receipt) = placing.then else {
                    panic!("no receive");
                };
                let memory = placing.place.into_memory();
                let ack = self.endpoints.received(&receipt, memory, Ok(()));
                if ack != (0, 0) {
                    self.acknowledge(key, ack);
                }
            }
            _ => {}
        }
        self.follow_up();
    }

    /// A link ends, with the message that was arriving on it.
    pub fn end_link(&mut self, key: LinkKey) {
        let Some(link) = self.links.remove(key) else {
            return;
        };
        self.model.links.remove(&key);
        let mut lost = Vec::new();
        if let Some(Incoming::Place(_, placing)) = link.incoming
            && let Then::Receive(receipt) = placing.then
        {
            lost.push((receipt, placing.place.into_memory()));
        }
        for sent in link.sent {
            match sent {
                Sent::Message(number) => self.model.messages[number].place = MessageState::Dropped,
                Sent::Data(_, fetch) => lost.push((fetch.receipt, fetch.memory)),
            }
        }
        for (receipt, memory) in lost {
            self.endpoints.received(&receipt, memory, Err(LOST));
        }
        self.model.drop_messages(|message| {
            message.link == key && message.place != MessageState::Complete
        });
        let ep = &self.eps[link.ep];
        self.endpoints.link_ended(ep.key, key, LOST);
    }
}
