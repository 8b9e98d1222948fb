//! The order of what goes by the stream and by the link of one connection.

use prov_local::link::records::MESSAGE;

use super::super::direct::{register, remote};
use super::super::unreported::limit;
use super::hostile::fiend;
use super::*;
use crate::engine::link::connection::Connection;
use crate::engine::transfer::ways::SendPath;
use crate::local::neighbour::Neighbour;
use crate::wire::header::REMOTE_CQ_DATA;

/// Returns the stream's bytes of a write with immediate data.
fn write_in_stream(data: u64) -> Vec<u8> {
    let mut header = Header::new(Op::Write);
    (header.flags, header.data) = (REMOTE_CQ_DATA, data);
    (header.payload, header.rma_count) = (8, 1);
    let mut bytes = [0; MAX_HEADER];
    let len = header.encode(&[remote(0, 8)], ByteOrder::Native, 0, &mut bytes);
    [&bytes[..len], &[1; 8]].concat()
}

/// Creates a side that keeps no unexpected messages.
fn side_without_room() -> Side {
    side_with(Params {
        max_unexpected: 1000,
        max_unannounced: 0,
        max_saved: 0,
        ..Params::default()
    })
}

#[test]
fn a_record_of_the_link_does_not_overtake_what_waits_in_the_stream() {
    const WRITES: u64 = 20;
    let mut a = side();
    let mut peer = fiend(&a);
    a.knows(peer.stranger.stream.local_addr().unwrap());
    limit(&mut a, 4);
    let (mut place, mut last) = ([0; 8], [0; 8]);
    let region = register(&a, &mut place);
    receive(&a, &mut last, 9);
    // More completions than there is room for.
    for data in 0..WRITES {
        peer.send(&write_in_stream(data));
    }
    peer.say(MESSAGE, [9, 0, 0], &[2; 8]);
    for _ in 0..100 {
        a.engine.progress();
    }
    assert!(a.held_back() != 0 && last == [0; 8]);
    let (mut tags, since) = (Vec::new(), Instant::now());
    while tags.len() <= WRITES as usize {
        a.engine.progress();
        let _ = a.cq.take(100, |one| tags.push(one.tag));
        assert!(since.elapsed() < PATIENCE, "nothing happens any more");
    }
    assert_eq!((place, last), ([1; 8], [2; 8]));
    assert_eq!(tags.iter().position(|&tag| tag == 9), Some(WRITES as usize));
    a.memory.close(&region).unwrap();
}

/// Has a side receive the messages of its peer in order, as connected endpoints do.
fn in_order(side: &Side) {
    let mut core = side.engine.core();
    let links = core.conns.values_mut().filter_map(Connection::link_mut);
    links.for_each(|link| link.is_ordered = true);
}

#[test]
fn a_message_of_the_stream_waits_for_the_payload_of_the_one_before_it() {
    let (a, b) = nearby();
    in_order(&b);
    let (mut out, mut place) = (pattern(1 << 20, 3), vec![0; 1 << 20]);
    let (mut next, mut its) = ([7; 8], [0; 8]);
    receive(&b, &mut place, 1);
    receive(&b, &mut its, 2);
    send(&a, &mut out, 1);
    // As if a device had its bytes.
    let key = a.open_connections()[0];
    let mut message = tagged(&mut next, 2);
    let mut core = a.engine.core();
    core.send_by(SendPath::Eager, a.ep, key, &mut message, None);
    drop(core);
    let mut errand = None;
    until([&a, &a], || {
        let core = &mut b.engine.core();
        core.progress();
        errand = errand.take().or_else(|| core.next_errand());
        errand.is_some()
    });
    for _ in 0..100 {
        b.engine.core().progress();
    }
    b.done.borrow_mut().clear();
    let read = b.cq.read(10, |_| ());
    assert_eq!(read, Err(Errno::EAGAIN), "both wait for the first one");
    finish(&b, errand.unwrap());
    until([&a, &b], || b.count() == 2);
    let tags: Vec<u64> = b.done.borrow().iter().map(|done| done.tag).collect();
    assert_eq!(tags, [1, 2]);
    assert!(place == out && its == next);
}

#[test]
fn nothing_is_received_after_a_message_to_buffer_while_the_owner_of_receives_is_away() {
    let (mut out, mut place) = (pattern(1 << 20, 3), vec![0; 1 << 20]);
    let (mut next, mut its) = ([7; 8], [0; 8]);
    let sides = nearby();
    let (a, b) = &sides;
    receive(b, &mut its, 2);
    let errand = with_a_copy_under_way(&sides, &mut out, &mut next);
    b.engine.core().endpoints().owner_leaves();
    finish(b, errand);
    for _ in 0..100 {
        b.engine.core().progress();
    }
    assert_eq!(its, [0; 8], "taken in while the owner is away");
    b.engine.core().endpoints().owner_enters();
    receive(b, &mut place, 1);
    until([a, b], || a.count() == 2 && b.count() == 2);
    assert!(place == out && its == next);
}

#[test]
fn a_copy_that_ends_wakes_a_sleeping_thread_for_the_next_one() {
    let (mut out, mut place) = (pattern(8 << 20, 3), vec![0; 8 << 20]);
    let (mut next, mut its) = (pattern(1 << 20, 4), vec![0; 1 << 20]);
    let sides = nearby();
    let (a, b) = &sides;
    receive(b, &mut place, 1);
    receive(b, &mut its, 2);
    let errand = with_a_copy_under_way(&sides, &mut out, &mut next);
    prepare_sleep(b);
    finish(b, errand);
    assert!(wakes(b));
    until([a, b], || a.count() == 2 && b.count() == 2);
    assert!(place == out && its == next);
}

#[test]
fn unexpected_messages_are_complete_when_the_peer_keeps_them() {
    const LEN: usize = 2 << 20;
    const COUNT: usize = 8;
    for is_readable in [true, false] {
        let (a, b) = nearby();
        for side in [&a, &b].into_iter().filter(|_| !is_readable) {
            let mut core = side.engine.core();
            let conns = core.conns.values_mut();
            conns.for_each(|conn| conn.local.neighbour = Neighbour::default());
        }
        let mut outs: Vec<_> = (0..COUNT).map(|seed| pattern(LEN, seed)).collect();
        for (tag, out) in outs.iter_mut().enumerate() {
            send(&a, out, tag as u64);
        }
        // More than is set aside.
        until([&a, &b], || a.count() == COUNT);
        let mut place = vec![0; LEN];
        for (tag, out) in outs.iter().enumerate().rev() {
            receive(&b, &mut place, tag as u64);
            until([&b, &b], || b.count() == COUNT - tag);
            assert!(place == *out, "{tag}, readable {is_readable}");
        }
    }
}

#[test]
fn an_endpoint_closes_when_its_peer_has_fetched_what_is_complete() {
    for is_readable in [true, false] {
        let (a, b) = nearby();
        if !is_readable {
            let mut core = b.engine.core();
            let conns = core.conns.values_mut();
            conns.for_each(|conn| conn.local.neighbour = Neighbour::default());
        }
        let (mut out, mut place) = (pattern(3 << 20, 3), vec![0; 3 << 20]);
        send(&a, &mut out, 1);
        // It is set aside.
        until([&a, &a], || a.count() == 1);
        assert!(a.engine.core().send_last(a.ep).is_some());
        receive(&b, &mut place, 1);
        until([&b, &b], || a.engine.core().send_last(a.ep).is_none());
        until([&b, &b], || b.count() == 1);
        assert!(place == out, "readable {is_readable}");
    }
}

#[test]
fn the_end_of_a_peer_is_detected_behind_a_message_that_there_is_no_room_for() {
    let (a, b) = (side(), side_without_room());
    a.knows(b.addr);
    b.knows(a.addr);
    (0..20).for_each(|round| exchange(&a, &b, round));
    until([&a, &b], || has_moved(&a) && has_moved(&b));
    in_order(&b);
    let (mut out, mut next) = (pattern(1 << 20, 3), [7; 8]);
    for _ in 0..32 {
        send(&a, &mut out, 1);
    }
    send(&a, &mut next, 2);
    let holds_back = || {
        let core = b.engine.core();
        let mut links = core.conns.values().filter_map(Connection::link);
        links.any(|link| link.holds_back())
    };
    until([&b, &b], holds_back);
    a.engine.close(a.ep);
    until([&b, &b], || b.open_connections().is_empty());
}
