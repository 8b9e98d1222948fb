//! One peer, or one that reconnects again and again, leaves room for the others.

use prov_base::errno::Errno;
use prov_message::{Arrival, Attributes, Endpoints, EpKey, Limits, Unmatched};
use prov_util::mr::Job;
use slotmap::SlotMap;

use crate::model::LinkKey;
use crate::provider::Fake;

struct Receiver {
    endpoints: Endpoints<Fake>,
    ep: EpKey,
    links: SlotMap<LinkKey, ()>,
}

impl Receiver {
    fn new() -> Self {
        let mut endpoints = Endpoints::new(Limits {
            unexpected: 1 << 20,
            in_flight: 0,
            announcements: 1 << 12,
            unannounced: 0,
            saved: 0,
            memory: usize::MAX,
            strangers: None,
        });
        let attributes = Attributes {
            tx_size: 1,
            most_receives: 1,
            directed: false,
            job: Job::NONE,
        };
        Receiver {
            ep: endpoints.add(attributes, ()),
            endpoints,
            links: SlotMap::with_key(),
        }
    }

    fn message(&self, link: LinkKey, len: usize) -> Arrival<Fake> {
        Arrival {
            link,
            ep: self.ep,
            src: 0,
            tagged: false,
            tag: 0,
            len,
            data: None,
            ack: (0, 0),
            announces: false,
        }
    }

    /// Whether a message that arrives in one piece is kept.
    fn keeps(&mut self, link: LinkKey, len: usize) -> bool {
        match self.endpoints.unmatched(&self.message(link, len)) {
            Unmatched::Keep(kept) => {
                assert!(self.endpoints.append(kept, &vec![0; len], 0));
                self.endpoints.kept(kept);
                true
            }
            Unmatched::Complete => true,
            Unmatched::HeldBack => false,
            Unmatched::Gone => panic!("the endpoint is open"),
        }
    }
}

#[test]
fn a_peer_that_floods_leaves_half_of_the_room_to_others() {
    let mut receiver = Receiver::new();
    let (flood, other) = (receiver.links.insert(()), receiver.links.insert(()));
    while receiver.keeps(flood, 1000) {}
    assert!(receiver.endpoints.kept_bytes() <= 1 << 19);
    assert!(receiver.keeps(other, 1 << 17));
}

#[test]
fn a_peer_that_announces_without_end_leaves_half_of_the_room_to_others() {
    let mut receiver = Receiver::new();
    let (flood, other) = (receiver.links.insert(()), receiver.links.insert(()));
    let announce = |receiver: &mut Receiver, link, name| {
        let announcement = receiver.message(link, 1 << 30);
        receiver.endpoints.announced(&announcement, name)
    };
    let many = (0..1 << 12).take_while(|&name| announce(&mut receiver, flood, name));
    assert_eq!(many.count(), 1 << 11);
    assert!((0..1 << 10).all(|name| announce(&mut receiver, other, name)));
    receiver
        .endpoints
        .link_ended(receiver.ep, flood, Errno::ECONNRESET);
    receiver
        .endpoints
        .link_ended(receiver.ep, other, Errno::ECONNRESET);
    let third = receiver.links.insert(());
    assert!((0..1 << 11).all(|name| announce(&mut receiver, third, name)));
}

#[test]
fn a_peer_that_leaves_buffered_messages_and_returns_does_not_fill_the_memory() {
    let mut receiver = Receiver::new();
    for _ in 0..1000 {
        let link = receiver.links.insert(());
        while receiver.keeps(link, 10_000) {}
        receiver
            .endpoints
            .link_ended(receiver.ep, link, Errno::ECONNRESET);
    }
    // What was kept when the limit was reached, and one peer's share of the rest.
    assert!(receiver.endpoints.kept_bytes() <= (1 << 20) + (64 << 10));
    // Peers that stay must not suffer from that for ever.
    receiver.endpoints.close(receiver.ep);
    assert_eq!(receiver.endpoints.kept_bytes(), 0);
}
