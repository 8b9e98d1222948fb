//! Reads and writes of a peer's memory: fi_rma(3).

use fabric_abi::{
    FI_DELIVERY_COMPLETE, FI_REMOTE_CQ_DATA, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA,
};
use prov_base::errno::Errno;
use prov_util::request::Access;

use crate::behaviours::messages::lengths;
use crate::{Bench, Message, Place, World};

/// The key that is asked for; a provider may give another one.
const KEY: u64 = 7;

/// What is written can be read, and nothing beside it changes.
pub fn memory_of_all_lengths_is_written_and_read<B: Bench>() {
    let world = World::<B>::of(2);
    let lengths = lengths::<B>();
    let longest = *lengths.last().unwrap();
    let region = Place::empty(longest + 128);
    let key = world[1].register(&region, KEY).key();
    for (number, len) in lengths.into_iter().enumerate() {
        let (out, back) = (Place::pattern(number, len), Place::empty(len));
        region.fill(0xee);
        for (access, place) in [(Access::Write, out), (Access::Read, back)] {
            let flags = if access == Access::Write {
                FI_DELIVERY_COMPLETE
            } else {
                0
            };
            let message = Message::to(1).with(place).flags(flags);
            world.post(|| world[0].access(access, message, key, 64));
            world.sent(0);
        }
        assert!(
            back.has(number, len) && region.part(64, len).has(number, len),
            "{len} bytes"
        );
        assert_eq!(region.part(0, 64).bytes(), [0xee; 64]);
        assert_eq!(region.part(64 + len, 64).bytes(), [0xee; 64]);
    }
    world.is_quiet();
}

/// Reads and writes at `offset` with this key fail, and a message does not.
fn is_refused<B: Bench>(world: &World<B>, key: u64, offset: u64, len: usize) {
    are_refused(world, &[Access::Read, Access::Write], key, offset, len);
}

/// As [`is_refused`], of these accesses.
fn are_refused<B: Bench>(world: &World<B>, accesses: &[Access], key: u64, offset: u64, len: usize) {
    for &access in accesses {
        let place = Place::pattern(1, len);
        let message = Message::to(1).with(place).flags(FI_DELIVERY_COMPLETE);
        world.post(|| world[0].access(access, message, key, offset));
        let error = world.failed(0, 9).err;
        assert!(
            matches!(error, Errno::EACCES | Errno::EINVAL),
            "{error:?} for {access:?} of {len} bytes"
        );
        assert!(
            access == Access::Write || place.has(1, len),
            "{len} bytes are read"
        );
    }
    let (out, into) = (Place::pattern(5, 64), Place::empty(64));
    world[1].receive(Message::any().tag(1).with(into));
    world.send(0, Message::to(1).tag(1).with(out));
    world.received(1);
    world.sent(0);
    assert!(into.has(5, 64));
}

fn is_accessible<B: Bench>(world: &World<B>, region: &Place, key: u64) {
    let out = Place::pattern(3, region.len());
    let message = Message::to(1).with(out).flags(FI_DELIVERY_COMPLETE);
    world.post(|| world[0].access(Access::Write, message, key, 0));
    world.sent(0);
    assert!(region.has(3, region.len()));
}

/// An access with a key that no region has ends with an error, and so does nothing else.
pub fn a_wrong_key_is_refused_and_concerns_nothing_else<B: Bench>() {
    let world = World::<B>::of(2);
    let region = Place::empty(1000);
    let key = world[1].register(&region, KEY).key();
    for len in [8, 1000, 100_000] {
        is_refused(&world, !key, 0, len);
        is_accessible(&world, &region, key);
    }
    world.is_quiet();
}

/// An access that is not within the region changes nothing.
pub fn an_access_beyond_the_region_is_refused<B: Bench>() {
    let world = World::<B>::of(2);
    let region = Place::empty(1000);
    let key = world[1].register(&region, KEY).key();
    for (offset, len) in [
        (993, 8),
        (0, 1001),
        (1001, 1),
        (u64::MAX - 3, 8),
        (0, 200_000),
    ] {
        is_refused(&world, key, offset, len);
        assert_eq!(region.bytes(), Place::empty(1000).bytes());
    }
    is_accessible(&world, &region, key);
    world.is_quiet();
}

/// A region can be accessed only as it was registered for: a write does not change one that may be
/// read, and a read brings nothing of one that may be written.
pub fn an_access_without_the_right_to_it_is_refused<B: Bench>() {
    let world = World::<B>::of(2);
    for (right, without) in [
        (FI_REMOTE_READ, Access::Write),
        (FI_REMOTE_WRITE, Access::Read),
    ] {
        for len in [1, 8, 1000, 100_000] {
            let place = Place::pattern(2, len);
            let region = world[1].register_for(&place, right, KEY);
            are_refused(&world, &[without], region.key(), 0, len);
            assert!(place.has(2, len), "{len} bytes, {without:?}");
            world[1].close_region(&region);
        }
    }
    world.is_quiet();
}

/// A region that was closed is not accessed any more, and its key can be used again.
pub fn a_closed_region_is_refused<B: Bench>() {
    let world = World::<B>::of(2);
    let (first, second) = (Place::empty(5000), Place::empty(5000));
    let region = world[1].register(&first, KEY);
    let key = region.key();
    is_accessible(&world, &first, key);
    world[1].close_region(&region);
    first.fill(0xee);
    is_refused(&world, key, 0, 5000);
    assert_eq!(first.bytes(), Place::empty(5000).bytes());
    let key = world[1].register(&second, KEY).key();
    is_accessible(&world, &second, key);
    assert_eq!(first.bytes(), Place::empty(5000).bytes());
    world.is_quiet();
}

/// A key means the region that has it at the time of the access.
pub fn a_key_that_is_used_again_leads_to_the_new_region<B: Bench>() {
    let world = World::<B>::of(2);
    let places: Vec<Place> = (0..20).map(|_| Place::empty(64)).collect();
    for (number, place) in places.iter().enumerate() {
        let region = world[1].register(place, KEY);
        let out = Place::pattern(number, 64);
        let message = Message::to(1).with(out).flags(FI_DELIVERY_COMPLETE);
        world.post(|| world[0].access(Access::Write, message, region.key(), 0));
        world.sent(0);
        world[1].close_region(&region);
    }
    for (number, place) in places.iter().enumerate() {
        assert!(place.has(number, 64), "region {number}");
    }
    world.is_quiet();
}

/// A write with immediate data is reported to the target, whose memory has what was written by then.
pub fn a_write_with_data_is_reported_to_the_target<B: Bench>() {
    let world = World::<B>::of(2);
    let region = Place::empty(300_000);
    let key = world[1].register(&region, KEY).key();
    for (number, len) in [0, 8, 5000, 300_000].into_iter().enumerate() {
        let out = Place::pattern(number, len);
        let data = 0x1234_5678_9abc_def0 + number as u64;
        let message = Message::to(1).with(out).data(data).flags(FI_REMOTE_CQ_DATA);
        world.post(|| world[0].access(Access::Write, message, key, 0));
        let event = world.until(|| world[1].take_without_context());
        let expected = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
        assert_eq!((event.flags & expected, event.data), (expected, data));
        assert!(region.has(number, len), "{len} bytes");
        world.sent(0);
    }
    world.is_quiet();
}

/// Writes of one initiator that each wait for the one before are seen in that order by a reader.
pub fn writes_to_a_cell_take_effect_in_order<B: Bench>() {
    let world = World::<B>::of(3);
    let region = Place::empty(64);
    let key = world[1].register(&region, KEY).key();
    for number in 0..200 {
        let (out, back) = (Place::pattern(number, 64), Place::empty(64));
        let write = Message::to(1).with(out).flags(FI_DELIVERY_COMPLETE);
        world.post(|| world[0].access(Access::Write, write, key, 0));
        world.sent(0);
        let read = Message::to(1).with(back);
        world.post(|| world[2].access(Access::Read, read, key, 0));
        world.sent(2);
        assert!(back.has(number, 64), "write {number}");
    }
    world.is_quiet();
}
