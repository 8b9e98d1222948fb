//! Tests of single rules of [`Peers`], for a provider whose links are numbers.

mod attempts;
mod expected;
mod vector;

use std::sync::{Mutex, Weak};
use std::time::Duration;

use prov_util::av::Observer;

use super::*;
use crate::receipt::Dependent;

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
fn with_two_peers() -> (Arc<Vector>, Tested, Instant) {
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
    let (_, mut peers, now) = with_two_peers();
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
    let (_, mut peers, now) = with_two_peers();
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
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert_eq!(peers.defer(key, "two", now).unwrap(), ConnectStep::Wait);
    peers.opened(key, 7).unwrap();
    assert_eq!(peers.next_waiting(key, 7), Some("one"));
    let Ended::Lost {
        source: Some(0),
        receives: Dependent::All,
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
fn the_end_of_another_link_changes_nothing() {
    let (_, mut peers, now) = with_two_peers();
    let key = begun(&mut peers, 0, 7, "one", now);
    assert!(matches!(peers.ended(key, 6, RESET, now), Ended::Quietly));
    assert!(matches!(peers.not_begun(key, RESET, now), Ended::Quietly));
    peers.opened(key, 7).unwrap();
    assert_eq!(drained(&mut peers, key, 7), ["one"]);
    assert!(matches!(peers.ended(key, 6, RESET, now), Ended::Quietly));
    assert_eq!(peers.destination(0), Ok(Destination::Open(7)));
}

#[test]
fn receives_that_name_a_lost_peer_end_unless_it_is_back() {
    let (_, mut peers, now) = with_two_peers();
    let key = connected(&mut peers, 1, 7, now);
    assert!(!peers.any_lost());
    assert_eq!(peers.seek(1, now), ConnectStep::Wait);
    // The posted receives.
    let Ended::Lost {
        source: Some(1),
        receives: Dependent::All,
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
    let (_, mut peers, now) = with_two_peers();
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
fn nothing_is_left_waiting_where_an_endpoint_closes() {
    let (_, mut peers, now) = with_two_peers();
    begun(&mut peers, 0, 7, "one", now);
    begun(&mut peers, 1, 8, "two", now);
    let mut left: Vec<_> = peers.drain().collect();
    left.sort_unstable();
    assert_eq!(left, ["one", "two"]);
}

#[test]
fn a_request_that_is_taken_back_is_the_oldest_that_is_meant_and_the_others_stay() {
    let (_, mut peers, now) = with_two_peers();
    let (a, b) = (waits(&mut peers, 0), waits(&mut peers, 1));
    for (key, request) in [(a, "first"), (b, "second"), (a, "third"), (a, "first")] {
        let _ = peers.defer(key, request, now).unwrap();
    }
    assert_eq!(peers.take_waiting(|request| *request == "fourth"), None);
    assert_eq!(
        peers.take_waiting(|request| *request == "first"),
        Some("first")
    );
    assert!(peers.waiting(a).eq(&["third", "first"]));
    assert_eq!(
        peers.take_waiting(|request| *request == "second"),
        Some("second")
    );
    peers.begun(b, 1);
    // Nobody needs the peer any more.
    assert!(matches!(peers.ended(b, 1, RESET, now), Ended::Quietly));
    assert!(peers.waiting(a).eq(&["third", "first"]));
}

#[test]
fn receives_that_name_a_peer_that_has_closed_its_endpoint_wait_for_another_one() {
    let (_, mut peers, now) = with_two_peers();
    let key = connected(&mut peers, 1, 7, now);
    let closed = Failure::Closed(Errno::ESHUTDOWN);
    assert!(matches!(
        peers.ended(key, 7, closed, now),
        Ended::Lost {
            source: Some(1),
            receives: Dependent::Transfers,
            again: None
        }
    ));
    // A receive that is posted later waits, too.
    assert!(!peers.any_lost());
    assert_eq!(peers.seek(1, now), ConnectStep::Wait);
    // A transfer finds out whether the peer is back, and is the only one that ends if it is not.
    let at = peers.expect(key, now).unwrap();
    assert_eq!(peers.due(key, at), ConnectStep::Start(key));
    let Ended::GivenUp(given_up) = peers.not_begun(key, REFUSED, at + CONNECT) else {
        panic!()
    };
    assert_eq!(given_up.receives, Dependent::Transfers);
}
