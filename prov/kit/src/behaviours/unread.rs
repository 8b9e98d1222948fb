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

/// This many endpoints, which have links with the second one: that has little room in its queue, and
/// does not read it. With the key of a region there.
fn world<B: Bench>(count: usize, region: &Place) -> (World<B>, u64) {
    let setting = Setting {
        unasked: ROOM,
        ..Setting::default()
    };
    let world = World::<B>::with(setting, count);
    let key = world[1].register(region, KEY).key();
    for from in (0..count).filter(|from| *from != 1) {
        let message = Message::to(1).with(Place::pattern(0, 8));
        world.post(|| world[from].access(Access::Write, message, key, 0));
        world.sent(from);
    }
    world[1].leave_unread();
    (world, key)
}

/// Posts the next write with data of an endpoint, if there is room for it. The data counts up, from
/// 1000 times the endpoint's position on.
fn write<B: Bench>(world: &World<B>, from: usize, key: u64, posted: &mut usize) -> bool {
    let message = Message::to(1)
        .with(Place::pattern(*posted, 8))
        .data((from * 1000 + *posted) as u64)
        .flags(FI_REMOTE_CQ_DATA);
    let is_posted = *posted < WRITES && world[from].access(Access::Write, message, key, 0).is_ok();
    *posted += usize::from(is_posted);
    is_posted
}

/// The data of the writes that are in the queue of the second endpoint.
fn read<B: Bench>(world: &World<B>) -> Vec<u64> {
    let more = world[1].read_queue();
    assert!(more.len() <= ROOM, "{} at once", more.len());
    more.iter().map(|one| one.data).collect()
}

/// Writes with data are reported as far as the queue has room, and go on when it has been read: all are
/// reported, in order.
pub fn writers_wait_for_room_and_nothing_is_lost<B: Bench>() {
    let region = Place::empty(8);
    let (world, key) = world::<B>(2, &region);
    let (mut posted, mut all) = (0, Vec::new());
    world.until(|| {
        while write(&world, 0, key, &mut posted) {}
        world.settle();
        all.extend(read(&world));
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
    let (mut world, key) = world::<B>(2, &region);
    let mut posted = 0;
    while write(&world, 0, key, &mut posted) {}
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

/// What a writer has completed before it closes is reported.
pub fn what_a_writer_that_has_closed_had_completed_is_reported<B: Bench>() {
    let region = Place::empty(8);
    let (mut world, key) = world::<B>(2, &region);
    let (mut posted, mut completed) = (0, 0);
    while write(&world, 0, key, &mut posted) {}
    world.settle();
    while world[0].take(crate::SENT).is_some() {
        completed += 1;
    }
    world.close(0);
    let mut all = Vec::new();
    world.until(|| {
        world.settle();
        all.extend(read(&world));
        let is_over = world[1].links().is_none_or(|links| links == 0);
        (all.len() >= completed && is_over).then_some(())
    });
    assert!(all.iter().copied().eq(0..all.len() as u64));
}

/// Writers that wait have the room in turn, and one that closes takes no turn of others.
pub fn writers_that_wait_share_the_room<B: Bench>() {
    const WRITERS: [usize; 3] = [0, 2, 3];
    let region = Place::empty(8);
    let (mut world, key) = world::<B>(4, &region);
    let mut posted = [0; 4];
    let mut counts = [0; 4];
    for _ in 0..10 * WRITERS.len() {
        for from in WRITERS {
            while write(&world, from, key, &mut posted[from]) {}
        }
        world.settle();
        for data in read(&world) {
            counts[data as usize / 1000] += 1;
        }
    }
    let least = WRITERS.map(|from| counts[from]).into_iter().min();
    assert!(least >= Some(9 * ROOM), "{counts:?}");
    world.close(0);
    world.until(|| {
        for from in [2, 3] {
            while write(&world, from, key, &mut posted[from]) {}
        }
        world.settle();
        for data in read(&world) {
            counts[data as usize / 1000] += 1;
        }
        (counts[2..] == [WRITES; 2]).then_some(())
    });
}
