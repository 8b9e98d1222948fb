//! Attempts to connect: when they are made, repeated and given up.

use super::*;

#[test]
fn a_failed_attempt_is_retried_when_its_pause_is_over() {
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    let target = peers.target(key).unwrap();
    assert_eq!(
        (target.addr, target.source, target.deadline),
        ('A', 0, now + CONNECT)
    );
    let Ended::Again(at) = peers.ended(key, 7, RESET, now) else {
        panic!()
    };
    assert!(peers.target(key).is_none());
    assert_eq!(peers.defer(key, "two", now).unwrap(), ConnectStep::Wait);
    assert_eq!(peers.due(key, at - MILLISECOND), ConnectStep::Wait);
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    assert_eq!(peers.due(key, at), ConnectStep::Wait);
    let Ended::Again(at) = peers.not_begun(key, RESET, at) else {
        panic!()
    };
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    // The deadline is that of all attempts together.
    assert_eq!(peers.target(key).unwrap().deadline, now + CONNECT);
}

#[test]
fn waiting_requests_fail_at_the_deadline() {
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert_eq!(peers.defer(key, "two", now).unwrap(), ConnectStep::Wait);
    let Ended::GivenUp(given_up) = peers.ended(key, 7, REFUSED, now + CONNECT) else {
        panic!()
    };
    assert_eq!(
        (given_up.addr, given_up.error, given_up.source),
        ('A', Errno::ECONNREFUSED, Some(0))
    );
    assert_eq!(given_up.failed, ["one", "two"]);
    // The next operation begins a new attempt.
    assert_eq!(
        peers.defer(key, "three", now + CONNECT).unwrap(),
        ConnectStep::Start(key)
    );
}

#[test]
fn waiting_requests_fail_immediately_after_a_hopeless_attempt() {
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    let hopeless = Failure::Hopeless(Errno::EKEYREJECTED);
    let Ended::GivenUp(given_up) = peers.ended(key, 7, hopeless, now) else {
        panic!()
    };
    assert_eq!(
        (given_up.error, given_up.failed.len()),
        (Errno::EKEYREJECTED, 1)
    );
}

#[test]
fn an_attempt_gives_way_to_the_peers_own_and_ends_with_that() {
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert_eq!(peers.peer_at(&'A'), key);
    assert_eq!(peers.adopt(key, 8, now), Some(7));
    assert!(matches!(peers.ended(key, 7, RESET, now), Ended::Quietly));
    let Ended::Again(at) = peers.ended(key, 8, RESET, now) else {
        panic!()
    };
    // An attempt that pauses gives way, too.
    assert_eq!(peers.adopt(key, 9, now), None);
    assert_eq!(peers.due(key, at), ConnectStep::Wait);
    assert_eq!(peers.opened(key, 9).unwrap().displaced, None);
    assert_eq!(drained(&mut peers, key, 9), ["one"]);
}

#[test]
fn a_link_that_the_peer_makes_is_not_made_again() {
    let (_, mut peers, now) = with_two_peers();
    let key = peers.peer_at(&'A');
    assert_eq!(peers.adopt(key, 8, now), None);
    assert_eq!(waits(&mut peers, 0), key);
    assert_eq!(peers.defer(key, "one", now).unwrap(), ConnectStep::Wait);
    assert_eq!(peers.opened(key, 8).unwrap().source, 0);
    assert_eq!(drained(&mut peers, key, 8), ["one"]);
}

#[test]
fn a_link_that_takes_the_place_of_another_names_it() {
    let (_, mut peers, now) = with_two_peers();
    let key = connected(&mut peers, 0, 7, now);
    assert_eq!(peers.opened(key, 8).unwrap().displaced, Some(7));
    assert!(matches!(peers.ended(key, 7, RESET, now), Ended::Quietly));
    assert_eq!(peers.destination(0), Ok(Destination::Open(8)));
}

#[test]
fn a_request_that_met_ours_is_handed_back_when_ours_has_ended() {
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert!(peers.crosses(key, 8));
    assert_eq!(peers.opened(key, 7).unwrap().crossing, Some(8));
    assert!(!peers.crosses(key, 9));
    let other = begun(&mut peers, 1, 17, "one", now);
    assert!(peers.crosses(other, 18));
    assert_eq!(peers.take_crossing(other), Some(18));
    assert_eq!(peers.adopt(other, 18, now), Some(17));
    let opened = peers.opened(other, 18).unwrap();
    assert_eq!((opened.crossing, opened.displaced), (None, None));
    assert!(matches!(
        peers.ended(other, 17, REFUSED, now),
        Ended::Quietly
    ));
}

#[test]
fn a_peer_that_cannot_be_connected_to_is_not_tried_after_its_link_has_ended() {
    let (_, mut peers, now) = with_two_peers();
    let key = peers.peer_at(&'A');
    peers.adopt(key, 7, now);
    peers.only_calls(key);
    peers.opened(key, 7).unwrap();
    assert_eq!(peers.destination(0), Ok(Destination::Open(7)));
    assert!(matches!(
        peers.ended(key, 7, RESET, now),
        Ended::Lost { again: None, .. }
    ));
    let declined = peers.defer(key, "one", now).unwrap_err();
    assert_eq!(
        (declined.error, declined.request),
        (Errno::EFIREWALLADDR, "one")
    );
    assert_eq!(peers.await_link(key, now), Err(Errno::EFIREWALLADDR));
    // A receive waits for it.
    assert_eq!(peers.seek(0, now), ConnectStep::Wait);
    assert_eq!(peers.adopt(key, 8, now), None);
    assert_eq!(peers.defer(key, "two", now).unwrap(), ConnectStep::Wait);
    peers.opened(key, 8).unwrap();
    let Ended::GivenUp(given_up) = peers.ended(key, 8, RESET, now) else {
        panic!()
    };
    assert_eq!(
        (given_up.error, given_up.source),
        (Errno::EFIREWALLADDR, Some(0))
    );
    assert_eq!(given_up.failed, ["two"]);
}

#[test]
fn an_application_that_retries_gets_the_failure_once() {
    let (_, mut peers, now) = with_two_peers();
    let key = waits(&mut peers, 0);
    for _ in 0..2 {
        assert_eq!(peers.await_link(key, now), Ok(ConnectStep::Start(key)));
        peers.begun(key, 7);
        assert_eq!(peers.await_link(key, now), Ok(ConnectStep::Wait));
        let Ended::GivenUp(given_up) = peers.ended(key, 7, REFUSED, now + CONNECT) else {
            panic!()
        };
        assert!(given_up.failed.is_empty());
        assert_eq!(
            peers.await_link(key, now + CONNECT),
            Err(Errno::ECONNREFUSED)
        );
    }
}

#[test]
fn a_failure_of_long_ago_is_no_answer_to_a_new_call() {
    let (_, mut peers, now) = with_two_peers();
    let key = waits(&mut peers, 0);
    assert_eq!(peers.await_link(key, now), Ok(ConnectStep::Start(key)));
    let failed = now + CONNECT;
    assert!(matches!(
        peers.not_begun(key, REFUSED, failed),
        Ended::GivenUp(_)
    ));
    assert_eq!(
        peers.await_link(key, failed + CONNECT),
        Ok(ConnectStep::Start(key))
    );
}

#[test]
fn an_attempt_without_waiting_operations_is_not_repeated() {
    let (_, mut peers, now) = with_two_peers();
    let key = peers.peer_at(&'A');
    peers.adopt(key, 7, now);
    assert!(matches!(peers.ended(key, 7, RESET, now), Ended::Quietly));
    assert_eq!(peers.due(key, now + CONNECT), ConnectStep::Wait);
}
