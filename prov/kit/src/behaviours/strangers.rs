//! Endpoints that are not in the receiver's address vector, and send more than is kept of them.

use std::sync::Mutex;

use fabric_abi::FI_PEEK;
use prov_message::{StrangersKept, StrangersLimits};

use crate::{Bench, Message, Place, RECEIVED, SENT, Setting, World};

/// Limit of the bytes of all strangers, for about 100 messages of 8 bytes; one stranger has half of it.
const BYTES: usize = 100 * (1024 + 128 + 8);
/// Limit of announcements of all strangers.
const ANNOUNCEMENTS: usize = 8;
/// Lengths and numbers of messages, each of them more than are kept.
const FLOODS: [(usize, usize); 3] = [(8, 300), (40_000, 40), (300_000, 20)];

/// Counters of their own for each world: those of the process are for its other tests.
fn limits() -> StrangersLimits {
    static ALL: Mutex<Vec<&StrangersKept>> = Mutex::new(Vec::new());
    let of: &StrangersKept = Box::leak(Box::default());
    ALL.lock().unwrap().push(of);
    StrangersLimits {
        of,
        bytes: BYTES,
        announcements: ANNOUNCEMENTS,
    }
}

/// A stranger, and an endpoint that it knows.
struct Flood<B: Bench> {
    world: World<B>,
    len: usize,
    count: usize,
    sent: usize,
}

impl<B: Bench> Flood<B> {
    /// Sends until the stranger is held back, or all waits for room at some place.
    fn new((len, count): (usize, usize)) -> Self {
        let setting = Setting {
            strangers: Some(limits()),
            ..Setting::default()
        };
        let world = World::of_strangers(setting, 2);
        assert_eq!(world[0].insert(&world[1]), 0);
        let mut sent = 0;
        world.until(|| {
            send(&world, len, count, &mut sent);
            let is_over = sent == count && has_arrived(&world, 0);
            (is_over || world[1].holds_strangers_back()).then_some(())
        });
        world.settle();
        assert!(
            world[1].kept() <= BYTES,
            "{} bytes are kept",
            world[1].kept()
        );
        Flood {
            world,
            len,
            count,
            sent,
        }
    }

    /// Receives all messages, in this order, while the rest of them is sent.
    fn receive_all(mut self, order: impl Iterator<Item = usize>) {
        let world = &self.world;
        for number in order {
            let into = Place::empty(self.len);
            world[1].receive(Message::any().tag(number as u64).with(into));
            world.until(|| {
                send(world, self.len, self.count, &mut self.sent);
                world[1].take(RECEIVED)
            });
            assert!(into.has(number, self.len), "message {number}");
        }
        for _ in 0..self.count {
            world.sent(0);
        }
        assert!(!world[1].holds_strangers_back());
        assert_eq!(world[1].kept(), 0);
        world.is_quiet();
    }

    /// The message that the stranger is held back with, or that before it: the last one that the
    /// receiver knows of.
    fn held_back_with(&self) -> usize {
        let is_known = |number: &usize| has_arrived(&self.world, *number);
        (0..self.sent).take_while(is_known).count() - 1
    }
}

/// Whether the receiver knows of a message that it has not received.
fn has_arrived<B: Bench>(world: &World<B>, number: usize) -> bool {
    let look = Message::any().tag(number as u64).flags(FI_PEEK);
    world[1].receive(look.context(60));
    world.until(|| {
        let found = world[1].take(60).map(|_| true);
        found.or_else(|| world[1].take_error(60).map(|_| false))
    })
}

/// Sends as much as there is room for.
fn send<B: Bench>(world: &World<B>, len: usize, count: usize, sent: &mut usize) {
    while *sent < count {
        let out = Place::pattern(*sent, len);
        let message = Message::to(0).tag(*sent as u64).with(out).context(SENT);
        if world[0].send(message).is_err() {
            return;
        }
        *sent += 1;
    }
}

/// What has no room is received when the application posts receives for it, in order.
pub fn a_stranger_that_floods_is_held_back_and_loses_nothing<B: Bench>() {
    for flood in FLOODS {
        Flood::<B>::new(flood).receive_all(0..flood.1);
    }
}

/// A receive for the message that has no room is enough; those that were kept come last.
pub fn a_receive_takes_the_message_that_a_stranger_is_held_back_with<B: Bench>() {
    for flood in FLOODS {
        let all = Flood::<B>::new(flood);
        let first = all.held_back_with();
        all.receive_all((first..flood.1).chain(0..first));
    }
}

/// Once the stranger is inserted, it is a peer like others: everything it sends is kept.
pub fn a_stranger_resumes_when_it_is_inserted<B: Bench>() {
    for flood in FLOODS {
        let all = Flood::<B>::new(flood);
        assert_eq!(all.world[1].insert(&all.world[0]), 0);
        all.receive_all((0..flood.1).rev());
    }
}
