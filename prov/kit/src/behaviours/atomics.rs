//! Atomic operations on a peer's memory: fi_atomic(3).

use std::ptr::without_provenance_mut;

use fabric_abi::{FI_COMPLETION, FI_CSWAP, FI_DELIVERY_COMPLETE, FI_SUM, FI_UINT64, fi_op};
use prov_util::desc::Descs;
use prov_util::request::{Atomic, AtomicKind, RemoteIov, RemotePiece};

use crate::{Bench, Place, World};

/// The key that is asked for; a provider may give another one.
const KEY: u64 = 9;

fn word(value: u64) -> Place {
    Place::of(&value.to_ne_bytes())
}

fn value(place: &Place) -> u64 {
    u64::from_ne_bytes(place.bytes().try_into().unwrap())
}

fn atomic(key: u64, op: fi_op, kind: AtomicKind, operand: &Place) -> Atomic {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr: 0,
        len: 8,
        key,
    });
    Atomic {
        kind,
        datatype: FI_UINT64,
        op,
        operand: operand.lend(),
        desc: Descs::NONE,
        remote,
        peer: 1,
        data: 0,
        flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
        context: without_provenance_mut(9),
    }
}

fn carry_out<B: Bench>(world: &World<B>, from: usize, make: impl Fn() -> Atomic) {
    world.post(|| world[from].atomic(make()));
    world.sent(from);
}

/// Sums of two initiators are all added; one that fetches has the value before.
pub fn sums_are_added_and_fetched<B: Bench>() {
    let world = World::<B>::of(3);
    let cell = word(5);
    let key = world[1].register(&cell, KEY).key();
    let mut expected = 5;
    for number in 1..50 {
        for from in [0, 2] {
            let operand = word(number);
            carry_out(&world, from, || {
                atomic(key, FI_SUM, AtomicKind::Base, &operand)
            });
            expected += number;
            let before = word(0);
            let fetch = || AtomicKind::Fetch {
                result: before.lend(),
                result_desc: Descs::NONE,
            };
            carry_out(&world, from, || atomic(key, FI_SUM, fetch(), &operand));
            assert_eq!(value(&before), expected);
            expected += number;
        }
    }
    assert_eq!(value(&cell), expected);
    world.is_quiet();
}

/// A swap happens if the value is the one that was expected; the value before is returned in any case.
pub fn values_are_compared_and_swapped<B: Bench>() {
    let world = World::<B>::of(2);
    let cell = word(5);
    let key = world[1].register(&cell, KEY).key();
    for (wanted, new, before, after) in [(5, 6, 5, 6), (5, 7, 6, 6), (6, 8, 6, 8)] {
        let (compare, operand, found) = (word(wanted), word(new), word(0));
        let kind = || AtomicKind::Compare {
            compare: compare.lend(),
            compare_desc: Descs::NONE,
            result: found.lend(),
            result_desc: Descs::NONE,
        };
        carry_out(&world, 0, || atomic(key, FI_CSWAP, kind(), &operand));
        assert_eq!((value(&found), value(&cell)), (before, after));
    }
    world.is_quiet();
}
