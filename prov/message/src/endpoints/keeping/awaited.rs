//! Messages that are kept beyond the budgets because the application waits for one behind them.
//!
//! While an inbox has posted receives, or the application has looked for a message in vain, a link
//! that is held back may bring what the application waits for, and holding it back could last for
//! ever. The same is true of a link whose peer owes an answer that comes behind the message, and a link
//! may be of a kind that cannot be held back at all ([`Endpoints::has_to_go_on`]). What known peers
//! send is then kept up to the limit of the memory for unexpected messages of all senders
//! ([`Limits::memory`](super::Limits::memory)). It is charged to no budget, so that other peers keep
//! their shares. Strangers stay within their limits: anybody may be one.

use crate::endpoints::Endpoints;
use crate::endpoints::keeping::{Demand, HeldBack, Keeping};
use crate::endpoints::room::{KEEPING_COST, Purse, Room};
use crate::endpoints::transport::Transport;
use crate::endpoints::unexpected::UnexpectedHandle;
use crate::receipt::InboxKey;

impl Room {
    /// The bytes that an announcement is charged beyond the budget of announcements.
    pub(super) fn cost_beyond(self) -> usize {
        match self.budget {
            Purse::Awaited => KEEPING_COST,
            Purse::Shared | Purse::Unannounced | Purse::Own => 0,
        }
    }
}

impl<T: Transport> Keeping<T> {
    /// Returns whether the memory for unexpected messages of all senders has room.
    fn has_memory_for(&self, demand: &Demand<T::Link>) -> bool {
        let cost = match demand.is_announcement {
            true => KEEPING_COST,
            false => demand.len.saturating_add(KEEPING_COST),
        };
        let kept = [self.bytes.total(), self.unannounced.total(), self.awaited];
        kept.into_iter().fold(cost, usize::saturating_add) <= self.memory
    }
}

impl<T: Transport> Endpoints<T> {
    /// Notes whether a link has to go on with what comes behind a message that has no room: it cannot be
    /// held back, or an answer of its peer is behind it. A link that is held back is released.
    pub fn has_to_go_on(&mut self, link: T::Link, goes_on: bool) {
        if self.kept.goes_on(link) == goes_on {
            return;
        }
        self.kept.of(link).goes_on = goes_on;
        if goes_on {
            self.admit_beyond(link);
        }
    }

    /// Returns the room for a message beyond the budgets, if what is behind it is awaited.
    pub(super) fn room_beyond(&self, demand: &Demand<T::Link>) -> Option<Room> {
        let inbox = self.inboxes.get(self.eps.get(demand.ep)?.inbox)?;
        let may = !demand.is_stranger && !self.kept.is_own(demand.link);
        let is_awaited = inbox.is_awaited() || self.kept.goes_on(demand.link);
        let has_room = may && is_awaited && self.kept.has_memory_for(demand);
        has_room.then_some(Room {
            budget: Purse::Awaited,
            is_stranger: false,
        })
    }

    /// Releases the links that are held back with messages of an inbox, if the application waits for
    /// a message of it. To be called when it begins to.
    #[inline]
    pub(crate) fn admit_awaited(&mut self, key: InboxKey) {
        let inbox = self.inboxes.get(key);
        if inbox.is_some_and(|inbox| !inbox.held_back().is_empty()) {
            self.admit_all_awaited(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn admit_all_awaited(&mut self, key: InboxKey) {
        let inbox = self.inboxes.get(key).filter(|inbox| inbox.is_awaited());
        let Some(links) = inbox.map(|inbox| inbox.held_back().clone()) else {
            return;
        };
        for link in links {
            self.admit_beyond(link);
        }
    }

    /// Releases a link that is held back, if its message is kept beyond the budgets.
    fn admit_beyond(&mut self, link: T::Link) {
        let waits = self.kept.held_back.get(link);
        let room = waits.and_then(|waits| self.room_beyond(&waits.demand));
        if let Some(room) = room
            && let Some(next) = self.stop_holding_back(link)
            && self.is_held_back(next.kept)
        {
            self.admit(&next, room);
        }
    }

    /// Records the message with which a link is held back: its inbox tells of receives for it.
    pub(crate) fn holds_back_in(&mut self, link: T::Link, kept: UnexpectedHandle) {
        let Some(waits) = self.kept.held_back.get_mut(link) else {
            return;
        };
        let before = std::mem::replace(&mut waits.kept, kept);
        let is_stranger = waits.demand.is_stranger;
        if let Some(inbox) = self.inboxes.get_mut(before.inbox) {
            inbox.holds_back(link, false);
        }
        if let Some(inbox) = self.inboxes.get_mut(kept.inbox) {
            inbox.holds_back(link, !is_stranger);
        }
    }

    /// Removes a link from those that are held back.
    pub(crate) fn stop_holding_back(&mut self, link: T::Link) -> Option<HeldBack<T>> {
        let waits = self.kept.held_back.remove(link)?;
        if let Some(inbox) = self.inboxes.get_mut(waits.kept.inbox) {
            inbox.holds_back(link, false);
        }
        Some(waits)
    }
}
