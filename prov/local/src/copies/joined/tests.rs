use std::sync::Arc;
use std::time::{Duration, Instant};

use prov_base::buffer::AppIov;
use prov_base::process_memory::Seal;

use super::*;
use crate::joint::{BOUNCE, Joint, Seen};
use crate::segment::Segment;

const LEN: usize = 1 << 20;

/// A process that has all that this one had when it began, and does nothing.
struct Child(libc::pid_t);

impl Child {
    fn new() -> Child {
        // SAFETY: the child makes no call but these.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            },
            pid => {
                assert!(pid > 0);
                Child(pid)
            }
        }
    }

    fn kill(&self) {
        // SAFETY: a child that nobody has waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: as above; no status is asked for.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// A copy from a child's memory, and what the child's part of it is done with.
struct Scene {
    child: Child,
    memory: OtherProcess,
    meeting: Meeting,
    helper: Joint,
    bytes: Vec<u8>,
    into: Vec<u8>,
    _seal: Seal,
}

impl Scene {
    fn new() -> Scene {
        let (segment, _fd) = Segment::create(4096 + 2 * BOUNCE, &[]).unwrap();
        let segment = Arc::new(segment);
        let [owner, helper] = [0, 1].map(|side| Joint::new(&segment, 0, 4096, side));
        let bytes: Vec<u8> = (0..LEN).map(|at| (at * 7 / 3) as u8 | 1).collect();
        let seal = Seal::new().unwrap();
        let child = Child::new();
        let (memory, _) = OtherProcess::find(child.0.unsigned_abs(), seal.token()).unwrap();
        Scene {
            child,
            memory,
            meeting: Meeting::new(owner.own),
            helper,
            bytes,
            into: vec![0; LEN],
            _seal: seal,
        }
    }

    /// Where the copy goes.
    fn place(&mut self) -> AppIov {
        // SAFETY: the bytes are there as long as the scene.
        unsafe { AppIov::from_raw(self.into.as_mut_ptr(), LEN) }
    }

    fn begin(&mut self) {
        let to = Destination {
            is_access: true,
            ..destination(address(&self.place()), LEN as u64)
        };
        self.meeting.begin(5, &to, &self.memory);
    }

    fn turn(&mut self) -> Turn {
        let mut from = OtherIov::default();
        // SAFETY: as above.
        let bytes = unsafe { AppIov::from_raw(self.bytes.as_mut_ptr(), LEN) };
        assert!(from.push_own(&bytes, None));
        let place = Place::App(self.place());
        let mut ends = Ends {
            memory: &self.memory,
            from: &from,
            place: &place,
            target: &mut None,
        };
        self.meeting.go_on(&mut ends, true)
    }

    /// Whether the peer is asked with a large copy.
    fn may_be_asked(&mut self) -> bool {
        let large = destination(8, SURE);
        self.meeting.concerns(&large, true)
    }

    /// The helper puts its next part into a slot; which part that is.
    fn fill_slot(&mut self, seen: &Seen) -> Option<u16> {
        let board = &self.helper.far;
        let slot = board.free_slot(seen)?;
        let part = board.claim(seen, 1)?.start;
        let (at, len) = Cut::of(LEN as u64).part(part);
        let bytes = &self.bytes[at as usize..][..len as usize];
        board.bounce.slot(slot, len as usize).write(bytes);
        board.bounced(seen, true);
        Some(part)
    }
}

/// Where a message goes.
fn destination(addr: u64, len: u64) -> Destination {
    Destination {
        addr,
        len,
        is_access: false,
    }
}

#[test]
fn a_copy_that_nobody_helps_with_is_made_in_one_turn() {
    let mut scene = Scene::new();
    scene.begin();
    assert!(scene.meeting.is_open());
    assert_eq!(scene.turn(), Turn::Copied(LEN as u64));
    assert!(!scene.meeting.is_open() && scene.may_be_asked());
    assert!(scene.into == scene.bytes);
}

#[test]
fn a_helper_that_dies_is_waited_for_until_then_and_its_part_not_taken_for_done() {
    let mut scene = Scene::new();
    scene.begin();
    let board = scene.helper.far.clone();
    let seen = board.look().unwrap();
    assert_eq!(board.claim(&seen, 1), Some(31..32));
    for _ in 0..2 * TURNS_OF_LIFE {
        assert_eq!(scene.turn(), Turn::GoesOn);
        assert!(scene.meeting.waits());
    }
    scene.child.kill();
    let deadline = Instant::now() + Duration::from_secs(60);
    let turn = loop {
        assert!(Instant::now() < deadline, "it is waited for");
        match scene.turn() {
            Turn::GoesOn => {}
            over => break over,
        }
    };
    let cut = Cut::of(LEN as u64);
    assert_eq!(turn, Turn::Copied(cut.part(31).0));
    assert!(!scene.may_be_asked());
}

#[test]
fn who_cannot_be_known_to_live_is_not_asked() {
    let mut scene = Scene::new();
    // Made after the child was.
    let token = Seal::new().unwrap().token();
    scene.helper.far.set_witness(token);
    scene.begin();
    assert!(!scene.meeting.is_open() && !scene.may_be_asked());
}

#[test]
fn a_copy_that_is_given_up_ends_when_the_helper_has() {
    let mut scene = Scene::new();
    scene.begin();
    let board = scene.helper.far.clone();
    let seen = board.look().unwrap();
    assert!(board.claim(&seen, 1).is_some());
    scene.meeting.give_up();
    assert_eq!(scene.turn(), Turn::GoesOn);
    assert!(!board.is_open() && scene.into.iter().all(|byte| *byte == 0));
    board.done(&seen, 1, true);
    assert_eq!(scene.turn(), Turn::Failed(Errno::ESHUTDOWN));
}

#[test]
fn a_helper_that_writes_nonsense_spoils_the_copy_and_is_not_asked_again() {
    let mut scene = Scene::new();
    scene.begin();
    let board = scene.helper.far.clone();
    let seen = board.look().unwrap();
    assert!(board.claim(&seen, 1).is_some());
    board.done(&seen, 1, true);
    board.done(&seen, 1, true);
    assert_eq!(scene.turn(), Turn::Failed(Errno::EPROTO));
    assert!(!scene.meeting.is_open() && !scene.may_be_asked());
}

#[test]
fn parts_come_through_slots_and_the_owner_makes_those_that_do_not() {
    let mut scene = Scene::new();
    for round in 0..5 {
        scene.into.fill(0);
        scene.begin();
        let seen = scene.helper.far.look().unwrap();
        assert_eq!(seen.what.first, [0, 3, 2, 1, 0][round]);
        let parts: Vec<_> = (0..3).filter_map(|_| scene.fill_slot(&seen)).collect();
        assert_eq!(parts, [31, 30, 29]);
        // The helper has gone, and is waited for in vain for a while.
        let deadline = Instant::now() + Duration::from_secs(60);
        let turn = loop {
            assert!(Instant::now() < deadline, "it is waited for");
            match scene.turn() {
                Turn::GoesOn => {}
                over => break over,
            }
        };
        assert_eq!(turn, Turn::Copied(LEN as u64));
        assert!(scene.into == scene.bytes);
        assert!(!scene.meeting.is_lively);
    }
}

#[test]
fn all_of_a_copy_comes_through_slots_from_a_helper_that_is_at_it() {
    comes_through_slots(&mut Scene::new());
}

#[test]
fn what_comes_through_slots_may_go_past_the_caches() {
    let mut scene = Scene::new();
    let pace = scene.meeting.board.bounce.pace.clone();
    pace.go_past_caches();
    comes_through_slots(&mut scene);
    assert!(pace.take_out(1 << 15, scene.meeting.accesses).past_caches);
}

fn comes_through_slots(scene: &mut Scene) {
    scene.meeting.is_lively = true;
    for round in 0..5 {
        assert_eq!(scene.meeting.accesses, round);
        scene.into.fill(0);
        scene.begin();
        let seen = scene.helper.far.look().unwrap();
        let mut most = 0;
        while let Some(part) = scene.fill_slot(&seen) {
            most = most.max(part);
        }
        assert_eq!(most, Cut::of(LEN as u64).count() - 1);
        let opened = scene.meeting.open.as_ref().unwrap();
        assert_eq!(opened.open.own(), 0);
        let turn = loop {
            match scene.turn() {
                // There are fewer slots than parts.
                Turn::GoesOn => while scene.fill_slot(&seen).is_some() {},
                over => break over,
            }
        };
        assert_eq!(turn, Turn::Copied(LEN as u64));
        assert!(scene.into == scene.bytes);
    }
}

#[test]
fn a_helper_whose_last_part_failed_leaves_all_to_the_owner() {
    let mut scene = Scene::new();
    scene.begin();
    let seen = scene.helper.far.look().unwrap();
    scene.fill_slot(&seen).unwrap();
    let board = scene.helper.far.clone();
    assert!(board.claim(&seen, 1).is_some());
    board.bounced(&seen, false);
    let turn = scene.turn();
    let Turn::Copied(done) = turn else {
        panic!("{turn:?}");
    };
    assert_eq!(done, Cut::of(LEN as u64).part(30).0);
    assert!(scene.into[..done as usize] == scene.bytes[..done as usize]);
    assert!(!scene.may_be_asked());
}

#[test]
fn short_copies_are_helped_with_where_there_are_no_others() {
    let mut scene = Scene::new();
    let meeting = &mut scene.meeting;
    for (addr, len, [alone, with_others]) in [
        (8, LEAST - 1, [false, false]),
        (8, LEAST, [true, false]),
        (8, SURE, [true, true]),
        (0, 2 * SURE - 1, [false, false]),
        (0, 2 * SURE, [true, true]),
    ] {
        let to = destination(addr, len);
        assert_eq!(meeting.concerns(&to, true), alone, "{addr} {len}");
        assert_eq!(meeting.concerns(&to, false), with_others, "{addr} {len}");
    }
}

#[test]
fn what_is_made_alone_is_compared_with_what_is_not() {
    let mut scene = Scene::new();
    let to = destination(8, LEAST);
    let (mut alone, mut asked) = (0, 0);
    for _ in 0..48 {
        assert!(scene.meeting.concerns(&to, true));
        scene.meeting.begin(5, &to, &scene.memory);
        match scene.meeting.open.take() {
            None => {
                alone += 1;
                let time = Duration::from_secs(1);
                scene.meeting.was_not_asked(&to, LEAST, time);
            }
            Some(opened) => {
                asked += 1;
                scene.meeting.learn(&opened);
            }
        }
    }
    assert_eq!((alone, asked), (32, 16));
    assert!(scene.meeting.concerns(&to, true) && scene.meeting.way == Way::Bounced);
}

#[test]
fn a_copy_that_failed_says_nothing() {
    let mut scene = Scene::new();
    for _ in 0..100 {
        let seen = scene.begin_directly();
        scene.meeting.give_up();
        assert_eq!(scene.turn(), Turn::Failed(Errno::ESHUTDOWN));
        assert!(scene.helper.far.claim(&seen, 1).is_none());
    }
    let large = Destination {
        is_access: true,
        ..destination(8, LEN as u64)
    };
    assert!(scene.meeting.concerns(&large, true));
    assert_eq!(scene.meeting.way, Way::Direct);
}

impl Scene {
    /// Begins a copy of which the helper is to put its parts where they go, if it helps.
    fn begin_directly(&mut self) -> Seen {
        self.meeting.way = Way::Direct;
        self.begin();
        let seen = self.helper.far.look().unwrap();
        assert!(!seen.what.wants_slots());
        seen
    }

    /// The helper puts parts where they go; which.
    fn put(&mut self, parts: Range<u16>, seen: &Seen) {
        let (at, len) = Cut::of(LEN as u64).parts(parts.clone());
        let range = at as usize..(at + len) as usize;
        self.into[range.clone()].copy_from_slice(&self.bytes[range]);
        self.helper.far.done(seen, parts.len() as u16, true);
    }
}

#[test]
fn directly_both_make_one_call_each() {
    let mut scene = Scene::new();
    let count = Cut::of(LEN as u64).count();
    for _ in 0..5 {
        scene.into.fill(0);
        let seen = scene.begin_directly();
        let board = scene.helper.far.clone();
        // As the owner has taken its share, the helper takes all the rest.
        let opened = scene.meeting.open.as_mut().unwrap();
        let own = opened.claim(&scene.meeting.board).unwrap();
        let (at, len) = Cut::of(LEN as u64).parts(own.clone());
        assert!((count / 3..count).contains(&own.end));
        let most = Cut::of(LEN as u64).within(512 << 10);
        let helped = board.claim(&seen, most).unwrap();
        assert_eq!(helped, own.end..count);
        assert!(!board.is_open());
        let range = at as usize..(at + len) as usize;
        scene.into[range.clone()].copy_from_slice(&scene.bytes[range]);
        assert_eq!(scene.turn(), Turn::GoesOn);
        assert!(scene.meeting.waits());
        scene.put(helped, &seen);
        assert_eq!(scene.turn(), Turn::Copied(LEN as u64));
        assert!(scene.into == scene.bytes);
    }
}

#[test]
fn what_the_helper_does_not_take_directly_is_the_owners_at_once() {
    let mut scene = Scene::new();
    let _ = scene.begin_directly();
    let board = scene.meeting.board.clone();
    let count = Cut::of(LEN as u64).count();
    let opened = scene.meeting.open.as_mut().unwrap();
    let first = opened.claim(&board).unwrap();
    assert_eq!(opened.claim(&board), Ok(first.end..count));
    assert_eq!(opened.claim(&board), Ok(count..count));
}

#[test]
fn who_was_not_helped_directly_makes_one_call() {
    let mut scene = Scene::new();
    let _ = scene.begin_directly();
    assert_eq!(scene.turn(), Turn::Copied(LEN as u64));
    assert!(scene.into == scene.bytes);
    let _ = scene.begin_directly();
    let board = scene.meeting.board.clone();
    let opened = scene.meeting.open.as_mut().unwrap();
    assert_eq!(opened.claim(&board), Ok(0..Cut::of(LEN as u64).count()));
}
