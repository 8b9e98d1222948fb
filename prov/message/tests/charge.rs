//! Messages that a provider buffers itself share the budgets with those in the inboxes.

mod pipe;

use pipe::Pipe;
use prov_base::errno::Errno;
use prov_message::{Arrival, Endpoints, EpKey, Limits};
use prov_util::matching::ANY_SOURCE;
use slotmap::{DefaultKey, SlotMap};

const LEAST: usize = 64 << 10;

fn world() -> (Endpoints<Pipe>, EpKey, [DefaultKey; 2]) {
    let mut endpoints = Endpoints::new(Limits {
        unexpected: 1 << 20,
        announcements: 1000,
        ..Limits::default()
    });
    let ep = pipe::add(&mut endpoints, 10, 10);
    let mut keys = SlotMap::new();
    (endpoints, ep, [keys.insert(()), keys.insert(())])
}

fn arrival(ep: EpKey, link: DefaultKey, len: usize) -> Arrival<Pipe> {
    pipe::arrival((ep, link), ANY_SOURCE, None, len)
}

#[test]
fn a_flooding_sender_leaves_others_their_minimum() {
    let (mut endpoints, ep, [greedy, modest]) = world();
    let mut charges = Vec::new();
    // Empty messages have a cost, too.
    while let Some(charge) = endpoints.charge_whole(&arrival(ep, greedy, 0)) {
        charges.push(charge);
        assert!(charges.len() < 1 << 20);
    }
    let half = endpoints.kept_bytes();
    assert!((1 << 18..=1 << 19).contains(&half), "{half}");
    let modest = endpoints.charge_whole(&arrival(ep, modest, LEAST / 2));
    endpoints.discharge(modest.unwrap());
    assert_eq!(endpoints.kept_bytes(), half);
    for charge in charges {
        endpoints.discharge(charge);
    }
    assert_eq!(endpoints.kept_bytes(), 0);
}

#[test]
fn announcements_have_a_budget_of_their_own() {
    let (mut endpoints, ep, [greedy, modest]) = world();
    let mut charges = Vec::new();
    while let Some(charge) = endpoints.charge_announced(&arrival(ep, greedy, 1 << 30), 0) {
        charges.push(charge);
    }
    assert_eq!(charges.len(), 500);
    let modest = endpoints.charge_announced(&arrival(ep, modest, 1 << 30), 64);
    endpoints.discharge(modest.unwrap());
    endpoints.discharge(charges.pop().unwrap());
    let again = endpoints.charge_announced(&arrival(ep, greedy, 1 << 30), 0);
    charges.push(again.unwrap());
    // What a link has left behind is returned all the same.
    endpoints.link_ended(ep, greedy, Errno::ECONNRESET);
    for charge in charges {
        endpoints.discharge(charge);
    }
    assert_eq!(endpoints.kept_bytes(), 0);
}

#[test]
fn charges_do_not_exceed_the_budget() {
    let (mut endpoints, ep, [link, _]) = world();
    for len in [1 << 20, usize::MAX] {
        assert!(endpoints.charge_whole(&arrival(ep, link, len)).is_none());
    }
    assert_eq!(endpoints.kept_bytes(), 0);
}
