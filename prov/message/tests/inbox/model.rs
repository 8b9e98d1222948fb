//! A model of what the manual says of receives and messages: vectors that are searched from the
//! front.

use std::collections::HashSet;

use prov_message::Limits;
use slotmap::new_key_type;

use crate::step::{ArrivalMode, Setting, Wanted};

new_key_type! { pub struct LinkKey; }

pub type Number = usize;
pub type ReceiveId = usize;

pub struct Message {
    pub link: LinkKey,
    pub ep: usize,
    pub inbox: usize,
    pub src: u64,
    pub way: ArrivalMode,
    pub tagged: bool,
    pub tag: u64,
    pub len: usize,
    pub data: Option<u64>,
    /// 0: the sender asks for no acknowledgement; 1: for one when the message is kept; 2: for one
    /// when it is received.
    pub ack: u32,
    pub place: MessageState,
    /// How often the sender was acknowledged.
    pub acknowledged: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum MessageState {
    /// It has not begun to arrive.
    Sent,
    /// It waits, and is complete.
    Complete,
    /// It waits, and more of it arrives.
    Arriving,
    /// It waits, and its link is held back.
    HeldBack,
    /// It waits at the sender.
    Announced,
    /// It has matched a receive that has not completed.
    Given(Given),
    Received,
    /// It ended with its link or its endpoint, or was not wanted.
    Dropped,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Given {
    pub receive: ReceiveId,
    pub offset: usize,
    pub room: usize,
}

impl Message {
    /// Its bytes, which differ from those of all other messages.
    pub fn bytes(&self, number: Number) -> Vec<u8> {
        (0..self.len).map(|i| (i * 7 + number * 31) as u8).collect()
    }

    pub fn cost(&self) -> usize {
        match self.place {
            MessageState::Complete | MessageState::Arriving => self.len + KEEPING_COST,
            _ => 0,
        }
    }

    fn is_for(&self, wanted: &Wanted) -> bool {
        (!self.tagged || self.tag | wanted.ignore == wanted.tag | wanted.ignore)
            && wanted.src.is_none_or(|src| src == self.src)
    }
}

pub struct Receive {
    pub context: usize,
    pub buffer: Vec<u8>,
    pub wanted: Wanted,
    pub multi: bool,
    used: usize,
    /// Whether the receive takes more messages.
    pub open: bool,
    /// Messages that it has matched and that are not complete.
    pub given: Vec<Number>,
    /// Whether the buffer was released to the application.
    pub ended: bool,
}

impl Receive {
    pub fn new(context: usize, wanted: Wanted, len: usize, multi: bool) -> Self {
        Receive {
            context,
            buffer: vec![0; len],
            wanted,
            multi,
            used: 0,
            open: true,
            given: Vec::new(),
            ended: false,
        }
    }

    /// Matches no further message.
    pub fn end(&mut self) {
        self.open = false;
        self.ended = true;
    }
}

#[derive(Default)]
pub struct Queue {
    pub posted: Vec<ReceiveId>,
    pub unexpected: Vec<Number>,
    /// The context of the claim.
    pub claimed: Vec<(usize, Number)>,
}

pub struct Model {
    pub limits: Limits,
    pub messages: Vec<Message>,
    pub receives: Vec<Receive>,
    /// The messages that have not ended.
    pub links: HashSet<LinkKey>,
    /// The posted receives by inbox, untagged and tagged.
    pub queues: Vec<[Queue; 2]>,
}

/// Bookkeeping cost of a message.
const KEEPING_COST: usize = 128;
/// Every link's guaranteed minimum, if the limit is large.
const LEAST: usize = 64 << 10;
/// Free bytes below which a multi-receive buffer matches no further message.
const MIN_MULTI_RECV: usize = 64;

impl Model {
    pub fn new(setting: Setting, inboxes: usize) -> Self {
        Model {
            limits: Limits {
                unexpected: setting.unexpected,
                in_flight: setting.in_flight,
                announcements: 1 << 10,
                unannounced: 0,
                saved: 0,
                // What is kept beyond the shares for a receive that waits has tests of its own.
                memory: 0,
                strangers: None,
            },
            messages: Vec::new(),
            receives: Vec::new(),
            links: HashSet::new(),
            queues: (0..inboxes).map(|_| Default::default()).collect(),
        }
    }

    pub fn queue(&mut self, inbox: usize, tagged: bool) -> &mut Queue {
        &mut self.queues[inbox][usize::from(tagged)]
    }

    /// Matches a message with the oldest fitting receive, if there is one.
    fn give(&mut self, number: Number) -> bool {
        let message = &self.messages[number];
        let (inbox, tagged, len) = (message.inbox, message.tagged, message.len);
        let posted = &self.queues[inbox][usize::from(tagged)].posted;
        let at = posted
            .iter()
            .position(|&id| message.is_for(&self.receives[id].wanted));
        let Some(at) = at else {
            return false;
        };
        let id = posted[at];
        let receive = &mut self.receives[id];
        let left = receive.buffer.len() - receive.used;
        let room = match receive.multi {
            true => len.min(left),
            false => left,
        };
        let given = Given {
            receive: id,
            offset: receive.used,
            room,
        };
        receive.used += room;
        receive.open = receive.multi && left - room >= MIN_MULTI_RECV;
        receive.given.push(number);
        if !receive.open {
            self.queue(inbox, tagged).posted.remove(at);
        }
        self.messages[number].place = MessageState::Given(given);
        true
    }

    /// A message begins. Returns whether a receive matches.
    pub fn arrive(&mut self, number: Number) -> bool {
        let given = self.give(number);
        if !given {
            let (inbox, tagged) = (self.messages[number].inbox, self.messages[number].tagged);
            self.queue(inbox, tagged).unexpected.push(number);
        }
        given
    }

    /// A receive is posted.
    pub fn post(&mut self, inbox: usize, id: ReceiveId) {
        let tagged = self.receives[id].wanted.tagged;
        self.queue(inbox, tagged).posted.push(id);
        self.settle(inbox, tagged);
    }

    /// Matches messages and receives after their sources have changed.
    pub fn settle(&mut self, inbox: usize, tagged: bool) {
        let waiting = std::mem::take(&mut self.queue(inbox, tagged).unexpected);
        for number in waiting {
            if !self.give(number) {
                self.queue(inbox, tagged).unexpected.push(number);
            }
        }
    }

    /// The messages of an endpoint that wait in one inbox, and those that are to come, are received
    /// from another one.
    pub fn move_messages(&mut self, ep: usize, from: usize, to: usize) {
        for message in self.messages.iter_mut().filter(|message| message.ep == ep) {
            message.inbox = to;
        }
        for tagged in [false, true] {
            let messages = &self.messages;
            let stays = |number: &Number| messages[*number].ep != ep;
            let queue = &mut self.queues[from][usize::from(tagged)];
            let claimed = queue.claimed.iter().map(|&(_, number)| number);
            let all = queue.unexpected.iter().copied().chain(claimed);
            let moved: Vec<Number> = all.filter(|number| !stays(number)).collect();
            queue.unexpected.retain(stays);
            queue.claimed.retain(|(_, number)| stays(number));
            for number in moved {
                self.arrive(number);
            }
        }
    }

    /// The oldest message that a peek finds, and its index.
    pub fn find(&self, inbox: usize, wanted: &Wanted) -> Option<(usize, Number)> {
        let queue = &self.queues[inbox][usize::from(wanted.tagged)];
        let found = queue
            .unexpected
            .iter()
            .position(|&number| self.messages[number].is_for(wanted))?;
        Some((found, queue.unexpected[found]))
    }

    /// Removes a receive from its queue. Returns whether that is reported, which it is not while
    /// messages are arriving in the buffer.
    pub fn cancel(&mut self, inbox: usize, id: ReceiveId) -> bool {
        let tagged = self.receives[id].wanted.tagged;
        self.queue(inbox, tagged)
            .posted
            .retain(|&other| other != id);
        let receive = &mut self.receives[id];
        receive.open = false;
        receive.given.is_empty()
    }

    /// The waiting messages, including claimed ones.
    pub fn waiting(&self) -> impl Iterator<Item = Number> {
        let all = self.queues.iter().flatten();
        all.flat_map(|queue| {
            let claimed = queue.claimed.iter().map(|&(_, number)| number);
            queue.unexpected.iter().copied().chain(claimed)
        })
    }

    /// Removes the messages for which `gone` is true.
    pub fn drop_messages(&mut self, gone: impl Fn(&Message) -> bool) {
        let messages = &mut self.messages;
        let mut stays = |number: Number| {
            let message = &mut messages[number];
            let gone = gone(message);
            if gone {
                message.place = MessageState::Dropped;
            }
            !gone
        };
        for queue in self.queues.iter_mut().flatten() {
            queue.unexpected.retain(|&number| stays(number));
            queue.claimed.retain(|&(_, number)| stays(number));
        }
    }

    /// Bytes that are kept, including the bookkeeping cost.
    pub fn kept(&self) -> usize {
        let waiting = self.waiting();
        waiting.map(|number| self.messages[number].cost()).sum()
    }

    /// Those of one link.
    pub fn kept_of(&self, link: LinkKey) -> usize {
        let waiting = self.waiting().map(|number| &self.messages[number]);
        let own = waiting.filter(|message| message.link == link);
        own.map(Message::cost).sum()
    }

    /// The share of a link, with so many bytes of others in addition to those that the model knows.
    pub fn share(&self, link: LinkKey, announces: bool, beside: usize) -> usize {
        let limit = match announces {
            true => self.limits.unexpected + self.limits.in_flight,
            false => self.limits.unexpected,
        };
        let others = self.kept() - self.kept_of(link) + beside;
        self.least().max(limit.saturating_sub(others) / 2)
    }

    fn least(&self) -> usize {
        let lives = |number: &Number| self.links.contains(&self.messages[*number].link);
        let left_behind = self.waiting().filter(|number| !lives(number));
        let left_behind: usize = left_behind.map(|number| self.messages[number].cost()).sum();
        match left_behind < self.limits.unexpected {
            true => LEAST.min(self.limits.unexpected / 2),
            false => 0,
        }
    }

    /// Whether a message of a link can be kept, with so many additional bytes of others.
    pub fn has_room(&self, link: LinkKey, len: usize, announces: bool, beside: usize) -> bool {
        self.kept_of(link) + len + KEEPING_COST <= self.share(link, announces, beside)
    }
}
