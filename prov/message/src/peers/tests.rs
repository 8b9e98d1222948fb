//! Tests of single rules of [`Peers`], for a provider whose links are numbers.

mod expected;

use std::sync::{Mutex, Weak};
use std::time::Duration;

use prov_util::av::Observer;

use super::*;

/// An address vector whose addresses are letters.
#[derive(Default)]
pub(super) struct Vector {
    slots: Mutex<Vec<Option<char>>>,
    observers: Mutex<Vec<Weak<dyn Observer>>>,
}

impl Vector {
    /// Inserts at the first free place; at the address's own place if it has one.
    pub fn insert(&self, addr: char) -> u64 {
        let mut slots = self.slots.lock().unwrap();
        let place = |wanted: Option<char>| slots.iter().position(|slot| *slot == wanted);
        let at = place(Some(addr)).or_else(|| place(None));
        let at = at.unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[at] = Some(addr);
        at as u64
    }

    pub fn remove(&self, fi_addr: u64) {
        let was_there = match self.slots.lock().unwrap().get_mut(fi_addr as usize) {
            Some(slot) => slot.take().is_some(),
            None => false,
        };
        if was_there {
            let observers = self.observers.lock().unwrap();
            let alive = observers.iter().filter_map(Weak::upgrade);
            alive.for_each(|observer| observer.removed(fi_addr));
        }
    }
}

impl AddressVector for Arc<Vector> {
    type Address = char;

    fn lookup(&self, fi_addr: u64) -> Option<char> {
        let slots = self.slots.lock().unwrap();
        slots.get(usize::try_from(fi_addr).ok()?).copied()?
    }

    fn find(&self, addr: &char) -> Option<u64> {
        let slots = self.slots.lock().unwrap();
        let at = slots.iter().position(|slot| slot.as_ref() == Some(addr));
        at.map(|at| at as u64)
    }

    fn len(&self) -> usize {
        self.slots.lock().unwrap().iter().flatten().count()
    }

    fn observe(&self, observer: Weak<dyn Observer>) {
        self.observers.lock().unwrap().push(observer);
    }
}

type Tested = Peers<u32, Arc<Vector>, &'static str>;

const MILLISECOND: Duration = Duration::from_millis(1);
const CONNECT: Duration = Duration::from_millis(1000);
const REFUSED: Failure = Failure::Refused(Errno::ECONNREFUSED);
const RESET: Failure = Failure::Unreached(Errno::ECONNRESET);

/// With `A` as 0 and `B` as 1 in the vector.
fn acquainted() -> (Arc<Vector>, Tested, Instant) {
    let av = Arc::new(Vector::default());
    av.insert('A');
    av.insert('B');
    let mut peers = Peers::new(Patience::within(CONNECT));
    peers.bind_av(av.clone());
    (av, peers, Instant::now())
}

fn waits(peers: &mut Tested, fi_addr: u64) -> PeerKey {
    match peers.destination(fi_addr) {
        Ok(Destination::Waits(key)) => key,
        other => panic!("{other:?}"),
    }
}

/// Queues a request, which waits for the first attempt.
fn begun(
    peers: &mut Tested,
    fi_addr: u64,
    link: u32,
    request: &'static str,
    now: Instant,
) -> PeerKey {
    let key = waits(peers, fi_addr);
    assert_eq!(
        peers.defer(key, request, now).unwrap(),
        ConnectStep::Start(key)
    );
    peers.begun(key, link);
    key
}

/// Opens a link for which nothing waits.
fn connected(peers: &mut Tested, fi_addr: u64, link: u32, now: Instant) -> PeerKey {
    let key = begun(peers, fi_addr, link, "first", now);
    peers.opened(key, link).unwrap();
    assert_eq!(drained(peers, key, link), ["first"]);
    assert_eq!(peers.destination(fi_addr), Ok(Destination::Open(link)));
    key
}

fn drained(peers: &mut Tested, key: PeerKey, link: u32) -> Vec<&'static str> {
    std::iter::from_fn(|| peers.next_waiting(key, link)).collect()
}

#[test]
fn waiting_requests_are_sent_in_order_once_the_link_is_open() {
    let (_, mut peers, now) = acquainted();
    let key = begun(&mut peers, 0, 7, "one", now);
    for request in ["two", "three"] {
        assert_eq!(peers.defer(key, request, now).unwrap(), ConnectStep::Wait);
    }
    assert_eq!(peers.next_waiting(key, 7), None);
    assert_eq!(
        peers.opened(key, 7),
        Some(Opened {
            source: 0,
            crossing: None,
            displaced: None
        })
    );
    // Later operations do not overtake it.
    assert_eq!(peers.destination(0), Ok(Destination::Waits(key)));
    assert_eq!(peers.defer(key, "four", now).unwrap(), ConnectStep::Wait);
    assert_eq!(drained(&mut peers, key, 7), ["one", "two", "three", "four"]);
    assert_eq!(peers.destination(0), Ok(Destination::Open(7)));
    assert_eq!(peers.open_link(0), Some(7));
    let declined = peers.defer(key, "five", now).unwrap_err();
    assert_eq!((declined.error, declined.request), (Errno::EISCONN, "five"));
}

#[test]
fn a_request_without_room_keeps_its_place() {
    let (_, mut peers, now) = acquainted();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert_eq!(peers.defer(key, "two", now).unwrap(), ConnectStep::Wait);
    peers.opened(key, 7).unwrap();
    let one = peers.next_waiting(key, 7).unwrap();
    assert_eq!(peers.put_back(key, one), None);
    assert_eq!(peers.destination(0), Ok(Destination::Waits(key)));
    assert_eq!(peers.open_link(0), None);
    assert_eq!(drained(&mut peers, key, 7), ["one", "two"]);
}

#[test]
fn requests_left_when_a_link_ends_are_sent_on_the_next_one() {
    let (_, mut peers, now) = acquainted();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert_eq!(peers.defer(key, "two", now).unwrap(), ConnectStep::Wait);
    peers.opened(key, 7).unwrap();
    assert_eq!(peers.next_waiting(key, 7), Some("one"));
    let Ended::Lost {
        source: Some(0),
        again: Some(at),
    } = peers.ended(key, 7, RESET, now)
    else {
        panic!();
    };
    // A pause keeps the links from being established in a loop.
    assert!(at > now);
    assert_eq!(peers.next_waiting(key, 7), None);
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    peers.begun(key, 8);
    peers.opened(key, 8).unwrap();
    assert_eq!(drained(&mut peers, key, 8), ["two"]);
}

#[test]
fn a_failed_attempt_is_retried_when_its_pause_is_over() {
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
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
fn the_end_of_another_link_changes_nothing() {
    let (_, mut peers, now) = acquainted();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert!(matches!(peers.ended(key, 6, RESET, now), Ended::Quietly));
    assert!(matches!(peers.not_begun(key, RESET, now), Ended::Quietly));
    peers.opened(key, 7).unwrap();
    assert_eq!(drained(&mut peers, key, 7), ["one"]);
    assert!(matches!(peers.ended(key, 6, RESET, now), Ended::Quietly));
    assert_eq!(peers.destination(0), Ok(Destination::Open(7)));
}

#[test]
fn an_attempt_gives_way_to_the_peers_own_and_ends_with_that() {
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
    let key = peers.peer_at(&'A');
    assert_eq!(peers.adopt(key, 8, now), None);
    assert_eq!(waits(&mut peers, 0), key);
    assert_eq!(peers.defer(key, "one", now).unwrap(), ConnectStep::Wait);
    assert_eq!(peers.opened(key, 8).unwrap().source, 0);
    assert_eq!(drained(&mut peers, key, 8), ["one"]);
}

#[test]
fn a_link_that_takes_the_place_of_another_names_it() {
    let (_, mut peers, now) = acquainted();
    let key = connected(&mut peers, 0, 7, now);
    assert_eq!(peers.opened(key, 8).unwrap().displaced, Some(7));
    assert!(matches!(peers.ended(key, 7, RESET, now), Ended::Quietly));
    assert_eq!(peers.destination(0), Ok(Destination::Open(8)));
}

#[test]
fn a_request_that_met_ours_is_handed_back_when_ours_has_ended() {
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
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
    let (_, mut peers, now) = acquainted();
    let key = peers.peer_at(&'A');
    peers.adopt(key, 7, now);
    assert!(matches!(peers.ended(key, 7, RESET, now), Ended::Quietly));
    assert_eq!(peers.due(key, now + CONNECT), ConnectStep::Wait);
}

#[test]
fn receives_that_name_a_lost_peer_end_unless_it_is_back() {
    let (_, mut peers, now) = acquainted();
    let key = connected(&mut peers, 1, 7, now);
    assert!(!peers.any_lost());
    assert_eq!(peers.seek(1, now), ConnectStep::Wait);
    // The posted receives.
    let Ended::Lost {
        source: Some(1),
        again: None,
    } = peers.ended(key, 7, RESET, now)
    else {
        panic!();
    };
    assert!(peers.any_lost());
    // A receive that is posted later, after an operation for another peer.
    assert_eq!(peers.seek(0, now), ConnectStep::Wait);
    assert_eq!(peers.seek(1, now), ConnectStep::Start(key));
    assert_eq!(peers.seek(1, now), ConnectStep::Wait);
    peers.begun(key, 8);
    let Ended::Again(at) = peers.ended(key, 8, REFUSED, now) else {
        panic!()
    };
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    let Ended::GivenUp(given_up) = peers.not_begun(key, REFUSED, now + CONNECT) else {
        panic!()
    };
    assert_eq!(
        (given_up.error, given_up.source),
        (Errno::ECONNREFUSED, Some(1))
    );
    // A receive whose peer returns.
    assert!(peers.any_lost());
    assert_eq!(peers.seek(1, now), ConnectStep::Start(key));
    peers.begun(key, 9);
    peers.opened(key, 9).unwrap();
    assert!(!peers.any_lost());
    assert_eq!(peers.seek(1, now), ConnectStep::Wait);
}

#[test]
fn receives_that_name_a_peer_that_was_never_reached_end_once_an_attempt_is_given_up() {
    let (_, mut peers, now) = acquainted();
    // A peer that was never tried may connect by itself.
    assert_eq!(peers.seek(0, now), ConnectStep::Wait);
    let key = begun(&mut peers, 0, 7, "one", now);
    let Ended::GivenUp(given_up) = peers.ended(key, 7, REFUSED, now + CONNECT) else {
        panic!()
    };
    assert_eq!(given_up.source, Some(0));
    assert!(peers.any_lost());
    assert_eq!(peers.seek(1, now), ConnectStep::Wait);
    assert_eq!(peers.seek(0, now), ConnectStep::Start(key));
    peers.begun(key, 8);
    peers.opened(key, 8).unwrap();
    assert!(!peers.any_lost());
}

#[test]
fn strangers_without_a_link_are_forgotten() {
    let (av, mut peers, now) = acquainted();
    for link in 0..10 {
        let key = peers.peer_at(&'X');
        peers.adopt(key, link, now);
        assert!(matches!(peers.ended(key, link, RESET, now), Ended::Quietly));
        let key = peers.peer_at(&'Y');
        peers.opened(key, link).unwrap();
        assert!(matches!(
            peers.ended(key, link, RESET, now),
            Ended::Lost { source: None, .. }
        ));
    }
    let key = peers.peer_at(&'Z');
    peers.forget_idle(key);
    assert!(peers.is_empty() && peers.strangers.is_empty() && !peers.any_lost());
    // Peers that are removed from the vector are forgotten, too.
    waits(&mut peers, 0);
    let b = connected(&mut peers, 1, 7, now);
    assert_eq!(peers.len(), 2);
    av.remove(0);
    av.remove(1);
    peers.follow();
    assert_eq!((peers.len(), peers.link(b)), (1, Some(7)));
    assert!(matches!(peers.ended(b, 7, RESET, now), Ended::Lost { .. }));
    assert!(peers.is_empty());
}

#[test]
fn a_number_that_means_another_address_leads_there() {
    let (av, mut peers, now) = acquainted();
    connected(&mut peers, 0, 7, now);
    assert_eq!(peers.open_link(0), Some(7));
    av.remove(0);
    assert_eq!(peers.open_link(0), None);
    assert_eq!(peers.destination(0), Err(Errno::EINVAL));
    assert_eq!(av.insert('C'), 0);
    assert_eq!(peers.open_link(0), None);
    let key = waits(&mut peers, 0);
    assert_eq!(peers.address(key), Some(&'C'));
}

#[test]
fn links_are_relabelled_when_the_vector_changes() {
    let (av, mut peers, now) = acquainted();
    let stranger = peers.peer_at(&'X');
    assert_eq!(peers.opened(stranger, 5).unwrap().source, UNKNOWN_SOURCE);
    let key = connected(&mut peers, 0, 7, now);
    assert!(!peers.is_relabelled() && !peers.av_changed());
    assert_eq!(av.insert('X'), 2);
    assert!(peers.av_changed());
    peers.follow();
    assert_eq!(peers.take_relabelled(), [(5, 2)]);
    assert_eq!(peers.destination(2), Ok(Destination::Open(5)));
    av.remove(0);
    peers.follow();
    assert_eq!(peers.take_relabelled(), [(7, UNKNOWN_SOURCE)]);
    assert_eq!(peers.source(key), UNKNOWN_SOURCE);
    av.insert('D');
    av.insert('A');
    peers.follow();
    assert_eq!(peers.take_relabelled(), [(7, 3)]);
    assert!(!peers.is_relabelled() && peers.strangers.is_empty());
}

#[test]
fn receives_that_end_with_a_link_are_those_that_name_its_peer_now() {
    let (av, mut peers, now) = acquainted();
    let key = connected(&mut peers, 0, 7, now);
    av.remove(0);
    assert_eq!((av.insert('C'), av.insert('A')), (0, 2));
    let Ended::Lost { source, .. } = peers.ended(key, 7, RESET, now) else {
        panic!();
    };
    assert_eq!(source, Some(2));
}

#[test]
fn both_ends_of_a_link_to_oneself_are_relabelled() {
    let (av, mut peers, now) = acquainted();
    let key = connected(&mut peers, 0, 7, now);
    peers.loops_back(key, 8);
    av.remove(0);
    peers.follow();
    assert_eq!(
        peers.take_relabelled(),
        [(7, UNKNOWN_SOURCE), (8, UNKNOWN_SOURCE)]
    );
    peers.loopback_ended(7);
    assert_eq!(peers.loopback(), Some(8));
    peers.loopback_ended(8);
    assert_eq!(peers.loopback(), None);
}

#[test]
fn a_receive_context_in_an_address_leads_to_the_same_peer() {
    struct WithContexts(Arc<Vector>);
    impl AddressVector for WithContexts {
        type Address = char;
        fn lookup(&self, fi_addr: u64) -> Option<char> {
            self.0.lookup(fi_addr & u64::MAX >> 8)
        }
        fn find(&self, addr: &char) -> Option<u64> {
            self.0.find(addr)
        }
        fn len(&self) -> usize {
            AddressVector::len(&self.0)
        }
        fn observe(&self, observer: Weak<dyn Observer>) {
            self.0.observe(observer);
        }
    }
    let (av, _, now) = acquainted();
    let mut peers: Peers<u32, WithContexts, &str> = Peers::new(Patience::within(CONNECT));
    peers.bind_av(WithContexts(av));
    let Ok(Destination::Waits(key)) = peers.destination(1) else {
        panic!()
    };
    assert_eq!(peers.destination(3 << 56 | 1), Ok(Destination::Waits(key)));
    peers.adopt(key, 7, now);
    peers.opened(key, 7).unwrap();
    assert_eq!(peers.destination(3 << 56 | 1), Ok(Destination::Open(7)));
}

#[test]
fn a_number_of_a_peer_that_was_forgotten_meanwhile_leads_to_it_again() {
    /// Inserts the address concurrently, as another thread might.
    struct Changing;
    impl AddressVector for Changing {
        type Address = char;
        fn lookup(&self, _: u64) -> Option<char> {
            Some('A')
        }
        fn find(&self, _: &char) -> Option<u64> {
            None
        }
        fn len(&self) -> usize {
            0
        }
        fn observe(&self, _: Weak<dyn Observer>) {}
    }
    let mut peers: Peers<u32, Changing, &str> = Peers::new(Patience::within(CONNECT));
    peers.bind_av(Changing);
    let Ok(Destination::Waits(before)) = peers.destination(0) else {
        panic!();
    };
    peers.forget_idle(before);
    let Ok(Destination::Waits(after)) = peers.destination(0) else {
        panic!();
    };
    assert_ne!(before, after);
    assert_eq!(peers.address(after), Some(&'A'));
}

#[test]
fn nothing_is_left_waiting_where_an_endpoint_closes() {
    let (_, mut peers, now) = acquainted();
    begun(&mut peers, 0, 7, "one", now);
    begun(&mut peers, 1, 8, "two", now);
    let mut left: Vec<_> = peers.drain().collect();
    left.sort_unstable();
    assert_eq!(left, ["one", "two"]);
}

#[test]
fn without_a_vector_there_is_no_destination() {
    let mut peers: Tested = Peers::new(Patience::within(CONNECT));
    assert_eq!(peers.destination(0), Err(Errno::ENOAV));
    assert_eq!(peers.open_link(0), None);
    assert!(!peers.av_changed());
}

#[test]
fn an_unknown_source_is_reported_as_not_available() {
    assert_eq!(UNKNOWN_SOURCE, u64::MAX);
}
