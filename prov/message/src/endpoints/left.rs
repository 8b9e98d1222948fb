//! Complete unexpected messages of links that have ended. They are received like others, with the
//! number that their peer has at that time, and are dropped with their endpoint.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::collections::HashMap;

use prov_util::matching::HEIR;
use slotmap::{Key, SlotMap, new_key_type};

use crate::endpoints::Endpoints;
use crate::endpoints::transport::{Transport, origin};
use crate::operation::EpKey;
use crate::receipt::InboxKey;

new_key_type! {
    /// The messages that one link has left.
    pub struct LeftKey;
}

/// See the [module](self) description.
pub(crate) struct AllLeft<T: Transport> {
    /// The index of a key is the number of an origin.
    of: SlotMap<LeftKey, Left<T>>,
    by_link: HashMap<T::Link, LeftKey>,
    /// The number of entries at which entries without messages are searched and removed.
    look_at: usize,
}

/// What one link has left.
struct Left<T: Transport> {
    /// The inbox that holds it.
    inbox: InboxKey,
    /// The link, which has ended.
    link: T::Link,
}

/// Below this number of entries, the search for entries without messages is not worth its cost.
const FEW: usize = 64;

impl<T: Transport> AllLeft<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        AllLeft {
            of: SlotMap::with_key(),
            by_link: HashMap::new(),
            look_at: FEW,
        }
    }

    /// Returns what links have left in an inbox.
    pub fn left_in(&self, inbox: InboxKey) -> Vec<LeftKey> {
        let of = self.of.iter().filter(|(_, left)| left.inbox == inbox);
        of.map(|(key, _)| key).collect()
    }

    /// Handles that messages move to another inbox.
    pub fn moves(&mut self, key: LeftKey, inbox: InboxKey) {
        if let Some(left) = self.of.get_mut(key) {
            left.inbox = inbox;
        }
    }
}

/// The origin number under which queues file the messages that a link has left.
pub(crate) fn heir(left: LeftKey) -> u32 {
    HEIR | left.data().as_ffi() as u32
}

impl<T: Transport> Endpoints<T> {
    /// Handles the end of a link whose messages are all complete.
    pub(crate) fn leave(&mut self, ep: EpKey, inbox: InboxKey, link: T::Link) {
        let of_link = origin(link);
        if !self.has_of(inbox, of_link) {
            return;
        }
        if self.left.of.len() >= self.left.look_at {
            self.forget_received();
        }
        let key = self.left.of.insert(Left { inbox, link });
        bounded!(self.left.of, PEERS);
        self.left.by_link.insert(link, key);
        let Some(inbox) = self.inboxes.get_mut(inbox) else {
            return;
        };
        for tagged in [false, true] {
            inbox.queue(tagged).pass_on(of_link, heir(key));
        }
        if inbox.shared
            && let Some(ep) = self.eps.get_mut(ep)
        {
            ep.left.push(key);
            bounded!(ep.left, PEERS);
        }
    }

    /// Returns whether an inbox has messages of an origin.
    fn has_of(&mut self, inbox: InboxKey, origin: u32) -> bool {
        let inbox = self.inboxes.get_mut(inbox);
        inbox.is_some_and(|inbox| {
            [false, true].map(|tagged| inbox.queue(tagged).has_of(origin)) != [false; 2]
        })
    }

    /// Removes entries whose messages have all been received.
    #[cold]
    fn forget_received(&mut self) {
        let keys: Vec<LeftKey> = self.left.of.keys().collect();
        for key in keys {
            if !self.is_left(key) {
                self.left.of.remove(key);
            }
        }
        let of = &self.left.of;
        self.left.by_link.retain(|_, key| of.contains_key(*key));
        for ep in self.eps.values_mut() {
            ep.left.retain(|key| of.contains_key(*key));
        }
        self.left.look_at = FEW.max(2 * self.left.of.len());
    }

    /// Returns the number of entries.
    pub fn left_behind(&self) -> usize {
        self.left.of.len()
    }

    /// Returns what a link has left, if anything.
    pub(crate) fn left_of(&self, link: T::Link) -> Option<LeftKey> {
        self.left.by_link.get(&link).copied()
    }

    /// Returns what links have left in the inbox of an endpoint, with the link.
    pub(crate) fn left_at(&self, ep: EpKey) -> Vec<(LeftKey, T::Link)> {
        let inbox = self.eps.get(ep).map(|ep| ep.inbox);
        let of = self.left.of.iter();
        of.filter(|(_, left)| Some(left.inbox) == inbox)
            .map(|(key, left)| (key, left.link))
            .collect()
    }

    /// Returns whether any of its messages is still there.
    pub(crate) fn is_left(&mut self, key: LeftKey) -> bool {
        let inbox = self.left.of.get(key).map(|left| left.inbox);
        inbox.is_some_and(|inbox| self.has_of(inbox, heir(key)))
    }

    /// Handles that the address vector has learnt or forgotten the peer: see
    /// [`Endpoints::relabel`].
    pub(crate) fn relabel_left(&mut self, key: LeftKey, src: u64) {
        let Some(&Left { inbox, .. }) = self.left.of.get(key) else {
            return;
        };
        for tagged in [false, true] {
            let queue = self.inboxes.get_mut(inbox).map(|inbox| inbox.queue(tagged));
            let pairs = queue.map(|queue| queue.relabel_of(heir(key), src));
            for (matched, message) in pairs.into_iter().flatten() {
                self.deliver(inbox, matched, message);
            }
        }
        self.seek(inbox);
        self.admit_held_back();
    }

    /// Drops the messages without informing the sender.
    pub(crate) fn drop_left(&mut self, key: LeftKey) {
        let Some(Left { inbox, .. }) = self.left.of.remove(key) else {
            return;
        };
        for tagged in [false, true] {
            let queue = self.inboxes.get_mut(inbox).map(|inbox| inbox.queue(tagged));
            let gone = queue.map(|queue| queue.withdraw_of(heir(key), |_| true));
            for message in gone.into_iter().flatten() {
                self.refund(&message);
            }
        }
    }
}
