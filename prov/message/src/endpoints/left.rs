//! What links leave that end: messages that came whole, and that no receive has taken.
//! They are received like others, and have the number that their peer has then; with
//! their endpoint they go.

use std::collections::HashMap;

use prov_util::matching::HEIR;
use slotmap::{Key, SlotMap, new_key_type};

use crate::endpoints::Endpoints;
use crate::endpoints::inbox::{Transport, origin};
use crate::operation::EpKey;
use crate::receipt::InboxKey;

new_key_type! {
    /// What one link has left.
    pub struct LeftKey;
}

/// See the [module](self) description.
pub(crate) struct AllLeft<T: Transport> {
    /// Where it is. The place of a key is the number of an origin.
    of: SlotMap<LeftKey, InboxKey>,
    by_link: HashMap<T::Link, LeftKey>,
    /// So many are there when it is time to look which of them are received.
    look_at: usize,
}

/// What is left of this many links is not worth a look whether it is received.
const FEW: usize = 64;

impl<T: Transport> AllLeft<T> {
    /// Nothing.
    pub fn new() -> Self {
        AllLeft {
            of: SlotMap::with_key(),
            by_link: HashMap::new(),
            look_at: FEW,
        }
    }
}

/// The number under which queues have what a link has left.
fn heir(left: LeftKey) -> u32 {
    HEIR | left.data().as_ffi() as u32
}

impl<T: Transport> Endpoints<T> {
    /// A link has ended, of which there are no messages but complete ones.
    pub(crate) fn leave(&mut self, ep: EpKey, inbox: InboxKey, link: T::Link) {
        let of_link = origin(link);
        if !self.has_of(inbox, of_link) {
            return;
        }
        if self.left.of.len() >= self.left.look_at {
            self.forget_received();
        }
        let key = self.left.of.insert(inbox);
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
        }
    }

    /// Whether messages of an origin are in an inbox.
    fn has_of(&mut self, inbox: InboxKey, origin: u32) -> bool {
        let inbox = self.inboxes.get_mut(inbox);
        inbox.is_some_and(|inbox| {
            [false, true].map(|tagged| inbox.queue(tagged).has_of(origin)) != [false; 2]
        })
    }

    /// Forgets links of whose messages none is left.
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

    /// How many links are remembered for what they have left.
    pub fn left_behind(&self) -> usize {
        self.left.of.len()
    }

    /// What a link has left, if anything.
    pub(crate) fn left_of(&self, link: T::Link) -> Option<LeftKey> {
        self.left.by_link.get(&link).copied()
    }

    /// Whether something of it is left still.
    pub(crate) fn is_left(&mut self, key: LeftKey) -> bool {
        let inbox = self.left.of.get(key).copied();
        inbox.is_some_and(|inbox| self.has_of(inbox, heir(key)))
    }

    /// The address vector has learnt or forgotten the peer: see [`Endpoints::relabel`].
    pub(crate) fn relabel_left(&mut self, key: LeftKey, src: u64) {
        let Some(&inbox) = self.left.of.get(key) else {
            return;
        };
        for tagged in [false, true] {
            let queue = self.inboxes.get_mut(inbox).map(|inbox| inbox.queue(tagged));
            let pairs = queue.map(|queue| queue.relabel_of(heir(key), src));
            for (matched, message) in pairs.into_iter().flatten() {
                self.deliver(inbox, matched, message);
            }
        }
        self.admit_held_back();
    }

    /// Drops it without a word to the sender.
    pub(crate) fn drop_left(&mut self, key: LeftKey) {
        let Some(inbox) = self.left.of.remove(key) else {
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
