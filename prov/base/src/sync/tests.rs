use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use fabric_abi::{FI_PROGRESS_AUTO, FI_THREAD_SAFE};

use super::*;

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
fn a_biased_lock_is_the_applications_and_not_a_threads() {
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
fn a_lock_that_is_not_real_notices_being_entered_twice() {
    for kind in [LockKind::Elided, LockKind::Biased] {
        let lock = Lock::new(kind, ());
        if lock.kind() == LockKind::Real {
            continue;
        }
        let _first = lock.lock();
        let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _second = lock.lock();
        }));
        let message = *second.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("entered twice"), "{message}");
    }
    let lock = LoneLock::alone(LockKind::Elided, ());
    let _first = lock.enter_lone().unwrap();
    let second = std::panic::AssertUnwindSafe(|| _ = lock.lock());
    assert!(std::panic::catch_unwind(second).is_err());
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
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "trying does not let it go");
        drop(held);
        assert_eq!(lock.try_lock().map(|value| *value), Some(1));
        assert_eq!(lock.into_inner(), 1);
    }
}

#[test]
fn a_lock_without_helpers_is_entered_immediately_unless_it_is_real() {
    for kind in KINDS {
        let mut lock = LoneLock::alone(kind, 1);
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
    let lock = LoneLock::alone(LockKind::Real, 1);
    let mut inside = lock.enter_real().unwrap();
    *inside += 1;
    assert!(lock.try_lock().is_none());
    drop(inside);
    assert_eq!(lock.try_lock().as_deref(), Some(&2));
    assert!(LoneLock::alone(LockKind::Elided, 1).enter_real().is_none());
}
