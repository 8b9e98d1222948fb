//! Peeking at unexpected messages (`FI_PEEK`).

use super::*;

#[test]
fn the_read_after_an_unsuccessful_peek_makes_progress_even_if_it_finds_an_entry() {
    let (mut a, mut b) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = a.insert(&b.name);
    let (mut out, mut into) = ([1; 8], [0; 8]);
    b.core.receive(b.ep, &mut buffer(1, &mut into, 1)).unwrap();
    a.core
        .transmit(a.ep, &mut message(to, 1, &mut out, 0))
        .unwrap();
    assert_eq!(completed(&mut [&mut a, &mut b], 1, 1), [1]);
    // On this link the next message is in the channel when the call returns.
    a.core
        .transmit(a.ep, &mut message(to, 2, &mut out, 0))
        .unwrap();

    let Side {
        mut core, ep, cq, ..
    } = b;
    let lane = prov_message::Lane::start(LockKind::Real, |signals| {
        core.signals = signals.clone();
        Ok(core)
    });
    let lane = lane.unwrap();
    cq.add_source(lane.clone()).unwrap();
    let look = || {
        let mut receive = Receive {
            flags: FI_PEEK | FI_COMPLETION,
            ..buffer(2, &mut [], 2)
        };
        lane.core().receive(ep, &mut receive).unwrap();
        cq.read(1, |_| {})
    };
    assert_eq!(look(), Err(Errno::EAVAIL), "it has not been taken in");
    assert_eq!(cq.read_error().unwrap().err, Errno::ENOMSG);
    assert_eq!(look(), Ok(1), "the read before has driven the lane");
    cq.shut();
}
