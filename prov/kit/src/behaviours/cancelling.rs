//! fi_cancel(3) of receives.

use prov_base::errno::Errno;

use crate::{Bench, Message, Place, World};

/// A receive that is cancelled completes with `FI_ECANCELED`, and the message goes to the next one.
pub fn a_cancelled_receive_takes_nothing<B: Bench>() {
    let world = World::<B>::of(2);
    for tag in [None, Some(1)] {
        let into = [Place::empty(64), Place::empty(64)];
        for (number, into) in into.iter().enumerate() {
            world[1].receive(
                Message::any()
                    .maybe_tagged(tag)
                    .with(*into)
                    .context(50 + number),
            );
        }
        assert_eq!(world[1].cancel(50), Ok(()));
        assert_eq!(world.failed(1, 50).err, Errno::ECANCELED);
        let out = Place::pattern(3, 64);
        world.send(0, Message::to(1).maybe_tagged(tag).with(out));
        world.done(1, 51);
        assert_eq!(into[0].bytes(), [0xee; 64]);
        assert!(into[1].has(3, 64));
        world.sent(0);
    }
    world.is_quiet();
}

/// What has completed, was cancelled or never existed cannot be cancelled.
pub fn nothing_is_cancelled_twice<B: Bench>() {
    let world = World::<B>::of(2);
    let into = Place::empty(8);
    assert_eq!(world[1].cancel(50), Err(Errno::ENOENT));
    world[1].receive(Message::any().with(into).context(50));
    assert_eq!(world[1].cancel(50), Ok(()));
    assert_eq!(world[1].cancel(50), Err(Errno::ENOENT));
    world.failed(1, 50);
    world[1].receive(Message::any().with(into).context(50));
    let out = Place::pattern(1, 8);
    world.send(0, Message::to(1).with(out));
    world.done(1, 50);
    world.sent(0);
    assert_eq!(world[1].cancel(50), Err(Errno::ENOENT));
    world.is_quiet();
}
