//! Receives that end with their peer, even if it has never been connected.

use super::*;

/// A time at which an expected peer without a link is due.
fn after(now: Instant) -> Instant {
    now + EXPECTED_FOR
}

/// Expects a message of `A`, for which nothing else is under way.
fn expected(peers: &mut Tested, now: Instant) -> PeerKey {
    let key = waits(peers, 0);
    assert_eq!(peers.expect(key, now), Some(after(now)));
    key
}

#[test]
fn an_expected_peer_that_has_ended_is_noticed() {
    let (_, mut peers, now) = with_two_peers();
    let key = expected(&mut peers, now);
    assert!(!peers.any_lost());
    // A second receive needs no second timer.
    assert_eq!(peers.expect(key, now), None);
    let now = after(now);
    assert_eq!(peers.due(key, now), ConnectStep::Start(key));
    let Ended::Again(at) = peers.not_begun(key, REFUSED, now) else {
        panic!()
    };
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    let Ended::GivenUp(given_up) = peers.not_begun(key, REFUSED, now + CONNECT) else {
        panic!()
    };
    assert_eq!(
        (given_up.error, given_up.source),
        (Errno::ECONNREFUSED, Some(0))
    );
    assert!(peers.any_lost());
}

#[test]
fn an_expected_peer_that_connects_is_not_connected_to() {
    let (_, mut peers, now) = with_two_peers();
    let key = expected(&mut peers, now);
    peers.adopt(key, 7, now);
    peers.opened(key, 7).unwrap();
    assert_eq!(peers.due(key, after(now)), ConnectStep::Wait);
    assert_eq!(peers.expect(key, now), None);
}

#[test]
fn an_expected_peer_that_ends_while_it_connects_is_noticed() {
    let (_, mut peers, now) = with_two_peers();
    let key = expected(&mut peers, now);
    peers.adopt(key, 7, now);
    let Ended::Again(at) = peers.ended(key, 7, RESET, now) else {
        panic!()
    };
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    let failure = Failure::Hopeless(Errno::ECONNREFUSED);
    assert!(matches!(
        peers.not_begun(key, failure, at),
        Ended::GivenUp(_)
    ));
}

#[test]
fn a_peer_that_is_expected_while_it_connects_is_noticed_when_it_ends() {
    let (_, mut peers, now) = with_two_peers();
    let key = waits(&mut peers, 0);
    peers.adopt(key, 7, now);
    assert_eq!(peers.expect(key, now), None);
    assert!(matches!(peers.ended(key, 7, RESET, now), Ended::Again(_)));
}

#[test]
fn an_expected_peer_that_is_slow_to_answer_is_waited_for() {
    let (_, mut peers, mut now) = with_two_peers();
    let key = expected(&mut peers, now);
    for link in 7..12 {
        now = after(now);
        assert_eq!(peers.due(key, now), ConnectStep::Start(key));
        peers.begun(key, link);
        now += CONNECT;
        let Ended::Again(at) = peers.ended(key, link, Failure::of(Errno::ETIMEDOUT), now) else {
            panic!()
        };
        assert_eq!(at, after(now));
        assert!(!peers.any_lost());
    }
    // An operation is not.
    let key = begun(&mut peers, 0, 12, "one", now);
    let timeout = Failure::of(Errno::ETIMEDOUT);
    let Ended::GivenUp(given_up) = peers.ended(key, 12, timeout, now + CONNECT) else {
        panic!()
    };
    assert_eq!(given_up.failed, ["one"]);
    assert_eq!(given_up.source, Some(0));
}

#[test]
fn an_expected_peer_that_does_not_exist_is_given_up() {
    let (_, mut peers, now) = with_two_peers();
    let key = expected(&mut peers, now);
    let now = after(now);
    assert_eq!(peers.due(key, now), ConnectStep::Start(key));
    let failure = Failure::Unreached(Errno::ECONNREFUSED);
    assert!(matches!(
        peers.not_begun(key, failure, now + CONNECT),
        Ended::GivenUp(_)
    ));
}

#[test]
fn an_expected_peer_does_not_delay_an_operation() {
    let (_, mut peers, now) = with_two_peers();
    let key = expected(&mut peers, now);
    assert_eq!(begun(&mut peers, 0, 7, "one", now), key);
}
