//! Lanes that the application leaves alone are driven by those who drive another lane in vain.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what does not hold fails the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_message::lane::NoErrand;
use prov_message::lane::all::Lanes;
use prov_message::{Action, Core, Endpoints, EpKey, Idling, Lane, Limits, Transport};
use prov_util::progress::Progress as _;
use prov_util::request::Transmit;
use slotmap::DefaultKey;

enum Pipe {}

impl Transport for Pipe {
    type Link = DefaultKey;
    type Ack = ();
    type Name = u64;
    type Endpoint = ();
}

const LIMITS: Limits = Limits {
    unexpected: 0,
    in_flight: 0,
    announcements: 0,
    unannounced: 0,
    saved: 0,
    memory: 0,
    strangers: None,
};

/// A lane in which nothing happens.
struct Idle {
    endpoints: Endpoints<Pipe>,
    turns: Arc<AtomicUsize>,
}

impl Core for Idle {
    type Transport = Pipe;
    type Errand = NoErrand;
    type Sources = prov_message::sources::Known;

    fn endpoints(&mut self) -> &mut Endpoints<Pipe> {
        &mut self.endpoints
    }

    fn transmit(&mut self, _: EpKey, _: &Transmit) -> Result {
        Ok(())
    }

    fn act(&mut self, _: Action<Pipe>) {}

    fn progress(&mut self) -> Idling {
        self.turns.fetch_add(1, Ordering::Relaxed);
        Idling::Continues
    }

    fn close(&mut self, _: EpKey) {}
}

struct Domain {
    lanes: Vec<Arc<Lane<Idle>>>,
    turns: Vec<Arc<AtomicUsize>>,
}

impl Domain {
    fn of(count: usize) -> Self {
        let all = Arc::<Lanes<Idle>>::default();
        let turns: Vec<Arc<AtomicUsize>> = (0..count).map(|_| Arc::default()).collect();
        let open = |turns: &Arc<AtomicUsize>| {
            let endpoints = Endpoints::new(LIMITS);
            let turns = turns.clone();
            let lane = Lane::start(LockKind::Real, |_| Ok(Idle { endpoints, turns })).unwrap();
            all.add(&lane).unwrap();
            lane.is_one_of(&all);
            lane
        };
        let lanes = turns.iter().map(open).collect();
        Domain { lanes, turns }
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
