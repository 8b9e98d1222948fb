use std::sync::Arc;
use std::time::{Duration, Instant};

use prov_util::process_memory::Seal;

use super::*;
use crate::joint::Joint;
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
        let (segment, _fd) = Segment::create(4096, &[]).unwrap();
        let segment = Arc::new(segment);
        let (owner, helper) = (Joint::new(&segment, 0, 0), Joint::new(&segment, 0, 1));
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

    fn begin(&mut self) {
        // SAFETY: the bytes are there as long as the scene.
        let to = unsafe { AppIov::from_raw(self.into.as_mut_ptr(), LEN) };
        self.meeting.begin(5, to, &self.memory);
    }

    fn turn(&mut self) -> Turn {
        let mut from = OtherIov::default();
        // SAFETY: as above.
        let bytes = unsafe { AppIov::from_raw(self.bytes.as_mut_ptr(), LEN) };
        assert!(from.push_own(&bytes, None));
        self.meeting.go_on(&self.memory, &from, true)
    }
}

#[test]
fn a_copy_that_nobody_helps_with_is_made_in_one_turn() {
    let mut scene = Scene::new();
    scene.begin();
    assert!(scene.meeting.is_open());
    assert_eq!(scene.turn(), Turn::Copied(LEN as u64));
    assert!(!scene.meeting.is_open() && scene.meeting.may_help());
    assert!(scene.into == scene.bytes);
}

#[test]
fn a_helper_that_dies_is_waited_for_until_then_and_its_part_not_taken_for_done() {
    let mut scene = Scene::new();
    scene.begin();
    let board = scene.helper.far.clone();
    let seen = board.look().unwrap();
    assert_eq!(board.claim(&seen), Some(7));
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
    assert_eq!(turn, Turn::Copied(cut.part(7).0));
    assert!(!scene.meeting.may_help());
}

#[test]
fn who_cannot_be_known_to_live_is_not_asked() {
    let mut scene = Scene::new();
    // Made after the child was.
    let token = Seal::new().unwrap().token();
    scene.helper.far.set_witness(token);
    scene.begin();
    assert!(!scene.meeting.is_open() && !scene.meeting.may_help());
}

#[test]
fn a_copy_that_is_given_up_ends_when_the_helper_has() {
    let mut scene = Scene::new();
    scene.begin();
    let board = scene.helper.far.clone();
    let seen = board.look().unwrap();
    assert!(board.claim(&seen).is_some());
    scene.meeting.give_up();
    assert_eq!(scene.turn(), Turn::GoesOn);
    assert!(!board.is_open() && scene.into.iter().all(|byte| *byte == 0));
    board.done(&seen, true);
    assert_eq!(scene.turn(), Turn::Failed(Errno::ESHUTDOWN));
}

#[test]
fn a_helper_that_writes_nonsense_spoils_the_copy_and_is_not_asked_again() {
    let mut scene = Scene::new();
    scene.begin();
    let board = scene.helper.far.clone();
    let seen = board.look().unwrap();
    assert!(board.claim(&seen).is_some());
    board.done(&seen, true);
    board.done(&seen, true);
    assert_eq!(scene.turn(), Turn::Failed(Errno::EPROTO));
    assert!(!scene.meeting.is_open() && !scene.meeting.may_help());
}
