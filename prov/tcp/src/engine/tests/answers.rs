//! Answers that the library itself sends, in relation to the application's messages.

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT};

use super::*;

/// Two sides with a connection that both have used.
fn acquainted() -> (Side, Side) {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut place) = ([1; 8], [0; 8]);
    for (done, (from, to)) in [(&a, &b), (&b, &a)].into_iter().enumerate() {
        receive(to, &mut place, 0);
        send(from, &mut out, 0);
        until([from, to], || {
            a.count() == done + 1 && b.count() == done + 1
        });
    }
    (a, b)
}

fn send_until_delivered(side: &Side, bytes: &mut [u8], tag: u64) {
    let mut message = tagged(bytes, tag);
    message.flags |= FI_DELIVERY_COMPLETE;
    side.engine.core().transmit(side.ep, &mut message).unwrap();
}

/// Whether everything that was to be sent was given to the kernel.
fn has_left(side: &Side) -> bool {
    let core = side.engine.core();
    core.conns.values().all(|conn| conn.outbox.is_idle())
}

#[test]
fn an_unreported_operation_needs_no_acknowledgement() {
    let (a, b) = acquainted();
    let (mut out, mut place) = ([7; 8], [0; 8]);
    for tag in 1..=8 {
        let mut message = tagged(&mut out, tag);
        message.flags = FI_INJECT | FI_DELIVERY_COMPLETE;
        a.engine.core().transmit(a.ep, &mut message).unwrap();
        let core = a.engine.core();
        assert_eq!(core.endpoints.get(a.ep).unwrap().ledger.outstanding(), 0);
        drop(core);
        receive(&b, &mut place, tag);
        until([&a, &b], || b.count() == 2 + tag as usize);
        assert_eq!(place, [7; 8]);
    }
    assert_eq!(a.count(), 2);
}

#[test]
fn a_fenced_message_waits_for_the_operations_before_it() {
    for has_fences in [false, true] {
        let (a, b) = acquainted();
        let mut core = a.engine.core();
        core.endpoints.get_mut(a.ep).unwrap().own.has_fences = has_fences;
        drop(core);
        let (mut out, mut last, mut place) = ([7; 8], [8; 8], [[0; 8]; 2]);
        send_until_delivered(&a, &mut out, 1);
        let mut fenced = tagged(&mut last, 2);
        fenced.flags |= FI_FENCE;
        let mut post = || a.engine.core().transmit(a.ep, &mut fenced);
        let posted = post();
        for (tag, place) in (1..).zip(&mut place) {
            receive(&b, place, tag);
        }
        if has_fences {
            assert_eq!(posted, Err(Errno::EAGAIN));
            until([&a, &b], || a.count() == 3);
            assert_eq!(post(), Ok(()));
        } else {
            assert_eq!(posted, Ok(()));
        }
        until([&a, &b], || a.count() == 4 && b.count() == 4);
        assert_eq!(place, [[7; 8], [8; 8]]);
    }
}

#[test]
fn an_acknowledgement_does_not_hold_up_the_reply() {
    let (a, b) = acquainted();
    let (mut out, mut reply, mut place, mut back) = ([7; 8], [8; 8], [0; 8], [0; 8]);
    for tag in 1..=50 {
        let (at_a, at_b) = (a.count(), b.count());
        receive(&a, &mut back, tag);
        receive(&b, &mut place, tag);
        send_until_delivered(&a, &mut out, tag);
        while b.count() == at_b {
            b.drive();
        }
        assert!(has_left(&b), "the acknowledgement waits for another call");
        send(&b, &mut reply, tag);
        assert!(has_left(&b), "the reply waits for another call");
        until([&a, &a], || a.count() == at_a + 2);
        until([&b, &b], || b.count() == at_b + 2);
    }
}

#[test]
fn acknowledgements_of_one_call_leave_at_its_end() {
    let (a, b) = acquainted();
    let mut places = [[0; 8]; 20];
    for (tag, place) in places.iter_mut().enumerate() {
        receive(&b, place, 1 + tag as u64);
    }
    let mut out = [[7; 8]; 20];
    for (tag, bytes) in out.iter_mut().enumerate() {
        send_until_delivered(&a, bytes, 1 + tag as u64);
    }
    a.drive();
    let before = b.count();
    while b.count() < before + 20 {
        b.drive();
        assert!(has_left(&b), "an acknowledgement waits for another call");
    }
    until([&a, &a], || a.count() == 22);
}

#[test]
fn a_message_is_sent_together_with_waiting_data() {
    let (a, b) = acquainted();
    let (mut out, mut reply, mut place, mut back) = ([[7; 8]; 3], [8; 8], [[0; 8]; 3], [0; 8]);
    for (tag, bytes) in out.iter_mut().enumerate() {
        send_until_delivered(&a, bytes, 1 + tag as u64);
    }
    a.drive();
    until([&b, &b], || b.kept() > 2 * 128);
    receive(&a, &mut back, 9);
    // Acknowledged outside of progress calls, now that they are received.
    for (tag, place) in place.iter_mut().enumerate() {
        receive(&b, place, 1 + tag as u64);
    }
    send(&b, &mut reply, 9);
    assert!(has_left(&b), "the message waits for another call");
    until([&a, &a], || a.count() == 6);
}
