//! Which receive gets which message.

use fabric_abi::{FI_MULTI_RECV, FI_RECV};
use prov_base::errno::Errno;

use crate::behaviours::messages::lengths;
use crate::{Bench, Message, Place, World};

/// Receives that match are filled in the order of the messages, whatever their lengths.
pub fn messages_of_a_sender_are_matched_in_order<B: Bench>() {
    let lengths = lengths::<B>();
    let lengths: Vec<usize> = lengths.into_iter().filter(|len| *len < 1 << 20).collect();
    const COUNT: usize = 120;
    for posted in [COUNT, COUNT / 2, 0] {
        let world = World::<B>::of(2);
        let len_of = |number: usize| lengths[number * 7 % lengths.len()];
        let into: Vec<Place> = (0..COUNT).map(|_| Place::empty(70_001)).collect();
        let receive = |number: usize| {
            let message = Message::any()
                .tag(1)
                .with(into[number])
                .context(100 + number);
            world[1].receive(message);
        };
        (0..posted).for_each(receive);
        for number in 0..COUNT {
            let out = Place::pattern(number, len_of(number).min(70_001));
            world.send(0, Message::to(1).tag(1).with(out));
        }
        (posted..COUNT).for_each(receive);
        for (number, into) in into.iter().enumerate() {
            let len = len_of(number).min(70_001);
            assert_eq!(world.done(1, 100 + number).len, len);
            assert!(into.has(number, len), "message {number} of {len} bytes");
            world.sent(0);
        }
        world.is_quiet();
    }
}

/// Of several messages that match, the oldest one is received; of several receives, too.
pub fn the_oldest_message_that_matches_is_received<B: Bench>() {
    let world = World::<B>::of(2);
    let order = [3, 1, 2, 1, 3];
    for (number, tag) in order.into_iter().enumerate() {
        let out = Place::pattern(number, 16);
        world.send(0, Message::to(1).tag(tag).with(out));
    }
    for (tag, number) in [(1, 1), (3, 0), (1, 3), (2, 2), (3, 4)] {
        let into = Place::empty(16);
        world[1].receive(Message::any().tag(tag).with(into));
        assert_eq!(world.received(1).tag, tag);
        assert!(into.has(number, 16), "tag {tag}");
        world.sent(0);
    }
    world.is_quiet();
}

/// A receive matches every tag that differs in bits which it ignores.
pub fn ignored_bits_are_not_compared<B: Bench>() {
    let world = World::<B>::of(2);
    let into = [Place::empty(8), Place::empty(8)];
    let receives = [(0xf0, 0x0f, 50), (0x00, u64::MAX, 51)];
    for ((tag, ignore, context), into) in receives.into_iter().zip(&into) {
        world[1].receive(
            Message::any()
                .tag(tag)
                .ignoring(ignore)
                .with(*into)
                .context(context),
        );
    }
    for (number, tag) in [0x1f0, 0xf7].into_iter().enumerate() {
        let out = Place::pattern(number, 8);
        world.send(0, Message::to(1).tag(tag).with(out));
        world.sent(0);
    }
    assert_eq!(world.done(1, 51).tag, 0x1f0);
    assert_eq!(world.done(1, 50).tag, 0xf7);
    assert!(into[1].has(0, 8) && into[0].has(1, 8));
    world.is_quiet();
}

/// A receive without a tag takes no tagged message, nor the other way round.
pub fn tagged_and_untagged_messages_are_apart<B: Bench>() {
    let world = World::<B>::of(2);
    let (plain, tagged) = (Place::empty(8), Place::empty(8));
    world[1].receive(Message::any().with(plain).context(50));
    world[1].receive(
        Message::any()
            .tag(0)
            .ignoring(u64::MAX)
            .with(tagged)
            .context(51),
    );
    for (number, tag) in [Some(0), None].into_iter().enumerate() {
        let out = Place::pattern(number, 8);
        world.send(0, Message::to(1).maybe_tagged(tag).with(out));
        world.sent(0);
    }
    world.done(1, 50);
    world.done(1, 51);
    assert!(plain.has(1, 8) && tagged.has(0, 8));
    world.is_quiet();
}

/// A message that is longer than its receive is cut off, with an error entry; nothing is written behind
/// the receive's memory, and the next message is whole.
pub fn a_short_receive_is_truncated_and_the_next_is_whole<B: Bench>() {
    let world = World::<B>::of(2);
    for (len, room) in [(100, 40), (20_000, 19_000), (300_000, 8), (3 << 20, 0)] {
        for is_expected in [true, false] {
            let (out, into) = (Place::pattern(1, len), Place::empty(room + 64));
            let part = into.part(0, room);
            let receive = Message::any().tag(1).with(part);
            if is_expected {
                world[1].receive(receive);
            }
            world.send(0, Message::to(1).tag(1).with(out));
            if !is_expected {
                world.settle();
                world[1].receive(receive);
            }
            let error = world.failed(1, 7);
            assert_eq!((error.err, error.olen), (Errno::ETRUNC, len - room));
            assert_eq!(
                into.part(room, 64).bytes(),
                [0xee; 64],
                "{len} bytes into {room}"
            );
            // The sender's completion says that it has sent, or that not all was received.
            world.until(|| {
                world[0]
                    .take(9)
                    .is_some()
                    .then_some(())
                    .or(world[0].take_error(9).map(|_| ()))
            });
            let (out, into) = (Place::pattern(2, len), Place::empty(len));
            world[1].receive(Message::any().tag(1).with(into));
            world.send(0, Message::to(1).tag(1).with(out));
            world.received(1);
            assert!(into.has(2, len));
            world.sent(0);
        }
    }
    world.is_quiet();
}

/// A buffer for several messages (`FI_MULTI_RECV`) has them one behind the other, until one does not
/// fit any more.
pub fn a_buffer_takes_several_messages<B: Bench>() {
    let world = World::<B>::of(2);
    world[1].needs_room(300);
    let first = Place::empty(1000);
    let second = Place::empty(1000);
    world[1].receive(Message::any().with(first).flags(FI_MULTI_RECV).context(50));
    world[1].receive(Message::any().with(second).flags(FI_MULTI_RECV).context(51));
    for number in 0..6 {
        let out = Place::pattern(number, 300);
        world.send(0, Message::to(1).with(out));
    }
    let mut at = [0, 0];
    for number in 0..6 {
        let which = number / 3;
        let place = [first, second][which];
        // The release of the buffer may be an entry of its own.
        let received = world.until(|| {
            world[1]
                .take(50 + which)
                .filter(|one| one.flags & FI_RECV != 0)
        });
        assert_eq!(received.len, 300);
        assert_eq!(
            received.buf.addr(),
            place.part(at[which], 300).lend().address().addr()
        );
        assert!(
            place.part(at[which], 300).has(number, 300),
            "message {number}"
        );
        at[which] += 300;
        world.sent(0);
    }
}
