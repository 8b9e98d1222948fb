//! What the manuals say of receives and messages, kept in vectors that are
//! searched from the front.

use std::collections::HashSet;

use prov_message::Limits;
use slotmap::new_key_type;

use crate::step::{Setting, Wanted, Way};

new_key_type! { pub struct LinkKey; }

pub type Number = usize;
pub type ReceiveId = usize;

pub struct Message {
    pub link: LinkKey,
    pub ep: usize,
    pub inbox: usize,
    pub src: u64,
    pub way: Way,
    pub tagged: bool,
    pub tag: u64,
    pub len: usize,
    pub data: Option<u64>,
    /// 0: the sender does not ask; 1: it is to hear when the message is kept;
    /// 2: when it is received.
    pub ack: u32,
    pub place: Place,
    /// How often the sender was told.
    pub acknowledged: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Place {
    /// It has not begun to come.
    Sent,
    /// It waits, and is here.
    Complete,
    /// It waits, and more of it comes.
    Arriving,
    /// It waits, and its link does.
    HeldBack,
    /// It waits, with the sender.
    Announced,
    /// It has a receive, which has not completed.
    Given(Given),
    Received,
    /// It went with its link or its endpoint, or nobody wanted it.
    Dropped,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Given {
    pub receive: ReceiveId,
    pub offset: usize,
    pub room: usize,
}

impl Message {
    /// Its bytes, which no other message has.
    pub fn bytes(&self, number: Number) -> Vec<u8> {
        (0..self.len).map(|i| (i * 7 + number * 31) as u8).collect()
    }

    pub fn cost(&self) -> usize {
        match self.place {
            Place::Complete | Place::Arriving => self.len + KEEPING_COST,
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
    /// Whether it takes more messages.
    pub open: bool,
    /// Messages that it has and that have not completed.
    pub given: Vec<Number>,
    /// Whether the buffer is the application's again.
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

    /// Without another message.
    pub fn end(&mut self) {
        self.open = false;
        self.ended = true;
    }
}

#[derive(Default)]
pub struct Queue {
    pub posted: Vec<ReceiveId>,
    pub unexpected: Vec<Number>,
    /// With the context of the claim.
    pub claimed: Vec<(usize, Number)>,
}

pub struct Model {
    pub limits: Limits,
    pub messages: Vec<Message>,
    pub receives: Vec<Receive>,
    /// Those that have not ended.
    pub links: HashSet<LinkKey>,
    /// By inbox, plain ones and tagged ones.
    pub queues: Vec<[Queue; 2]>,
}

/// What is counted for a message beside its bytes.
const KEEPING_COST: usize = 128;
/// What every link may have kept, where the limit is large.
const LEAST: usize = 64 << 10;
/// Room below which a buffer for many takes no more.
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
                memory: usize::MAX,
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

    /// Gives a message to the oldest receive for it, if there is one.
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
        self.messages[number].place = Place::Given(given);
        true
    }

    /// A message begins: whether there is a receive for it.
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

    /// Brings messages and receives together that have come to match.
    pub fn settle(&mut self, inbox: usize, tagged: bool) {
        let waiting = std::mem::take(&mut self.queue(inbox, tagged).unexpected);
        for number in waiting {
            if !self.give(number) {
                self.queue(inbox, tagged).unexpected.push(number);
            }
        }
    }

    /// The oldest message that a look finds, and its place.
    pub fn find(&self, inbox: usize, wanted: &Wanted) -> Option<(usize, Number)> {
        let queue = &self.queues[inbox][usize::from(wanted.tagged)];
        let found = queue
            .unexpected
            .iter()
            .position(|&number| self.messages[number].is_for(wanted))?;
        Some((found, queue.unexpected[found]))
    }

    /// A receive leaves its queue; whether that is reported, which it is not
    /// while the buffer still has messages to come.
    pub fn cancel(&mut self, inbox: usize, id: ReceiveId) -> bool {
        let tagged = self.receives[id].wanted.tagged;
        self.queue(inbox, tagged)
            .posted
            .retain(|&other| other != id);
        let receive = &mut self.receives[id];
        receive.open = false;
        receive.given.is_empty()
    }

    /// Messages that wait, claimed ones too.
    pub fn waiting(&self) -> impl Iterator<Item = Number> {
        let all = self.queues.iter().flatten();
        all.flat_map(|queue| {
            let claimed = queue.claimed.iter().map(|&(_, number)| number);
            queue.unexpected.iter().copied().chain(claimed)
        })
    }

    /// Takes messages out for which `gone` is true.
    pub fn drop_messages(&mut self, gone: impl Fn(&Message) -> bool) {
        let messages = &mut self.messages;
        let mut stays = |number: Number| {
            let message = &mut messages[number];
            let gone = gone(message);
            if gone {
                message.place = Place::Dropped;
            }
            !gone
        };
        for queue in self.queues.iter_mut().flatten() {
            queue.unexpected.retain(|&number| stays(number));
            queue.claimed.retain(|&(_, number)| stays(number));
        }
    }

    /// Bytes that are kept, with what is counted beside them.
    pub fn kept(&self) -> usize {
        let waiting = self.waiting();
        waiting.map(|number| self.messages[number].cost()).sum()
    }

    /// Those of a link.
    pub fn kept_of(&self, link: LinkKey) -> usize {
        let waiting = self.waiting().map(|number| &self.messages[number]);
        let own = waiting.filter(|message| message.link == link);
        own.map(Message::cost).sum()
    }

    /// What may be kept of a link, with so many bytes of others beside those that
    /// are known here.
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

    /// Whether a message of a link can be kept, beside that much of others.
    pub fn has_room(&self, link: LinkKey, len: usize, announces: bool, beside: usize) -> bool {
        self.kept_of(link) + len + KEEPING_COST <= self.share(link, announces, beside)
    }
}
