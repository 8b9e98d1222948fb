//! Links of peers that no address vector knows, which anybody can make: how many of
//! them a process has, and which of them goes for one more.
//!
//! Each link costs a descriptor, and the application needs some, too. Each core has a
//! set of its own; the limit is for those of all cores of the process. The link that was
//! used least recently goes, whichever core has it: no core enters another one's lane, so
//! it leaves word there ([`Strangers::take_order`]) and lets the newcomer in.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use rustix::process::{Resource, getrlimit};
use slotmap::{Key, SecondaryMap};

/// Links that one core may have although others have used up the limit: else who
/// floods one endpoint would shut strangers out of all the others.
const LEAST: usize = 16;
/// Strangers may have one in so many of the descriptors that the process may open,
/// unless the user says how many.
const SHARE: u64 = 4;
/// One in so many links may be there beyond the limit, for which other cores were told to
/// close theirs and have not: the application may not drive them.
const SLACK: usize = 8;
/// Links that are looked at for one to close. Where strangers keep all of them
/// busy, a newcomer is refused after so many.
const LOOKS: usize = 16;

/// The links of all cores of a process.
#[derive(Default)]
pub struct AllStrangers {
    count: AtomicUsize,
    cores: Mutex<Vec<Weak<Post>>>,
    /// Links that were closed or refused for the limit.
    turned_away: AtomicU64,
}

/// What cores see of another one, and leave there.
#[derive(Default)]
struct Post {
    /// Links.
    count: AtomicUsize,
    /// The noted time of the link whose is the earliest, in nanoseconds since an earlier
    /// moment.
    oldest: AtomicU64,
    /// Links that it is to close for others.
    orders: AtomicUsize,
}

/// A time in nanoseconds since about the first call.
fn nanoseconds(at: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let first = FIRST.get_or_init(Instant::now);
    u64::try_from(at.saturating_duration_since(*first).as_nanos()).unwrap_or(u64::MAX)
}

impl AllStrangers {
    /// Without links.
    pub const fn new() -> Self {
        AllStrangers {
            count: AtomicUsize::new(0),
            cores: Mutex::new(Vec::new()),
            turned_away: AtomicU64::new(0),
        }
    }

    /// Leaves word with the core that has the link which was used least recently, before
    /// this time, that it is to close it. Whether there is one.
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

/// Links that strangers may have in this process, as the user says; for 0, a share of
/// the descriptors that it may open.
pub fn limit(set: usize) -> usize {
    if set != 0 {
        return set;
    }
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / SHARE).unwrap_or(usize::MAX)
}

/// See the [module](self) description.
pub struct Strangers<K: Key> {
    /// The links with the times of their last use that were noted, earliest first.
    by_use: BTreeSet<(Instant, K)>,
    /// The same times by link.
    used: SecondaryMap<K, Instant>,
    /// Links of all cores of the process.
    process: &'static AllStrangers,
    post: Arc<Post>,
}

impl<K: Key> Strangers<K> {
    /// Without links; `process` has those of all cores.
    pub fn new(process: &'static AllStrangers) -> Self {
        let post = Arc::new(Post::default());
        let cores = process.cores.lock();
        let mut cores = cores.unwrap_or_else(PoisonError::into_inner);
        cores.retain(|post| post.strong_count() != 0);
        cores.push(Arc::downgrade(&post));
        Strangers {
            by_use: BTreeSet::new(),
            used: SecondaryMap::new(),
            process,
            post,
        }
    }

    /// Counts a link that was used at this time last, or notes the time for one that is
    /// counted.
    pub fn used(&mut self, link: K, at: Instant) {
        match self.used.insert(link, at) {
            Some(before) => _ = self.by_use.remove(&(before, link)),
            None => _ = self.process.count.fetch_add(1, Ordering::Relaxed),
        }
        self.by_use.insert((at, link));
        self.publish();
    }

    /// Does not count a link any more: it has ended, or its peer is known now.
    pub fn remove(&mut self, link: K) {
        if let Some(at) = self.used.remove(link) {
            self.by_use.remove(&(at, link));
            self.process.count.fetch_sub(1, Ordering::Relaxed);
            self.publish();
        }
    }

    /// Lets other cores see what there is.
    fn publish(&self) {
        let oldest = self.by_use.first().map(|&(at, _)| nanoseconds(at));
        self.post
            .oldest
            .store(oldest.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.post.count.store(self.by_use.len(), Ordering::Relaxed);
    }

    /// Whether one of this core's links has to go for another one to come: there are as
    /// many as the limit in the process, this core has its part in that, and no other one
    /// has a link that is to go rather, or has left several where they are.
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

    /// Whether [`Strangers::take_order`] may have one.
    #[inline]
    pub fn has_orders(&self) -> bool {
        self.post.orders.load(Ordering::Relaxed) != 0
    }

    /// Whether this core is to close a link for another one.
    pub fn take_order(&self) -> bool {
        if !self.has_orders() {
            return false;
        }
        self.post.orders.fetch_sub(1, Ordering::Relaxed);
        self.by_use.len() > LEAST
    }

    /// The link of this core whose noted time is the earliest, with that time.
    pub fn oldest(&self) -> Option<(K, Instant)> {
        self.by_use.first().map(|&(at, link)| (link, at))
    }

    /// Those of all cores.
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

/// What a link of a stranger is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// It has ended.
    Ended,
    /// It counts no longer.
    NotCounted,
    /// Something is under way.
    Busy,
    /// It was used at this time.
    Used(Instant),
    /// Nothing is under way.
    Idle,
}

/// A core that closes strangers' links for others.
pub trait Hosting {
    /// Names a link.
    type Link: Key;

    /// Where the log says what was closed or refused.
    const LOG_TARGET: &'static str;

    /// The links.
    fn strangers(&mut self) -> &mut Strangers<Self::Link>;

    /// How many there may be in the process.
    fn stranger_limit(&self) -> usize;

    /// Takes in what has come on a link, whose use was noted at this time last.
    fn look_at_stranger(&mut self, link: Self::Link, noted: Instant) -> Activity;

    /// Ends a link.
    fn close_stranger(&mut self, link: Self::Link);

    /// Makes way for a stranger's link. Whether it may come in.
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

    /// Closes the link that was used least recently of those with nothing under way, if
    /// there is one among those that are looked at. Its peer makes another one with the
    /// next message.
    fn close_idle_stranger(&mut self) -> bool {
        // That of those whose noted time was out of date.
        let mut least: Option<(Instant, Self::Link)> = None;
        for _ in 0..LOOKS {
            let Some((link, noted)) = self.strangers().oldest() else {
                return false;
            };
            if least.is_some_and(|(used, _)| used <= noted) {
                break;
            }
            // What has come may make it a busy one, or be its end.
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

    /// Closes a link for another one.
    fn turn_away(&mut self, link: Self::Link) {
        self.strangers().all().say_rarely(
            Self::LOG_TARGET,
            "too many connections of strangers; the one used least recently is closed",
        );
        self.close_stranger(link);
    }

    /// Closes links for other cores, as these have left word. Cheap where they have not.
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
    fn a_core_that_does_not_close_what_it_was_told_to_shuts_nobody_out_and_adds_little() {
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
