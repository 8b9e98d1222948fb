//! Peers and the address vector, which may learn, forget and change addresses.

use super::*;

#[test]
fn a_number_that_means_another_address_leads_there() {
    let (av, mut peers, now) = with_two_peers();
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
    let (av, mut peers, now) = with_two_peers();
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
    let (av, mut peers, now) = with_two_peers();
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
    let (av, mut peers, now) = with_two_peers();
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
    let (av, _, now) = with_two_peers();
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

#[test]
fn strangers_without_a_link_are_forgotten() {
    let (av, mut peers, now) = with_two_peers();
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
