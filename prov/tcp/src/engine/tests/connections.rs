//! How many connections two endpoints have, what one costs, and what is left of it.

use super::*;

#[test]
fn both_sides_connecting_simultaneously_end_with_one_connection() {
    for _ in 0..50 {
        let (a, b) = (side(), side());
        a.knows(b.addr);
        b.knows(a.addr);
        let (mut x, mut y) = ([1u8; 8], [2u8; 8]);
        let (mut from_a, mut from_b) = ([0u8; 8], [0u8; 8]);
        receive(&a, &mut from_b, 7);
        receive(&b, &mut from_a, 7);
        send(&a, &mut x, 7);
        send(&b, &mut y, 7);
        until([&a, &b], || a.count() == 2 && b.count() == 2);
        assert_eq!((from_a, from_b), (x, y));
        for side in [&a, &b] {
            assert_eq!(side.open_connections().len(), 1);
        }
    }
}

#[test]
fn nothing_is_left_of_an_engine_that_ends_in_a_burst() {
    for round in 0..200 {
        let (a, b) = (side(), side());
        a.knows(b.addr);
        let (mut out, mut place) = ([9; 8], [0; 8]);
        receive(&b, &mut place, 0);
        send(&a, &mut out, 0);
        until([&a, &b], || b.count() == 1);
        send(&a, &mut out, 1);
        send(&a, &mut out, 2);
        // The thread that ends the burst may not have begun, be running, or be done.
        std::thread::sleep(Duration::from_micros(round));
        a.engine.retire();
        let engine = Arc::downgrade(&a.engine);
        drop(a);
        assert_eq!(engine.strong_count(), 0);
    }
}

#[test]
fn two_peers_that_connect_simultaneously_and_repeatedly_have_one_connection() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let mut places = [[0u8; 8]; 2];
    for round in 1..=1000 {
        let mut out = [[round as u8; 8], [!round as u8; 8]];
        let [x, y] = &mut out;
        let [at_b, at_a] = &mut places;
        receive(&a, at_a, round);
        receive(&b, at_b, round);
        send(&a, x, round);
        // The other side's request has sometimes arrived already, or half of it.
        for _ in 0..round % 4 {
            a.drive();
        }
        send(&b, y, round);
        for _ in 0..round % 3 {
            b.drive();
        }
        until([&a, &b], || a.count() == 2 && b.count() == 2);
        assert_eq!(places, out, "round {round}");
        for side in [&a, &b] {
            side.done.borrow_mut().clear();
            assert_eq!(side.failed.borrow().len(), 0);
            assert_eq!(side.open_connections().len(), 1);
        }
        // Either side ends the connection, and both know that before the next round.
        let ends = [&a, &b][round as usize % 2];
        let conn = ends.open_connections()[0];
        ends.engine.core().break_connection(conn, Errno::ESHUTDOWN);
        until([&a, &b], || {
            [&a, &b].iter().all(|s| s.open_connections().is_empty())
        });
    }
    // The other attempts leave nothing behind.
    until([&a, &b], || [&a, &b].iter().all(|s| s.connections() == 0));
}

#[test]
fn operations_for_a_peer_that_is_not_there_fail() {
    let a = side_with(Params {
        connect_timeout: 300,
        ..Params::default()
    });
    let gone = side();
    let addr = gone.addr;
    gone.engine.close(gone.ep);
    a.knows(addr);
    let mut x = [1u8; 8];
    send(&a, &mut x, 7);
    until([&a, &a], || a.failed.borrow().len() == 1);
}

#[test]
fn an_idle_connection_costs_little_memory() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut places = vec![[0u8; 100]; 500];
    let mut out = [1; 100];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
        send(&a, &mut out, tag as u64);
    }
    until([&a, &b], || a.count() == 500 && b.count() == 500);
    let core = a.engine.core();
    let own: usize = core.conns.values().map(|conn| conn.outbox.memory()).sum();
    let fixed = size_of::<crate::engine::link::connection::Connection>();
    assert!(own + fixed < 8 << 10, "{own} and {fixed} bytes");
}
