//! Peeking at unexpected messages (`FI_PEEK`).

use super::*;
use fabric_abi::FI_PEEK;

fn look(side: &Side, tag: u64) {
    let mut receive = Receive {
        select: Select::Tagged { tag, ignore: 0 },
        buffers: memory(&mut []),
        desc: Descs::NONE,
        peer: FI_ADDR_UNSPEC,
        flags: FI_PEEK | FI_COMPLETION,
        context: std::ptr::null_mut(),
    };
    side.engine.core().receive(side.ep, &mut receive).unwrap();
}

#[test]
fn a_peek_finds_messages_that_had_arrived_and_the_read_after_it_finds_more() {
    let (a, b) = (side(), side());
    a.knows(b.addr);
    b.knows(a.addr);
    let (mut out, mut place) = ([1; 8], [0; 8]);
    receive(&b, &mut place, 1);
    send(&a, &mut out, 1);
    until([&a, &b], || b.count() == 1);
    // On this connection the next message is in b's socket when this returns.
    send(&a, &mut out, 2);
    until([&a, &a], || a.count() == 2);

    b.cq.add_source(b.engine.clone()).unwrap();
    let read = || b.cq.read(1, |_| {});
    look(&b, 2);
    assert_eq!(
        read(),
        Err(Errno::EAVAIL),
        "the message has not been taken in"
    );
    assert_eq!(b.cq.read_error().unwrap().err, Errno::ENOMSG);
    look(&b, 2);
    assert_eq!(read(), Ok(1), "the read before has driven the lane");
    b.cq.shut();
}
