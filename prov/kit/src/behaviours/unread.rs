//! Peers' operations that are reported, while the application does not read its completion queue.

use fabric_abi::FI_REMOTE_CQ_DATA;
use prov_util::request::Access;

use crate::{Bench, Message, Place, Setting, World};

/// Number of completions that the queue takes.
const ROOM: usize = 8;
/// Number of writes.
const WRITES: usize = 200;
/// The key that is asked for; a provider may give another one.
const KEY: u64 = 7;

/// Two endpoints with a link, of which the second one, with little room in its queue, does not read
/// it, and the key of a region there.
fn world<B: Bench>(region: &Place) -> (World<B>, u64) {
    let setting = Setting {
        unasked: ROOM,
        ..Setting::default()
    };
    let world = World::<B>::with(setting, 2);
    let key = world[1].register(region, KEY).key();
    let message = Message::to(1).with(Place::pattern(0, 8));
    world.post(|| world[0].access(Access::Write, message, key, 0));
    world.sent(0);
    world[1].leave_unread();
    (world, key)
}

/// Posts the next write with data, if there is room for it.
fn write<B: Bench>(world: &World<B>, key: u64, posted: &mut usize) -> bool {
    let message = Message::to(1)
        .with(Place::pattern(*posted, 8))
        .data(*posted as u64)
        .flags(FI_REMOTE_CQ_DATA);
    let is_posted = *posted < WRITES && world[0].access(Access::Write, message, key, 0).is_ok();
    *posted += usize::from(is_posted);
    is_posted
}

/// Writes with data are reported as far as the queue has room, and go on when it has been read: all are
/// reported, in order.
pub fn writers_wait_for_room_and_nothing_is_lost<B: Bench>() {
    let region = Place::empty(8);
    let (world, key) = world::<B>(&region);
    let (mut posted, mut all) = (0, Vec::new());
    world.until(|| {
        while write(&world, key, &mut posted) {}
        world.settle();
        let more = world[1].read_queue();
        assert!(more.len() <= ROOM, "{} at once", more.len());
        all.extend(more.iter().map(|one| one.data));
        (all.len() == WRITES).then_some(())
    });
    assert!(all.into_iter().eq(0..WRITES as u64));
    for _ in 0..WRITES {
        world.sent(0);
    }
    assert!(region.has(WRITES - 1, 8));
    world.is_quiet();
}

/// An endpoint closes while writes wait for it: all of them end at the writer.
pub fn an_endpoint_closes_while_writers_wait<B: Bench>() {
    let region = Place::empty(8);
    let (mut world, key) = world::<B>(&region);
    let mut posted = 0;
    while write(&world, key, &mut posted) {}
    world.settle();
    assert!(posted > ROOM);
    world.close(1);
    for _ in 0..posted {
        world.until(|| {
            let failed = world[0].take_error(crate::SENT).is_some();
            (failed || world[0].take(crate::SENT).is_some()).then_some(())
        });
    }
    world.settle();
    // A connected endpoint is told of the end.
    while world[0].take_event().is_some() {}
    world.is_quiet();
}
