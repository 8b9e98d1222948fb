//! A count of the threads that are inside something, which does not exclude them.
//!
//! Where one thread usually is the only one that enters, it is the owner: it counts itself with
//! plain instructions in a word that nobody else writes. Other threads execute locked instructions,
//! and who asks whether anybody is inside executes a [`barrier`] for both sides. So the count is
//! exact, whatever threads enter.

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::habit::Habit;
use super::{LockKind, barrier, thread};

/// See the module.
pub struct Presence {
    /// The owner's number, [`NOBODY`] or [`REAL`]. Changed once, by the owner.
    owner: AtomicUsize,
    /// How many times the owner is inside. Written by the owner alone.
    own: AtomicUsize,
    /// How many times the other threads are inside.
    others: AtomicUsize,
    habit: Habit,
}

/// There is no owner yet.
const NOBODY: usize = 0;
/// There will be no owner. The numbers of threads are even.
const REAL: usize = 1;

/// As what a thread has entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrant {
    /// The owner.
    Owner,
    /// Any thread.
    Other,
}

impl Presence {
    /// Counts threads that enter concurrently, with [`LockKind::Real`], or usually do not.
    pub fn new(kind: LockKind) -> Self {
        let is_real = kind == LockKind::Real || !barrier::is_available();
        Presence {
            owner: AtomicUsize::new(if is_real { REAL } else { NOBODY }),
            own: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
            habit: Habit::default(),
        }
    }

    /// Enters. What this thread reads next was not replaced before an [`Presence::is_empty`] that
    /// has not seen it.
    #[inline(always)]
    pub fn enter(&self) -> Entrant {
        self.enter_as(thread::current())
    }

    #[inline(always)]
    fn enter_as(&self, thread: usize) -> Entrant {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != thread {
            if owner == REAL {
                return self.enter_as_other();
            }
            self.enter_as_second(owner, thread);
            return Entrant::Other;
        }
        let own = self.own.load(Ordering::Relaxed);
        self.own.store(own + 1, Ordering::Relaxed);
        barrier::light();
        Entrant::Owner
    }

    /// Enters beside the owner, or before there is one.
    #[cold]
    #[inline(never)]
    fn enter_as_second(&self, owner: usize, thread: usize) {
        if owner == NOBODY && self.habit.is_formed(thread) {
            self.adopt(thread);
        }
        self.enter_as_other();
    }

    /// Makes this thread the owner from its next entry on, unless there is one. The fence of this
    /// entry comes before those.
    fn adopt(&self, thread: usize) {
        let _ = self
            .owner
            .compare_exchange(NOBODY, thread, Ordering::SeqCst, Ordering::Relaxed);
    }

    #[inline(always)]
    fn enter_as_other(&self) -> Entrant {
        self.others.fetch_add(1, Ordering::SeqCst);
        // With the fence in `is_empty`: either that thread sees this one, or this one sees what
        // that thread has written. No fence is needed if the addition is a full barrier itself, which it is
        // for a processor; not for a model of the language.
        #[cfg(any(loom, miri, not(target_arch = "x86_64")))]
        fence(Ordering::SeqCst);
        Entrant::Other
    }

    /// Leaves what this thread has entered. Returns whether nobody may be left inside.
    #[inline(always)]
    pub fn leave(&self, entrant: Entrant) -> bool {
        match entrant {
            Entrant::Owner => {
                let own = self.own.load(Ordering::Relaxed);
                self.own.store(own - 1, Ordering::Release);
                barrier::light();
                true
            }
            Entrant::Other => self.others.fetch_sub(1, Ordering::Release) == 1,
        }
    }

    /// Returns whether nobody is inside, or only threads that have entered after the call began.
    /// `false` also if the kernel has begun to refuse membarrier(2).
    pub fn is_empty(&self) -> bool {
        self.is_empty_for(thread::current())
    }

    fn is_empty_for(&self, thread: usize) -> bool {
        fence(Ordering::SeqCst);
        let owner = self.owner.load(Ordering::Relaxed);
        // A thread that becomes the owner from now on sees what this one has written.
        let is_settled = owner == NOBODY || owner == REAL || owner == thread || barrier::heavy();
        is_settled
            && self.others.load(Ordering::Acquire) == 0
            && self.own.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::habit::HABIT;
    use super::*;

    /// Enters so often that this thread becomes the owner, where there may be one.
    fn own(presence: &Presence) {
        for _ in 0..=HABIT {
            let entrant = presence.enter();
            assert!(!presence.is_empty());
            presence.leave(entrant);
        }
    }

    #[test]
    fn a_thread_is_seen_inside_whoever_asks() {
        for kind in [LockKind::Real, LockKind::Elided, LockKind::Biased] {
            let presence = Presence::new(kind);
            own(&presence);
            let is_real = presence.owner.load(Ordering::Relaxed) == REAL;
            let first = presence.enter();
            assert_eq!(first == Entrant::Owner, !is_real);
            std::thread::scope(|scope| {
                let second = scope.spawn(|| {
                    let second = presence.enter();
                    assert_eq!(second, Entrant::Other);
                    assert!(!presence.is_empty());
                    presence.leave(second);
                    presence.is_empty()
                });
                assert!(!second.join().unwrap());
            });
            let again = presence.enter();
            presence.leave(again);
            assert!(!presence.is_empty());
            assert!(presence.leave(first));
            assert!(presence.is_empty());
        }
    }

    #[test]
    fn a_thread_that_becomes_the_owner_while_it_is_inside_leaves_as_it_has_entered() {
        let presence = Presence::new(LockKind::Elided);
        let outer = presence.enter();
        own(&presence);
        assert!(!presence.is_empty());
        presence.leave(outer);
        assert!(presence.is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Something that a thread reads while another one takes it away.
    struct Shelf {
        presence: Presence,
        is_there: AtomicUsize,
        item: loom::cell::UnsafeCell<u32>,
    }

    // SAFETY: the item is changed when nobody reads it, which is what the model tests.
    unsafe impl Sync for Shelf {}
    // SAFETY: the item is an integer, which is bound to no thread.
    unsafe impl Send for Shelf {}

    const FIRST: usize = 2;
    const SECOND: usize = 4;

    impl Shelf {
        fn new() -> Arc<Self> {
            Arc::new(Shelf {
                presence: Presence::new(LockKind::Elided),
                is_there: AtomicUsize::new(1),
                item: loom::cell::UnsafeCell::new(7),
            })
        }

        fn read(&self, thread: usize) {
            let entrant = self.presence.enter_as(thread);
            if self.is_there.load(Ordering::Acquire) == 1 {
                // SAFETY: this thread is inside; loom reports a concurrent access.
                self.item.with(|item| assert_eq!(unsafe { *item }, 7));
            }
            self.presence.leave(entrant);
        }

        fn take_away(&self, thread: usize) {
            self.is_there.store(0, Ordering::Release);
            if self.presence.is_empty_for(thread) {
                // SAFETY: nobody is inside; loom reports a concurrent access.
                self.item.with_mut(|item| unsafe { *item = 0 });
            }
        }
    }

    #[test]
    fn the_owner_is_seen() {
        loom::model(|| {
            let shelf = Shelf::new();
            shelf.presence.adopt(FIRST);
            let reader = {
                let shelf = shelf.clone();
                thread::spawn(move || (0..2).for_each(|_| shelf.read(FIRST)))
            };
            shelf.take_away(SECOND);
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_thread_that_becomes_the_owner_is_seen() {
        loom::model(|| {
            let shelf = Shelf::new();
            let reader = {
                let shelf = shelf.clone();
                thread::spawn(move || {
                    // It has entered often enough.
                    shelf.presence.adopt(FIRST);
                    shelf.presence.leave(shelf.presence.enter_as_other());
                    shelf.read(FIRST);
                })
            };
            shelf.take_away(SECOND);
            reader.join().unwrap();
        });
    }

    #[test]
    fn two_readers_are_seen_by_one_of_them() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shelf = Shelf::new();
            shelf.presence.adopt(FIRST);
            let second = {
                let shelf = shelf.clone();
                thread::spawn(move || {
                    shelf.read(SECOND);
                })
            };
            shelf.read(FIRST);
            shelf.take_away(FIRST);
            second.join().unwrap();
        });
    }
}
