//! Looking for tagged messages (`FI_PEEK`, `FI_CLAIM`, `FI_DISCARD`): fi_tagged(3).

use fabric_abi::{FI_CLAIM, FI_DISCARD, FI_PEEK};
use prov_base::errno::Errno;

use crate::{Bench, Message, Place, World};

/// Looks until there is a message.
fn until_seen<B: Bench>(world: &World<B>, look: Message) -> usize {
    world.until(|| {
        world[1].receive(look);
        world.until(|| {
            if let Some(error) = world[1].take_error(look.context) {
                assert_eq!(error.err, Errno::ENOMSG);
                return Some(None);
            }
            world[1].take(look.context).map(|seen| Some(seen.len))
        })
    })
}

/// A peek that finds nothing completes with `FI_ENOMSG`.
pub fn a_peek_without_a_message_is_an_error<B: Bench>() {
    let world = World::<B>::of(2);
    let look = Message::any().tag(1).flags(FI_PEEK);
    world[1].receive(look);
    assert_eq!(world.failed(1, 7).err, Errno::ENOMSG);
    // One with another tag is not what it looks for.
    let out = Place::pattern(1, 8);
    world.send(0, Message::to(1).tag(2).with(out));
    until_seen(&world, look.tag(2));
    world[1].receive(look);
    assert_eq!(world.failed(1, 7).err, Errno::ENOMSG);
    let into = Place::empty(8);
    world[1].receive(Message::any().tag(2).with(into).context(8));
    world.done(1, 8);
    world.sent(0);
    world.is_quiet();
}

/// A message that is claimed is received by nobody but its claimant.
pub fn a_message_is_seen_claimed_and_received<B: Bench>() {
    let world = World::<B>::of(2);
    for len in [8, 5000, 300_000] {
        for number in 0..2 {
            let out = Place::pattern(number, len);
            world.send(0, Message::to(1).tag(1).with(out));
        }
        let look = Message::any().tag(1).flags(FI_PEEK | FI_CLAIM);
        assert_eq!(until_seen(&world, look), len);
        let (second, first) = (Place::empty(len), Place::empty(len));
        world[1].receive(Message::any().tag(1).with(second).context(8));
        world.done(1, 8);
        assert!(second.has(1, len), "{len} bytes");
        world[1].receive(Message::any().tag(1).with(first).flags(FI_CLAIM));
        world.received(1);
        assert!(first.has(0, len), "{len} bytes");
        (0..2).for_each(|_| {
            world.sent(0);
        });
    }
    world.is_quiet();
}

/// A message that is seen with `FI_DISCARD` is gone, and its sender's operation completes.
pub fn a_message_is_discarded<B: Bench>() {
    let world = World::<B>::of(2);
    for len in [8, 5000, 300_000] {
        for number in 0..2 {
            let out = Place::pattern(number, len);
            world.send(0, Message::to(1).tag(1).with(out));
        }
        let look = Message::any().tag(1).flags(FI_PEEK | FI_DISCARD);
        assert_eq!(until_seen(&world, look), len);
        let into = Place::empty(len);
        world[1].receive(Message::any().tag(1).with(into).context(8));
        world.done(1, 8);
        assert!(into.has(1, len), "{len} bytes");
        (0..2).for_each(|_| {
            world.sent(0);
        });
    }
    world.is_quiet();
}
