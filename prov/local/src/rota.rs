//! The order in which a lane polls its channels, and which of its threads may sleep meanwhile.
//!
//! Polling a channel costs a cache line, which is cheap for a few channels and too expensive for a
//! thousand: those that have been active recently are polled in every turn, the others in rotation.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::time::{Duration, Instant};

use prov_util::drive::{Signals, Sleeper};

use crate::barrier;
use crate::channel::Channel;
use crate::doorbell::Doorbell;

/// Number of channels that are polled in every turn because they were active recently. With
/// [`QUIET`] it bounds the cost of a turn, about one cache line for each channel.
pub const LIVELY: usize = 8;
/// Number of other channels that are polled in every turn, in rotation.
pub const QUIET: usize = 4;
/// Limit of the calls in one turn that receive what an endpoint has sent to itself: more than a ring has
/// messages, so that it is empty afterwards unless some have to wait.
const OWN_TURNS: u32 = 1024;
/// Number of unsuccessful turns until the poller is called again, if it has few events.
const VAIN_TURNS: u32 = 64;
/// Number of successful turns that count as one unsuccessful turn.
const TURNS_PER_VAIN: u32 = 16;

/// Time until peers are told again that a thread may sleep. A message that arrives meanwhile may
/// wait that long, if nobody drives the lane.
const UNTIL_NAP: Duration = Duration::from_millis(1);

/// See the [module](self) description. `K` identifies a channel.
#[derive(Debug)]
pub struct Rota<K> {
    /// All channels. The first few have been active recently.
    keys: Vec<K>,
    /// Those of endpoints to themselves, which are polled before all others: what an endpoint has sent to
    /// itself precedes what peers send because of what it sent to them later.
    own: Vec<K>,
    /// The index of the next inactive channel to poll.
    next_quiet: usize,
    /// The index whose channel the next one that becomes active replaces.
    next_lively: usize,
    /// The remaining turns until the poller is called.
    until_poll: u32,
    naps: Naps,
}

/// The threads that may sleep on the poller.
#[derive(Debug, Default)]
struct Naps {
    sleeper: Option<Sleeper>,
    /// Whether a peer has woken the sleeper, or there is a new channel.
    is_news: bool,
    /// When peers are told again.
    due: Option<Instant>,
    /// Whether a thread is about to sleep, and tells peers itself.
    is_near: bool,
}

impl<K> Default for Rota<K> {
    fn default() -> Self {
        Rota {
            keys: Vec::new(),
            own: Vec::new(),
            next_quiet: 0,
            next_lively: 0,
            until_poll: 0,
            naps: Naps::default(),
        }
    }
}

impl<K: Copy + PartialEq> Rota<K> {
    /// Adds a channel.
    pub fn add(&mut self, key: K) {
        self.keys.push(key);
        bounded!(self.keys, PEERS);
        // A thread may sleep without the peer's knowledge.
        self.woken();
    }

    /// Adds the receiving channel of an endpoint to itself.
    pub fn add_own(&mut self, key: K) {
        self.add(key);
        self.own.push(key);
        bounded!(self.own, PEERS);
    }

    /// Removes a channel.
    pub fn remove(&mut self, key: K) {
        self.own.retain(|known| *known != key);
        self.keys.retain(|known| *known != key);
        // A peer may have ended between disarming the doorbell and waking this side.
        self.woken();
    }

    /// Returns all channels.
    pub fn all(&self) -> &[K] {
        &self.keys
    }

    /// Returns the number of channels.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns one of the channels of endpoints to themselves, by its index.
    #[inline(always)]
    pub fn own(&self, number: usize) -> Option<K> {
        self.own.get(number).copied()
    }

    /// Returns one of the channels that are polled in every turn, by its index below [`LIVELY`].
    #[inline(always)]
    pub fn lively(&self, number: usize) -> Option<K> {
        debug_assert!(number < LIVELY);
        self.keys.get(number).copied()
    }

    /// Returns the next one of the others, if there are any.
    pub fn next_quiet(&mut self) -> Option<K> {
        self.next_quiet += 1;
        if !(LIVELY..self.keys.len()).contains(&self.next_quiet) {
            self.next_quiet = LIVELY;
        }
        self.keys.get(self.next_quiet).copied()
    }

    /// Notes that the last one had a message. It may have been removed since.
    pub fn quiet_brought(&mut self, key: K) {
        if self.keys.get(self.next_quiet) == Some(&key) {
            self.next_lively = (self.next_lively + 1) % LIVELY;
            self.keys.swap(self.next_quiet, self.next_lively);
        }
    }

    /// Counts a turn, in which something arrived or not; returns whether the poller is to be called
    /// now.
    #[inline(always)]
    #[must_use]
    pub fn turn_ends(&mut self, any: bool) -> bool {
        let left = match any {
            true => self.until_poll.checked_sub(1),
            false => self.until_poll.checked_sub(TURNS_PER_VAIN),
        };
        match left {
            Some(left) => {
                self.until_poll = left;
                false
            }
            None => true,
        }
    }

    /// Notes that the poller was called. `share` is the factor by which it is to be called more
    /// often than if all messages come through channels.
    pub fn polled(&mut self, share: u32) {
        self.until_poll = VAIN_TURNS * TURNS_PER_VAIN / share.max(1);
    }

    /// Makes the next turn call the poller.
    pub fn poll_soon(&mut self) {
        self.until_poll = 0;
    }

    /// Notes that a peer has woken a sleeping thread, which it does once.
    pub fn woken(&mut self) {
        self.naps.is_news = true;
    }

    /// Returns when peers have to be told again that a thread may sleep, after another thread has
    /// consumed the event that woke it: the poller's timer is to expire then, for the thread that
    /// drives the lane or else for the sleeper. Not immediately, since all threads may be awake;
    /// and not at all if only the progress thread sleeps, which need not be woken for messages
    /// while the application drives the lane.
    #[must_use]
    pub fn naps_again(&mut self, signals: &Signals) -> Option<Instant> {
        if self.naps.is_near || !std::mem::take(&mut self.naps.is_news) {
            return None;
        }
        let sleeper = self.naps.sleeper?;
        if sleeper == Sleeper::Helper && signals.relieves_helper() {
            self.naps.sleeper = None;
            return None;
        }
        let due = self.naps.due;
        self.naps.due = due.or_else(|| Some(Instant::now() + UNTIL_NAP));
        self.naps.due
    }

    /// Called when a thread prepares to sleep, and when it sleeps or does not: between the two, nobody
    /// has to be woken to tell peers.
    pub fn nap_is_near(&mut self, is_near: bool) {
        if is_near {
            self.naps.is_news |= self.naps.due.take().is_some();
        }
        self.naps.is_near = is_near;
    }

    /// Returns when peers are told again, if they are.
    pub fn next_nap(&self) -> Option<Instant> {
        self.naps.due
    }

    /// Returns whether they have to be told by now.
    #[must_use]
    pub fn is_nap_due(&mut self, now: Instant) -> bool {
        self.naps.due.take_if(|due| *due <= now).is_some()
    }

    /// Handles that a thread is about to sleep. Returns whether peers have to be told: they do not
    /// know yet, as `is_known` says.
    #[must_use]
    pub fn begins_nap(&mut self, sleeper: Sleeper, is_known: bool) -> bool {
        let before = self.naps.sleeper;
        if before != Some(Sleeper::Thread) {
            self.naps.sleeper = Some(sleeper);
        }
        // A peer that has woken a thread does not do so again before it is told.
        let has_woken = self.naps.is_news || self.naps.due.is_some();
        let tells = before.is_none() || has_woken || !is_known;
        if tells {
            self.naps.is_news = false;
            self.naps.due = None;
        }
        tells
    }

    /// Whether a thread may sleep.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.naps.sleeper.is_some()
    }
}

/// A core that receives messages from channels, in the order of its [`Rota`], and tells the peers
/// when a thread may sleep.
pub trait Rounds {
    /// Identifies a channel.
    type Key: Copy + PartialEq;

    /// Returns the polling schedule.
    fn rota(&mut self) -> &mut Rota<Self::Key>;

    /// Whether nothing may be received now.
    fn is_deaf(&self) -> bool;

    /// Receives the messages of a channel; returns whether there were any.
    fn take_in_from(&mut self, key: Self::Key) -> bool;

    /// Returns the lane's doorbell. There is one if there are channels.
    fn doorbell(&self) -> Option<&Doorbell>;

    /// Returns a channel; `None` if its link has ended.
    fn channel(&mut self, key: Self::Key) -> Option<&mut Channel>;

    /// Makes the system call that wakes the other side of a channel.
    fn wake(&self, key: Self::Key);

    /// Whether a channel has a message that can be received, or there is space for a waiting one.
    fn has_work(&mut self, key: Self::Key) -> bool;

    /// Receives messages from the channels that have been active recently, and from some of the
    /// others in rotation; returns whether there were any.
    #[inline(always)]
    fn take_in_some(&mut self) -> bool {
        if self.is_deaf() {
            return false;
        }
        let mut any = false;
        let mut number = 0;
        while let Some(key) = self.rota().own(number) {
            any |= self.take_in_own(key);
            number += 1;
        }
        number = 0;
        while number < LIVELY
            && let Some(key) = self.rota().lively(number)
        {
            any |= self.take_in_from(key);
            number += 1;
        }
        if self.rota().len() > LIVELY {
            any |= self.take_in_quiet(QUIET);
        }
        any
    }

    /// Receives all that an endpoint has sent to itself: after an unsuccessful turn, one call receives a
    /// single message.
    #[inline(never)]
    fn take_in_own(&mut self, key: Self::Key) -> bool {
        let mut turns = OWN_TURNS;
        while turns != 0 && self.take_in_from(key) {
            turns -= 1;
        }
        turns != OWN_TURNS
    }

    /// Receives messages from so many of the inactive channels.
    #[inline(never)]
    fn take_in_quiet(&mut self, count: usize) -> bool {
        let mut any = false;
        for _ in 0..count {
            let Some(key) = self.rota().next_quiet() else {
                return any;
            };
            if self.take_in_from(key) {
                any = true;
                self.rota().quiet_brought(key);
            }
        }
        any
    }

    /// Wakes the other side of a channel if it sleeps, after a write to shared memory that is not a
    /// message.
    fn wake_sleeper(&mut self, key: Self::Key) {
        if self.channel(key).is_some_and(|channel| channel.must_wake()) {
            self.wake(key);
        }
    }

    /// Tells peers that a thread may sleep.
    fn nap(&mut self) {
        let mut at = 0;
        while let Some(&key) = self.rota().all().get(at) {
            if let Some(channel) = self.channel(key) {
                channel.sleep();
            }
            at += 1;
        }
        if let Some(bell) = self.doorbell() {
            bell.arm();
        }
        barrier::heavy();
        // Handles messages that peers have sent before they knew it.
        self.rota().poll_soon();
    }

    /// Whether a thread that is about to sleep gives way to others first, once after it was woken: the
    /// peer that woke it ran on its processor, has been displaced by it, and often has more to send.
    fn gives_way(&mut self) -> bool {
        self.doorbell().is_some_and(Doorbell::was_rung_here)
    }

    /// Makes sure that peers know that a thread sleeps; returns `false` if a message has arrived
    /// meanwhile, or can be sent.
    fn may_nap(&mut self, sleeper: Sleeper) -> bool {
        let mut all_know = self.doorbell().is_some_and(Doorbell::is_armed);
        let mut at = 0;
        while let Some(&key) = self.rota().all().get(at) {
            let channel = self.channel(key);
            all_know &= !channel.is_some_and(|channel| channel.is_starved_unknown());
            at += 1;
        }
        if self.rota().begins_nap(sleeper, all_know) && !self.rota().is_empty() {
            self.nap();
        }
        let mut at = 0;
        while let Some(&key) = self.rota().all().get(at) {
            if self.has_work(key) {
                return false;
            }
            at += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_with_a_message_is_polled_in_every_turn() {
        let mut rota = Rota::default();
        (0..40).for_each(|key| rota.add(key));
        let mut seen: Vec<i32> = (0..32).filter_map(|_| rota.next_quiet()).collect();
        assert_eq!(rota.next_quiet(), seen.first().copied());
        seen.sort_unstable();
        assert_eq!(seen, (8..40).collect::<Vec<_>>());
        let key = rota.next_quiet().unwrap();
        rota.quiet_brought(key);
        assert!((0..LIVELY).any(|number| rota.lively(number) == Some(key)));
        rota.remove(key);
        assert_eq!(rota.len(), 39);
        // One that has been removed meanwhile has no effect.
        let key = rota.next_quiet().unwrap();
        rota.remove(key);
        rota.quiet_brought(key);
        assert_eq!(rota.len(), 38);
    }

    #[test]
    fn the_poller_is_asked_after_turns_in_vain_or_many_others() {
        let mut rota: Rota<i32> = Rota::default();
        let turns = |rota: &mut Rota<i32>, any| {
            rota.polled(1);
            (1..).find(|_| rota.turn_ends(any)).unwrap()
        };
        assert_eq!(turns(&mut rota, false), VAIN_TURNS + 1);
        assert_eq!(turns(&mut rota, true), VAIN_TURNS * TURNS_PER_VAIN + 1);
        rota.polled(1);
        rota.poll_soon();
        assert!(rota.turn_ends(true));
    }

    #[test]
    fn peers_are_told_of_a_sleeping_thread_and_again_after_it_is_woken() {
        let signals = Signals::default();
        let mut rota: Rota<i32> = Rota::default();
        assert_eq!(rota.naps_again(&signals), None);
        assert!(rota.begins_nap(Sleeper::Thread, false));
        assert!(!rota.begins_nap(Sleeper::Thread, true));
        assert_eq!(rota.naps_again(&signals), None);
        rota.woken();
        let due = rota.naps_again(&signals).unwrap();
        assert_eq!(rota.naps_again(&signals), None);
        rota.woken();
        assert_eq!(rota.naps_again(&signals), Some(due), "it is not put off");
        assert_eq!(rota.next_nap(), Some(due));
        assert!(!rota.is_nap_due(due - UNTIL_NAP));
        assert!(rota.is_nap_due(due) && !rota.is_nap_due(due));
        // Another sleeping thread does not change that.
        assert!(!rota.begins_nap(Sleeper::Helper, true));
        assert!(!rota.begins_nap(Sleeper::Helper, true));
        rota.woken();
        assert!(rota.naps_again(&signals).is_some());
        // One that prepares to sleep, and does not.
        rota.nap_is_near(true);
        assert_eq!((rota.next_nap(), rota.naps_again(&signals)), (None, None));
        rota.nap_is_near(false);
        assert!(rota.naps_again(&signals).is_some());
        // A thread that is about to sleep tells them itself.
        assert!(rota.begins_nap(Sleeper::Thread, true));
        assert_eq!(rota.next_nap(), None);
    }
}
