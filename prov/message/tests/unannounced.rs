//! Accounting of senders that cannot announce their messages, beside those that can.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

mod pipe;

use fabric_abi::FI_ADDR_UNSPEC;
use pipe::Pipe;
use proptest::prelude::*;
use prov_base::buffer::AppIov;
use prov_base::errno::Result;
use prov_message::lane::NoErrand;
use prov_message::{
    Action, Arrival, Core, Course, Endpoints, EpKey, Idling, Limits, UnexpectedHandle, Unmatched,
};
use prov_util::desc::Descs;
use prov_util::matching::ANY_SOURCE;
use prov_util::request::{Receive, Select, Transmit};
use slotmap::{DefaultKey, SlotMap};

const LIMITS: Limits = Limits {
    unexpected: 100_000,
    in_flight: 50_000,
    announcements: 1000,
    unannounced: 200_000,
    saved: 4,
    memory: 10_000_000,
    strangers: None,
};
/// Length of a message that exceeds any budget, and fewer such messages than the memory limit
/// allows.
const HUGE: usize = 1_000_000;

struct World {
    endpoints: Endpoints<Pipe>,
    ep: EpKey,
    links: Vec<DefaultKey>,
    actions: Vec<Action<Pipe>>,
}

impl Core for World {
    type Transport = Pipe;
    type Errand = NoErrand;
    type Sources = prov_message::sources::Known;

    fn endpoints(&mut self) -> &mut Endpoints<Pipe> {
        &mut self.endpoints
    }

    fn transmit(&mut self, _: EpKey, _: &mut Transmit) -> Result {
        Ok(())
    }

    fn act(&mut self, action: Action<Pipe>) {
        self.actions.push(action);
    }

    fn progress(&mut self) -> Idling {
        Idling::No
    }

    fn prepare_wait(&mut self, _sleeper: prov_message::Sleeper) -> bool {
        true
    }

    fn close(&mut self, _: EpKey) {}
}

impl World {
    fn new(links: usize) -> Self {
        let mut endpoints = Endpoints::new(LIMITS);
        let ep = pipe::add(&mut endpoints, 10, 10_000);
        let mut keys = SlotMap::new();
        World {
            endpoints,
            ep,
            links: (0..links).map(|_| keys.insert(())).collect(),
            actions: Vec::new(),
        }
    }

    /// A message that a C peer in the address vector sends.
    fn from(&self, link: usize, tag: u64, len: usize) -> Arrival<Pipe> {
        pipe::arrival((self.ep, self.links[link]), link as u64, Some(tag), len)
    }

    /// Whether the message is kept, and not held back.
    fn keeps(&mut self, arrival: &Arrival<Pipe>) -> bool {
        match self.endpoints.unmatched(arrival) {
            Unmatched::Keep(kept) => {
                self.comes(kept, arrival.len);
                true
            }
            Unmatched::Complete => true,
            Unmatched::HeldBack => false,
            Unmatched::Gone => panic!("the endpoint is gone"),
        }
    }

    /// The content does not matter, only the length.
    fn comes(&mut self, kept: UnexpectedHandle, len: usize) {
        let half = len / 2;
        assert!(self.endpoints.append(kept, &vec![1; half], len - half));
        assert!(self.endpoints.append(kept, &vec![2; len - half], 0));
        self.endpoints.kept(kept);
    }

    fn receive(&mut self, tag: u64) {
        let mut receive = Receive {
            select: Select::Tagged { tag, ignore: 0 },
            buffers: AppIov::EMPTY,
            desc: Descs::NONE,
            peer: FI_ADDR_UNSPEC,
            flags: 0,
            context: std::ptr::null_mut(),
        };
        let poster = self.endpoints.poster(self.ep).unwrap();
        self.endpoints.post(poster, &mut receive).unwrap();
        self.endpoints.admit_held_back();
    }

    /// The links that continue, and whether their messages are kept.
    fn resumed(&mut self) -> Vec<(DefaultKey, bool)> {
        let mut resumed = Vec::new();
        self.follow_up();
        for action in std::mem::take(&mut self.actions) {
            if let Action::Resume(link, course) = action {
                let is_kept = matches!(course, Course::Keep(_));
                if let Course::Keep(kept) = course {
                    self.endpoints.kept(kept);
                }
                resumed.push((link, is_kept));
            }
        }
        resumed
    }
}

#[test]
fn the_first_tagged_messages_of_a_known_sender_are_kept_whatever_their_length() {
    let mut world = World::new(2);
    for tag in 0..4 {
        assert!(world.keeps(&world.from(0, tag, HUGE)));
    }
    assert!(!world.keeps(&world.from(0, 4, HUGE)));
    // And those of another sender, too.
    assert!(world.keeps(&world.from(1, 9, HUGE)));
    // The waiting message is kept when one of the others is received.
    world.receive(2);
    assert_eq!(world.resumed(), [(world.links[0], true)]);
}

#[test]
fn neither_strangers_nor_untagged_messages_have_more_than_their_budget() {
    let mut world = World::new(2);
    let stranger = Arrival {
        src: ANY_SOURCE,
        ..world.from(0, 1, HUGE)
    };
    assert!(!world.keeps(&stranger));
    let untagged = Arrival {
        tagged: false,
        ..world.from(1, 0, HUGE)
    };
    assert!(!world.keeps(&untagged));
    // The stranger's message is kept once its sender is known.
    world.endpoints.relabel(world.ep, world.links[0], 5);
    assert_eq!(world.resumed(), [(world.links[0], true)]);
}

#[test]
fn nothing_is_kept_beyond_the_memory_limit() {
    let mut world = World::new(5);
    let kept = (0..20).filter(|&i| world.keeps(&world.from(i % 5, 0, HUGE)));
    assert_eq!(kept.count(), 9);
    assert!(world.endpoints.kept_bytes() <= LIMITS.memory);
}

#[test]
fn senders_that_cannot_announce_leave_the_others_their_room() {
    let mut world = World::new(2);
    while world.keeps(&world.from(0, 7, 1000)) {}
    // Half of its own budget, and half of the shared one.
    assert!(world.endpoints.kept_bytes() > 140_000);
    let announced = Arrival {
        announces: true,
        ..world.from(1, 0, 30_000)
    };
    assert!(world.keeps(&announced));
}

proptest! {
    #[test]
    fn the_buffered_messages_are_those_not_received(
        steps in prop::collection::vec((0usize..3, any::<bool>(), 0usize..60_000), 0..100)
    ) {
        let mut world = World::new(3);
        let mut waiting = Vec::new();
        let mut is_held_back = [false; 3];
        for (tag, (link, receives, len)) in steps.into_iter().enumerate() {
            let tag = tag as u64;
            if !receives && !is_held_back[link] {
                is_held_back[link] = !world.keeps(&world.from(link, tag, len));
                waiting.push(tag);
            } else if !waiting.is_empty() {
                world.receive(waiting.swap_remove(len % waiting.len()));
            }
            for (link, _) in world.resumed() {
                let link = world.links.iter().position(|&other| other == link).unwrap();
                prop_assert!(std::mem::take(&mut is_held_back[link]));
            }
        }
        for tag in waiting {
            world.receive(tag);
            world.resumed();
        }
        prop_assert_eq!(world.endpoints.kept_bytes(), 0);
    }
}
