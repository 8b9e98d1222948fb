//! Who has sent a message.

use fabric_abi::FI_ADDR_NOTAVAIL;

use crate::{Bench, Message, Place, Setting, World};

/// A completion has the sender's number in the receiver's address vector.
pub fn a_completion_names_the_source<B: Bench>() {
    let world = World::<B>::of(3);
    for from in [2, 0, 1] {
        for len in [8, 70_000] {
            let (out, into) = (Place::pattern(from, len), Place::empty(len));
            world[1].receive(Message::any().tag(1).with(into));
            world.send(from, Message::to(1).tag(1).with(out));
            assert_eq!(world.received(1).src, from as u64);
            world.sent(from);
            assert!(into.has(from, len));
        }
    }
    world.is_quiet();
}

/// A receive that names a source takes no message of another one (`FI_DIRECTED_RECV`).
pub fn a_directed_receive_takes_its_source<B: Bench>() {
    let setting = Setting {
        directed: true,
        ..Setting::default()
    };
    let world = World::<B>::with(setting, 3);
    for is_expected in [true, false] {
        let into = [Place::empty(100), Place::empty(100)];
        let receive = |from: usize| {
            let place = into[from / 2];
            world[1].receive(
                Message::from(from as u64)
                    .tag(1)
                    .with(place)
                    .context(50 + from),
            );
        };
        if is_expected {
            [2, 0].into_iter().for_each(receive);
        }
        for from in [0, 2] {
            let out = Place::pattern(from, 100);
            world.send(from, Message::to(1).tag(1).with(out));
        }
        if !is_expected {
            world.settle();
            [2, 0].into_iter().for_each(receive);
        }
        for from in [0, 2] {
            assert_eq!(world.done(1, 50 + from).src, from as u64);
            assert!(into[from / 2].has(from, 100), "from {from}");
            world.sent(from);
        }
    }
    world.is_quiet();
}

/// An endpoint that the receiver does not know can send to it, and has a number when it has been
/// inserted.
pub fn a_stranger_has_no_number_until_it_is_inserted<B: Bench>() {
    let world = World::<B>::of_strangers(Setting::default(), 2);
    let to = world[0].insert(&world[1]);
    for expected in [FI_ADDR_NOTAVAIL, 0] {
        let (out, into) = (Place::pattern(1, 500), Place::empty(500));
        world[1].receive(Message::any().tag(1).with(into));
        world.send(0, Message::to(to).tag(1).with(out));
        assert_eq!(world.received(1).src, expected);
        world.sent(0);
        assert!(into.has(1, 500));
        if expected == FI_ADDR_NOTAVAIL {
            assert_eq!(world[1].insert(&world[0]), 0);
        }
    }
    world.is_quiet();
}

/// A message of an endpoint that has closed is received with the number that the address has then.
pub fn a_message_has_the_number_that_its_peer_has_when_it_is_received<B: Bench>() {
    type Change<B> = fn(&World<B>);
    let removed: Change<B> = |world| world[0].remove(0);
    let inserted: Change<B> = |world| _ = world[0].insert(&world[1]);
    let moved: Change<B> = |world| {
        world[0].remove(0);
        assert_eq!(world[0].insert(&world[2]), 0);
        assert_eq!(world[0].insert(&world[1]), 1);
    };
    let cases: [(bool, Option<Change<B>>, u64); 5] = [
        (true, None, 0),
        (true, Some(removed), FI_ADDR_NOTAVAIL),
        (false, None, FI_ADDR_NOTAVAIL),
        (false, Some(inserted), 0),
        (true, Some(moved), 1),
    ];
    for (is_known, change, expected) in cases {
        // The third one is open before the second one closes: it has another address.
        let mut world = World::<B>::of_strangers(Setting::default(), 3);
        if is_known {
            world[0].insert(&world[1]);
        }
        let to = world[1].insert(&world[0]);
        let (out, into) = (Place::pattern(4, 8), Place::empty(8));
        world.send(1, Message::to(to).tag(1).with(out));
        world.sent(1);
        world.until(|| (world[0].kept() != 0).then_some(()));
        world.end(1);
        world.until(|| {
            world[0]
                .links()
                .is_none_or(|links| links == 0)
                .then_some(())
        });
        world.settle();
        if let Some(change) = change {
            change(&world);
        }
        world[0].receive(Message::any().tag(1).with(into));
        assert_eq!(world.received(0).src, expected);
        assert!(into.has(4, 8));
        assert_eq!(world[0].kept(), 0);
        world.is_quiet();
    }
}
