//! Lanes that the application leaves alone are driven by those who drive another lane, and by the
//! progress thread while threads sleep at other lanes, or nobody has called for some time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what does not hold fails the test"
)]

mod pipe;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pipe::Pipe;
use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_message::lane::NoErrand;
use prov_message::lane::all::Lanes;
use prov_message::{Action, Core, Endpoints, EpKey, Idling, Lane, Limits, Sleeper};
use prov_util::drive::Helper;
use prov_util::progress::Progress as _;
use prov_util::request::Transmit;
use rustix::event::{EventfdFlags, eventfd};

const LIMITS: Limits = Limits {
    unexpected: 0,
    in_flight: 0,
    announcements: 0,
    unannounced: 0,
    saved: 0,
    memory: 0,
    strangers: None,
};

/// A lane in which nothing happens, or something each time that it is driven.
struct Idle {
    endpoints: Endpoints<Pipe>,
    is_busy: bool,
    turns: Arc<AtomicUsize>,
    /// How often the progress thread drove it.
    helped: Arc<AtomicUsize>,
    fd: Arc<OwnedFd>,
}

impl Core for Idle {
    type Transport = Pipe;
    type Errand = NoErrand;
    type Sources = prov_message::sources::Known;

    fn endpoints(&mut self) -> &mut Endpoints<Pipe> {
        &mut self.endpoints
    }

    fn transmit(&mut self, _: EpKey, _: &mut Transmit) -> Result {
        Ok(())
    }

    fn act(&mut self, _: Action<Pipe>) {}

    fn progress(&mut self) -> Idling {
        self.turns.fetch_add(1, Ordering::Relaxed);
        match self.is_busy {
            true => Idling::No,
            false => Idling::Continues,
        }
    }

    fn prepare_wait(&mut self, sleeper: Sleeper) -> bool {
        if sleeper == Sleeper::Helper {
            self.helped.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn poller(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn close(&mut self, _: EpKey) {}
}

struct Domain {
    lanes: Vec<Arc<Lane<Idle>>>,
    turns: Vec<Arc<AtomicUsize>>,
    helped: Vec<Arc<AtomicUsize>>,
    fds: Vec<Arc<OwnedFd>>,
}

impl Domain {
    fn of(count: usize) -> Self {
        Self::planned(count, false, true)
    }

    /// Lanes in which something happens each time, if they are `busy`. A thread that drives one
    /// drives others, if they `meet`.
    fn planned(count: usize, is_busy: bool, meet: bool) -> Self {
        let all = Arc::<Lanes<Idle>>::default();
        let counts = || (0..count).map(|_| Arc::default()).collect();
        let turns: Vec<Arc<AtomicUsize>> = counts();
        let helped: Vec<Arc<AtomicUsize>> = counts();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = |_| Arc::new(eventfd(0, flags).unwrap());
        let fds: Vec<Arc<OwnedFd>> = (0..count).map(fd).collect();
        let helper = Helper::new("fi_test");
        let open = |number: usize| {
            let idle = Idle {
                endpoints: Endpoints::new(LIMITS),
                is_busy,
                turns: turns[number].clone(),
                helped: helped[number].clone(),
                fd: fds[number].clone(),
            };
            let lane = Lane::start(LockKind::Biased, |_| Ok(idle)).unwrap();
            lane.help(&helper);
            all.add(&lane).unwrap();
            lane.is_one_of(&all, meet);
            lane
        };
        let lanes = (0..count).map(open).collect();
        Domain {
            lanes,
            turns,
            helped,
            fds,
        }
    }

    /// A thread goes to sleep at these lanes.
    fn sleep_at(&self, lanes: &[usize]) {
        for &lane in lanes {
            assert!(self.lanes[lane].prepare_wait());
        }
        for &lane in lanes {
            self.lanes[lane].sleeps();
        }
    }

    /// Returns when the progress thread has driven these lanes.
    fn await_help(&self, lanes: &[usize]) {
        let waits = |lane: &usize| self.helped[*lane].load(Ordering::Relaxed) == 0;
        while lanes.iter().any(waits) {
            std::thread::yield_now();
        }
    }

    fn is_helped(&self, lane: usize) -> bool {
        self.helped[lane].load(Ordering::Relaxed) != 0
    }

    fn turns(&self) -> Vec<usize> {
        let turns = self.turns.iter();
        turns.map(|turns| turns.load(Ordering::Relaxed)).collect()
    }
}

#[test]
fn a_vain_read_drives_a_few_of_many_neglected_lanes_and_each_has_its_turn() {
    let domain = Domain::of(100);
    let polled = &domain.lanes[0];
    for _ in 0..100 {
        let before: usize = domain.turns().iter().sum();
        polled.progress();
        let after: usize = domain.turns().iter().sum();
        assert!(after - before <= 9, "{} lanes", after - before);
    }
    let turns = domain.turns();
    assert_eq!(turns[0], 100);
    let others = turns.iter().skip(1);
    let (least, most) = (others.clone().min().unwrap(), others.max().unwrap());
    assert!(*least >= 6 && *most <= 8, "{turns:?}");
}

#[test]
fn a_lane_that_the_application_drives_is_driven_by_nobody_else() {
    let domain = Domain::of(3);
    for _ in 0..50 {
        domain.lanes[0].progress();
        domain.lanes[1].progress();
    }
    let turns = domain.turns();
    assert_eq!((turns[0], turns[1]), (50, 50));
    assert!(turns[2] >= 50, "{turns:?}");
}

#[test]
fn a_thread_that_drives_nothing_in_vain_drives_neglected_lanes() {
    let domain = Domain::planned(3, true, true);
    while domain.turns().iter().skip(1).any(|turns| *turns < 3) {
        domain.lanes[0].progress();
    }
    let turns = domain.turns();
    assert!(turns[1] + turns[2] < turns[0], "{turns:?}");
}

#[test]
fn a_lane_that_is_neglected_for_long_is_left_to_the_progress_thread() {
    for is_busy in [false, true] {
        for meet in [false, true] {
            let domain = Domain::planned(3, is_busy, meet);
            let is_helped = || domain.is_helped(1) && domain.is_helped(2);
            while !is_helped() {
                domain.lanes[0].progress();
                // The thread calls rarely, so that its visits do not count.
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(!domain.is_helped(0));
            let turns = domain.turns();
            assert_eq!(turns[1] + turns[2] != 0, meet, "{turns:?}");
        }
    }
}

#[test]
fn a_lane_that_was_closed_is_left_out() {
    let mut domain = Domain::of(3);
    domain.lanes.remove(1);
    let before = domain.turns();
    for _ in 0..10 {
        domain.lanes[0].progress();
    }
    let turns = domain.turns();
    assert_eq!(turns[1], before[1]);
    assert!(turns[2] >= 8, "{turns:?}");
}

#[test]
fn a_thread_that_sleeps_leaves_the_lanes_at_which_nobody_sleeps_to_the_progress_thread() {
    let domain = Domain::of(5);
    domain.sleep_at(&[0, 1]);
    domain.await_help(&[2, 3, 4]);
    assert!(!domain.is_helped(0) && !domain.is_helped(1));
    // Another thread sleeps at one of the others.
    domain.lanes[2].progress();
    domain.sleep_at(&[2]);
    assert!(!domain.is_helped(0) && !domain.is_helped(1));
}

#[test]
fn a_lane_is_left_to_the_progress_thread_by_its_last_sleeper() {
    let domain = Domain::of(2);
    domain.sleep_at(&[0, 1]);
    assert!(!domain.is_helped(0) && !domain.is_helped(1));
    // The thread has woken, and sleeps at the other lane alone.
    domain.lanes[0].progress();
    domain.lanes[1].progress();
    domain.sleep_at(&[0]);
    domain.await_help(&[1]);
    assert!(!domain.is_helped(0));
}

#[test]
fn a_lane_that_its_sleeper_leaves_while_others_sleep_is_driven() {
    let domain = Domain::of(2);
    // One thread sleeps at the first lane, when the progress thread gets to know the second one.
    domain.sleep_at(&[0]);
    domain.await_help(&[1]);
    // Another one sleeps there, and the progress thread keeps away.
    domain.lanes[1].progress();
    domain.sleep_at(&[1]);
    domain.helped[1].store(0, Ordering::Relaxed);
    // It wakes, drives its lane, and computes.
    domain.lanes[1].progress();
    rustix::io::write(&domain.fds[1], &1u64.to_ne_bytes()).unwrap();
    domain.await_help(&[1]);
}
