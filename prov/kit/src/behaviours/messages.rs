//! Single messages: fi_msg(3), fi_tagged(3).

use fabric_abi::{
    FI_DELIVERY_COMPLETE, FI_INJECT, FI_MSG, FI_RECV, FI_REMOTE_CQ_DATA, FI_SEND, FI_TAGGED,
    FI_TRANSMIT_COMPLETE,
};

use crate::{Bench, Message, Place, Property, World};

/// Lengths in bytes that a provider may treat in other ways: those that it names and their neighbours.
pub(crate) fn lengths<B: Bench>() -> Vec<usize> {
    let named = B::STEPS
        .iter()
        .flat_map(|step| [step.saturating_sub(1), *step, step + 1]);
    let mut all: Vec<usize> = [0, 1, 8, 100, 4096, 70_000, 3 << 20]
        .into_iter()
        .chain(named)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Messages of all lengths arrive whole, whether a receive waits for them or they for a receive, with
/// each kind of completion.
pub fn messages_of_all_lengths_arrive_expected_or_not<B: Bench>() {
    let world = World::<B>::of(2);
    for (round, flags) in [0, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE]
        .into_iter()
        .enumerate()
    {
        for (number, len) in lengths::<B>().into_iter().enumerate() {
            let is_tagged = number % 2 == 0 && !B::LACKS.contains(&Property::Matching);
            let tag = is_tagged.then_some((round * 100 + number) as u64);
            let (out, into) = (Place::pattern(number, len), Place::empty(len));
            let receive = || world[1].receive(Message::any().maybe_tagged(tag).with(into));
            let is_expected = (number + round) % 2 == 0;
            if is_expected {
                receive();
            }
            world.send(0, Message::to(1).maybe_tagged(tag).with(out).flags(flags));
            if !is_expected {
                world.settle();
                receive();
            }
            let received = world.received(1);
            let kind = if tag.is_some() { FI_TAGGED } else { FI_MSG };
            assert_eq!((received.len, received.tag), (len, tag.unwrap_or(0)));
            assert_eq!(received.flags & (FI_RECV | kind), FI_RECV | kind);
            assert!(
                into.has(number, len),
                "{len} bytes, expected: {is_expected}"
            );
            let sent = world.sent(0);
            assert_eq!(sent.flags & (FI_SEND | kind), FI_SEND | kind);
        }
    }
    world.is_quiet();
}

/// What an endpoint sends to itself arrives, whichever comes first.
pub fn an_endpoint_sends_to_itself<B: Bench>() {
    let world = World::<B>::of(1);
    for (number, len) in lengths::<B>().into_iter().enumerate() {
        let (out, into) = (Place::pattern(number, len), Place::empty(len));
        let receive = Message::any().tag(5).with(into);
        if number % 2 == 0 {
            world[0].receive(receive);
        }
        world.send(0, Message::to(0).tag(5).with(out));
        if number % 2 != 0 {
            world.settle();
            world[0].receive(receive);
        }
        assert_eq!(world.received(0).len, len);
        world.sent(0);
        assert!(into.has(number, len), "{len} bytes");
    }
    world.is_quiet();
}

/// `FI_INJECT`: the memory may be used again when the call returns.
pub fn injected_memory_is_free_at_once<B: Bench>() {
    let world = World::<B>::of(2);
    let out = Place::empty(64);
    for number in 0..50 {
        world.post(|| {
            let given = Place::pattern(number, 64);
            let message = Message::to(1).tag(3).with(given).flags(FI_INJECT);
            let posted = world[0].send(message);
            given.fill(0);
            posted
        });
    }
    for number in 0..50 {
        world[1].receive(Message::any().tag(3).with(out));
        world.received(1);
        assert!(out.has(number, 64), "message {number}");
        world.sent(0);
    }
    world.is_quiet();
}

/// Two endpoints that send to each other for the first time, at the same time.
pub fn messages_from_both_sides_cross<B: Bench>() {
    for len in [8, 20_000, 1 << 20] {
        let world = World::<B>::of(2);
        let into = [Place::empty(len), Place::empty(len)];
        for (side, into) in into.iter().enumerate() {
            world[side].receive(Message::any().tag(1).with(*into));
        }
        for side in 0..2 {
            let out = Place::pattern(side, len);
            world.send(side, Message::to(1 - side as u64).tag(1).with(out));
        }
        for (side, into) in into.iter().enumerate() {
            assert_eq!(world.received(side).len, len);
            world.sent(side);
            assert!(into.has(1 - side, len), "{len} bytes");
        }
        world.is_quiet();
    }
}

/// Messages without bytes complete at both ends.
pub fn empty_messages_have_completions<B: Bench>() {
    let world = World::<B>::of(2);
    for tag in [None, Some(0)] {
        world[1].receive(Message::any().maybe_tagged(tag));
        world.send(0, Message::to(1).maybe_tagged(tag));
        assert_eq!(world.received(1).len, 0);
        world.sent(0);
    }
    world.is_quiet();
}

/// `FI_REMOTE_CQ_DATA`: 64 bits come with a message, and with no other.
pub fn data_comes_with_messages<B: Bench>() {
    let world = World::<B>::of(2);
    for (number, len) in lengths::<B>().into_iter().enumerate() {
        for tag in [None, Some(4)] {
            let (out, into) = (Place::pattern(number, len), Place::empty(len));
            let data = if number % 2 == 0 {
                0xfedc_ba98_7654_3210 + number as u64
            } else {
                0
            };
            let flags = if number % 2 == 0 {
                FI_REMOTE_CQ_DATA
            } else {
                0
            };
            world[1].receive(Message::any().maybe_tagged(tag).with(into));
            world.send(
                0,
                Message::to(1)
                    .maybe_tagged(tag)
                    .with(out)
                    .data(data)
                    .flags(flags),
            );
            let received = world.received(1);
            assert_eq!(received.flags & FI_REMOTE_CQ_DATA, flags, "{len} bytes");
            if flags != 0 {
                assert_eq!(received.data, data);
            }
            assert!(into.has(number, len));
            world.sent(0);
        }
    }
    world.is_quiet();
}

/// A message in several pieces is received into others.
pub fn pieces_are_gathered_and_scattered<B: Bench>() {
    let world = World::<B>::of(2);
    for len in [10, 1000, 100_000] {
        let (out, into) = (Place::pattern(6, len), Place::empty(len));
        let cuts = |place: Place, at: [usize; 2]| {
            [
                place.part(0, at[0]),
                place.part(at[0], at[1] - at[0]),
                place.part(at[1], len - at[1]),
            ]
        };
        let (from, to) = (cuts(out, [1, len / 2]), cuts(into, [len / 3, len - 2]));
        world[1].receive(Message::any().tag(2).in_pieces(&to));
        world.send(0, Message::to(1).tag(2).in_pieces(&from));
        assert_eq!(world.received(1).len, len);
        world.sent(0);
        assert!(into.has(6, len), "{len} bytes");
    }
    world.is_quiet();
}
