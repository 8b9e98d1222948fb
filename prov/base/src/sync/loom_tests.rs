//! Models of the whole lock. A thread becomes the owner when it enters twice in a row.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::*;

/// Loom detects two threads that access the number concurrently.
struct Number(UnsafeCell<u32>);

// SAFETY: the integer is bound to no thread.
unsafe impl Send for Number {}

impl Number {
    fn add(&self) {
        // SAFETY: the lock excludes other threads, which is what the models test.
        self.0.with_mut(|number| unsafe { *number += 1 });
    }
}

fn new(kind: LockKind) -> Arc<Lock<Number>> {
    Arc::new(Lock::new(kind, Number(UnsafeCell::new(0))))
}

/// Runs two threads with a lock that this one has entered once before, and looks at the sum.
fn check(
    kind: LockKind,
    first: impl Fn(&Lock<Number>) -> u32 + Copy + Send + Sync + 'static,
    second: impl Fn(&Lock<Number>) -> u32 + Copy + Send + Sync + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let lock = new(kind);
        lock.lock().add();
        let other = {
            let lock = lock.clone();
            thread::spawn(move || second(&lock))
        };
        let sum = 1 + first(&lock) + other.join().unwrap();
        let number = lock.lock();
        // SAFETY: the other thread has ended; loom reports a concurrent access.
        assert_eq!(number.0.with(|number| unsafe { *number }), sum);
    });
}

/// Enters this many times, waiting.
fn enter(lock: &Lock<Number>, times: u32) -> u32 {
    (0..times).for_each(|_| lock.lock().add());
    times
}

#[test]
fn a_thread_that_becomes_the_owner_and_another_one_do_not_meet() {
    check(
        LockKind::Elided,
        |lock| enter(lock, 3),
        |lock| enter(lock, 1),
    );
}

#[test]
fn two_threads_that_both_may_become_the_owner_do_not_meet() {
    check(
        LockKind::Elided,
        |lock| enter(lock, 2),
        |lock| enter(lock, 2),
    );
}

#[test]
fn an_owner_and_a_thread_that_only_tries_do_not_meet() {
    check(
        LockKind::Elided,
        |lock| enter(lock, 3),
        |lock| lock.try_lock().map_or(0, |number| (number.add(), 1).1),
    );
}

#[test]
fn the_ways_to_enter_quickly_are_for_one_thread_at_a_time() {
    check(
        LockKind::Elided,
        |lock| enter(lock, 1) + lock.enter_lone().map_or(0, |number| (number.add(), 1).1),
        |lock| lock.enter_real().map_or(0, |number| (number.add(), 1).1),
    );
}

#[test]
fn a_thread_that_becomes_the_owner_and_a_helper_do_not_meet() {
    check(
        LockKind::Biased,
        |lock| enter(lock, 2),
        |lock| {
            lock.lock_as_helper()
                .map_or(0, |number| (number.add(), 1).1)
        },
    );
}

#[test]
fn an_owner_and_a_visitor_do_not_meet() {
    check(
        LockKind::Biased,
        |lock| enter(lock, 2),
        |lock| {
            lock.visit(|number| number.add());
            1
        },
    );
}

#[test]
fn a_helper_that_only_tries_meets_nobody() {
    check(
        LockKind::Biased,
        |lock| enter(lock, 3),
        |lock| {
            let number = lock.try_lock_as_helper();
            number.map_or(0, |number| (number.add(), 1).1)
        },
    );
}

#[test]
fn a_helper_does_not_meet_a_thread_that_revokes_the_bias() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let lock = new(LockKind::Biased);
        enter(&lock, 2);
        let others = [false, true].map(|is_helper| {
            let lock = lock.clone();
            thread::spawn(move || match is_helper {
                // Only one of them waits: loom does not guarantee that, of two threads that wait,
                // the third gets a turn.
                true => lock.try_lock_as_helper().map_or((), |number| number.add()),
                false => lock.lock().add(),
            })
        });
        if let Some(number) = lock.try_lock() {
            number.add();
        }
        for other in others {
            other.join().unwrap();
        }
    });
}
