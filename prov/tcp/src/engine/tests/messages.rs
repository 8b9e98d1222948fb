//! Messages of all sizes through sockets, in whichever order they are posted and received.

use super::*;

#[test]
fn a_connection_with_small_messages_leaves_bulk_mode() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut place) = (vec![1; 1 << 20], vec![0; 1 << 20]);
    let is_bulk = || {
        b.engine
            .core()
            .conns
            .values()
            .any(|conn| conn.detours.has(Detour::Bulk))
    };
    receive(&b, &mut place, 1);
    send(&a, &mut out, 1);
    until([&a, &b], || b.count() == 1);
    assert!(is_bulk());
    for message in 2..40 {
        receive(&b, &mut place, 1);
        send(&a, &mut out[..8], 1);
        until([&a, &b], || b.count() == message);
    }
    assert!(!is_bulk());
}

#[test]
fn a_burst_leaves_without_another_call() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut places = vec![[0u8; 8]; 65];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
    }
    let mut first = [9; 8];
    send(&a, &mut first, 64);
    until([&a, &b], || b.count() == 1);
    let mut out = [[5u8; 8]; 64];
    for (tag, bytes) in out.iter_mut().enumerate() {
        send(&a, bytes, tag as u64);
    }
    // Only the receiver is driven from here on.
    until([&b, &b], || b.count() == 65);
    assert!(places[..64].iter().all(|place| place == &[5; 8]));
}

#[test]
fn a_receiver_that_keeps_much_has_messages_announced_until_it_keeps_little() {
    const LEN: usize = 1000;
    let (a, b) = (
        side(),
        side_with(Params {
            max_unexpected: 64 << 10,
            ..Params::default()
        }),
    );
    a.knows(b.addr);
    let mut out = [7u8; LEN];
    for tag in 0..1000 {
        send(&a, &mut out, tag);
        a.drive();
        b.drive();
    }
    assert_eq!(b.throttled(), 1);
    let mut places = vec![[0u8; LEN]; 1000];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, tag as u64);
    }
    until([&a, &b], || a.count() == 1000 && b.count() == 1000);
    assert!(places.iter().all(|place| place == &out));
    assert_eq!((b.throttled(), b.kept()), (0, 0));
}

#[test]
fn a_sender_that_makes_no_other_calls_receives_the_request_to_announce() {
    const LEN: usize = 64 << 10;
    const COUNT: u64 = 700;
    let (a, b) = (
        side(),
        side_with(Params {
            max_unexpected: 1 << 20,
            ..Params::default()
        }),
    );
    a.knows(b.addr);
    let (mut out, mut place) = (vec![7; LEN], vec![0; LEN]);
    receive(&b, &mut place, 0);
    send(&a, &mut out, 0);
    until([&a, &b], || a.count() == 1 && b.count() == 1);
    for tag in 1..=COUNT {
        send(&a, &mut out, tag);
        b.drive();
    }
    // More than could be buffered; the last one is received first nevertheless.
    receive(&b, &mut place, COUNT);
    until([&a, &b], || b.count() == 2);
    for tag in 1..COUNT {
        receive(&b, &mut place, tag);
    }
    until([&a, &b], || a.count() == COUNT as usize + 1);
}

#[test]
fn a_send_does_not_wake_an_application_that_reads_its_queues() {
    const LEN: usize = 64 << 10;
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut word, mut place) = (vec![7; LEN], vec![1; 8], vec![0; LEN]);
    receive(&b, &mut place, 0);
    send(&a, &mut out, 0);
    until([&a, &b], || a.count() == 1 && b.count() == 1);
    send(&b, &mut word, 0);
    until([&a, &b], || a.kept() != 0);
    for tag in 1..=64 {
        a.drive();
        send(&b, &mut word, tag);
        b.drive();
        let before = a.kept();
        send(&a, &mut out, tag);
        assert_eq!(a.kept(), before, "at message {tag}");
    }
    for tag in 1..=64 {
        let before = b.count();
        receive(&b, &mut place, tag);
        until([&a, &b], || b.count() > before);
    }
}

#[test]
fn a_message_after_one_that_is_too_large_to_buffer_is_received_first() {
    for sizes in [[8 << 20, 100], [1 << 20, 3000], [4000, 0], [3000, 6 << 20]] {
        let (a, b) = (
            side(),
            side_with(Params {
                max_unexpected: 2000,
                ..Params::default()
            }),
        );
        a.knows(b.addr);
        let mut out = sizes.map(|len| vec![5u8; len]);
        let mut places = sizes.map(|len| vec![0u8; len]);
        for (tag, bytes) in out.iter_mut().enumerate() {
            send(&a, bytes, tag as u64);
        }
        for _ in 0..100 {
            a.drive();
            b.drive();
        }
        for (tag, place) in places.iter_mut().enumerate().rev() {
            let before = b.count();
            receive(&b, place, tag as u64);
            until([&a, &b], || b.count() > before);
        }
        assert!(places == out, "{sizes:?}");
        until([&a, &b], || a.count() == 2);
        assert_eq!(b.kept(), 0);
    }
}

#[test]
fn large_messages_name_a_source_that_the_address_vector_has_learnt() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    let mut out = vec![5; 3 << 20];
    let mut place = vec![0; 3 << 20];
    for (tag, src) in [(1, u64::MAX), (2, 0)] {
        receive(&b, &mut place, tag);
        send(&a, &mut out, tag);
        until([&a, &b], || a.count() == 1 && b.count() == 1);
        a.done.borrow_mut().clear();
        assert_eq!(b.done.borrow_mut().pop().unwrap().src, src);
        if src != 0 {
            b.knows(a.addr);
        }
    }
}

#[test]
fn messages_sent_without_a_copy_complete_when_the_kernel_lets_go() {
    let (a, b) = (
        side_with(Params {
            zerocopy_size: 32 << 10,
            ..Params::default()
        }),
        side(),
    );
    a.knows(b.addr);
    for len in [8, 32 << 10, 1 << 20, 8, 5 << 20] {
        let mut out: Vec<u8> = (0..len).map(|i| (i * 13 / 7) as u8).collect();
        let mut place = vec![0; len];
        receive(&b, &mut place, 1);
        send(&a, &mut out, 1);
        until([&a, &b], || a.count() == 1 && b.count() == 1);
        assert!(out == place, "{len} bytes");
        a.done.borrow_mut().clear();
        b.done.borrow_mut().clear();
    }
    assert!(a.engine.core().conns.values().all(|conn| conn.lent.enabled));
}
