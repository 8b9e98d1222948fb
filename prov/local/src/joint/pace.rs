//! What it costs to bring bytes from one process to another, as it is measured, and
//! how they are stored: through the caches, or past them.
//!
//! What a processor stores has to be given up by the cache that has it. Where two
//! processors have a cache in common, that is soon done; where not, it takes several
//! times as long as to store past all caches, and to fetch from memory what was
//! stored. And bytes whose place is in no cache are fetched first, to be changed,
//! unless they are stored past the caches.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use prov_base::buffer::PAST_CACHES;

/// What a KiB takes in the kernel, page by page and with the call, until that is known,
/// in ns.
const DIRECT: u32 = 90;
/// Lengths of what the kernel copies that are told from each other: from [`SHORTEST`]
/// on, twice as many bytes each.
const LENGTHS: usize = 4;
/// Of fewer bytes, nothing is learned.
const SHORTEST: u64 = 16 << 10;
/// And to store it.
const STORED: u32 = 30;
/// And that past the caches.
const PAST: u32 = 60;
/// What there is to do, besides the copy, for a message that is not sent at once, in
/// ns.
const OFFERED: u64 = 600;
/// What takes so many times as long is not tried.
const CLEAR: u64 = 32;
/// And to fetch it from memory, where it is in no cache.
const FETCHED: u32 = 80;
/// No KiB takes longer.
const MOST: u32 = 1 << 20;
/// How much longer it takes, in ns, to store a KiB into memory that both share where
/// the other processor has a cache of its own, than past all caches.
const FAR: u32 = 150;
/// And how much at most where they have one in common.
const NEAR: u32 = 115;
/// Of fewer bytes, the time says more of the clock.
const TIMED: usize = 2 << 10;
/// And more of what a message needs besides.
const LONG: usize = 8 << 10;
/// Bytes from which on what is read or written remotely need not stay in the caches of who
/// is to have it.
pub const LONG_ACCESS: u64 = 1 << 20;
/// Of so many long copies that go past the caches, two in a row do not: what the
/// first one leaves there is there for the second one.
const TRIAL: u32 = 32;

/// What copies between two processes cost this one, whichever side it is on.
#[derive(Debug)]
pub struct Pace {
    /// What the kernel takes, for each length.
    direct: [Cost; LENGTHS],
    /// What it takes to have a message out of memory that both share.
    taken: Cost,
    /// And what both take for the peer, who copies what this side sends, as that says
    /// ([`Pace::word`]).
    theirs: AtomicU64,
    /// What it takes to store into memory that both share, through the caches.
    quick: Cost,
    /// Stores into memory that both share.
    into: Stores,
    /// And from there to where long copies go.
    out: Stores,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            direct: [(); LENGTHS].map(|()| Cost::new(DIRECT)),
            taken: Cost::new(STORED),
            theirs: AtomicU64::new(0),
            quick: Cost::new(STORED),
            into: Stores::new(Rule::Far),
            out: Stores::new(Rule::Cold),
        }
    }
}

impl Pace {
    /// So many bytes are put into memory that both share from now on.
    #[inline(always)]
    pub fn put_in(&self, len: usize) -> Store {
        self.into.begin(len)
    }

    /// They are there.
    #[inline(always)]
    pub fn are_in(&self, store: Store, len: usize) {
        if let Some(since) = store.since {
            let time = self.into.end(store.past_caches, len, since);
            if !store.past_caches && !store.is_access && len >= LONG {
                self.has_filled(len as u64, time);
            }
        }
    }

    /// So many bytes were put into slots, through the caches, in that time.
    pub fn has_filled(&self, len: u64, time: Duration) {
        self.quick.learn(len, time);
    }

    /// So many bytes of a long copy are taken out of memory that both share, where
    /// those of the copies before are so many.
    pub fn take_out(&self, len: usize, copies: u32) -> Store {
        match copies % TRIAL {
            trial @ (0 | 1) if self.out.go_past.load(Ordering::Relaxed) => Store {
                since: (trial == 1 && len >= TIMED).then(Instant::now),
                ..Store::default()
            },
            _ => self.out.begin(len),
        }
    }

    /// They are where they go.
    pub fn are_out(&self, store: Store, len: usize) {
        if let Some(since) = store.since {
            self.out.end(store.past_caches, len, since);
        }
    }

    /// What is put into memory that both share next is timed.
    pub fn time_next(&self) {
        self.into.untimed.store(u32::MAX, Ordering::Relaxed);
    }

    /// The kernel has copied so many bytes in that time.
    #[allow(
        clippy::indexing_slicing,
        reason = "`length` is limited to the last one"
    )]
    pub fn has_copied(&self, len: u64, time: Duration) {
        if len >= SHORTEST {
            self.direct[length(len)].learn(len, time);
        }
    }

    /// How long the kernel will take for so many bytes.
    #[allow(
        clippy::indexing_slicing,
        reason = "`length` is limited to the last one"
    )]
    pub fn expected(&self, len: u64) -> Duration {
        let per_kib = self.direct[length(len)].per_kib().into();
        Duration::from_nanos((len / 1024).saturating_mul(per_kib))
    }

    /// So many bytes of a message were taken out of memory that both share in that time.
    pub fn has_taken(&self, len: usize, time: Duration) {
        self.taken.learn(len as u64, time);
    }

    /// What it takes here to have a KiB, for the peer: 16 bits of ns for each length that
    /// is sent at once, if the kernel copies, and for what is sent at once.
    pub fn word(&self) -> u64 {
        let [short, middle, long, _] = &self.direct;
        let fields = [&self.taken, long, middle, short].into_iter();
        fields.fold(0, |word, cost| {
            word << 16 | u64::from(cost.per_kib().clamp(1, u16::MAX.into()))
        })
    }

    /// The peer says what it takes there; nothing, if that is 0.
    pub fn hear(&self, word: u64) {
        self.theirs.store(word, Ordering::Relaxed);
    }

    /// Whether a message of so many bytes is to be sent at once: both sides copy it then.
    /// Of messages that follow each other they make these copies at the same time, so that
    /// the one that takes longer counts. It has to take a fifth less: each side keeps the
    /// other's lines from it afterwards, too.
    pub fn sends_at_once(&self, len: usize) -> bool {
        let [at_once, offered] = self.costs(len);
        5 * at_once <= 4 * offered
    }

    /// Whether it could be otherwise by now: neither way is known to take many times as
    /// long.
    pub fn is_open(&self, len: usize) -> bool {
        let [at_once, offered] = self.costs(len);
        at_once < offered * CLEAR && offered < at_once * CLEAR
    }

    /// What a message costs that is sent at once, and one that is not.
    #[allow(
        clippy::indexing_slicing,
        reason = "`length` is limited to the last one"
    )]
    fn costs(&self, len: usize) -> [u64; 2] {
        let stored = match self.into.go_past.load(Ordering::Relaxed) {
            true => self.into.past.per_kib().max(FETCHED),
            false => self.quick.per_kib(),
        };
        let length = length(len as u64).min(LENGTHS - 2);
        let theirs = self.theirs.load(Ordering::Relaxed);
        let (direct, taken) = match (theirs >> (16 * length)) as u16 {
            0 => (self.direct[length].per_kib(), self.taken.per_kib()),
            direct => (direct.into(), (theirs >> 48) as u32),
        };
        let copied = |per_kib: u32| len as u64 * u64::from(per_kib) / 1024;
        let at_once = copied(stored).max(copied(taken));
        [at_once, copied(direct) + OFFERED]
    }
}

/// Which of the [`LENGTHS`] so many bytes are, for which something is learned.
fn length(len: u64) -> usize {
    let times = (len / SHORTEST).checked_ilog2().unwrap_or(0);
    (times as usize).min(LENGTHS - 1)
}

/// How bytes are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Store {
    /// As [`Piece::past_caches`](prov_base::buffer::Piece::past_caches) has it.
    pub past_caches: bool,
    /// Whether what it takes says nothing of messages.
    pub is_access: bool,
    /// When that began, if it is timed.
    since: Option<Instant>,
}

/// What a KiB takes, in sixteenths of a ns.
#[derive(Debug)]
struct Cost(AtomicU32);

impl Cost {
    fn new(per_kib: u32) -> Cost {
        Cost(AtomicU32::new(per_kib * 16))
    }

    /// In ns.
    fn per_kib(&self) -> u32 {
        self.0.load(Ordering::Relaxed) / 16
    }

    /// So many bytes have taken so long.
    #[cold]
    fn learn(&self, len: u64, time: Duration) {
        let before = self.0.load(Ordering::Relaxed);
        let per_kib = time.as_nanos().saturating_mul(16 * 1024) / u128::from(len.max(1));
        // Who was interrupted says little.
        let most = before.saturating_mul(4).min(MOST * 16);
        let per_kib = u32::try_from(per_kib).unwrap_or(most).clamp(16, most);
        let sum = u64::from(before) * 7 + u64::from(per_kib);
        let now = sum.div_ceil(8) as u32;
        self.0.store(now, Ordering::Relaxed);
    }
}

/// When stores go past the caches.
#[derive(Debug)]
enum Rule {
    /// Where the processors are far from each other.
    Far,
    /// Where that is quicker: nothing of it was in a cache.
    Cold,
}

/// Stores of one kind.
#[derive(Debug)]
struct Stores {
    rule: Rule,
    /// What they take through the caches, usually.
    cached: Cost,
    /// And past them.
    past: Cost,
    /// Whether they go past them.
    go_past: AtomicBool,
    /// Bytes that were stored since some were timed.
    untimed: AtomicU32,
    /// How often some were.
    timed: AtomicU32,
}

impl Stores {
    fn new(rule: Rule) -> Stores {
        Stores {
            rule,
            cached: Cost::new(STORED),
            past: Cost::new(PAST),
            go_past: AtomicBool::new(false),
            untimed: AtomicU32::new(0),
            timed: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn begin(&self, len: usize) -> Store {
        if len < PAST_CACHES.min(TIMED) {
            return Store::default();
        }
        let past_caches = self.go_past.load(Ordering::Relaxed);
        let untimed = self.untimed.load(Ordering::Relaxed);
        let untimed = untimed.saturating_add(len as u32);
        if untimed >= self.rule.timed(past_caches) && len >= TIMED {
            return self.timed(past_caches);
        }
        self.untimed.store(untimed, Ordering::Relaxed);
        Store {
            past_caches,
            ..Store::default()
        }
    }

    /// Now and then, what else could be done is timed.
    #[cold]
    fn timed(&self, go_past: bool) -> Store {
        self.untimed.store(0, Ordering::Relaxed);
        let timed = self.timed.fetch_add(1, Ordering::Relaxed);
        let is_even = timed.is_multiple_of(2);
        let past_caches = match self.rule {
            Rule::Far => is_even && (go_past || self.cached.per_kib() > FAR),
            Rule::Cold => is_even || go_past,
        };
        Store {
            past_caches,
            since: Some(Instant::now()),
            ..Store::default()
        }
    }

    /// So many bytes were stored since then; how long that took.
    #[cold]
    fn end(&self, past_caches: bool, len: usize, since: Instant) -> Duration {
        // What is not in its place yet counts.
        fence(Ordering::SeqCst);
        let time = since.elapsed();
        let cost = if past_caches {
            &self.past
        } else {
            &self.cached
        };
        cost.learn(len as u64, time);
        self.decide();
        time
    }

    fn decide(&self) {
        let (cached, past) = (self.cached.per_kib(), self.past.per_kib());
        let go_past = match self.rule {
            Rule::Far if self.go_past.load(Ordering::Relaxed) => cached > past + NEAR,
            Rule::Far => cached > past + FAR,
            Rule::Cold => past * 3 <= cached * 2,
        };
        self.go_past.store(go_past, Ordering::Relaxed);
    }
}

impl Rule {
    /// After how many bytes some are timed.
    fn timed(&self, go_past: bool) -> u32 {
        match self {
            Rule::Far if go_past => 1 << 20,
            Rule::Far => 512 << 10,
            Rule::Cold => 2 << 20,
        }
    }
}

#[cfg(test)]
impl Store {
    /// Whether it is one as most are: through the caches, and not timed.
    fn is_plain(&self) -> bool {
        !self.past_caches && self.since.is_none()
    }
}

#[cfg(test)]
impl Pace {
    /// As if both stores had been measured, and those past the caches were quicker.
    pub(crate) fn go_past_caches(&self) {
        for stores in [&self.into, &self.out] {
            (0..100).for_each(|_| stores.cached.learn(1 << 10, Duration::from_millis(1)));
            stores.decide();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many KiB, in so many ns each.
    fn at(per_kib: u32, kib: u32) -> Duration {
        Duration::from_nanos(per_kib.into()) * kib
    }

    /// As if stores were timed so many times, and took so long.
    fn learn(stores: &Stores, past_caches: bool, per_kib: u32, times: usize) {
        for _ in 0..times {
            let cost = if past_caches {
                &stores.past
            } else {
                &stores.cached
            };
            cost.learn(64 << 10, at(per_kib, 64));
            stores.decide();
        }
    }

    const LEN: usize = 64 << 10;

    fn has_copied(pace: &Pace, per_kib: u32) {
        (0..60).for_each(|_| pace.has_copied(LEN as u64, at(per_kib, 64)));
    }

    #[test]
    fn messages_are_sent_at_once_while_both_copies_take_no_longer_than_the_other_way() {
        let pace = Pace::default();
        assert!(pace.sends_at_once(LEN));
        let slow = |per_kib, times| {
            (0..times).for_each(|_| pace.has_filled(1 << 10, at(per_kib, 1)));
        };
        slow(200, 30);
        assert!(!pace.sends_at_once(LEN));
        // What the other way takes counts as well.
        has_copied(&pace, 400);
        assert!(pace.sends_at_once(LEN));
        has_copied(&pace, 80);
        assert!(!pace.sends_at_once(LEN));
        slow(40, 1);
        assert!(!pace.sends_at_once(LEN), "once is not enough");
        slow(30, 40);
        assert!(pace.sends_at_once(LEN) && pace.is_open(LEN));
        has_copied(&pace, 3_000);
        assert!(pace.sends_at_once(LEN) && !pace.is_open(LEN));
        has_copied(&pace, 80);
        // Of a short one, the call is more.
        slow(100, 30);
        (0..60).for_each(|_| pace.has_copied(SHORTEST, at(200, 16)));
        assert!(!pace.sends_at_once(LEN) && pace.sends_at_once(LEN / 4));
    }

    #[test]
    fn of_the_two_copies_of_what_is_sent_at_once_the_longer_one_counts() {
        let pace = Pace::default();
        has_copied(&pace, 80);
        (0..60).for_each(|_| pace.has_filled(1 << 10, at(60, 1)));
        (0..60).for_each(|_| pace.has_taken(LEN, at(60, 64)));
        assert!(pace.sends_at_once(LEN));
        (0..60).for_each(|_| pace.has_taken(LEN, at(80, 64)));
        assert!(!pace.sends_at_once(LEN));
    }

    #[test]
    fn what_a_copy_takes_says_nothing_of_those_of_other_lengths() {
        let pace = Pace::default();
        pace.has_copied(SHORTEST - 1, Duration::from_secs(1));
        for (length, kib) in [16, 32, 64, 4096].into_iter().enumerate() {
            let per_kib = 50 + length as u32;
            (0..60).for_each(|_| pace.has_copied(u64::from(kib) << 10, at(per_kib, kib)));
        }
        let costs: Vec<_> = pace.direct.iter().map(Cost::per_kib).collect();
        assert_eq!(costs, [50, 51, 52, 53]);
        assert_eq!(pace.expected(1 << 20), at(53, 1 << 10));
    }

    #[test]
    fn who_copies_says_what_that_takes() {
        let (here, there) = (Pace::default(), Pace::default());
        (0..30).for_each(|_| here.has_filled(1 << 10, at(100, 1)));
        assert!(!here.sends_at_once(LEN));
        has_copied(&there, 300);
        here.hear(there.word());
        assert!(here.sends_at_once(LEN) && !here.sends_at_once(LEN / 2));
        // What this side takes does not count then.
        has_copied(&here, 10);
        assert!(here.sends_at_once(LEN));
        here.hear(0);
        assert!(!here.sends_at_once(LEN));
        for (word, expected) in [(1, false), (u64::MAX >> 16, true), (u64::MAX, false)] {
            here.hear(word);
            assert_eq!(here.sends_at_once(LEN + 256), expected);
        }
        (0..60).for_each(|_| there.has_copied(LEN as u64, Duration::MAX));
        assert_eq!(there.word() >> 32 & 0xffff, u64::from(u16::MAX));
        assert_eq!(there.word() >> 48, u64::from(STORED));
        (0..60).for_each(|_| there.has_taken(LEN, at(77, 64)));
        assert_eq!(there.word() >> 48, 77);
    }

    #[test]
    fn who_was_interrupted_changes_little() {
        let pace = Pace::default();
        pace.has_filled(1024, Duration::from_secs(1));
        assert!(pace.sends_at_once(LEN));
        pace.has_copied(LEN as u64, Duration::MAX);
        assert!(pace.expected(LEN as u64) < at(300, 64));
    }

    #[test]
    fn stores_go_past_the_caches_where_those_are_far_from_each_other() {
        let pace = Pace::default();
        let into = &pace.into;
        // What it takes to fetch the source is in both.
        learn(into, true, 120, 60);
        learn(into, false, 240, 60);
        assert!(!pace.put_in(1024).past_caches);
        learn(into, false, 400, 60);
        assert!(pace.put_in(512).past_caches && !pace.put_in(511).past_caches);
        assert!(!pace.sends_at_once(LEN), "twice 120 is more than 90");
        has_copied(&pace, 240);
        assert!(pace.sends_at_once(LEN));
        // What is between does not change it.
        learn(into, false, 250, 60);
        assert!(pace.put_in(1024).past_caches);
        learn(into, false, 200, 60);
        assert!(!pace.put_in(1024).past_caches);
    }

    #[test]
    fn long_copies_go_past_the_caches_where_that_takes_two_thirds_as_long() {
        let pace = Pace::default();
        learn(&pace.out, true, 60, 60);
        learn(&pace.out, false, 80, 60);
        assert!(!pace.take_out(1 << 15, 2).past_caches);
        learn(&pace.out, false, 95, 60);
        assert!(pace.take_out(1 << 15, 2).past_caches);
        // What one copy leaves in the caches is there for the next one.
        let trial = |copies| pace.take_out(1 << 15, copies);
        let [first, second, third] = [TRIAL, TRIAL + 1, TRIAL + 2].map(trial);
        assert!(first.is_plain() && !second.is_plain() && !second.past_caches);
        assert!(third.past_caches);
        pace.are_out(second, 1 << 15);
    }

    #[test]
    fn what_is_not_done_is_tried_now_and_then() {
        // The lengths of what is stored until some were timed for the fifth time, and
        // which of these went past the caches.
        let timed = |stores: &Stores| {
            let (mut lens, mut past) = (0, Vec::new());
            while past.len() < 5 {
                let store = stores.begin(32 << 10);
                lens += 32 << 10;
                past.extend(store.since.map(|_| store.past_caches));
            }
            (lens, past)
        };
        let near = Stores::new(Rule::Far);
        assert_eq!(timed(&near), (5 << 19, vec![false; 5]));
        learn(&near, false, FAR + 10, 60);
        let by_turns = vec![false, true, false, true, false];
        assert_eq!(timed(&near).1, by_turns, "it could be far");
        let far = Stores::new(Rule::Far);
        learn(&far, false, 500, 60);
        let by_turns = vec![true, false, true, false, true];
        assert_eq!(timed(&far), (5 << 20, by_turns.clone()));
        let cold = Stores::new(Rule::Cold);
        assert_eq!(timed(&cold), (10 << 20, by_turns));
        learn(&cold, false, 500, 60);
        assert_eq!(
            timed(&cold).1,
            vec![true; 5],
            "others are tried by the copy"
        );
    }

    #[test]
    fn what_is_tried_is_timed_if_it_is_long_enough() {
        let pace = Pace::default();
        pace.time_next();
        assert!(pace.put_in(TIMED - 1).is_plain());
        assert!(!pace.put_in(TIMED).is_plain());
        assert!(pace.put_in(TIMED).is_plain());
    }

    #[test]
    fn a_figure_comes_to_what_is_measured() {
        for per_kib in [40, 47, 400] {
            let cost = Cost::new(60);
            (0..100).for_each(|_| cost.learn(1 << 10, at(per_kib, 1)));
            assert!(cost.per_kib().abs_diff(per_kib) <= 1);
        }
    }

    #[test]
    fn what_is_timed_is_learned() {
        let pace = Pace::default();
        let long_ago = Instant::now() - Duration::from_millis(1);
        for past_caches in [false, true] {
            let store = Store {
                past_caches,
                since: Some(long_ago),
                ..Store::default()
            };
            pace.are_in(store, LONG);
            pace.are_out(store, LONG);
        }
        for stores in [&pace.into, &pace.out] {
            assert!(stores.cached.per_kib() > STORED && stores.past.per_kib() > PAST);
        }
        assert!(pace.quick.per_kib() > STORED);
        let (before, quick) = (pace.into.cached.per_kib(), pace.quick.per_kib());
        pace.are_in(Store::default(), LONG);
        assert_eq!(pace.into.cached.per_kib(), before);
        // What a short one takes says little of long ones.
        let since = Some(long_ago);
        let past_caches = false;
        let store = Store {
            past_caches,
            since,
            is_access: false,
        };
        pace.are_in(store, LONG - 1);
        // Nor what is fetched from memory of those that are not.
        let is_access = true;
        pace.are_in(Store { is_access, ..store }, LONG);
        assert!(pace.into.cached.per_kib() > before && pace.quick.per_kib() == quick);
    }
}
