use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::*;
use crate::wait::test_transport::TestTransport;

fn open(events: CntrEvents, kind: WaitKind) -> Arc<Cntr> {
    Arc::new(Cntr::new(
        events,
        Attachment::open(kind, None).unwrap(),
        None,
    ))
}

#[test]
fn completions_or_bytes_are_counted_and_errors_one_by_one() {
    let completions = open(CntrEvents::Completions, WaitKind::None);
    let bytes = open(CntrEvents::Bytes, WaitKind::None);
    for cntr in [&completions, &bytes] {
        cntr.count(100);
        cntr.count(20);
        cntr.count_error();
    }
    assert_eq!((completions.read(), completions.read_error()), (2, 1));
    assert_eq!((bytes.read(), bytes.read_error()), (120, 1));
}

#[test]
fn values_can_be_added_and_set() {
    let cntr = open(CntrEvents::Completions, WaitKind::None);
    cntr.add(5);
    cntr.add_error(2);
    assert_eq!((cntr.read(), cntr.read_error()), (5, 2));
    cntr.set(u64::MAX);
    cntr.set_error(9);
    assert_eq!((cntr.read(), cntr.read_error()), (u64::MAX, 9));
    cntr.add(1);
    assert_eq!(cntr.read(), 0, "wraps around");
}

#[test]
fn additions_of_several_threads_all_count() {
    let cntr = open(CntrEvents::Completions, WaitKind::Unspec);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let cntr = cntr.clone();
            thread::spawn(move || (0..5000).for_each(|_| cntr.count(0)))
        })
        .collect();
    assert_eq!(cntr.wait(20_000, -1), Ok(()));
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(cntr.read(), 20_000);
}

#[test]
fn waiters_with_different_thresholds_all_wake() {
    let cntr = open(CntrEvents::Completions, WaitKind::Unspec);
    let waiters: Vec<_> = (1..=3)
        .map(|index| {
            let cntr = cntr.clone();
            thread::spawn(move || {
                for round in 0..200 {
                    assert_eq!(cntr.wait(round * 10 + index, -1), Ok(()));
                }
            })
        })
        .collect();
    for _ in 0..2000 {
        cntr.count(0);
    }
    for waiter in waiters {
        waiter.join().unwrap();
    }
}

#[test]
fn a_new_error_ends_a_wait_but_an_old_one_does_not() {
    let cntr = open(CntrEvents::Completions, WaitKind::Unspec);
    let transport = TestTransport::new();
    cntr.add_source(transport.clone()).unwrap();
    cntr.count_error();
    assert_eq!(cntr.wait(1, 0), Err(Errno::ETIMEDOUT));
    let waiter = {
        let cntr = cntr.clone();
        thread::spawn(move || cntr.wait(1, -1))
    };
    transport.await_sleepers(1);
    let target = cntr.clone();
    transport.give(move || target.count_error());
    assert_eq!(waiter.join().unwrap(), Err(Errno::EAVAIL));
    assert_eq!(cntr.read_error(), 2);
}

#[test]
fn reaching_the_threshold_counts_more_than_an_error() {
    let cntr = open(CntrEvents::Completions, WaitKind::Yield);
    cntr.add(3);
    cntr.add_error(1);
    assert_eq!(cntr.wait(3, 0), Ok(()));
    assert_eq!(cntr.wait(4, 0), Err(Errno::ETIMEDOUT));
}

#[test]
fn without_a_wait_object_waiting_polls() {
    let cntr = open(CntrEvents::Completions, WaitKind::None);
    let transport = TestTransport::new();
    cntr.add_source(transport.clone()).unwrap();
    let target = cntr.clone();
    transport.give(move || target.count(0));
    assert_eq!(cntr.wait(1, -1), Ok(()));
    assert_eq!(cntr.wait(2, 2), Err(Errno::ETIMEDOUT));
}

#[test]
fn all_sources_are_driven_and_a_sleeping_thread_wakes_for_the_watched_ones() {
    let cntr = open(CntrEvents::Completions, WaitKind::Fd);
    let wait = cntr.attachment().wait().unwrap();
    let transport = TestTransport::new();
    cntr.add_unwatched_source(transport.clone());
    transport.give(|| {});
    assert!(!wait.is_readable());
    cntr.read();
    assert_eq!(transport.driven.load(Ordering::Relaxed), 1);
    let progress: Arc<dyn Progress> = transport.clone();
    cntr.add_source(progress.clone()).unwrap();
    transport.give(|| {});
    assert!(wait.is_readable());
    assert_eq!(cntr.try_wait(), Ok(()));
    transport.await_sleepers(1);
    cntr.remove_source(&progress);
    cntr.remove_source(&progress);
    transport.give(|| {});
    assert!(!wait.is_readable(), "it is gone");
}

#[test]
fn a_source_that_is_added_learns_of_a_sleeping_thread() {
    let cntr = open(CntrEvents::Completions, WaitKind::Unspec);
    let (before, after) = (TestTransport::new(), TestTransport::new());
    cntr.add_source(before.clone()).unwrap();
    cntr.add_unwatched_source(after.clone());
    let sleeper = {
        let cntr = cntr.clone();
        thread::spawn(move || cntr.wait(1, 10_000))
    };
    before.await_sleepers(1);
    thread::sleep(Duration::from_millis(20));
    cntr.add_source(after.clone()).unwrap();
    let is_told = after.sees_sleepers(1, Duration::from_secs(5));
    cntr.add(1);
    assert_eq!(sleeper.join().unwrap(), Ok(()));
    assert!(is_told, "peers would not wake it");
}

#[test]
fn a_native_waiter_may_block_until_the_counter_changes() {
    let cntr = open(CntrEvents::Completions, WaitKind::Fd);
    let wait = cntr.attachment().wait().unwrap();
    assert_eq!(cntr.try_wait(), Ok(()));
    assert!(!wait.is_readable());
    cntr.count(0);
    assert!(wait.is_readable());
    assert_eq!(cntr.try_wait(), Err(Errno::EAGAIN), "it has changed");
    assert_eq!(cntr.try_wait(), Ok(()), "which is known now");
    assert!(!wait.is_readable());
    cntr.count_error();
    assert!(wait.is_readable());
}

#[test]
fn an_event_of_the_applications_own_call_is_not_reported() {
    let cntr = open(CntrEvents::Completions, WaitKind::None);
    assert!(!cntr.take_news());
    cntr.add(5);
    assert!(!cntr.take_news());
    cntr.set(1);
    assert!(!cntr.take_news());
    cntr.count(0);
    assert!(cntr.take_news());
    assert!(!cntr.take_news());
}

#[test]
fn counters_share_no_cache_line() {
    assert_eq!(align_of::<Cntr>(), 128);
    assert!(size_of::<Cntr>().is_multiple_of(128));
}
