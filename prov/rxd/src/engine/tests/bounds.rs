//! What an endpoint keeps does not grow with what it has sent.

use super::super::below::Load;
use super::*;

/// Limit of the entries of the queue of datagrams that were sent.
const ENTRIES: usize = 256;

#[test]
fn long_datagrams_leave_nothing_in_the_queue_below() {
    let [a, b] = pair(Params::default);
    let (mut sent, mut room) = (vec![1; 60_000], vec![0; 60_000]);
    for tag in 0..100 {
        b.receive(&mut room, tag, FI_ADDR_UNSPEC);
        a.send(&mut sent, tag, 0);
        completed(&[&b, &a], 1);
        completed(&[&a, &b], 1);
    }
    let left = a.lane.core().below.as_mut().unwrap().take_back();
    assert!(left <= ENTRIES, "{left} entries");
}

#[test]
fn datagrams_that_cannot_be_sent_leave_nothing_in_the_queue_below() {
    let a = Side::new(Params::default());
    let mut core = a.lane.core();
    let below = core.below.as_mut().unwrap();
    let nowhere = prov_base::sockaddr::encode(&"255.255.255.255:9".parse().unwrap());
    let nowhere = below.addresses.insert(nowhere.as_bytes()).unwrap();
    let own = below.addresses.insert(&a.name).unwrap();
    for _ in 0..10 * ENTRIES {
        // The second one is batched, so that it fails later.
        for path in [own, nowhere] {
            while !below.send(&[0; 32], &Load::Own(&[]), path) {
                below.take_back();
            }
        }
    }
    let left = below.take_back();
    assert!(left <= ENTRIES, "{left} entries");
}
