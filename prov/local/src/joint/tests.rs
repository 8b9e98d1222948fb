use std::sync::Arc;

use prov_base::process_memory::Token;

use super::*;
use crate::segment::Segment;

/// Both sides of a new record, of which the second helps the first.
fn sides() -> (Joint, Joint) {
    let (segment, _fd) = Segment::create(4096 + 2 * BOUNCE, &[]).unwrap();
    let segment = Arc::new(segment);
    let side = |side| Joint::new(&segment, 0, 4096, side);
    (side(0), side(1))
}

const WHAT: What = What {
    name: 7,
    addr: 0x1000,
    len: 5 * PART,
    first: 3,
    slots: SLOTS as u64,
};

#[test]
fn the_one_takes_parts_from_the_front_and_the_other_from_the_back() {
    let (owner, helper) = sides();
    assert!(!helper.far.is_open() && helper.far.look().is_none());
    let mut open = Open::new(&owner.own, 1, &WHAT, 5);
    let seen = helper.far.look().unwrap();
    assert_eq!(seen.what, WHAT);
    assert_eq!(open.claim(&owner.own, 1), Ok(0..1));
    assert_eq!(helper.far.claim(&seen, 1), Some(4..5));
    assert_eq!(open.claim(&owner.own, 1), Ok(1..2));
    helper.far.done(&seen, 1, true);
    assert_eq!(helper.far.claim(&seen, 1), Some(3..4));
    assert_eq!(open.claim(&owner.own, 1), Ok(2..3));
    assert_eq!(open.claim(&owner.own, 1), Ok(3..3));
    assert_eq!(helper.far.claim(&seen, 1), None);
    assert!(!helper.far.is_open());
    assert_eq!(open.helped(&owner.own), Ok(Helped::NotYet));
    helper.far.done(&seen, 1, true);
    assert_eq!(open.helped(&owner.own), Ok(Helped::All));
    assert_eq!(open.own(), 3);
    // The other way, nothing has happened.
    assert!(!owner.far.is_open());
}

#[test]
fn the_owner_takes_half_of_what_is_left_at_once_and_no_more_than_it_may() {
    let (owner, helper) = sides();
    let mut open = Open::new(&owner.own, 1, &WHAT, 15);
    assert_eq!(open.claim(&owner.own, u16::MAX), Ok(0..8));
    let seen = helper.far.look().unwrap();
    assert_eq!(helper.far.claim(&seen, 1), Some(14..15));
    assert_eq!(open.claim(&owner.own, 2), Ok(8..10));
    assert_eq!(open.claim(&owner.own, u16::MAX), Ok(10..12));
    assert_eq!(open.claim(&owner.own, u16::MAX), Ok(12..13));
    assert_eq!(open.claim(&owner.own, u16::MAX), Ok(13..14));
    assert_eq!(open.claim(&owner.own, u16::MAX), Ok(14..14));
    assert_eq!((open.own(), helper.far.claim(&seen, 1)), (14, None));
}

#[test]
fn the_helper_takes_all_that_is_left_where_the_owner_has_as_much() {
    let (owner, helper) = sides();
    let mut open = Open::new(&owner.own, 1, &WHAT, 16);
    let seen = helper.far.look().unwrap();
    assert_eq!(open.claim_at_once(&owner.own, 9), Ok(0..9));
    assert!(!open.is_helped());
    assert_eq!(helper.far.claim(&seen, 4), Some(12..16));
    assert_eq!(helper.far.claim(&seen, u16::MAX), Some(9..12));
    assert_eq!(open.claim_at_once(&owner.own, 9), Ok(9..9));
    open.close(&owner.own).unwrap();
    assert!(open.is_helped());
    let mut open = Open::new(&owner.own, 2, &WHAT, 16);
    let seen = helper.far.look().unwrap();
    assert_eq!(open.claim_at_once(&owner.own, 4), Ok(0..4));
    assert_eq!(helper.far.claim(&seen, u16::MAX), Some(10..16));
    assert_eq!(open.claim_at_once(&owner.own, u16::MAX), Ok(4..10));
}

#[test]
fn what_one_has_seen_of_a_copy_does_not_help_with_the_next() {
    let (owner, helper) = sides();
    let mut first = Open::new(&owner.own, 1, &WHAT, 2);
    let seen = helper.far.look().unwrap();
    assert_eq!(helper.far.claim(&seen, 1), Some(1..2));
    helper.far.done(&seen, 1, true);
    first.close(&owner.own).unwrap();
    assert_eq!(first.helped(&owner.own), Ok(Helped::All));
    let mut second = Open::new(&owner.own, 2, &WHAT, 2);
    assert_eq!(helper.far.claim(&seen, 1), None);
    let again = helper.far.look().unwrap();
    assert_eq!(helper.far.claim(&again, 1), Some(1..2));
    second.close(&owner.own).unwrap();
    // What was done of the first does not count.
    assert_eq!(second.helped(&owner.own), Ok(Helped::NotYet));
    helper.far.done(&again, 1, false);
    assert_eq!(second.helped(&owner.own), Ok(Helped::Failed));
}

#[test]
fn a_part_that_failed_is_known_when_all_are_done() {
    let (owner, helper) = sides();
    let mut open = Open::new(&owner.own, 1, &WHAT, 3);
    let seen = helper.far.look().unwrap();
    assert_eq!(helper.far.claim(&seen, 1), Some(2..3));
    helper.far.done(&seen, 1, false);
    assert_eq!(helper.far.claim(&seen, 1), Some(1..2));
    open.close(&owner.own).unwrap();
    assert_eq!(open.helped(&owner.own), Ok(Helped::NotYet));
    helper.far.done(&seen, 1, true);
    assert_eq!(open.helped(&owner.own), Ok(Helped::Failed));
}

#[test]
fn words_that_do_not_fit_what_was_opened_are_an_error() {
    let broken = Err(Broken("parts of a copy"));
    let claim = |generation, front, back| {
        Claim {
            generation,
            front,
            back,
        }
        .pack()
    };
    let (owner, helper) = sides();
    for word in [
        0,
        u64::MAX,
        claim(1, 1, 4),
        claim(1, 0, 6),
        claim(2, 0, 5),
        claim(1, 3, 2),
    ] {
        let mut open = Open::new(&owner.own, 1, &WHAT, 5);
        helper.far.claim.0.store(word, Ordering::Relaxed);
        assert_eq!(open.claim(&owner.own, 1), broken, "{word:x}");
    }
    // Parts do not come back.
    let mut open = Open::new(&owner.own, 1, &WHAT, 5);
    helper.far.claim.0.store(claim(1, 0, 3), Ordering::Relaxed);
    assert_eq!(open.claim(&owner.own, 1), Ok(0..1));
    helper.far.claim.0.store(claim(1, 1, 4), Ordering::Relaxed);
    assert_eq!(open.claim(&owner.own, 1), broken);
    // Nor are there more that are done than were taken.
    let mut open = Open::new(&owner.own, 2, &WHAT, 5);
    let seen = helper.far.look().unwrap();
    assert!(helper.far.claim(&seen, 1).is_some());
    open.close(&owner.own).unwrap();
    helper.far.helped.0.store(2 << 32 | 2, Ordering::Relaxed);
    assert!(open.helped(&owner.own).is_err());
    // Another copy's are none.
    helper.far.helped.0.store(3 << 32 | 1, Ordering::Relaxed);
    assert_eq!(open.helped(&owner.own), Ok(Helped::NotYet));
}

#[test]
fn any_number_of_bytes_is_cut_into_parts_that_are_all_of_it() {
    for len in [
        0,
        1,
        PART - 1,
        PART,
        PART + 1,
        10 * PART - 3,
        PART * u64::from(u16::MAX),
        PART * u64::from(u16::MAX) + 1,
        1 << 45,
        isize::MAX as u64,
    ] {
        let cut = Cut::of(len);
        let parts = (0..cut.count()).map(|part| cut.part(part));
        let mut end = 0;
        for (at, len) in parts {
            assert!(at == end && len != 0);
            end += len;
        }
        let half = cut.count() / 2;
        let (first, second) = (cut.parts(0..half), cut.parts(half..cut.count()));
        assert_eq!((first.0, first.1 + second.1), (0, len));
        assert_eq!(second.0, first.1);
        let together = cut.within(1 << 20);
        assert!(together == 1 || cut.parts(0..together).1 <= 1 << 20);
        assert_eq!(end, len);
        assert_eq!(cut.part(cut.count()), (len, 0));
        assert_eq!(cut.part(u16::MAX).0, len);
    }
    // What a peer says is anything.
    let cut = Cut::of(u64::MAX);
    let (at, len) = cut.part(u16::MAX);
    assert!(at.checked_add(len).is_some());
}

#[test]
fn the_helper_says_where_its_seal_is() {
    let (owner, helper) = sides();
    let own = crate::process::own_seal().unwrap();
    assert_eq!(owner.own.witness(), Some(own));
    let words = &helper.far.witness.0;
    words[0].store(0, Ordering::Relaxed);
    assert_eq!(owner.own.witness(), None);
    words[0].store(8, Ordering::Relaxed);
    let Token { addr, value } = owner.own.witness().unwrap();
    assert_eq!((addr, value), (8, own.value));
}
