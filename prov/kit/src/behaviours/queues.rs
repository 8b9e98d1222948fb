//! Many operations, and queues that are full.

use prov_base::errno::Errno;

use crate::{Bench, Message, Place, Setting, World};

/// Messages without receives, in both directions, are all there when they are asked for.
pub fn many_unexpected_messages_are_received_in_reverse<B: Bench>() {
    const COUNT: usize = 1500;
    let world = World::<B>::of(2);
    for number in 0..COUNT {
        for side in 0..2 {
            let out = Place::pattern(number + side, 8);
            let peer = 1 - side as u64;
            world.send(side, Message::to(peer).tag(number as u64).with(out));
        }
    }
    for number in (0..COUNT).rev() {
        for side in 0..2 {
            let into = Place::empty(8);
            world[side].receive(Message::any().tag(number as u64).with(into));
            assert_eq!(world.received(side).len, 8);
            assert!(into.has(number + 1 - side, 8), "message {number}");
        }
    }
    for side in 0..2 {
        (0..COUNT).for_each(|_| {
            world.sent(side);
        });
    }
    world.is_quiet();
}

/// A sender whose messages nobody receives does not keep others from theirs.
pub fn a_third_endpoint_is_not_held_up<B: Bench>() {
    let world = World::<B>::of(3);
    let mut sent = 0;
    let out = Place::pattern(1, 30_000);
    // As many as it can have in progress, at most.
    for _ in 0..200 {
        match world[0].send(Message::to(1).tag(1).with(out)) {
            Err(Errno::EAGAIN) => break,
            posted => posted.unwrap(),
        }
        sent += 1;
        world.turn();
    }
    for number in 0..50 {
        let (out, into) = (Place::pattern(number, 5000), Place::empty(5000));
        world[1].receive(Message::any().tag(2).with(into));
        world.send(2, Message::to(1).tag(2).with(out).context(8));
        world.received(1);
        world.done(2, 8);
        assert!(into.has(number, 5000));
    }
    for _ in 0..sent {
        let into = Place::empty(30_000);
        world[1].receive(Message::any().tag(1).with(into));
        world.received(1);
        assert!(into.has(1, 30_000));
        world.sent(0);
    }
    world.is_quiet();
}

/// A transmit queue of a few operations is full with as many that wait for the receiver, and has room
/// when they are received.
pub fn a_full_queue_has_room_again<B: Bench>() {
    const SIZE: usize = 8;
    /// So long that a message waits for its receive wherever it is sent.
    const LEN: usize = 6 << 20;
    let setting = Setting {
        tx_size: SIZE,
        ..Setting::default()
    };
    let world = World::<B>::with(setting, 2);
    let out = Place::pattern(1, LEN);
    let message = Message::to(1).tag(1).with(out);
    let mut sent = 0;
    while sent < 4 * SIZE {
        match world[0].send(message) {
            Err(Errno::EAGAIN) => break,
            posted => posted.unwrap(),
        }
        sent += 1;
    }
    assert!(sent < 4 * SIZE, "it is never full");
    let receive = |context| {
        let into = Place::empty(LEN);
        world[1].receive(Message::any().tag(1).with(into).context(context));
        world.done(1, context);
        assert!(into.has(1, LEN));
        world.sent(0);
    };
    receive(7);
    world.send(0, message);
    (0..sent).for_each(|_| receive(7));
    world.is_quiet();
}
