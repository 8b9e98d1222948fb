//! Lanes that a thread leaves alone which sleeps at another one.

use super::*;

/// A thread that falls asleep elsewhere leaves the lane.
fn leave(lane: &Lane) {
    if lane.seat().is_left(lane.calls.load(Ordering::Relaxed)) {
        lane.seat().take_care();
    }
}

#[test]
fn a_lane_that_is_left_is_driven_whenever_its_descriptor_is_readable() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    assert!(!helper.has_thread());
    leave(&lane);
    assert_eq!(did.recv().unwrap(), Did::Drove);
    for _ in 0..3 {
        leave(&lane);
        lane.notify();
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
}

#[test]
fn a_lane_is_driven_again_when_it_was_left_after_the_application_drove_it() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    leave(&lane);
    assert_eq!(did.recv().unwrap(), Did::Drove);
    for _ in 0..3 {
        lane.calls.fetch_add(1, Ordering::Relaxed);
        let looks = lane.looks.load(Ordering::Relaxed);
        lane.notify();
        while lane.looks.load(Ordering::Relaxed) == looks {
            std::thread::yield_now();
        }
        leave(&lane);
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
}

#[test]
fn a_lane_at_which_a_thread_sleeps_is_left_to_it_until_it_wakes() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    lane.is_slept_at.store(true, Ordering::Relaxed);
    leave(&lane);
    for _ in 0..2 {
        let looks = lane.looks.load(Ordering::Relaxed);
        while lane.looks.load(Ordering::Relaxed) == looks {
            lane.seat().sleeper_woke();
            std::thread::yield_now();
        }
        assert_eq!(did.try_recv(), Err(TryRecvError::Empty));
    }
    lane.is_slept_at.store(false, Ordering::Relaxed);
    lane.seat().sleeper_woke();
    assert_eq!(did.recv().unwrap(), Did::Drove);
}

#[test]
fn a_lane_whose_descriptor_does_not_tell_all_is_polled() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    lane.is_silent.store(true, Ordering::Relaxed);
    leave(&lane);
    for _ in 0..8 {
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
}

#[test]
fn a_lane_that_is_closed_is_not_taken_care_of() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    lane.seat().leave();
    leave(&lane);
    drop(lane);
    assert!(matches!(did.recv().unwrap(), Did::Dropped(_)));
}
