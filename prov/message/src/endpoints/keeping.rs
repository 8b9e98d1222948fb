//! Buffering of unexpected messages, and its accounts: [`Budget`]s for their bytes and one for
//! announcements.
//!
//! Flow control has two stages. A sender that can announce its messages (rendezvous) is asked to do
//! so when much is kept of it, and then continues for as long as there is room for announcements. A
//! sender that cannot announce is held back in the end, and may wait for ever if the application
//! wants a message behind the one for which there is no room. Such senders therefore have an
//! additional budget, and the first few messages of each known one are buffered even beyond that.
//!
//! Within all that, the peers that are in no address vector have a share for all of them in the
//! process together: see [`strangers`].
//!
//! While the application waits for a message or for an answer, those before it are kept [beyond all
//! that](awaited).
//!
//! What an endpoint sends to itself is memory of its own application, and is in none of these budgets:
//! it is kept, as in the C library, up to half of the memory that the process may use.

use prov_base::memory_limit::half_of_memory;
use prov_util::matching::{ANY_SOURCE, Message};
use slotmap::SecondaryMap;

use crate::admission::{Admission, Ceilings};
use crate::budget::{Account, Budget};
use crate::endpoints::Endpoints;
use crate::endpoints::actions::Action;
use crate::endpoints::arrival::Arrival;
use crate::endpoints::room::{Cost, KEEPING_COST, Purse, Room};
use crate::endpoints::transport::Transport;
use crate::endpoints::unexpected::{Unexpected, UnexpectedHandle};
use crate::operation::EpKey;
use crate::spare::Spare;

mod awaited;
pub mod charge;
pub mod strangers;
#[cfg(test)]
mod tests;

use strangers::{MESSAGE_COST, Share, StrangersLimits};

/// Limits for the messages that are kept until a receive takes them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of unexpected messages.
    pub unexpected: usize,
    /// Additional bytes for senders that were asked to announce their messages: what they had sent
    /// before they knew. Holding such a sender back could last for ever, since the message that the
    /// application waits for may be behind the one that it does not want yet.
    pub in_flight: usize,
    /// Number of announcements.
    pub announcements: usize,
    /// Bytes on top of `unexpected` for senders that cannot announce.
    pub unannounced: usize,
    /// Number of tagged messages of each known sender that cannot announce which are buffered even
    /// beyond that, whatever their length.
    pub saved: usize,
    /// Bytes of unexpected messages of all senders beyond which neither these are buffered nor those
    /// behind which the application waits for one.
    pub memory: usize,
    /// What all strangers in the process may leave; `None` for no limit.
    pub strangers: Option<StrangersLimits>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            unexpected: 64 << 20,
            in_flight: 64 << 20,
            announcements: 1 << 20,
            unannounced: 0,
            saved: 0,
            memory: half_of_memory(),
            strangers: None,
        }
    }
}

/// See the [module](self) description.
pub(crate) struct Keeping<T: Transport> {
    bytes: Budget,
    /// Additional bytes of senders that cannot announce.
    unannounced: Budget,
    announcements: Budget,
    /// Bytes of what endpoints have sent to themselves.
    own: usize,
    /// Bytes of what is kept because the application waits for a message behind it.
    awaited: usize,
    /// This lane's part of the process-wide accounts of strangers: bytes and announcements.
    strangers: Option<[Share; 2]>,
    /// Buffers of messages that were received, for reuse.
    pub spare: Spare,
    in_flight: usize,
    saved: usize,
    memory: usize,
    links: SecondaryMap<T::Link, KeptOf>,
    ended: KeptOf,
    /// Links whose senders were asked to announce their messages.
    throttled: Admission<T::Link, (), 2>,
    /// Links that are held back.
    pub held_back: Admission<T::Link, HeldBack<T>, TOTALS>,
    /// Number of links that were examined in a search for one that can continue.
    #[cfg(test)]
    pub visits: usize,
}

/// The accounts of one link.
#[derive(Clone, Copy, Default)]
pub(crate) struct KeptOf {
    pub bytes: Account,
    pub unannounced: Account,
    pub announcements: Account,
    /// Number of messages that are buffered with their payload.
    pub messages: usize,
    /// Whether it is the link of an endpoint to itself.
    pub is_own: bool,
    /// Whether it has to go on behind a message without room: see [`awaited`].
    pub goes_on: bool,
    /// The part that counts as strangers' bytes and announcements.
    pub strangers: [usize; 2],
}

/// A link that is held back, and the message for which it is.
pub(crate) struct HeldBack<T: Transport> {
    pub demand: Demand<T::Link>,
    pub kept: UnexpectedHandle,
}

/// The facts that decide whether a message is kept.
#[derive(Clone, Copy)]
pub(crate) struct Demand<L> {
    pub link: L,
    /// The endpoint to which it is addressed.
    pub ep: EpKey,
    pub len: usize,
    /// Whether the sender supports announcing messages.
    pub announces: bool,
    pub tagged: bool,
    /// Whether it is an announcement: the payload stays with the sender.
    pub is_announcement: bool,
    /// Whether the address vector knows the sender.
    pub is_known: bool,
    /// Whether it counts as a stranger's: the endpoint has an address vector and the sender is not
    /// in it.
    pub is_stranger: bool,
}

/// Number of totals that may keep a message out. By index: 0 bytes in the shared budget, 1 the bytes
/// of ended links in it, 2 bytes of senders that cannot announce, 3 both together, 4 announcements,
/// 5 announcements of ended links, 6 and 7 the bytes and announcements of strangers.
/// [`TO_BE_KNOWN`] is no total and never falls: it lists the links that can continue once the address
/// vector knows their peers. The last one is bytes of links of endpoints to themselves.
pub(crate) const TOTALS: usize = 10;
const TO_BE_KNOWN: usize = 8;
/// Every peer's guaranteed minimum, granted whatever the others use: bytes of unexpected messages
/// (`LEAST`), and number of announcements (`LEAST_ANNOUNCEMENTS`).
const LEAST: usize = 64 << 10;
const LEAST_ANNOUNCEMENTS: usize = 64;

impl<T: Transport> Keeping<T> {
    /// Creates empty accounts.
    pub fn new(limits: Limits) -> Self {
        Keeping {
            bytes: Budget::new(limits.unexpected, LEAST.min(limits.unexpected / 2)),
            unannounced: Budget::new(limits.unannounced, 0),
            announcements: Budget::new(limits.announcements, LEAST_ANNOUNCEMENTS),
            own: 0,
            awaited: 0,
            strangers: limits.strangers.as_ref().map(Share::of),
            spare: Spare::default(),
            in_flight: limits.in_flight,
            saved: limits.saved,
            memory: limits.memory,
            links: SecondaryMap::new(),
            ended: KeptOf::default(),
            throttled: Admission::new(),
            held_back: Admission::new(),
            #[cfg(test)]
            visits: 0,
        }
    }

    /// The account of a link. Links that have ended share one account.
    pub fn of(&mut self, link: T::Link) -> &mut KeptOf {
        if !self.links.contains_key(link) {
            self.links.insert(link, KeptOf::default());
        }
        self.links.get_mut(link).unwrap_or(&mut self.ended)
    }

    /// Returns whether a link is that of an endpoint to itself.
    fn is_own(&self, link: T::Link) -> bool {
        self.links.get(link).is_some_and(|of| of.is_own)
    }

    /// Returns whether a link has to go on behind a message without room.
    fn goes_on(&self, link: T::Link) -> bool {
        self.links.get(link).is_some_and(|of| of.goes_on)
    }

    /// The highest totals at which a link can continue with a message that has no room: that of
    /// strangers if their limit keeps the message out, otherwise those of the lane.
    fn ceilings(&self, demand: &Demand<T::Link>) -> Ceilings<TOTALS> {
        if self.strangers_have_room(demand) {
            return self.ceilings_of_lane(demand);
        }
        let [bytes, announcements] = match demand.is_announcement {
            false => [self.ceiling_of_strangers(demand), None],
            true => [None, self.ceiling_of_strangers(demand)],
        };
        let no = None;
        [no, no, no, no, no, no, bytes, announcements, Some(0), no]
    }

    /// The strangers' account for a message of this kind, the link's part in it, and the message's
    /// cost.
    fn share_of(&self, demand: &Demand<T::Link>) -> Option<(&Share, usize, usize)> {
        let [bytes, announcements] = self.strangers.as_ref()?;
        let of = self.links.get(demand.link).copied().unwrap_or(self.ended);
        let [of_bytes, of_announcements] = of.strangers;
        Some(match demand.is_announcement {
            true => (announcements, of_announcements, 1),
            false => {
                let cost = demand.len.saturating_add(KEEPING_COST + MESSAGE_COST);
                (bytes, of_bytes, cost)
            }
        })
    }

    /// The highest total of strangers at which a stranger's message is kept.
    fn ceiling_of_strangers(&self, demand: &Demand<T::Link>) -> Option<usize> {
        let (share, of, cost) = self.share_of(demand)?;
        share.ceiling(of, cost)
    }

    /// Returns whether the strangers' limit allows the message; it always does for known senders.
    fn strangers_have_room(&self, demand: &Demand<T::Link>) -> bool {
        let Some((share, of, cost)) = self.share_of(demand).filter(|_| demand.is_stranger) else {
            return true;
        };
        let ceiling = share.ceiling(of, cost);
        ceiling.is_some_and(|ceiling| share.total() <= ceiling)
    }

    /// The highest totals of the lane at which a message is kept.
    fn ceilings_of_lane(&self, demand: &Demand<T::Link>) -> Ceilings<TOTALS> {
        let of = self.links.get(demand.link).copied().unwrap_or(self.ended);
        let no = None;
        let cost = match demand.is_announcement {
            true => KEEPING_COST,
            false => demand.len.saturating_add(KEEPING_COST),
        };
        if of.is_own {
            let own = half_of_memory().checked_sub(cost);
            return [no, no, no, no, no, no, no, no, no, own];
        }
        if demand.is_announcement {
            let all = self.announcements.ceiling(of.announcements, 1, 0);
            let least = self.announcements.ceiling_of_least(of.announcements, 1);
            return [no, no, no, no, all, least, no, no, no, no];
        }
        let allowance = if demand.announces { self.in_flight } else { 0 };
        let is_saved = demand.tagged && demand.is_known && of.messages < self.saved;
        let [unannounced, saved] = match demand.announces {
            true => [None; 2],
            false => [
                self.unannounced.ceiling(of.unannounced, cost, 0),
                self.memory.checked_sub(cost).filter(|_| is_saved),
            ],
        };
        [
            self.bytes.ceiling(of.bytes, cost, allowance),
            self.bytes.ceiling_of_least(of.bytes, cost),
            unannounced,
            saved,
            no,
            no,
            no,
            no,
            no,
            no,
        ]
    }

    /// The totals that the ceilings are compared with.
    pub fn totals(&self) -> [usize; TOTALS] {
        let (bytes, unannounced) = (self.bytes.total(), self.unannounced.total());
        let all = bytes.saturating_add(unannounced);
        let strangers = self.strangers.as_ref();
        let [of_strangers, announced_by_strangers] =
            strangers.map_or([0; 2], |shares| shares.each_ref().map(Share::total));
        [
            bytes,
            self.bytes.left_behind(),
            unannounced,
            all,
            self.announcements.total(),
            self.announcements.left_behind(),
            of_strangers,
            announced_by_strangers,
            usize::MAX,
            self.own,
        ]
    }

    /// Recomputes the ceilings of a waiting link after its account, or whether its peer is known,
    /// has changed.
    fn changed(&mut self, link: T::Link) {
        if let Some(waits) = self.held_back.get_mut(link) {
            let demand = waits.demand;
            let ceilings = self.ceilings(&demand);
            self.held_back.change(link, ceilings);
        }
        if self.throttled.contains(link) {
            let account = self.of(link).bytes;
            let ceilings = self.bytes.ceilings_of_recovery(account);
            self.throttled.change(link, ceilings);
        }
    }

    /// Removes a link that has ended. Its complete messages stay, and count as left behind.
    pub fn forget(&mut self, link: T::Link) {
        self.held_back.remove(link);
        self.throttled.remove(link);
        if let Some(of) = self.links.remove(link) {
            self.bytes.leave_behind(of.bytes);
            self.unannounced.leave_behind(of.unannounced);
            self.announcements.leave_behind(of.announcements);
            for (share, kept) in self.strangers.iter_mut().flatten().zip(of.strangers) {
                share.leave_behind(kept);
            }
        }
    }
}

impl Cost {
    /// The index of the strangers' account that it raises, and by how much.
    fn share(self) -> Option<(usize, usize)> {
        let (room, share) = match self {
            Cost::Bytes(cost, room) => (room, (0, cost.saturating_add(MESSAGE_COST))),
            Cost::Announcement(room) => (room, (1, 1)),
            Cost::Nothing => return None,
        };
        room.is_stranger.then_some(share)
    }
}

impl<T: Transport> Endpoints<T> {
    /// Bytes of unexpected messages that are buffered, including the bookkeeping cost.
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes.total() + self.kept.unannounced.total() + self.kept.own + self.kept.awaited
    }

    /// Iterates over the links whose senders were asked to announce their messages.
    pub fn throttled(&self) -> impl Iterator<Item = T::Link> {
        self.kept.throttled.iter()
    }

    /// Notes that a link is that of an endpoint to itself: what arrives on it has a budget of its own,
    /// and is acknowledged as soon as it is kept, since its sender and its receiver are one application.
    pub fn link_is_own(&mut self, link: T::Link) {
        self.kept.of(link).is_own = true;
        self.kept.changed(link);
    }

    /// Returns whether a link is that of an endpoint to itself.
    pub fn is_own_link(&self, link: T::Link) -> bool {
        self.kept.is_own(link)
    }

    /// Returns whether announcements of a link are recorded whose payload is still to come over it.
    pub fn has_announced(&self, link: T::Link) -> bool {
        let of = self.kept.links.get(link);
        of.is_some_and(|of| of.announcements.kept() != 0)
    }

    /// The facts that decide whether a message is kept.
    pub(crate) fn demand(&self, arrival: &Arrival<T>) -> Demand<T::Link> {
        Demand {
            link: arrival.link,
            ep: arrival.ep,
            len: arrival.len,
            announces: arrival.announces,
            tagged: arrival.tagged,
            is_announcement: false,
            is_known: arrival.src != ANY_SOURCE,
            is_stranger: self.is_stranger(arrival.ep, arrival.src),
        }
    }

    /// Returns whether this source is a stranger to the endpoint: neither in its address vector nor
    /// accepted by the application.
    fn is_stranger(&self, ep: EpKey, src: u64) -> bool {
        let meets_strangers = || self.eps.get(ep).is_some_and(|ep| ep.meets_strangers);
        src == ANY_SOURCE && self.kept.strangers.is_some() && meets_strangers()
    }

    /// Returns the accounts with room for a message, or `None`.
    pub(crate) fn room_for(&self, demand: &Demand<T::Link>) -> Option<Room> {
        if !self.kept.strangers_have_room(demand) {
            return None;
        }
        let has_room = |(total, ceiling): (usize, Option<usize>)| {
            ceiling.is_some_and(|ceiling| total <= ceiling)
        };
        let ceilings = self.kept.ceilings_of_lane(demand);
        let mut rooms = self.kept.totals().into_iter().zip(ceilings).map(has_room);
        let is_own = self.kept.is_own(demand.link);
        let budget = match rooms.position(|has_room| has_room) {
            None => return self.room_beyond(demand),
            Some(_) if is_own => Purse::Own,
            Some(2 | 3) => Purse::Unannounced,
            Some(_) => Purse::Shared,
        };
        let is_stranger = demand.is_stranger;
        Some(Room {
            budget,
            is_stranger,
        })
    }

    /// The facts that decide whether an announcement is kept.
    pub(crate) fn demand_of_announcement(&self, arrival: &Arrival<T>) -> Demand<T::Link> {
        Demand {
            is_announcement: true,
            ..self.demand(arrival)
        }
    }

    /// Holds a link back with a message for which there is no room.
    pub(crate) fn hold_back(&mut self, demand: Demand<T::Link>, kept: UnexpectedHandle) {
        let ceilings = self.kept.ceilings(&demand);
        let waits = HeldBack { demand, kept };
        self.kept.held_back.insert(demand.link, waits, ceilings);
        self.holds_back_in(demand.link, kept);
    }

    /// Removes and returns the next link that is held back and whose message has room.
    pub(crate) fn next_with_room(&mut self) -> Option<(HeldBack<T>, Room)> {
        loop {
            let link = self.kept.held_back.next(self.kept.totals())?;
            #[cfg(test)]
            {
                self.kept.visits += 1;
            }
            let demand = self.kept.held_back.get_mut(link)?.demand;
            match self.room_for(&demand) {
                Some(room) => return Some((self.stop_holding_back(link)?, room)),
                // The limit that held the link back no longer does, but another one does.
                None => self.kept.changed(link),
            }
        }
    }

    /// Moves the accounting of strangers to another counter and sets its limit. To be called before
    /// anything of them is kept.
    pub fn limit_strangers(&mut self, limits: &StrangersLimits) {
        self.kept.strangers = Some(Share::of(limits));
    }

    /// Returns whether a link is held back with an announcement.
    pub fn holds_back_announcement(&self, link: T::Link) -> bool {
        let waits = self.kept.held_back.get(link);
        waits.is_some_and(|waits| waits.demand.is_announcement)
    }

    /// Returns whether a link is held back that could continue if the address vector knew its peer.
    #[inline]
    pub fn holds_back_strangers(&self) -> bool {
        self.kept.held_back.any_for(TO_BE_KNOWN)
    }

    /// Charges a kept message to a link's accounts.
    #[allow(clippy::indexing_slicing, reason = "a share is 0 or 1, of two")]
    pub(crate) fn charge(&mut self, link: T::Link, cost: Cost) {
        let mut of = *self.kept.of(link);
        match cost {
            Cost::Bytes(cost, room) => {
                of.messages += 1;
                match room.budget {
                    Purse::Shared => self.kept.bytes.charge(&mut of.bytes, cost),
                    Purse::Unannounced => self.kept.unannounced.charge(&mut of.unannounced, cost),
                    Purse::Own => self.kept.own = self.kept.own.saturating_add(cost),
                    Purse::Awaited => self.kept.awaited = self.kept.awaited.saturating_add(cost),
                }
            }
            Cost::Announcement(room) if room.budget == Purse::Own => {}
            Cost::Announcement(room) => {
                self.kept.announcements.charge(&mut of.announcements, 1);
                let beyond = room.cost_beyond();
                self.kept.awaited = self.kept.awaited.saturating_add(beyond);
            }
            Cost::Nothing => {}
        }
        if let (Some(strangers), Some((which, cost))) = (&mut self.kept.strangers, cost.share()) {
            strangers[which].charge(&mut of.strangers[which], cost);
        }
        *self.kept.of(link) = of;
        self.kept.changed(link);
    }

    /// Handles that the address vector has learnt, or forgotten, the peer of a link.
    pub(crate) fn link_known(&mut self, ep: EpKey, link: T::Link, src: u64) {
        let is_stranger = self.is_stranger(ep, src);
        if let Some(waits) = self.kept.held_back.get_mut(link) {
            waits.demand.is_known = src != ANY_SOURCE;
            waits.demand.is_stranger = is_stranger;
            let kept = waits.kept;
            self.holds_back_in(link, kept);
        }
        let Keeping {
            strangers, links, ..
        } = &mut self.kept;
        if let (Some(strangers), Some(of), false) = (strangers, links.get_mut(link), is_stranger) {
            for (share, kept) in strangers.iter_mut().zip(&mut of.strangers) {
                share.forgive(kept);
            }
        }
        self.kept.changed(link);
        self.admit_held_back();
        if let Some(inbox) = self.eps.get(ep).map(|ep| ep.inbox) {
            self.admit_awaited(inbox);
        }
    }

    /// Returns the charge of a message that is released.
    pub(crate) fn refund(&mut self, message: &Message<Unexpected<T>>) {
        let cost = message.payload.cost(message.len);
        self.refund_link(message.payload.link, cost);
    }

    /// Returns a charge to a link's accounts.
    #[allow(clippy::indexing_slicing, reason = "a share is 0 or 1, of two")]
    pub(crate) fn refund_link(&mut self, link: T::Link, cost: Cost) {
        let Keeping {
            bytes,
            unannounced,
            announcements,
            own,
            awaited,
            strangers,
            links,
            ..
        } = &mut self.kept;
        let mut of = links.get_mut(link);
        match cost {
            Cost::Bytes(cost, room) => {
                if let Some(of) = &mut of {
                    of.messages = of.messages.saturating_sub(1);
                }
                let of = of.as_deref_mut();
                match room.budget {
                    Purse::Shared => bytes.refund(of.map(|of| &mut of.bytes), cost),
                    Purse::Unannounced => {
                        unannounced.refund(of.map(|of| &mut of.unannounced), cost);
                    }
                    Purse::Own => *own = own.saturating_sub(cost),
                    Purse::Awaited => *awaited = awaited.saturating_sub(cost),
                }
            }
            Cost::Announcement(room) if room.budget == Purse::Own => {}
            Cost::Announcement(room) => {
                let of = of.as_deref_mut();
                announcements.refund(of.map(|of| &mut of.announcements), 1);
                *awaited = awaited.saturating_sub(room.cost_beyond());
            }
            Cost::Nothing => {}
        }
        if let (Some(strangers), Some((which, cost))) = (strangers, cost.share()) {
            strangers[which].refund(of.map(|of| &mut of.strangers[which]), cost);
        }
        self.kept.changed(link);
    }

    /// Asks a sender to announce its messages, if it has used up half of its share.
    pub(crate) fn throttle(&mut self, link: T::Link, announces: bool) {
        let account = self.kept.of(link).bytes;
        let kept = &mut self.kept;
        if announces && kept.bytes.is_running_low(account) && !kept.throttled.contains(link) {
            let ceilings = kept.bytes.ceilings_of_recovery(account);
            kept.throttled.insert(link, (), ceilings);
            self.actions.push_back(Action::Throttle(link, true));
        }
    }

    /// Tells senders that have recovered to stop announcing.
    pub(crate) fn unthrottle(&mut self) {
        let kept = &mut self.kept;
        let totals = [kept.bytes.total(), kept.bytes.left_behind()];
        while let Some(link) = kept.throttled.next(totals) {
            #[cfg(test)]
            {
                kept.visits += 1;
            }
            kept.throttled.remove(link);
            self.actions.push_back(Action::Throttle(link, false));
        }
    }
}
