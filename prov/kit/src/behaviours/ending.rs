//! Endpoints that close.

use fabric_abi::FI_DELIVERY_COMPLETE;

use crate::{Bench, Message, Place, Setting, World};

/// An endpoint closes with receives, messages that arrive, and messages that nobody receives; the other
/// ones go on.
pub fn an_endpoint_closes_with_everything_under_way<B: Bench>() {
    for len in [8, 20_000, 3 << 20] {
        let mut world = World::<B>::of_strangers(Setting::default(), 2);
        for (at, of) in [(0, 1), (1, 0)] {
            assert_eq!(world[at].insert(&world[of]), 0);
        }
        let third = world.join();
        let to = [
            world[0].insert(&world[third]),
            world[third].insert(&world[0]),
        ];
        let (out, into) = (Place::pattern(1, len), Place::empty(len));
        for side in [0, third] {
            for _ in 0..5 {
                let peer = if side == 0 { to[0] } else { to[1] };
                world.send(side, Message::to(peer).tag(1).with(out).context(20));
                world[side].receive(Message::any().tag(2).with(into).context(21));
            }
            world.turn();
        }
        world.close(third);
        for number in 0..20 {
            let (out, into) = (Place::pattern(number, len), Place::empty(len));
            world[1].receive(Message::any().tag(1).with(into));
            world.send(0, Message::to(0).tag(1).with(out));
            world.received(1);
            world.sent(0);
            assert!(into.has(number, len), "{len} bytes");
        }
    }
}

/// What an endpoint has sent, and was told is delivered, is received after it has closed.
pub fn what_was_received_from_an_endpoint_that_closed_is_there<B: Bench>() {
    let mut world = World::<B>::of_strangers(Setting::default(), 1);
    let second = world.join();
    let to = world[second].insert(&world[0]);
    for number in 0..10 {
        let out = Place::pattern(number, 3000);
        let message = Message::to(to).tag(1).with(out).flags(FI_DELIVERY_COMPLETE);
        let into = Place::empty(3000);
        // A provider may take a message for delivered when a receive has it, or when it is kept.
        world[0].receive(Message::any().tag(1).with(into).context(50 + number));
        world.send(second, message);
        world.sent(second);
        assert!(into.has(number, 3000));
    }
    world.close(second);
    for number in 0..10 {
        assert_eq!(world.done(0, 50 + number).len, 3000);
    }
}
