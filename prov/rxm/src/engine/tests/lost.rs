//! Peers that end.

use std::os::fd::AsFd as _;

use prov_base::errno::Errno;
use prov_message::{Core as _, Sleeper};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::link::Fault;
use super::{Params, SIZES, Side, pair, side, until};

const LARGE: usize = 3 << 20;

/// Returns whether operations with a peer that is gone end with this error.
fn says_so(error: Errno) -> bool {
    use Errno as E;
    matches!(
        error,
        E::ESHUTDOWN | E::ECONNRESET | E::ECONNREFUSED | E::ENOTCONN | E::ECONNABORTED
    )
}

#[test]
fn an_announced_message_fails_with_its_receiver() {
    let [a, b] = pair(Params::default);
    let mut out = vec![1; LARGE];
    a.send(&mut out, 1);
    // It has arrived, and no receive is posted.
    until(&[&a, &b], || !b.links().is_empty() && !a.links().is_empty());
    for _ in 0..100 {
        a.drive();
        b.drive();
    }
    assert_eq!(a.outstanding(), 1);
    drop(b);
    until(&[&a], || a.count() == 1);
    assert!(a.errors().into_iter().all(says_so), "{:?}", a.errors());
    assert_eq!((a.failed.borrow().len(), a.outstanding()), (1, 0));
    assert!(a.links().is_empty());
}

#[test]
fn a_receive_fails_with_the_sender_that_it_reads_from() {
    for use_rndv_write in [false, true] {
        let [a, b] = pair(|| Params {
            use_rndv_write,
            ..Params::default()
        });
        let (mut out, mut place) = (vec![1; LARGE], vec![0; LARGE]);
        a.send(&mut out, 1);
        until(&[&a, &b], || !b.links().is_empty() && !a.links().is_empty());
        for _ in 0..100 {
            a.drive();
            b.drive();
        }
        b.receive(&mut place, 1);
        drop(a);
        until(&[&b], || b.count() == 1);
        // A message that had arrived in time is not lost.
        match b.errors()[..] {
            [] => assert!(place == out),
            [error] => assert!(says_so(error), "{error}"),
            _ => panic!(),
        }
        assert!(
            b.engine
                .core()
                .links
                .values()
                .all(|link| link.fetches.is_empty())
        );
    }
}

#[test]
fn operations_to_a_peer_that_does_not_listen_fail() {
    let a = side(Params::default());
    // A socket that is bound and does not listen refuses connections, and keeps others from its port.
    let any = "127.0.0.1:0".parse().unwrap();
    let bound = prov_base::socket::tcp::bound(&any, None, "test").unwrap();
    a.inserts(prov_base::socket::name(bound.as_fd()).unwrap());
    let mut outs: Vec<Vec<u8>> = SIZES.map(|len| vec![1; len]).into();
    for out in &mut outs {
        a.send(out, 1);
    }
    until(&[&a], || a.count() == SIZES.len());
    assert_eq!(a.failed.borrow().len(), SIZES.len());
    assert!(a.errors().into_iter().all(says_so), "{:?}", a.errors());
    assert_eq!(a.outstanding(), 0);
}

#[test]
fn a_broken_connection_is_established_again_by_the_next_message() {
    let [a, b] = pair(Params::default);
    for round in 0..10 {
        let (mut out, mut place) = ([round; 300], [0; 300]);
        b.receive(&mut place, 1);
        a.send(&mut out, 1);
        until(&[&a, &b], || a.count() == 1 && b.count() == 1);
        assert_eq!((place, a.errors()), (out, vec![]));
        a.forget();
        b.forget();
        // One side breaks the link, and the other one notices.
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let key = first.links()[0];
        let mut core = first.engine.core();
        core.break_link(key, Fault::Ended(Errno::ECONNRESET));
        drop(core);
        until(&[first, second], || second.links().is_empty());
    }
}

#[test]
fn messages_before_a_disconnect_are_received_even_if_answering_them_fails() {
    let [a, b] = linked();
    let mut large = vec![1; LARGE];
    let mut shorts = [[2; 300]; 100];
    a.send(&mut large, 1);
    for short in &mut shorts {
        until(&[&a], || a.has_sent(short, 2));
    }
    until(&[&a], || a.count() == shorts.len());
    drop(a);
    let mut place = vec![0; LARGE];
    b.receive(&mut place, 1);
    let mut places = [[0; 300]; 100];
    for place in &mut places {
        b.receive(place, 2);
    }
    // The sender of the long message, which would have been read, is gone.
    until(&[&b], || b.count() == 1 + shorts.len());
    assert!(places == shorts);
    assert!(
        matches!(b.errors()[..], [error] if says_so(error)),
        "{:?}",
        b.errors()
    );
}

#[test]
fn messages_before_a_disconnect_are_received_when_the_owner_of_the_receives_makes_progress() {
    let [a, b] = linked();
    let mut shorts = [[2; 300]; 100];
    for short in &mut shorts {
        until(&[&a], || a.has_sent(short, 2));
    }
    until(&[&a], || a.count() == shorts.len());
    drop(a);
    let mut places = [[0; 300]; 100];
    for place in &mut places {
        b.receive(place, 2);
    }
    // Of the messages that arrived before the end, some are received.
    until(&[&b], || b.count() != 0);
    assert!(b.count() < shorts.len());
    b.engine.core().endpoints().owner_leaves();
    // The end is noticed, also by a sender.
    for _ in 0..1000 {
        b.drive();
        b.has_sent(&mut [3; 8], 3);
    }
    b.engine.core().endpoints().owner_enters();
    until(&[&b], || {
        b.done.borrow().iter().filter(|(tag, _)| *tag == 2).count() == 100
    });
    assert!(places == shorts);
}

/// Two sides with a link.
fn linked() -> [Side; 2] {
    let [a, b] = pair(Params::default);
    let (mut out, mut place) = ([1; 8], [0; 8]);
    b.receive(&mut place, 1);
    a.send(&mut out, 1);
    until(&[&a, &b], || a.count() == 1 && b.count() == 1);
    a.forget();
    b.forget();
    [a, b]
}

#[test]
fn a_sleeping_thread_is_woken_for_a_link_that_has_to_end() {
    let [_a, b] = linked();
    let key = b.links()[0];
    let mut core = b.engine.core();
    let poller = core.poller().unwrap().try_clone_to_owned().unwrap();
    let is_ready = |patience: &Timespec| {
        let mut fds = [PollFd::new(&poller, PollFlags::IN)];
        poll(&mut fds, Some(patience)).unwrap() == 1
    };
    assert!(!is_ready(&Timespec::default()), "nothing is to be done");
    core.ends(key, Fault::Ended(Errno::ENOMEM));
    drop(core);
    assert!(!b.has_sent(&mut [1; 8], 1), "nothing is sent until then");
    let long = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    assert!(is_ready(&long), "who sleeps is woken");
    assert!(!b.engine.core().prepare_wait(Sleeper::Thread));
    until(&[&b], || b.links().is_empty());
}
