//! Connections between processes of one host.

mod hostile;

use std::os::fd::{AsFd, OwnedFd};

use crate::engine::link::ready::Why;
use crate::local::neighbour::Subject;
use crate::local::stream::SharedStream;
use fabric_abi::FI_DELIVERY_COMPLETE;
use prov_local::channel::{SEGMENT, TABLES};
use prov_local::copies::Copying;
use prov_local::segment::Segment;
use prov_message::{Errand as _, Sleeper};

use super::direct::Stranger;
use super::sleepers::{prepare_sleep, wakes};
use super::*;
use crate::engine::link::connection::Connection;
use crate::engine::link::messages::Tcp;
use crate::params::Local;
use crate::wire::ByteOrder;
use crate::wire::header::{Header, MAX_HEADER, Op};

/// Whether both directions of a side go through shared memory.
pub(super) fn has_moved(side: &Side) -> bool {
    let core = side.engine.core();
    let mut shortcuts = core.conns.values().map(|conn| conn.local.shortcut.as_ref());
    shortcuts.all(|shortcut| shortcut.is_some_and(|it| it.is_out() && it.is_in()))
}

/// Sends one message in each direction.
pub(super) fn exchange(a: &Side, b: &Side, round: u64) {
    let (mut out, mut back) = ([1; 8], [2; 8]);
    let (mut at_a, mut at_b) = ([0; 8], [0; 8]);
    receive(a, &mut at_a, round);
    receive(b, &mut at_b, round);
    send(a, &mut out, round);
    let done = a.count() + b.count();
    until([a, b], || a.count() + b.count() == done + 2);
    send(b, &mut back, round);
    until([a, b], || a.count() + b.count() == done + 4);
    assert_eq!((at_a, at_b), (back, out));
}

pub(super) fn nearby_of(params: Params) -> (Side, Side) {
    let (a, b) = (side_with(params.clone()), side_with(params));
    a.knows(b.addr);
    b.knows(a.addr);
    (0..8).for_each(|round| exchange(&a, &b, round));
    (a, b)
}

/// Creates two sides that have left their socket.
fn nearby() -> (Side, Side) {
    let (a, b) = nearby_of(Params::default());
    until([&a, &b], || has_moved(&a) && has_moved(&b));
    for side in [&a, &b] {
        side.done.borrow_mut().clear();
    }
    (a, b)
}

/// Like [`nearby`], with all data copied through the shared memory.
fn nearby_copying() -> (Side, Side) {
    let (a, b) = nearby_of(Params {
        local_message_size: usize::MAX,
        ..Params::default()
    });
    until([&a, &b], || has_moved(&a) && has_moved(&b));
    for side in [&a, &b] {
        side.done.borrow_mut().clear();
    }
    (a, b)
}

pub(super) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 / 7 + seed) as u8).collect()
}

#[test]
fn connections_in_use_move_to_shared_memory_unless_that_is_disabled() {
    nearby();
    for (first, second) in [(Local::Off, Local::Auto), (Local::Auto, Local::Off)] {
        let with = |local| {
            side_with(Params {
                local,
                ..Params::default()
            })
        };
        let (a, b) = (with(first), with(second));
        a.knows(b.addr);
        b.knows(a.addr);
        (0..20).for_each(|round| exchange(&a, &b, round));
        for side in [&a, &b] {
            let core = side.engine.core();
            assert!(
                core.conns
                    .values()
                    .all(|conn| conn.local.shortcut.is_none())
            );
        }
    }
}

#[test]
fn data_that_found_no_space_is_sent_without_another_call() {
    const COUNT: usize = 400;
    let (a, b) = nearby_copying();
    let mut outs: Vec<Vec<u8>> = (0..COUNT).map(|seed| pattern(8000, seed)).collect();
    let mut places = vec![vec![0; 8000]; COUNT];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
    }
    for (tag, out) in outs.iter_mut().enumerate() {
        send(&a, out, tag as u64);
    }
    assert!(
        a.engine.core().ready.has(Why::Starved),
        "there is too much room"
    );
    // Only the receiver is driven from here on.
    until([&b, &b], || b.count() == COUNT);
    assert!(places == outs);
}

#[test]
fn a_connection_that_is_held_back_and_has_no_room_waits_once() {
    let (a, _b) = nearby_copying();
    let mut outs = vec![vec![1; 8000]; 400];
    for out in &mut outs {
        send(&a, out, 1);
    }
    let core = &mut a.engine.core();
    let starved = core.ready.of(Why::Starved).clone();
    assert_eq!(starved.len(), 1, "there is too much room");
    // As if it had moved during a burst.
    core.is_due(starved[0], Why::Held);
    for _ in 0..2 {
        core.end_burst();
        assert_eq!(core.ready.of(Why::Starved), &starved);
        assert!(!core.ready.has(Why::Held));
    }
}

#[test]
fn a_sleeping_thread_is_woken_again_after_a_wake_up_was_read_with_the_sockets_last_bytes() {
    let (caller, sleeper) = (side(), side());
    caller.knows(sleeper.addr);
    sleeper.knows(caller.addr);
    let ways = |side: &Side| {
        let core = side.engine.core();
        let mut shortcuts = core.conns.values().map(|conn| conn.local.shortcut.as_ref());
        shortcuts.find_map(|shortcut| shortcut.map(|it| (it.is_out(), it.is_in())))
    };
    // The side that is offered memory sleeps before the other one uses it.
    let (mut out, mut place) = ([0; 8], [0; 8]);
    let is_attached = || ways(&sleeper) == Some((true, false));
    for round in 0..32 {
        if is_attached() {
            break;
        }
        receive(&sleeper, &mut place, round);
        send(&caller, &mut out, round);
        until([&caller, &caller], || {
            sleeper.drive();
            is_attached() || sleeper.count() as u64 > round
        });
    }
    assert!(is_attached());
    let (caller, sleeper) = (&caller, &sleeper);
    prepare_sleep(sleeper);
    let (mut first, mut second) = ([1; 8], [2; 8]);
    until([caller, caller], || {
        ways(caller).is_some_and(|(is_out, _)| is_out)
    });
    let mut places = [[0; 8]; 2];
    let [place, next] = &mut places;
    receive(sleeper, place, 101);
    receive(sleeper, next, 102);
    send(caller, &mut first, 101);
    let before = sleeper.count();
    until([sleeper, sleeper], || sleeper.count() > before);
    prepare_sleep(sleeper);
    send(caller, &mut second, 102);
    assert!(wakes(sleeper));
}

#[test]
fn data_that_is_queued_when_a_connection_moves_arrives_before_later_data() {
    const COUNT: u64 = 400;
    for len in [8, 3000, 20_000] {
        let (a, b) = (side(), side());
        a.knows(b.addr);
        let mut outs: Vec<Vec<u8>> = (0..COUNT).map(|i| pattern(len, i as usize)).collect();
        let mut places: Vec<Vec<u8>> = (0..COUNT).map(|_| vec![0; len]).collect();
        for place in &mut places {
            receive(&b, place, 1);
        }
        for out in &mut outs {
            let mut message = tagged(out, 1);
            let mut posted = a.engine.core().transmit(a.ep, &mut message);
            while posted == Err(Errno::EAGAIN) {
                a.drive();
                b.drive();
                posted = a.engine.core().transmit(a.ep, &mut message);
            }
            assert_eq!(posted, Ok(()));
            a.drive();
            b.drive();
        }
        until([&a, &b], || b.count() == COUNT as usize);
        assert!(places == outs, "{len}");
        until([&a, &b], || has_moved(&a) && has_moved(&b));
    }
}

#[test]
fn messages_of_all_sizes_go_through_the_memory_or_are_copied() {
    for (a, b) in [nearby(), nearby_copying()] {
        let lens = [0, 1, 96, 97, 5000, 16 << 10, 33_000, 200_000, 3 << 20];
        for (round, len) in lens.into_iter().enumerate() {
            for way in 0..4 {
                let tag = (round * 4 + way) as u64;
                let (mut out, mut place) = (pattern(len, way), vec![0; len]);
                let mut message = tagged(&mut out, tag);
                if way & 1 != 0 {
                    message.flags |= FI_DELIVERY_COMPLETE;
                }
                if way & 2 != 0 {
                    receive(&b, &mut place, tag);
                }
                a.engine.core().transmit(a.ep, &mut message).unwrap();
                if way & 2 == 0 {
                    for _ in 0..50 {
                        a.engine.progress();
                        b.engine.progress();
                    }
                    receive(&b, &mut place, tag);
                }
                until([&a, &b], || a.count() > 0 && b.count() > 0);
                assert!(out == place, "{len} bytes, way {way}");
                assert_eq!(b.done.borrow_mut().pop().unwrap().len, len);
                a.done.borrow_mut().clear();
            }
        }
        assert!(a.failed.borrow().is_empty() && b.failed.borrow().is_empty());
        assert_eq!((a.kept(), b.kept()), (0, 0));
    }
}

#[test]
fn an_unexpected_message_is_copied_and_its_sender_may_reuse_the_memory() {
    let (a, b) = nearby();
    let mut out = pattern(1 << 20, 3);
    send(&a, &mut out, 1);
    until([&a, &b], || a.count() == 1);
    let sent = std::mem::take(&mut out);
    let mut place = vec![0; 1 << 20];
    receive(&b, &mut place, 1);
    until([&b, &b], || b.count() == 1);
    assert!(place == sent);
}

#[test]
fn messages_buffered_in_reused_memory_are_complete() {
    let (a, b) = nearby();
    let lens = [
        300_000,
        200_000,
        150_000,
        1 << 20,
        600_000,
        2 << 20,
        1_500_000,
    ];
    for (tag, len) in lens.into_iter().cycle().take(21).enumerate() {
        let (mut out, mut place) = (pattern(len, tag), vec![0; len]);
        send(&a, &mut out, tag as u64);
        until([&a, &b], || a.count() == 1);
        receive(&b, &mut place, tag as u64);
        until([&b, &b], || b.count() == 1);
        assert!(place == out, "{len} bytes, the {tag}th");
        a.done.borrow_mut().clear();
        b.done.borrow_mut().clear();
    }
}

#[test]
fn a_receive_takes_a_message_over_while_that_is_being_copied() {
    const LEN: usize = 2 << 20;
    for after in 0..6 {
        let (a, b) = nearby();
        let mut out = pattern(LEN, after);
        let mut place = vec![0; LEN];
        send(&a, &mut out, 1);
        for _ in 0..after {
            // The copy is made, and the data after it arrives.
            let core = &mut b.engine.core();
            core.progress();
            if let Some(mut errand) = core.next_errand() {
                prov_message::lane::Errand::run(&mut errand);
                core.errand_done(errand);
            }
        }
        receive(&b, &mut place, 1);
        until([&a, &b], || a.count() == 1 && b.count() == 1);
        assert!(place == out, "{after}");
    }
}

#[test]
fn a_message_without_space_stays_where_it_is() {
    let params = Params {
        max_unexpected: 100_000,
        ..Params::default()
    };
    let (a, b) = nearby_of(params);
    until([&a, &b], || has_moved(&a) && has_moved(&b));
    let before = (a.count(), b.count());
    let mut outs: Vec<Vec<u8>> = (0..200).map(|i| pattern(90_000, i)).collect();
    for (tag, out) in outs.iter_mut().enumerate() {
        send(&a, out, tag as u64);
    }
    for _ in 0..2000 {
        a.drive();
        b.drive();
    }
    let mut place = vec![0; 90_000];
    for tag in (0..outs.len()).rev() {
        receive(&b, &mut place, tag as u64);
        let expected = before.1 + outs.len() - tag;
        until([&a, &b], || b.count() == expected);
        assert!(place == outs[tag], "{tag}");
    }
    until([&a, &b], || a.count() == before.0 + outs.len());
}

#[test]
fn a_sleeping_thread_is_woken_by_data_and_by_space() {
    let (a, b) = nearby_copying();
    let sleeps = |side: &Side| {
        until([side, side], || {
            side.engine.core().prepare_wait(Sleeper::Thread)
        });
    };
    for tag in 0..3 {
        let (mut out, mut place) = ([1; 8], [0; 8]);
        receive(&b, &mut place, tag);
        sleeps(&b);
        send(&a, &mut out, tag);
        assert!(wakes(&b));
        until([&b, &b], || b.count() == tag as usize + 1);
    }
    // More than there is space for.
    let (mut out, mut place) = (pattern(1 << 20, 1), vec![0; 1 << 20]);
    receive(&b, &mut place, 9);
    send(&a, &mut out, 9);
    sleeps(&a);
    for _ in 0..10 {
        b.drive();
    }
    assert!(wakes(&a));
    until([&a, &b], || b.count() == 4 && a.count() == 4);
    assert!(place == out);
}

#[test]
fn data_that_a_peer_has_sent_before_it_closes_arrives() {
    for len in [8, 5000, 30_000] {
        let (a, b) = nearby_copying();
        let (mut out, mut place) = (pattern(len, 1), vec![0; len]);
        send(&a, &mut out, 1);
        until([&a, &a], || a.count() == 1);
        a.engine.close(a.ep);
        receive(&b, &mut place, 1);
        until([&b, &b], || b.count() == 1);
        assert!(place == out);
        until([&b, &b], || b.open_connections().is_empty());
        assert!(b.engine.core().rota.is_empty());
    }
}

#[test]
fn operations_end_with_a_peer_that_does_not_take_them() {
    let (a, b) = nearby();
    let mut out = pattern(100_000, 1);
    send(&a, &mut out, 1);
    b.engine.close(b.ep);
    until([&a, &a], || !a.failed.borrow().is_empty());
    assert_eq!(a.outstanding(), 0);
    assert!(a.engine.core().rota.is_empty());
}

/// Makes the second of two sides begin to copy a message of the first one, which has sent another
/// one after it. Returns the copy.
fn with_a_copy_under_way(sides: &(Side, Side), out: &mut [u8], next: &mut [u8]) -> Copying<Tcp> {
    let (a, b) = sides;
    send(a, out, 1);
    send(a, next, 2);
    let mut errand = None;
    until([a, a], || {
        let core = &mut b.engine.core();
        core.progress();
        errand = errand.take().or_else(|| core.next_errand());
        errand.is_some()
    });
    errand.unwrap()
}

fn finish(side: &Side, mut errand: Copying<Tcp>) {
    errand.run();
    side.engine.core().errand_done(errand);
}

#[test]
fn a_sleeping_thread_continues_a_copy_that_another_thread_leaves() {
    let (mut out, mut place) = (pattern(8 << 20, 3), vec![0; 8 << 20]);
    let (mut next, mut its) = ([7; 8], [0; 8]);
    let sides = nearby();
    receive(&sides.1, &mut place, 1);
    receive(&sides.1, &mut its, 2);
    prepare_sleep(&sides.1);
    // One thread receives the message and begins to copy it.
    let errand = with_a_copy_under_way(&sides, &mut out, &mut next);
    // Another one is woken for that, finds nothing to do and sleeps again.
    prepare_sleep(&sides.1);
    finish(&sides.1, errand);
    assert_eq!(sides.1.count(), 0);
    assert!(wakes(&sides.1));
}

#[test]
fn nothing_is_received_after_a_message_to_buffer_while_the_owner_of_receives_is_away() {
    let (mut out, mut place) = (pattern(1 << 20, 3), vec![0; 1 << 20]);
    let (mut next, mut its) = ([7; 8], [0; 8]);
    let sides = nearby();
    let (a, b) = &sides;
    receive(b, &mut its, 2);
    let errand = with_a_copy_under_way(&sides, &mut out, &mut next);
    until([a, a], || {
        let core = &mut b.engine.core();
        core.progress();
        let waits = |conn: &Connection| conn.local.copies.waiting.is_some();
        core.conns.values().any(waits)
    });
    b.engine.core().endpoints().owner_leaves();
    finish(b, errand);
    until([a, b], || b.engine.core().ready.has(Why::Copied));
    assert_eq!(its, [0; 8], "taken in while the owner is away");
    b.engine.core().endpoints().owner_enters();
    receive(b, &mut place, 1);
    until([a, b], || a.count() == 2 && b.count() == 2);
    assert!(place == out && its == next);
}
