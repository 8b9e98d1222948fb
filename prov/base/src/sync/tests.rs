use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use fabric_abi::{FI_PROGRESS_AUTO, FI_THREAD_SAFE};

use super::habit::HABIT;
use super::*;

/// Enters a lock so often that this thread becomes its owner, unless the lock is real.
fn own<T>(lock: &Lock<T>) {
    for _ in 0..=HABIT {
        drop(lock.lock());
    }
    assert_eq!(lock.is_owned(), lock.kind() != LockKind::Real);
}

const KINDS: [LockKind; 3] = [LockKind::Real, LockKind::Elided, LockKind::Biased];

/// Two numbers that are equal whenever no thread is inside.
#[derive(Default)]
struct Pair(u64, u64);

impl Pair {
    fn add(&mut self) {
        assert_eq!(self.0, self.1);
        self.0 += 1;
        std::hint::black_box(&mut *self);
        self.1 += 1;
    }
}

#[test]
fn a_real_lock_excludes_other_threads() {
    let lock = Arc::new(Lock::new(LockKind::Real, Pair::default()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || {
                for _ in 0..10_000 {
                    lock.lock().add();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(lock.lock().0, 40_000);
}

#[test]
fn helpers_and_the_application_exclude_each_other() {
    for kind in [LockKind::Real, LockKind::Biased] {
        let lock = Arc::new(Lock::new(kind, Pair::default()));
        let over = Arc::new(AtomicBool::new(false));
        let helpers = [true, false].map(|waits| {
            let (lock, over) = (lock.clone(), over.clone());
            thread::spawn(move || {
                let mut entered = 0;
                while !over.load(Ordering::Relaxed) {
                    let guard = match waits {
                        true => lock.lock_as_helper(),
                        false => lock.try_lock_as_helper(),
                    };
                    if let Some(mut pair) = guard {
                        pair.add();
                        entered += 1;
                    }
                }
                entered
            })
        });
        own(&lock);
        let mut entered = 0;
        // Runs until helpers have entered often enough, which shows that they do not starve.
        while entered < 100_000 || lock.lock().0 < entered + 1000 {
            match entered % 3 {
                0 => match lock.try_lock() {
                    Some(mut pair) => pair.add(),
                    None => continue,
                },
                _ => lock.lock().add(),
            }
            entered += 1;
        }
        over.store(true, Ordering::Relaxed);
        for helper in helpers {
            entered += helper.join().unwrap();
        }
        assert_eq!(lock.lock().0, entered);
    }
}

#[test]
fn threads_that_take_turns_and_a_helper_exclude_each_other() {
    let lock = Arc::new(Lock::new(LockKind::Biased, Pair::default()));
    let over = Arc::new(AtomicBool::new(false));
    let helper = {
        let (lock, over) = (lock.clone(), over.clone());
        thread::spawn(move || {
            let mut entered = 0;
            while !over.load(Ordering::Relaxed) {
                lock.lock_as_helper().unwrap().add();
                entered += 1;
            }
            entered
        })
    };
    // Two threads that take turns.
    let (to_other, from_one) = mpsc::channel();
    let (to_one, from_other) = mpsc::channel();
    let other = {
        let lock = lock.clone();
        thread::spawn(move || {
            for () in from_one {
                lock.lock().add();
                to_one.send(()).unwrap();
            }
        })
    };
    for _ in 0..2000 {
        lock.lock().add();
        to_other.send(()).unwrap();
        from_other.recv().unwrap();
    }
    drop(to_other);
    other.join().unwrap();
    over.store(true, Ordering::Relaxed);
    let helped = helper.join().unwrap();
    assert_eq!(lock.lock().0, 4000 + helped);
}

#[test]
fn a_helper_waits_until_the_application_has_left() {
    let lock = Arc::new(Lock::new(LockKind::Biased, 0));
    own(&lock);
    let mut held = lock.lock();
    assert!(lock.try_lock_as_helper().is_none());
    let helper = {
        let lock = lock.clone();
        thread::spawn(move || *lock.lock_as_helper().unwrap())
    };
    // The application leaves for good, without waking anybody.
    *held = 1;
    drop(held);
    assert_eq!(helper.join().unwrap(), 1);
}

#[test]
fn the_application_waits_until_a_helper_has_left() {
    for kind in [LockKind::Real, LockKind::Biased] {
        let lock = Arc::new(Lock::new(kind, 0));
        own(&lock);
        let mut held = lock.lock_as_helper().unwrap();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock_as_helper().is_none());
        let application = {
            let lock = lock.clone();
            thread::spawn(move || *lock.lock())
        };
        *held = 1;
        drop(held);
        assert_eq!(application.join().unwrap(), 1);
    }
}

#[test]
fn a_lock_that_another_thread_enters_becomes_real() {
    for kind in [LockKind::Elided, LockKind::Biased] {
        let lock = Arc::new(Lock::new(kind, Pair::default()));
        own(&lock);
        if lock.kind() == LockKind::Real {
            continue;
        }
        let mut inside = lock.lock();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || {
                    for _ in 0..10_000 {
                        lock.lock().add();
                    }
                })
            })
            .collect();
        while !lock.bias.is_claimed() {
            thread::yield_now();
        }
        inside.add();
        drop(inside);
        while lock.kind() != LockKind::Real {
            thread::yield_now();
        }
        for _ in 0..10_000 {
            lock.lock().add();
        }
        if kind == LockKind::Biased {
            lock.lock_as_helper().unwrap().add();
            if let Some(mut pair) = lock.try_lock_as_helper() {
                pair.add();
                drop(pair);
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(lock.enter_lone().is_none());
        assert!(lock.enter_real().unwrap().0 >= 40_001);
        assert!(lock.try_lock().is_some());
    }
}

#[test]
fn the_former_owner_of_a_real_lock_wakes_nobody() {
    let lock = Arc::new(Lock::new(LockKind::Elided, 0));
    own(&lock);
    let other = {
        let lock = lock.clone();
        thread::spawn(move || *lock.lock() += 1)
    };
    other.join().unwrap();
    let steps = lock.bias.steps();
    for _ in 0..10 {
        *lock.lock() += 1;
        assert!(lock.enter_lone().is_none());
        assert!(lock.try_lock().is_some());
    }
    assert_eq!((lock.bias.steps(), *lock.lock()), (steps, 11));
    assert!(!lock.bias.is_owner(super::thread::current()));
}

#[test]
fn a_thread_that_only_tries_makes_a_free_lock_real_and_no_other() {
    let lock = Arc::new(Lock::new(LockKind::Elided, 1));
    own(&lock);
    let tries = |lock: &Arc<Lock<i32>>| {
        let lock = lock.clone();
        thread::spawn(move || lock.try_lock().map(|value| *value))
            .join()
            .unwrap()
    };
    let inside = lock.lock();
    assert_eq!(tries(&lock), None);
    drop(inside);
    let is_real = lock.kind() == LockKind::Real;
    assert_eq!(lock.is_owned(), !is_real);
    assert_eq!(tries(&lock), Some(1));
    assert_eq!(lock.kind(), LockKind::Real);
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn the_thread_that_uses_a_lock_becomes_its_owner_and_not_the_one_that_has_opened_it() {
    let lock = Arc::new(Lock::new(LockKind::Elided, 0));
    if lock.kind() == LockKind::Real {
        return;
    }
    for _ in 0..HABIT {
        *lock.lock() += 1;
    }
    let other = {
        let lock = lock.clone();
        thread::spawn(move || {
            own(&lock);
            lock.bias.is_owner(super::thread::current())
        })
    };
    assert!(other.join().unwrap());
}

#[test]
fn a_lock_becomes_real_while_helpers_use_it() {
    let lock = Arc::new(Lock::new(LockKind::Biased, Pair::default()));
    let over = Arc::new(AtomicBool::new(false));
    let helper = {
        let (lock, over) = (lock.clone(), over.clone());
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                lock.lock_as_helper().unwrap().add();
            }
        })
    };
    own(&lock);
    let inside = lock.lock();
    if lock.kind() == LockKind::Real {
        return over.store(true, Ordering::Relaxed);
    }
    let other = {
        let lock = lock.clone();
        thread::spawn(move || lock.lock().add())
    };
    while !lock.raw.is_locked() {
        thread::yield_now();
    }
    drop(inside);
    other.join().unwrap();
    assert_eq!(lock.kind(), LockKind::Real);
    for _ in 0..1000 {
        lock.lock().add();
    }
    over.store(true, Ordering::Relaxed);
    helper.join().unwrap();
    assert!(lock.lock().0 > 1000);
}

#[test]
fn a_thread_that_enters_a_lock_twice_is_noticed() {
    for kind in [LockKind::Elided, LockKind::Biased] {
        let lock = Lock::new(kind, ());
        own(&lock);
        if lock.kind() == LockKind::Real {
            continue;
        }
        let first = lock.lock();
        let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _second = lock.lock();
        }));
        let message = *second.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("entered twice"), "{message}");
        drop(first);
        assert!(lock.try_lock().is_some());
    }
}

#[test]
#[should_panic(expected = "for the application alone")]
fn an_elided_lock_is_not_for_helpers() {
    let _ = Lock::new(LockKind::Elided, ()).lock_as_helper();
}

#[test]
fn a_held_lock_cannot_be_tried() {
    for kind in KINDS {
        let lock = Lock::new(kind, 1);
        for _ in 0..2 {
            let held = lock.lock();
            assert!(lock.try_lock().is_none());
            assert!(lock.try_lock().is_none(), "trying does not let it go");
            drop(held);
            assert_eq!(lock.try_lock().map(|value| *value), Some(1));
            own(&lock);
        }
        assert_eq!(lock.into_inner(), 1);
    }
}

#[test]
fn the_owner_enters_at_once() {
    for kind in KINDS {
        let mut lock = Lock::new(kind, 1);
        own(&lock);
        let is_real = lock.kind() == LockKind::Real;
        assert_eq!(is_real, kind == LockKind::Real);
        {
            let mut held = lock.enter_lone();
            assert_eq!(held.is_none(), is_real);
            if let Some(value) = &mut held {
                **value += 1;
                assert!(lock.try_lock().is_none() && lock.enter_lone().is_none());
            }
        }
        let held = lock.lock();
        assert!(lock.try_lock().is_none() && lock.enter_lone().is_none());
        drop(held);
        assert_eq!(*lock.get_mut(), if is_real { 1 } else { 2 });
    }
}

#[test]
fn a_visitor_does_not_end_the_ownership() {
    for kind in [LockKind::Elided, LockKind::Biased] {
        let lock = Lock::with_visitors(kind, Pair::default());
        own(&lock);
        let visited = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    lock.visit(Pair::add);
                }
                visited.store(true, Ordering::Relaxed);
            });
            // At least once: the visitor may have left before this thread runs again.
            loop {
                lock.lock().add();
                if visited.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        assert!(lock.is_owned() || lock.kind() == LockKind::Real && !barrier::is_available());
        let before = lock.lock().0;
        assert_eq!(
            lock.visit(|pair| pair.0),
            before,
            "the owner may visit it, too"
        );
        assert!(before > 100);
    }
    let real = Lock::with_visitors(LockKind::Real, Pair::default());
    real.visit(Pair::add);
    assert_eq!(real.lock().0, 1);
}

#[test]
fn the_threading_level_decides_which_locks_are_real() {
    assert_eq!(LockKind::for_domain(FI_THREAD_DOMAIN), LockKind::Elided);
    assert_eq!(LockKind::for_domain(FI_THREAD_COMPLETION), LockKind::Real);
    assert_eq!(
        LockKind::for_completion(FI_THREAD_COMPLETION),
        LockKind::Elided
    );
    assert_eq!(LockKind::for_completion(FI_THREAD_SAFE), LockKind::Real);
}

#[test]
fn a_lane_is_biased_where_only_helpers_can_meet_the_application() {
    for threading in [FI_THREAD_DOMAIN, FI_THREAD_COMPLETION] {
        let manual = LockKind::for_lane(threading, FI_PROGRESS_MANUAL);
        assert_eq!(manual, LockKind::Biased);
        let auto = LockKind::for_lane(threading, FI_PROGRESS_AUTO);
        assert_eq!(auto, LockKind::Real);
    }
    let safe = LockKind::for_lane(FI_THREAD_SAFE, FI_PROGRESS_MANUAL);
    assert_eq!(safe, LockKind::Real);
}

#[test]
fn a_lock_that_ends_promptly_keeps_others_out_until_then() {
    for kind in [LockKind::Real, LockKind::Elided, LockKind::Biased] {
        let lock = Lock::new(kind, 1);
        own(&lock);
        let mut inside = lock.lock().promptly();
        *inside += 1;
        assert!(lock.try_lock().is_none(), "{kind:?}");
        drop(inside);
        let inside = lock.try_lock().map(Guard::promptly);
        assert_eq!(inside.as_deref(), Some(&2), "{kind:?}");
        drop(inside);
        assert!(lock.try_lock().is_some(), "{kind:?}");
    }
}

#[test]
fn a_real_lock_is_entered_as_such_and_no_other() {
    let lock = Lock::new(LockKind::Real, 1);
    let mut inside = lock.enter_real().unwrap();
    *inside += 1;
    assert!(lock.try_lock().is_none());
    drop(inside);
    assert_eq!(lock.try_lock().as_deref(), Some(&2));
    let lock = Lock::new(LockKind::Elided, 1);
    while let Some(mut inside) = lock.enter_real() {
        if lock.kind() == LockKind::Real {
            return;
        }
        *inside += 1;
        assert!(lock.try_lock().is_none() && lock.enter_lone().is_none());
    }
    assert_eq!(*lock.lock(), 1 + HABIT as i32);
    assert!(lock.is_owned() && lock.enter_real().is_none());
}
