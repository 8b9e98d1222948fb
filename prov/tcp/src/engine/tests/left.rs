//! Messages whose connection has ended before they are received.

use super::*;

#[test]
fn nothing_is_kept_of_connections_whose_messages_are_received() {
    let a = side();
    for round in 0..200 {
        let b = side();
        b.knows(a.addr);
        let (mut out, mut place) = ([round; 8], [0; 8]);
        send(&b, &mut out, 1);
        until([&a, &b], || a.kept() != 0 && b.count() == 1);
        b.engine.close(b.ep);
        until([&a, &a], || a.open_connections().is_empty());
        receive(&a, &mut place, 1);
        until([&a, &a], || a.count() == usize::from(round) + 1);
        assert_eq!(place, out);
    }
    let (all, peers) = {
        let mut core = a.engine.core();
        let all = core.endpoints.left_behind();
        (all, core.rdm(a.ep).unwrap().peers.left_behind())
    };
    assert!(all <= 64 && peers <= 64, "{all}, {peers}");
}
