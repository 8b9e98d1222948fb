//! Limits the links of strangers, peers that are in no address vector: anybody can establish one.
//!
//! Each link costs a descriptor, of which the application needs some, too. Each core has a set of
//! its own links; the limit applies to all cores of the process together. The link that was used
//! least recently is closed, whichever core has it: a core does not enter another one's lane, so it
//! leaves an order there ([`Strangers::take_order`]) and admits the new link.

use prov_base::bounded;
use prov_base::bounds::{OBJECTS, PEERS};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use rustix::process::{Resource, getrlimit};
use slotmap::{Key, SecondaryMap};

/// Links that one core may have even if others have used up the limit: otherwise a peer that floods
/// one endpoint would shut strangers out of all the others.
const LEAST: usize = 16;
/// Default limit of strangers' links: the process's limit of descriptors divided by this.
const SHARE: u64 = 4;
/// The links may exceed the limit by one part in this many, while other cores have orders to close
/// links and have not carried them out, because the application may not drive them.
const SLACK: usize = 8;
/// Number of links that are examined for one to close. If strangers keep all of them busy, the new
/// link is refused after that.
const LOOKS: usize = 16;

/// The links of all cores of a process.
#[derive(Default)]
pub struct AllStrangers {
    count: AtomicUsize,
    cores: Mutex<Vec<Weak<Post>>>,
    /// Number of links that were closed or refused because of the limit.
    turned_away: AtomicU64,
}

/// What cores read of another one, and the orders that they leave there.
#[derive(Default)]
struct Post {
    /// Number of its links.
    count: AtomicUsize,
    /// The earliest time of last use among its links, in nanoseconds since a fixed moment.
    oldest: AtomicU64,
    /// Number of links that it has to close for others.
    orders: AtomicUsize,
}

/// Nanoseconds from about the first call until `at`.
fn nanoseconds(at: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = FIRST.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(*first).as_nanos()).unwrap_or(u64::MAX)
}

impl AllStrangers {
    /// Creates the state without links.
    pub const fn new() -> Self {
        AllStrangers {
            count: AtomicUsize::new(0),
            cores: Mutex::new(Vec::new()),
            turned_away: AtomicU64::new(0),
        }
    }

    /// Orders the core with the least recently used link, if that was used before this time, to
    /// close it. Returns whether there is one.
    fn order(&self, not: &Post, before: u64) -> bool {
        let cores = self.cores.lock().unwrap_or_else(PoisonError::into_inner);
        let others = cores.iter().filter_map(Weak::upgrade);
        let others = others.filter(|post| !std::ptr::eq(&raw const **post, not));
        let can_close = others.filter(|post| {
            let orders = post.orders.load(Ordering::Relaxed);
            post.count.load(Ordering::Relaxed) > LEAST + orders
        });
        let oldest = can_close.min_by_key(|post| post.oldest.load(Ordering::Relaxed));
        match oldest.filter(|post| post.oldest.load(Ordering::Relaxed) < before) {
            Some(post) => {
                post.orders.fetch_add(1, Ordering::Relaxed);
                true
            }
            None => false,
        }
    }

    /// Logs the first such event, the second, the fourth and so on.
    pub fn say_rarely(&self, target: &str, what: &str) {
        let count = self.turned_away.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            log::warn!(target: target, "{what} ({count} closed or refused so far)");
        }
    }
}

/// Returns the limit of strangers' links in this process: the user's, or, for 0, a share of the
/// descriptors that the process may open.
pub fn limit(set: usize) -> usize {
    if set != 0 {
        return set;
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / SHARE).unwrap_or(usize::MAX)
}

/// See the [module](self) description.
pub struct Strangers<K: Key> {
    /// The links with their noted times of last use, earliest first.
    by_use: BTreeSet<(Instant, K)>,
    /// The same times by link.
    used: SecondaryMap<K, Instant>,
    /// The links of all cores of the process.
    process: &'static AllStrangers,
    post: Arc<Post>,
}

impl<K: Key> Strangers<K> {
    /// Creates an empty set; `process` counts the links of all cores.
    pub fn new(process: &'static AllStrangers) -> Self {
        let post = Arc::new(Post::default());
        let cores = process.cores.lock();
        let mut cores = cores.unwrap_or_else(PoisonError::into_inner);
        cores.retain(|post| post.strong_count() != 0);
        cores.push(Arc::downgrade(&post));
        bounded!(cores, OBJECTS);
        Strangers {
            by_use: BTreeSet::new(),
            used: SecondaryMap::new(),
            process,
            post,
        }
    }

    /// Adds a link that was used at this time, or updates the time of one that is counted.
    pub fn used(&mut self, link: K, at: Instant) {
        match self.used.insert(link, at) {
            Some(before) => _ = self.by_use.remove(&(before, link)),
            None => _ = self.process.count.fetch_add(1, Ordering::Relaxed),
        }
        self.by_use.insert((at, link));
        bounded!(self.by_use, PEERS);
        self.publish();
    }

    /// Removes a link: it has ended, or its peer is known.
    pub fn remove(&mut self, link: K) {
        if let Some(at) = self.used.remove(link) {
            self.by_use.remove(&(at, link));
            self.process.count.fetch_sub(1, Ordering::Relaxed);
            self.publish();
        }
    }

    /// Publishes the count and the earliest time to other cores.
    fn publish(&self) {
        let oldest = self.by_use.first().map(|&(at, _)| nanoseconds(at));
        self.post
            .oldest
            .store(oldest.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.post.count.store(self.by_use.len(), Ordering::Relaxed);
    }

    /// Returns whether one of this core's links has to be closed before another one is admitted:
    /// the limit of the process is reached, this core has its minimum, and no other core has an
    /// older link to close, or too many orders are outstanding.
    pub fn lacks_room(&self, limit: usize) -> bool {
        let count = self.process.count.load(Ordering::Relaxed);
        if count < limit {
            return false;
        }
        if self.by_use.len() < LEAST {
            self.process.order(&self.post, u64::MAX);
            return false;
        }
        let own = self.by_use.first().map_or(0, |&(at, _)| nanoseconds(at));
        count >= limit.saturating_add(limit / SLACK) || !self.process.order(&self.post, own)
    }

    /// Returns whether [`Strangers::take_order`] may return true.
    #[inline]
    pub fn has_orders(&self) -> bool {
        self.post.orders.load(Ordering::Relaxed) != 0
    }

    /// Returns whether this core has to close a link for another core, and takes that order.
    pub fn take_order(&self) -> bool {
        if !self.has_orders() {
            return false;
        }
        self.post.orders.fetch_sub(1, Ordering::Relaxed);
        self.by_use.len() > LEAST
    }

    /// Returns the link of this core with the earliest noted time, and that time.
    pub fn oldest(&self) -> Option<(K, Instant)> {
        self.by_use.first().map(|&(at, link)| (link, at))
    }

    /// Returns the state of all cores of the process.
    pub fn all(&self) -> &'static AllStrangers {
        self.process
    }
}

impl<K: Key> Drop for Strangers<K> {
    fn drop(&mut self) {
        self.process
            .count
            .fetch_sub(self.by_use.len(), Ordering::Relaxed);
    }
}

/// The activity of a stranger's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// It has ended.
    Ended,
    /// Its peer is known, so that it is not counted.
    NotCounted,
    /// An operation is outstanding.
    Busy,
    /// It was used last at this time.
    Used(Instant),
    /// No operation is outstanding.
    Idle,
}

/// A core that closes strangers' links for other cores.
pub trait Hosting {
    /// The key of a link.
    type Link: Key;

    /// The target of the log messages about links that were closed or refused.
    const LOG_TARGET: &'static str;

    /// Returns the strangers' links of this core.
    fn strangers(&mut self) -> &mut Strangers<Self::Link>;

    /// Returns the limit for the process.
    fn stranger_limit(&self) -> usize;

    /// Receives what has arrived on a link whose last noted use was at this time.
    fn look_at_stranger(&mut self, link: Self::Link, noted: Instant) -> Activity;

    /// Ends a link.
    fn close_stranger(&mut self, link: Self::Link);

    /// Makes room for a stranger's link. Returns whether the link is admitted.
    fn admit_stranger(&mut self) -> bool {
        let limit = self.stranger_limit();
        while self.strangers().lacks_room(limit) {
            if !self.close_idle_stranger() {
                self.strangers().all().say_rarely(
                    Self::LOG_TARGET,
                    "strangers keep all connections that they may have busy; one is refused",
                );
                return false;
            }
        }
        true
    }

    /// Closes the least recently used link without outstanding operations, among the first `LOOKS`
    /// links. Its peer establishes another one with its next message. Returns whether a link was
    /// closed or had ended.
    fn close_idle_stranger(&mut self) -> bool {
        // The earliest real time of use among the links whose noted time was out of date.
        let mut least: Option<(Instant, Self::Link)> = None;
        for _ in 0..LOOKS {
            let Some((link, noted)) = self.strangers().oldest() else {
                return false;
            };
            if least.is_some_and(|(used, _)| used <= noted) {
                break;
            }
            // Received data may make the link a busy one, or be its end.
            match self.look_at_stranger(link, noted) {
                Activity::Ended => return true,
                Activity::NotCounted => {
                    self.strangers().remove(link);
                    return true;
                }
                Activity::Busy => self.strangers().used(link, Instant::now()),
                Activity::Used(at) => {
                    self.strangers().used(link, at);
                    if least.is_none_or(|(used, _)| at < used) {
                        least = Some((at, link));
                    }
                }
                Activity::Idle => {
                    self.turn_away(link);
                    return true;
                }
            }
        }
        let Some((used, link)) = least else {
            return false;
        };
        match self.look_at_stranger(link, used) {
            Activity::Busy => return false,
            Activity::Ended => {}
            Activity::NotCounted => self.strangers().remove(link),
            Activity::Used(_) | Activity::Idle => self.turn_away(link),
        }
        true
    }

    /// Closes a link to make room for another one.
    fn turn_away(&mut self, link: Self::Link) {
        self.strangers().all().say_rarely(
            Self::LOG_TARGET,
            "too many connections of strangers; the one used least recently is closed",
        );
        self.close_stranger(link);
    }

    /// Closes links as other cores have ordered. Cheap without orders.
    #[inline]
    fn close_for_others(&mut self) {
        if self.strangers().has_orders() {
            while self.strangers().take_order() && self.close_idle_stranger() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slotmap::{SlotMap, new_key_type};

    use super::*;

    new_key_type! {
        struct LinkKey;
    }

    fn links(count: usize) -> Vec<LinkKey> {
        let mut all = SlotMap::with_key();
        (0..count).map(|_| all.insert(())).collect()
    }

    #[test]
    fn the_link_that_was_used_least_recently_is_the_oldest() {
        static PROCESS: AllStrangers = AllStrangers::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let links = links(3);
        let mut strangers = Strangers::new(&PROCESS);
        for (seconds, link) in links.iter().enumerate() {
            strangers.used(*link, at(seconds as u64));
        }
        assert_eq!(strangers.oldest(), Some((links[0], at(0))));
        strangers.used(links[0], at(9));
        assert_eq!(strangers.oldest(), Some((links[1], at(1))));
        strangers.remove(links[1]);
        assert_eq!(strangers.oldest(), Some((links[2], at(2))));
        assert_eq!(PROCESS.count.load(Ordering::Relaxed), 2);
        drop(strangers);
        assert_eq!(PROCESS.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_limit_is_for_the_process_and_each_core_may_have_a_few() {
        static PROCESS: AllStrangers = AllStrangers::new();
        let now = Instant::now();
        let links = links(100);
        let mut greedy = Strangers::new(&PROCESS);
        let mut modest = Strangers::new(&PROCESS);
        for link in &links {
            greedy.used(*link, now);
        }
        assert!(greedy.lacks_room(100) && !greedy.lacks_room(101));
        for link in &links[..LEAST] {
            assert!(!modest.lacks_room(100));
            modest.used(*link, now);
        }
        assert!(modest.lacks_room(100));
    }

    #[test]
    fn the_core_that_has_the_oldest_link_is_told_to_close_it() {
        const LIMIT: usize = 80;
        static PROCESS: AllStrangers = AllStrangers::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let links = links(100);
        let mut idle = Strangers::new(&PROCESS);
        let mut older = Strangers::new(&PROCESS);
        let mut busy = Strangers::new(&PROCESS);
        for link in &links[..LEAST] {
            older.used(*link, at(1));
        }
        for link in &links[..LEAST + 2] {
            idle.used(*link, at(2));
        }
        let mut next = links.iter();
        let mut newcomer = |busy: &mut Strangers<LinkKey>| {
            assert!(!busy.lacks_room(LIMIT));
            busy.used(*next.next().unwrap(), at(3));
        };
        while PROCESS.count.load(Ordering::Relaxed) < LIMIT {
            newcomer(&mut busy);
        }
        assert!(!idle.has_orders());
        // No core is told to close what it may have in any case.
        newcomer(&mut busy);
        newcomer(&mut busy);
        assert!(busy.lacks_room(LIMIT));
        assert!(!older.has_orders());
        for left in [1, 0] {
            assert!(idle.take_order());
            let (oldest, _) = idle.oldest().unwrap();
            idle.remove(oldest);
            assert_eq!(idle.has_orders(), left != 0);
        }
        assert_eq!(PROCESS.count.load(Ordering::Relaxed), LIMIT);
        assert!(!idle.take_order());
        // Its own is the oldest of those that may be closed.
        assert!(busy.lacks_room(LIMIT));
    }

    #[test]
    fn a_core_that_does_not_close_links_on_request_blocks_no_thread_and_adds_little() {
        const LIMIT: usize = 80;
        static PROCESS: AllStrangers = AllStrangers::new();
        let start = Instant::now();
        let links = links(200);
        let mut asleep = Strangers::new(&PROCESS);
        for link in &links[..LIMIT] {
            asleep.used(*link, start);
        }
        let mut awake = Strangers::new(&PROCESS);
        for link in &links[..150] {
            while awake.lacks_room(LIMIT) {
                let (oldest, _) = awake.oldest().unwrap();
                awake.remove(oldest);
            }
            awake.used(*link, start + Duration::from_secs(1));
        }
        let count = PROCESS.count.load(Ordering::Relaxed);
        assert!(count <= LIMIT + LEAST.max(LIMIT / SLACK), "{count}");
        assert!(asleep.has_orders());
    }
}
