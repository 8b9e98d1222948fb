//! Messages that the application reads in place: what it sees, and the accounting.

use fabric_abi::{FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_MORE};
use prov_base::buffer::AppIov;
use prov_message::Core as _;
use prov_util::cq::Completion;
use prov_util::desc::Descs;
use prov_util::request::{Receive, Select};

use super::hostile::{SAID, Said, inject_part, linked};
use super::{Params, Side, buffered_side, memory_of, side, until, with_addresses_exchanged};
use crate::wire::packet::Position;

const LEAST: usize = 64;

impl Side {
    fn kept_bytes(&self) -> usize {
        self.engine.core().endpoints().kept_bytes()
    }

    fn give_back(&self, told: &Completion, flags: u64, buffers: AppIov) {
        let mut receive = Receive {
            select: Select::Tagged { tag: 0, ignore: 0 },
            buffers,
            desc: Descs::NONE,
            peer: FI_ADDR_UNSPEC,
            flags: flags | FI_COMPLETION,
            context: told.context,
        };
        self.engine.core().receive(self.ep, &mut receive).unwrap();
    }

    fn told(&self) -> Vec<Completion> {
        self.seen.borrow().clone()
    }
}

fn two() -> [Side; 2] {
    linked(buffered_side(Params::default(), LEAST))
}

#[test]
fn a_rendezvous_message_is_reported_with_zeros_in_place_of_its_first_bytes() {
    let [a, b] = two();
    let mut large = vec![7; 1 << 20];
    a.send(&mut large, 5);
    until(&[&a, &b], || b.count() == 1);
    let told = b.told()[0];
    assert_eq!((told.flags & FI_MORE, told.len), (FI_MORE, large.len()));
    assert!(!told.buf.is_null());
    // SAFETY: so many bytes are there until the message is given back.
    let front = unsafe { std::slice::from_raw_parts(told.buf.cast::<u8>(), LEAST) };
    assert_eq!(front, [0; LEAST]);
    let mut to = vec![0; large.len()];
    b.give_back(&told, FI_CLAIM, memory_of(&mut to));
    until(&[&a, &b], || b.count() == 2 && a.count() == 1);
    assert!(to == large);
    assert_eq!(b.kept_bytes(), 0);
}

#[test]
fn an_empty_buffered_message_has_a_null_address() {
    let [a, b] = two();
    a.send(&mut [], 5);
    until(&[&a, &b], || b.count() == 1);
    let told = b.told()[0];
    assert!(told.buf.is_null());
    b.give_back(&told, FI_DISCARD, AppIov::EMPTY);
    assert_eq!(b.kept_bytes(), 0);
}

#[test]
fn every_buffered_message_is_charged_to_the_budget() {
    let [a, b] = two();
    let mut large = vec![1; 1 << 20];
    let mut last = 0;
    for (at, len) in [0, 0, 8, 10_000, 70_000, 1 << 20].into_iter().enumerate() {
        a.send(&mut large[..len], 5);
        until(&[&a, &b], || b.count() == at + 1);
        assert!(b.kept_bytes() > last, "{len}");
        last = b.kept_bytes();
    }
    for told in b.told() {
        b.give_back(&told, FI_DISCARD, AppIov::EMPTY);
    }
    assert_eq!(b.kept_bytes(), 0);
}

#[test]
fn a_segmented_message_is_charged_to_the_budget_with_its_first_segment() {
    let [a, b] = two();
    inject_part(
        &a,
        Said {
            len: 1 << 20,
            ..SAID
        },
        Position::First,
    );
    until(&[&a, &b], || b.kept_bytes() >= 1 << 20);
    // It is dropped with its link.
    inject_part(&a, SAID, Position::First);
    until(&[&a, &b], || b.links().is_empty());
    assert_eq!(b.kept_bytes(), 0);
}

#[test]
fn a_message_longer_than_the_available_memory_ends_its_link() {
    for len in [1 << 40, isize::MAX as u64] {
        let [a, b] = two();
        inject_part(&a, Said { len, ..SAID }, Position::First);
        until(&[&a, &b], || b.links().is_empty());
        assert_eq!((b.count(), b.kept_bytes()), (0, 0));
    }
}

#[test]
fn a_flooding_peer_does_not_take_the_room_of_others() {
    let small = || Params {
        max_unexpected: 1 << 20,
        ..Params::default()
    };
    let [greedy, b] = with_addresses_exchanged([side(small()), buffered_side(small(), LEAST)]);
    let modest = side(small());
    modest.knows(&b);
    let sides = [&greedy, &modest, &b];
    let mut bytes = vec![1; 10_000];
    let mut warm = [1; 8];
    greedy.send(&mut warm, 1);
    modest.send(&mut warm, 1);
    until(&sides, || b.count() == 2);
    let links = b.links();
    assert_eq!(links.len(), 2);
    until(&sides, || {
        greedy.has_sent(&mut bytes, 2);
        !greedy.errors().is_empty()
    });
    let flooded = b.count();
    for _ in 0..4 {
        modest.send(&mut bytes, 3);
    }
    until(&sides, || {
        b.told().iter().filter(|told| told.tag == 3).count() == 4
    });
    assert!(flooded > 10);
    assert_eq!(modest.errors(), []);
}

#[test]
fn messages_that_cannot_be_reported_are_not_kept() {
    let [a, b] = two();
    let mut core = b.engine.core();
    core.endpoints().get_mut(b.ep).unwrap().reports.rx_cq = None;
    drop(core);
    let mut bytes = vec![1; 1 << 20];
    for (at, len) in [0, 8, 70_000, 1 << 20].into_iter().enumerate() {
        a.send(&mut bytes[..len], 5);
        until(&[&a, &b], || a.count() == at + 1);
    }
    // The announced message had to be answered; the others arrived before it.
    assert_eq!((a.errors(), b.kept_bytes()), (vec![], 0));
    assert_eq!(b.links().len(), 1);
}

#[test]
fn a_claimed_message_has_the_source_that_is_known_by_then() {
    let [a, b] = [
        side(Params::default()),
        buffered_side(Params::default(), LEAST),
    ];
    a.knows(&b);
    let mut bytes = [1; 8];
    a.send(&mut bytes, 5);
    until(&[&a, &b], || b.count() == 1);
    let told = b.told()[0];
    assert_ne!(told.src, 0);
    b.knows(&a);
    let mut to = [0; 8];
    b.give_back(&told, FI_CLAIM, memory_of(&mut to));
    until(&[&a, &b], || b.count() == 2);
    assert_eq!((b.told()[1].src, to), (0, bytes));
}
