//! In which order a lane looks at its channels, and who of its threads may sleep
//! meanwhile.
//!
//! To look at a channel costs a cache line, which is little for a few and too
//! much for a thousand: those that have brought something lately are looked at
//! in every turn, the others in turns of their own.

use std::time::{Duration, Instant};

use prov_util::drive::{Signals, Sleeper};

use crate::barrier;

/// Channels that are looked at in every turn.
pub const LIVELY: usize = 8;
/// How many of the others are.
pub const QUIET: usize = 4;
/// Turns in vain until the poller is asked again, where it has little to tell.
const VAIN_TURNS: u32 = 64;
/// Turns that bring something for one in vain.
const TURNS_PER_VAIN: u32 = 16;

/// Time until peers are told again that a thread may sleep. What comes meanwhile
/// may wait so long, if nobody drives the lane.
const UNTIL_NAP: Duration = Duration::from_millis(1);

/// See the [module](self) description. `K` names a channel.
#[derive(Debug)]
pub struct Rota<K> {
    /// All of them. The first few have brought something lately.
    keys: Vec<K>,
    /// Whose turn it is among those that have not.
    next_quiet: usize,
    /// Whose place the next one gets that brings something.
    next_lively: usize,
    /// What is left of the turns until the poller is asked.
    until_poll: u32,
    naps: Naps,
}

/// Who may sleep at the poller.
#[derive(Debug, Default)]
struct Naps {
    sleeper: Option<Sleeper>,
    /// Whether a peer has woken it, or there is a new one.
    is_news: bool,
    /// When peers are told again.
    due: Option<Instant>,
}

impl<K> Default for Rota<K> {
    fn default() -> Self {
        Rota {
            keys: Vec::new(),
            next_quiet: 0,
            next_lively: 0,
            until_poll: 0,
            naps: Naps::default(),
        }
    }
}

impl<K: Copy + PartialEq> Rota<K> {
    /// A channel is open.
    pub fn add(&mut self, key: K) {
        self.keys.push(key);
        // A thread may sleep that its peer does not know of.
        self.woken();
    }

    /// A channel has ended.
    pub fn remove(&mut self, key: K) {
        self.keys.retain(|known| *known != key);
    }

    /// All channels.
    pub fn all(&self) -> &[K] {
        &self.keys
    }

    /// How many.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// One of those that are looked at in every turn, by its number below
    /// [`LIVELY`].
    #[inline(always)]
    pub fn lively(&self, number: usize) -> Option<K> {
        debug_assert!(number < LIVELY);
        self.keys.get(number).copied()
    }

    /// The next one of the others, if there are any.
    pub fn next_quiet(&mut self) -> Option<K> {
        self.next_quiet += 1;
        if !(LIVELY..self.keys.len()).contains(&self.next_quiet) {
            self.next_quiet = LIVELY;
        }
        self.keys.get(self.next_quiet).copied()
    }

    /// That one has brought something. It may have ended with it.
    pub fn quiet_brought(&mut self, key: K) {
        if self.keys.get(self.next_quiet) == Some(&key) {
            self.next_lively = (self.next_lively + 1) % LIVELY;
            self.keys.swap(self.next_quiet, self.next_lively);
        }
    }

    /// Counts a turn, in which something came or not; whether the poller is to
    /// be asked now.
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

    /// The poller has been asked. `share` is how many times as often it is to be
    /// asked as where all there is comes through channels.
    pub fn polled(&mut self, share: u32) {
        self.until_poll = VAIN_TURNS * TURNS_PER_VAIN / share.max(1);
    }

    /// The poller is to be asked in the next turn.
    pub fn poll_soon(&mut self) {
        self.until_poll = 0;
    }

    /// A peer has woken who sleeps, as it does once.
    pub fn woken(&mut self) {
        self.naps.is_news = true;
    }

    /// When peers have to be told again that a thread may sleep, after another
    /// one has taken what woke it: the poller's alarm is to go off then. Whoever
    /// drives the lane hears it, or else who sleeps. Not at once, since all
    /// threads may be awake; and not at all where only the thread that helps
    /// sleeps, which need not know what comes while the application drives.
    #[must_use]
    pub fn naps_again(&mut self, signals: &Signals) -> Option<Instant> {
        if !std::mem::take(&mut self.naps.is_news) {
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

    /// When peers are told again, if they are.
    pub fn next_nap(&self) -> Option<Instant> {
        self.naps.due
    }

    /// Whether they are to be told by now.
    #[must_use]
    pub fn is_nap_due(&mut self, now: Instant) -> bool {
        self.naps.due.take_if(|due| *due <= now).is_some()
    }

    /// A thread will sleep. Whether peers have to be told of it: they do not know,
    /// as far as `is_known` says.
    #[must_use]
    pub fn begins_nap(&mut self, sleeper: Sleeper, is_known: bool) -> bool {
        let before = self.naps.sleeper;
        if before != Some(Sleeper::Thread) {
            self.naps.sleeper = Some(sleeper);
        }
        // Whoever has woken one does not do so again before it is told.
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

/// A core that takes in what comes through channels, in the order that its
/// [`Rota`] has, and tells those at the other ends when a thread may sleep.
pub trait Rounds {
    /// Names a channel.
    type Key: Copy + PartialEq;

    /// The order.
    fn rota(&mut self) -> &mut Rota<Self::Key>;

    /// Whether nothing may be taken in now.
    fn is_deaf(&self) -> bool;

    /// Takes in what has come through a channel; whether there was anything.
    fn take_in_from(&mut self, key: Self::Key) -> bool;

    /// Says in a channel that this side may sleep.
    fn say_sleep(&mut self, key: Self::Key);

    /// Whether that has not been said, or the other side has woken this one since.
    fn is_awake(&self, key: Self::Key) -> bool;

    /// Whether something has come through a channel that can be taken in, or
    /// there is room for what is to go.
    fn has_work(&mut self, key: Self::Key) -> bool;

    /// Takes in what has come through the channels that have brought something
    /// lately, and through some of the others in turn; whether there was anything.
    #[inline(always)]
    fn take_in_some(&mut self) -> bool {
        if self.is_deaf() {
            return false;
        }
        let mut any = false;
        let mut number = 0;
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

    /// Takes in what has come through so many of those that bring little.
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

    /// Tells peers that a thread may sleep.
    fn nap(&mut self) {
        let mut at = 0;
        while let Some(&key) = self.rota().all().get(at) {
            self.say_sleep(key);
            at += 1;
        }
        barrier::heavy();
        // What peers have sent without knowing it.
        self.rota().poll_soon();
    }

    /// Has peers told that a thread sleeps, unless they know; `false` if something
    /// has come meanwhile, or can go.
    fn may_nap(&mut self, sleeper: Sleeper) -> bool {
        let (mut at, mut all_know) = (0, true);
        while let Some(&key) = self.rota().all().get(at) {
            all_know &= !self.is_awake(key);
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
    fn who_brings_something_is_looked_at_in_every_turn() {
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
        // One that has ended meanwhile changes nothing.
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
    fn peers_are_told_of_a_thread_that_sleeps_until_it_is_woken_and_again_then() {
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
        // Another that sleeps, too, does not change that.
        assert!(!rota.begins_nap(Sleeper::Helper, true));
        assert!(!rota.begins_nap(Sleeper::Helper, true));
        rota.woken();
        assert!(rota.naps_again(&signals).is_some());
        // One that goes to sleep tells them itself.
        assert!(rota.begins_nap(Sleeper::Thread, true));
        assert_eq!(rota.next_nap(), None);
    }
}
