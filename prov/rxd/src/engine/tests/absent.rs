//! An application that makes no calls after its last receive, or for a while.

use std::os::fd::AsFd;

use prov_base::poller::Poller;
use prov_util::drive::{Helper, Sleeper};

use super::super::link::Source;
use super::*;

impl Side {
    /// Loses what has arrived; returns the number of datagrams.
    fn lose_arrivals(&self) -> usize {
        let mut core = self.lane.core();
        let mut arrivals = core.arrivals.take().unwrap();
        let mut count = 0;
        while arrivals.read() {
            while let Some(arrived) = arrivals.next() {
                arrivals.handled(arrived);
                count += 1;
            }
        }
        core.arrivals = Some(arrivals);
        count
    }

    /// What the library's thread does while the application makes no calls.
    fn is_helped(&self) {
        self.lane.core().end_burst();
    }

    /// Whether a thread that sleeps on the lane's descriptor would wake up.
    fn is_readable(&self) -> bool {
        let core = self.lane.core();
        let mut sleeper = Poller::new().unwrap();
        let fd = core.poller.as_fd();
        sleeper.watch_listener(fd, Source::Completions).unwrap();
        let mut events = Vec::new();
        sleeper.poll(&mut events);
        !events.is_empty()
    }

    /// Whether datagrams wait for the application's next call.
    fn has_left_over(&self) -> bool {
        let core = self.lane.core();
        core.arrivals.as_ref().unwrap().has_left_over()
    }
}

/// Two sides, of which the second one has acknowledged a second message from the first, which did not
/// arrive.
fn after_a_lost_acknowledgement(helper: Option<&Arc<Helper>>) -> [Side; 2] {
    let sides = pair(Params::default);
    let [a, b] = &sides;
    if let Some(helper) = helper {
        b.lane.help(helper);
    }
    let (mut sent, mut room) = ([1; 8], [0; 8]);
    b.receive(&mut room, 1, FI_ADDR_UNSPEC);
    a.send(&mut sent, 1, 0);
    completed(&[b, a], 1);
    completed(&[a, b], 1);
    b.receive(&mut room, 2, FI_ADDR_UNSPEC);
    a.send(&mut sent, 2, FI_INJECT);
    completed(&[b], 1);
    until(&[b], || (a.lose_arrivals() != 0).then_some(()));
    assert!(a.completions().is_empty());
    sides
}

#[test]
fn the_helper_thread_answers_a_peer_whose_acknowledgement_was_lost() {
    let helper = Helper::new("tests");
    let [a, _b] = after_a_lost_acknowledgement(Some(&helper));
    completed(&[&a], 1);
}

#[test]
fn messages_that_arrive_meanwhile_are_left_to_the_application_in_order() {
    let [a, b] = after_a_lost_acknowledgement(None);
    let mut rooms = [[0; 8]; 40];
    for (tag, room) in (10..).zip(&mut rooms) {
        b.receive(room, tag, FI_ADDR_UNSPEC);
    }
    for tag in 10..50 {
        a.send(&mut [tag as u8; 8], tag, FI_INJECT);
    }
    until(&[&a], || {
        b.is_helped();
        (!a.completions().is_empty() && b.has_left_over()).then_some(())
    });
    assert!(b.completions().is_empty());
    let tags: Vec<usize> = completed(&[&b, &a], 40)
        .iter()
        .map(|completion| completion.context.addr())
        .collect();
    assert!(tags.is_sorted(), "{tags:?}");
    assert!((10..).zip(rooms).all(|(tag, room)| room == [tag; 8]));
    assert!(!b.has_left_over());
}

#[test]
fn an_acknowledgement_that_arrives_meanwhile_is_reported_by_the_next_call() {
    let [a, b] = pair(Params::default);
    let mut room = [0; 8];
    b.receive(&mut room, 1, FI_ADDR_UNSPEC);
    let mut sent = [1; 8];
    a.send(&mut sent, 1, 0);
    completed(&[&b, &a], 1);
    completed(&[&a, &b], 1);
    b.receive(&mut room, 2, FI_ADDR_UNSPEC);
    a.send(&mut sent, 2, FI_INJECT);
    completed(&[&b], 1);
    let unfinished = |side: &Side| side.lane.core().protocol.as_ref().unwrap().unfinished();
    until(&[&b], || {
        a.is_helped();
        (unfinished(&a) == 0).then_some(())
    });
    assert!(a.completions().is_empty());
    // A thread that is about to sleep is told.
    assert!(a.is_readable());
    completed(&[&a], 1);
    until(&[], || {
        a.lane.core().prepare_wait(Sleeper::Thread).then_some(())
    });
    assert!(!a.is_readable());
}

#[test]
fn a_thread_that_sleeps_is_not_forestalled() {
    let [a, b] = after_a_lost_acknowledgement(None);
    until(&[], || {
        b.lane.core().prepare_wait(Sleeper::Thread).then_some(())
    });
    a.send(&mut [3; 8], 3, FI_INJECT);
    until(&[&a], || {
        b.is_helped();
        b.is_readable().then_some(())
    });
    assert!(!b.has_left_over());
    assert!(a.completions().is_empty());
}

#[test]
fn a_peer_that_was_killed_after_it_had_answered_is_given_up_soon() {
    let [a, b] = pair(Params::default);
    let mut room = [0; 8];
    b.receive(&mut room, 1, FI_ADDR_UNSPEC);
    a.send(&mut [1; 8], 1, FI_INJECT);
    completed(&[&b, &a], 1);
    completed(&[&a, &b], 1);
    // It says nothing when it goes.
    b.lane.core().protocol = None;
    drop(b);
    let mut bytes = [2; 8];
    a.send(&mut bytes, 2, 0);
    // The time after which a silent peer is given up is longer than this waits.
    let error = until(&[&a], || a.error());
    assert_eq!(
        (error.err, error.completion.context.addr()),
        (Errno::ETIMEDOUT, 2)
    );
}
