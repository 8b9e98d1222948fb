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

#[test]
fn a_peer_that_is_gone_fills_no_queue_but_its_own() {
    let [a, b] = pair(Params::default);
    let absent = Side::new(Params::default());
    a.knows(&absent.name);
    drop(absent);
    let mut bytes = [1; 8];
    let mut posted = 0;
    loop {
        let mut message = Transmit {
            tag: Tag::Value(9),
            buffers: memory(&mut bytes),
            desc: Descs::NONE,
            peer: 1,
            data: 0,
            flags: FI_COMPLETION,
            context: null_mut(),
        };
        let mut core = a.lane.core();
        match core.transmit(a.ep, &mut message) {
            Ok(()) => posted += 1,
            Err(error) => break assert_eq!(error, Errno::EAGAIN),
        }
    }
    assert_eq!(posted, 1024, "what the endpoint was opened with");
    let (mut sent, mut room) = ([2; 8], [0; 8]);
    for tag in 0..2_000 {
        b.receive(&mut room, tag, FI_ADDR_UNSPEC);
        a.send(&mut sent, tag, 0);
        completed(&[&b, &a], 1);
        completed(&[&a, &b], 1);
    }
}
