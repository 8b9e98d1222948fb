//! A peer that owes a result, and cannot get it through.

use prov_rxd::protocol::Time;

use crate::host::{Kind, Leaving, Op, name_of, request_of};
use crate::network::MS;
use crate::random::Random;
use crate::side::{Side, side};

/// Time after which silent peers are given up.
const GIVE_UP: Time = 1_000 * MS;
/// The type of packets with results.
const RESULT: u8 = 13;

#[test]
fn a_peer_that_answers_probes_is_not_given_up() {
    let mut sides = [side(0, 1, GIVE_UP), side(1, 2, GIVE_UP)];
    let begin = 1_000 * MS;
    let Side { endpoint, host } = &mut sides[0];
    let peer = endpoint.peer(&name_of(1), 1).unwrap();
    host.peers.insert(peer, 1);
    let op = Op {
        peer,
        kind: Kind::Read,
        len: 100,
        is_wrong: false,
        got: 0,
    };
    let request = request_of(&op, 1, &mut Random::new(1));
    host.ops.insert(1, op);
    endpoint.submit(begin, peer, 1, &request).unwrap();
    let mut now = begin;
    while sides[0].host.done.is_empty() {
        assert!(now < begin + 30 * GIVE_UP);
        // The network lets everything through but the result, and that later.
        let is_good = now >= begin + 20 * GIVE_UP;
        for from in 0..2 {
            let Side { endpoint, host } = &mut sides[from];
            endpoint.transmit(now, host);
            for Leaving { bytes, .. } in std::mem::take(&mut host.outbox) {
                if is_good || bytes[1] != RESULT {
                    let Side { endpoint, host } = &mut sides[1 - from];
                    endpoint.receive(now, Some(from as u32), &bytes, host);
                }
            }
        }
        now += MS;
    }
    assert_eq!(sides[0].host.done[0].result, Ok(()));
}
