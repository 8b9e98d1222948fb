//! What is kept of messages that nobody receives, and of whom: within
//! [`Budget`]s, one for their bytes and one for announcements.

use std::collections::VecDeque;

use prov_util::matching::Message;
use slotmap::SecondaryMap;

use crate::budget::{Account, Budget};
use crate::endpoints::Endpoints;
use crate::inbox::{Action, Body, Kept, Transport, Unexpected};

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
}

/// See the [module](self) description.
pub(crate) struct Keeping<T: Transport> {
    bytes: Budget,
    pub announcements: Budget,
    in_flight: usize,
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
    pub announcements: Account,
    pub throttled: bool,
    pub held_back: bool,
}

/// A link that is held back, and for which message.
pub(crate) struct HeldBack<T: Transport> {
    pub link: T::Link,
    pub kept: Kept,
    pub len: usize,
    pub announces: bool,
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
            announcements: Budget::new(limits.announcements, LEAST_ANNOUNCEMENTS),
            in_flight: limits.in_flight,
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
            self.announcements.leave_behind(of.announcements);
        }
    }
}

impl<T: Transport> Endpoints<T> {
    /// Bytes of unexpected messages that are kept, with an allowance for the
    /// keeping.
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes.total()
    }

    /// Links whose senders were asked to announce their messages.
    pub fn throttled(&self) -> impl Iterator<Item = T::Link> {
        self.kept.throttled.iter().copied()
    }

    /// Whether a message of a link can be kept at this cost.
    pub(crate) fn may_keep(&mut self, link: T::Link, cost: usize, announces: bool) -> bool {
        let account = self.kept.of(link).bytes;
        let allowance = if announces { self.kept.in_flight } else { 0 };
        self.kept.bytes.has_room(account, cost, allowance)
    }

    /// Keeps a message with a body of this kind.
    pub(crate) fn charge(&mut self, link: T::Link, len: usize, body: &Body<T::Name>) {
        let mut of = *self.kept.of(link);
        match body {
            Body::Complete(_) | Body::Arriving(_) => {
                let cost = len.saturating_add(KEEPING_COST);
                self.kept.bytes.charge(&mut of.bytes, cost);
            }
            Body::Announced(_) => self.kept.announcements.charge(&mut of.announcements, 1),
            Body::HeldBack => {}
        }
        *self.kept.of(link) = of;
    }

    /// A message is kept no longer.
    pub(crate) fn refund(&mut self, message: &Message<Unexpected<T>>) {
        let Keeping {
            bytes,
            announcements,
            links,
            ..
        } = &mut self.kept;
        let of = links.get_mut(message.payload.link);
        match message.payload.body {
            Body::Complete(_) | Body::Arriving(_) => {
                let cost = message.len.saturating_add(KEEPING_COST);
                bytes.refund(of.map(|of| &mut of.bytes), cost);
            }
            Body::Announced(_) => announcements.refund(of.map(|of| &mut of.announcements), 1),
            Body::HeldBack => {}
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
