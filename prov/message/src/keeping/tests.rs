use prov_util::mr::Job;
use slotmap::{DefaultKey, SlotMap};

use super::*;
use crate::arriving::{Arrival, Unmatched};
use crate::endpoints::{Attributes, EpKey};

enum Pipe {}

impl Transport for Pipe {
    type Link = DefaultKey;
    type Ack = ();
    type Name = u64;
    type Endpoint = ();
}

struct World {
    endpoints: Endpoints<Pipe>,
    ep: EpKey,
    links: SlotMap<DefaultKey, ()>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut endpoints = Endpoints::new(limits);
        let attributes = Attributes {
            tx_size: 1,
            rx_size: 1 << 20,
            directed: false,
            rx_caps: u64::MAX,
            job: Job::NONE,
        };
        World {
            ep: endpoints.add(attributes, ()),
            endpoints,
            links: SlotMap::new(),
        }
    }

    fn from(&self, link: DefaultKey, src: u64, len: usize, announces: bool) -> Arrival<Pipe> {
        Arrival {
            link,
            ep: self.ep,
            src,
            tagged: false,
            tag: 0,
            len,
            data: None,
            ack: (),
            announces,
        }
    }

    /// Whether a message is kept, all of which comes at once.
    fn keeps(&mut self, arrival: &Arrival<Pipe>) -> bool {
        match self.endpoints.unmatched(arrival) {
            Unmatched::Keep(kept) => {
                assert!(self.endpoints.append(kept, &vec![0; arrival.len], 0));
                self.endpoints.kept(kept);
                true
            }
            Unmatched::Complete => true,
            Unmatched::HeldBack => false,
            Unmatched::Gone => panic!("the endpoint is open"),
        }
    }
}

const LINKS: usize = 4000;

#[test]
fn an_admission_looks_at_no_more_links_than_go_on() {
    let mut world = World::new(Limits {
        unexpected: 1 << 20,
        ..Limits::default()
    });
    for _ in 0..LINKS {
        let link = world.links.insert(());
        let message = world.from(link, 0, 64 << 10, false);
        while world.keeps(&message) {}
    }
    let before = world.endpoints.kept.visits;
    for _ in 0..100 {
        world.endpoints.admit_held_back();
    }
    let visits = world.endpoints.kept.visits - before;
    assert!(visits <= 100, "{visits} visits for 100 admissions");
}

#[test]
fn an_admission_looks_at_no_more_throttled_links_than_recover() {
    let mut world = World::new(Limits {
        unexpected: 1 << 20,
        ..Limits::default()
    });
    for _ in 0..LINKS {
        let link = world.links.insert(());
        assert!(world.keeps(&world.from(link, 0, 60 << 10, true)));
    }
    assert!(world.endpoints.throttled().count() > LINKS / 2);
    let before = world.endpoints.kept.visits;
    for _ in 0..100 {
        world.endpoints.admit_held_back();
    }
    let visits = world.endpoints.kept.visits - before;
    assert!(visits <= 100, "{visits} visits for 100 admissions");
}
