//! What is kept of messages that nobody receives, and of whom: within
//! [`Budget`]s for their bytes and one for announcements.
//!
//! A sender that can announce its messages is told to when much is kept of it,
//! and then goes on for as long as there is room for announcements. One that
//! cannot is held back in the end, and may wait for ever if the application
//! wants a message behind the one that has no room. So there is a budget more
//! for those, and the first few messages of each that is known are kept beyond
//! it, too.

use std::collections::VecDeque;

use prov_util::matching::Message;
use slotmap::SecondaryMap;

use crate::budget::{Account, Budget};
use crate::endpoints::Endpoints;
use crate::inbox::{Action, Body, Kept, Transport, Unexpected};
use crate::spare::Spare;

/// How much is kept for peers whose messages nobody receives.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of unexpected messages.
    pub unexpected: usize,
    /// Bytes on top of that from senders that were asked to announce their
    /// messages: what they had sent before they knew. Holding such a sender back
    /// could last for ever, since the message that the application waits for may
    /// be on its way behind the one that it does not want yet.
    pub in_flight: usize,
    /// Announcements.
    pub announcements: usize,
    /// Bytes on top of `unexpected` from senders that cannot announce.
    pub unannounced: usize,
    /// Tagged messages of each known sender that cannot announce which are kept
    /// even beyond that, whatever their length.
    pub saved: usize,
    /// Bytes of unexpected messages of all senders that keep even these out.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            unexpected: 64 << 20,
            in_flight: 64 << 20,
            announcements: 1 << 20,
            unannounced: 0,
            saved: 0,
            memory: usize::MAX,
        }
    }
}

/// See the [module](self) description.
pub(crate) struct Keeping<T: Transport> {
    bytes: Budget,
    /// What senders that cannot announce may have on top of `bytes`.
    unannounced: Budget,
    pub announcements: Budget,
    /// Memory of messages that are kept no longer.
    pub spare: Spare,
    in_flight: usize,
    saved: usize,
    memory: usize,
    links: SecondaryMap<T::Link, KeptOf>,
    ended: KeptOf,
    /// Links whose senders were asked to announce their messages.
    throttled: Vec<T::Link>,
    /// Links that are held back, in the order in which it happened.
    pub held_back: VecDeque<HeldBack<T>>,
}

/// What is kept of one link's messages.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeptOf {
    pub bytes: Account,
    pub unannounced: Account,
    pub announcements: Account,
    /// Messages that are kept with their bytes.
    pub messages: usize,
    pub throttled: bool,
    pub held_back: bool,
}

/// A link that is held back, and for which message.
pub(crate) struct HeldBack<T: Transport> {
    pub wish: Wish<T::Link>,
    pub kept: Kept,
}

/// What decides whether a message is kept.
#[derive(Clone, Copy)]
pub(crate) struct Wish<L> {
    pub link: L,
    pub len: usize,
    /// Whether the sender could have announced it.
    pub announces: bool,
    pub tagged: bool,
    /// Whether the address vector knows the sender.
    pub is_known: bool,
}

/// Which budget a message is charged to that is kept with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The one that all senders share.
    Shared,
    /// That of senders which cannot announce.
    Unannounced,
}

/// What keeping a message takes.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    Bytes(usize, Room),
    Announcement,
    Nothing,
}

/// Cost of keeping an unexpected message, beside its bytes.
pub(crate) const KEEPING_COST: usize = 128;
/// Bytes of unexpected messages, and announcements, that every peer may have
/// kept whatever the others have.
const LEAST: usize = 64 << 10;
const LEAST_ANNOUNCEMENTS: usize = 64;

impl<T: Transport> Keeping<T> {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Self {
        Keeping {
            bytes: Budget::new(limits.unexpected, LEAST.min(limits.unexpected / 2)),
            unannounced: Budget::new(limits.unannounced, 0),
            announcements: Budget::new(limits.announcements, LEAST_ANNOUNCEMENTS),
            spare: Spare::default(),
            in_flight: limits.in_flight,
            saved: limits.saved,
            memory: limits.memory,
            links: SecondaryMap::new(),
            ended: KeptOf::default(),
            throttled: Vec::new(),
            held_back: VecDeque::new(),
        }
    }

    /// What is kept of a link; of links that have ended there is one account
    /// together.
    pub fn of(&mut self, link: T::Link) -> &mut KeptOf {
        if !self.links.contains_key(link) {
            self.links.insert(link, KeptOf::default());
        }
        self.links.get_mut(link).unwrap_or(&mut self.ended)
    }

    /// What is kept of a link, if anything was and the link has not ended.
    pub fn known(&mut self, link: T::Link) -> Option<&mut KeptOf> {
        self.links.get_mut(link)
    }

    /// Forgets a link that has ended. Messages of it that are complete are kept.
    pub fn forget(&mut self, link: T::Link) {
        if let Some(of) = self.links.remove(link) {
            self.bytes.leave_behind(of.bytes);
            self.unannounced.leave_behind(of.unannounced);
            self.announcements.leave_behind(of.announcements);
        }
    }
}

impl<T: Transport> Unexpected<T> {
    /// What keeping it takes, if it has `len` bytes.
    pub(crate) fn cost(&self, len: usize) -> Cost {
        match self.body {
            Body::Complete(_) | Body::Arriving(_) => {
                Cost::Bytes(len.saturating_add(KEEPING_COST), self.room)
            }
            Body::Announced(_) => Cost::Announcement,
            Body::HeldBack | Body::Lost(_) => Cost::Nothing,
        }
    }
}

impl<T: Transport> Endpoints<T> {
    /// Bytes of unexpected messages that are kept, with an allowance for the
    /// keeping.
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes.total() + self.kept.unannounced.total()
    }

    /// Links whose senders were asked to announce their messages.
    pub fn throttled(&self) -> impl Iterator<Item = T::Link> {
        self.kept.throttled.iter().copied()
    }

    /// Where there is room for a message, if anywhere.
    pub(crate) fn room_for(&mut self, wish: &Wish<T::Link>) -> Option<Room> {
        let of = *self.kept.of(wish.link);
        let kept = &self.kept;
        let cost = wish.len.saturating_add(KEEPING_COST);
        let allowance = if wish.announces { kept.in_flight } else { 0 };
        if kept.bytes.has_room(of.bytes, cost, allowance) {
            return Some(Room::Shared);
        }
        let is_saved = wish.tagged
            && wish.is_known
            && of.messages < kept.saved
            && self.kept_bytes().saturating_add(cost) <= kept.memory;
        let has_room = kept.unannounced.has_room(of.unannounced, cost, 0);
        (!wish.announces && (has_room || is_saved)).then_some(Room::Unannounced)
    }

    /// A message of a link is kept.
    pub(crate) fn charge(&mut self, link: T::Link, cost: Cost) {
        let mut of = *self.kept.of(link);
        match cost {
            Cost::Bytes(cost, room) => {
                of.messages += 1;
                match room {
                    Room::Shared => self.kept.bytes.charge(&mut of.bytes, cost),
                    Room::Unannounced => self.kept.unannounced.charge(&mut of.unannounced, cost),
                }
            }
            Cost::Announcement => self.kept.announcements.charge(&mut of.announcements, 1),
            Cost::Nothing => {}
        }
        *self.kept.of(link) = of;
    }

    /// The address vector has learnt, or forgotten, who is at the other end of a
    /// link.
    pub(crate) fn link_known(&mut self, link: T::Link, is_known: bool) {
        for waits in &mut self.kept.held_back {
            if waits.wish.link == link {
                waits.wish.is_known = is_known;
            }
        }
        self.admit_held_back();
    }

    /// A message is kept no longer.
    pub(crate) fn refund(&mut self, message: &Message<Unexpected<T>>) {
        let cost = message.payload.cost(message.len);
        self.refund_link(message.payload.link, cost);
    }

    /// A message of a link is kept no longer.
    pub(crate) fn refund_link(&mut self, link: T::Link, cost: Cost) {
        let Keeping {
            bytes,
            unannounced,
            announcements,
            links,
            ..
        } = &mut self.kept;
        let mut of = links.get_mut(link);
        match cost {
            Cost::Bytes(cost, room) => {
                if let Some(of) = &mut of {
                    of.messages = of.messages.saturating_sub(1);
                }
                match room {
                    Room::Shared => bytes.refund(of.map(|of| &mut of.bytes), cost),
                    Room::Unannounced => {
                        unannounced.refund(of.map(|of| &mut of.unannounced), cost);
                    }
                }
            }
            Cost::Announcement => announcements.refund(of.map(|of| &mut of.announcements), 1),
            Cost::Nothing => {}
        }
    }

    /// Asks a sender to announce its messages, if much is kept of it.
    pub(crate) fn throttle(&mut self, link: T::Link, announces: bool) {
        let of = *self.kept.of(link);
        if announces && !of.throttled && self.kept.bytes.is_running_low(of.bytes) {
            self.kept.of(link).throttled = true;
            self.kept.throttled.push(link);
            self.actions.push_back(Action::Throttle(link, true));
        }
    }

    /// Lets senders send without announcing again, once little is kept of them.
    pub(crate) fn unthrottle(&mut self) {
        if self.kept.throttled.is_empty() {
            return;
        }
        let Keeping {
            bytes,
            links,
            throttled,
            ..
        } = &mut self.kept;
        let actions = &mut self.actions;
        throttled.retain(|&link| match links.get_mut(link) {
            None => false,
            Some(of) if bytes.has_recovered(of.bytes) => {
                of.throttled = false;
                actions.push_back(Action::Throttle(link, false));
                false
            }
            Some(_) => true,
        });
    }
}
