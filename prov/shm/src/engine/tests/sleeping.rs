//! Threads that sleep while another one of the lane is at work.

use super::*;

#[test]
fn who_sleeps_takes_in_what_came_behind_a_write_that_another_thread_copies() {
    let (mut peer, mut here) = (Side::new(Params::default()), Side::new(Params::default()));
    let to = peer.insert(&here.name);
    let (mut region, mut out) = (vec![0; 64 << 10], pattern(3, 64 << 10));
    here.register(3, &mut region);
    // The link is open, and the peer knows what it may offer.
    let first = access(Access::Write, to, 3, &mut out[..8], 1);
    peer.core.access(peer.ep, &first).unwrap();
    assert_eq!(completed(&mut [&mut peer, &mut here], 0, 1), [1]);
    here.sleeps();
    let write = access(Access::Write, to, 3, &mut out, 2);
    peer.core.access(peer.ep, &write).unwrap();
    let mut errand = None;
    until(&mut [], |_| {
        here.core.progress();
        errand = errand.take().or_else(|| here.core.next_errand());
        errand.is_some()
    });
    let (mut sent, mut into) = ([5; 8], [0; 8]);
    here.core
        .receive(here.ep, &buffer(1, &mut into, 4))
        .unwrap();
    peer.core
        .transmit(peer.ep, &message(to, 1, &mut sent, 0))
        .unwrap();
    // Whoever sleeps is woken for it, and cannot take it in.
    here.sleeps();
    assert_eq!(here.core.open.next_nap(), None);
    // What it was to hear of when it was woken.
    here.core.poller.set_alarm(None);
    assert!(!is_readable(&here));
    assert_eq!(here.completions(), []);
    here.finish(errand.unwrap());
    assert_eq!(here.completions(), []);
    assert!(here.wakes(), "the message waits");
    assert_eq!(completed(&mut [&mut here], 0, 1), [4]);
    assert_eq!((into, region), (sent, out));
}
