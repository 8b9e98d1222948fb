mod care;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use prov_base::sync::{Lock, LockKind};

/// What the thread did with a lane.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    EndedBurst(ThreadId),
    Drove,
    Dropped(ThreadId),
}

/// A lane without a network: messages are held back, and sent.
struct Lane {
    core: Lock<Core>,
    did: Mutex<Sender<Did>>,
    /// Answers to `calls`; what is added after each.
    calls: AtomicU64,
    calls_step: AtomicU64,
    looks: AtomicU64,
    wait_fd: Option<OwnedFd>,
    seat: OnceLock<Seat>,
    /// What `end_burst` waits for before it returns.
    gate: Option<Mutex<Receiver<()>>>,
    signals_are_blocked: AtomicBool,
    /// Whether a thread of the application sleeps at it.
    is_slept_at: AtomicBool,
    /// Whether its descriptor does not tell of everything.
    is_silent: AtomicBool,
}

#[derive(Default)]
struct Core {
    held: u32,
    sent: u32,
}

/// How to make a lane.
#[derive(Default)]
struct Plan {
    calls_step: u64,
    is_polled: bool,
    gate: Option<Receiver<()>>,
}

/// Calls between two looks at a lane that keep it moving, however long the time between the looks.
const OFTEN: u64 = 1 << 32;

impl Lane {
    fn new(helper: &Arc<Helper>) -> (Arc<Self>, Receiver<Did>) {
        Self::planned(helper, Plan::default())
    }

    /// A lane and what opens its gate, at which the thread waits when it has ended a burst.
    fn gated(helper: &Arc<Helper>) -> (Arc<Self>, Receiver<Did>, Sender<()>) {
        let (open, gate) = channel();
        let plan = Plan {
            gate: Some(gate),
            ..Plan::default()
        };
        let (lane, did) = Self::planned(helper, plan);
        (lane, did, open)
    }

    fn planned(helper: &Arc<Helper>, plan: Plan) -> (Arc<Self>, Receiver<Did>) {
        let (sender, receiver) = channel();
        let fd = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let lane = Arc::new(Lane {
            core: Lock::new(LockKind::Biased, Core::default()),
            did: Mutex::new(sender),
            calls: AtomicU64::new(0),
            calls_step: AtomicU64::new(plan.calls_step),
            looks: AtomicU64::new(0),
            wait_fd: (!plan.is_polled).then(fd),
            seat: OnceLock::new(),
            gate: plan.gate.map(Mutex::new),
            signals_are_blocked: AtomicBool::new(false),
            is_slept_at: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        });
        let weak: Weak<dyn Driven> = Arc::downgrade(&lane) as _;
        let _ = lane.seat.set(helper.seat(weak));
        (lane, receiver)
    }

    fn seat(&self) -> &Seat {
        self.seat.get().unwrap()
    }

    /// The application holds a message back.
    fn hold(&self) {
        let mut core = self.core.lock();
        core.held += 1;
        if core.held == 1 {
            self.seat().burst_begins();
        }
    }

    /// There is no room for a message.
    fn stall(&self) {
        let mut core = self.core.lock();
        core.held += 1;
        self.seat().stall_begins();
    }

    /// The application makes a progress call.
    fn progress(&self) {
        let mut core = self.core.lock();
        core.send(self.seat());
    }

    fn notify(&self) {
        rustix::io::write(self.wait_fd.as_ref().unwrap(), &1u64.to_ne_bytes()).unwrap();
    }
}

impl Core {
    fn send(&mut self, seat: &Seat) {
        self.sent += self.held;
        self.held = 0;
        seat.burst_ends();
        seat.stall_ends();
    }
}

impl Driven for Lane {
    fn end_burst(&self) -> bool {
        let mut core = self.core.lock_as_helper().unwrap();
        if core.held == 0 {
            return false;
        }
        core.send(self.seat());
        drop(core);
        self.signals_are_blocked
            .store(signals_are_blocked(), Ordering::Relaxed);
        let _ = self
            .did
            .lock()
            .send(Did::EndedBurst(std::thread::current().id()));
        if let Some(gate) = &self.gate {
            gate.lock().recv().unwrap();
        }
        true
    }

    fn drive(&self) -> bool {
        let _core = self.core.lock_as_helper();
        if let Some(fd) = &self.wait_fd {
            let _ = rustix::io::read(fd, &mut [0u8; 8]);
        }
        let _ = self.did.lock().send(Did::Drove);
        true
    }

    fn share_wait_fd(&self) -> Result<Option<OwnedFd>> {
        let shared = self.wait_fd.as_ref().map(|fd| fd.try_clone());
        Ok(shared.transpose()?)
    }

    fn calls(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let step = self.calls_step.load(Ordering::Relaxed);
        self.calls.fetch_add(step, Ordering::Relaxed)
    }

    fn has_sleeper(&self) -> bool {
        self.is_slept_at.load(Ordering::Relaxed)
    }

    fn is_polled(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _ = self
            .did
            .lock()
            .send(Did::Dropped(std::thread::current().id()));
    }
}

fn signals_are_blocked() -> bool {
    // SAFETY: zero is a valid value of a signal set, which pthread_sigmask(3) fills before it is
    // read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        libc::sigismember(&set, libc::SIGUSR1) == 1 && libc::sigismember(&set, libc::SIGTERM) == 1
    }
}

fn burst_ender(did: &Receiver<Did>) -> ThreadId {
    match did.recv().unwrap() {
        Did::EndedBurst(thread) => thread,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_that_the_application_leaves_is_ended() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    for burst in 1..=5 {
        lane.hold();
        lane.hold();
        let thread = burst_ender(&did);
        assert_ne!(thread, std::thread::current().id());
        assert_eq!(lane.core.lock().sent, 2 * burst);
    }
    assert!(lane.signals_are_blocked.load(Ordering::Relaxed));
}

#[test]
fn stalled_work_is_done_by_the_helper_if_the_application_makes_no_calls() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    for stall in 1..=3 {
        lane.stall();
        burst_ender(&did);
        assert_eq!(lane.core.lock().sent, stall);
    }
    let (other, its) = Lane::new(&helper);
    other.stall();
    lane.hold();
    assert_eq!(burst_ender(&did), burst_ender(&its));
    // The alarm of one that has left wakes nobody.
    lane.stall();
    lane.seat().leave();
    other.stall();
    burst_ender(&its);
}

#[test]
fn stalled_work_is_left_to_an_application_that_makes_calls() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::planned(
        &helper,
        Plan {
            calls_step: OFTEN,
            ..Plan::default()
        },
    );
    lane.stall();
    while lane.looks.load(Ordering::Relaxed) < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(did.try_recv(), Err(TryRecvError::Empty));
    lane.calls_step.store(0, Ordering::Relaxed);
    burst_ender(&did);
}

#[test]
fn a_burst_after_a_rest_is_ended_too() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    for _ in 0..3 {
        lane.hold();
        burst_ender(&did);
        while lane.seat().holds_after(1) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn bursts_are_ended_whatever_the_application_does_between() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    for round in 0..2000u32 {
        for _ in 0..round % 5 {
            lane.hold();
        }
        if round % 7 != 0 {
            lane.progress();
        }
        if round % 100 == 0 {
            std::thread::yield_now();
        }
    }
    lane.progress();
    lane.hold();
    while lane.core.lock().held != 0 {
        did.recv().unwrap();
    }
    let posted: u32 = (0..2000).map(|round| round % 5).sum();
    assert_eq!(lane.core.lock().sent, posted + 1);
}

#[test]
fn while_the_thread_sleeps_the_third_message_is_the_first_that_is_held() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    let holds = |lane: &Lane| [0, 1, 2, 3].map(|sent| lane.seat().holds_after(sent));
    assert_eq!(holds(&lane), [false, false, true, true]);
    let mut core = lane.core.lock();
    core.held = 1;
    lane.seat().burst_begins();
    // It cannot end the burst and go back to sleep while the lane is held.
    assert_eq!(holds(&lane), [false, true, true, true]);
    drop(core);
    burst_ender(&did);
}

#[test]
fn one_thread_serves_all_lanes() {
    let helper = Helper::new("fi_test");
    let lanes: Vec<_> = (0..10).map(|_| Lane::new(&helper)).collect();
    for (lane, _) in &lanes {
        lane.hold();
    }
    let threads: Vec<_> = lanes.iter().map(|(_, did)| burst_ender(did)).collect();
    assert!(threads.iter().all(|&thread| thread == threads[0]));
}

#[test]
fn the_thread_ends_with_the_last_lane_and_starts_again_with_a_new_one() {
    let helper = Helper::new("fi_test");
    for _ in 0..3 {
        let (first, did) = Lane::new(&helper);
        let (second, _) = Lane::new(&helper);
        first.hold();
        let thread = burst_ender(&did);
        second.seat().leave();
        first.hold();
        assert_eq!(burst_ender(&did), thread);
        first.seat().leave();
        assert!(!helper.has_thread());
    }
}

#[test]
fn a_lane_may_end_on_the_thread() {
    for order in 0..2 {
        let helper = Helper::new("fi_test");
        let (lane, did, open) = Lane::gated(&helper);
        lane.hold();
        let thread = burst_ender(&did);
        if order == 0 {
            // Then the helper ends there, too.
            drop(helper);
            drop(lane);
            open.send(()).unwrap();
            assert_eq!(did.recv().unwrap(), Did::Dropped(thread));
        } else {
            drop(lane);
            open.send(()).unwrap();
            assert_eq!(did.recv().unwrap(), Did::Dropped(thread));
            // A new lane is helped, even if the thread is ending.
            let (next, did) = Lane::new(&helper);
            next.hold();
            burst_ender(&did);
        }
    }
}

#[test]
fn a_seat_that_leaves_waits_until_the_thread_is_out() {
    let helper = Helper::new("fi_test");
    let (lane, did, open) = Lane::gated(&helper);
    let (_other, _) = Lane::new(&helper);
    lane.hold();
    burst_ender(&did);
    let leaver = {
        let lane = lane.clone();
        std::thread::spawn(move || {
            lane.seat().leave();
            // Nobody else has it, so it ends here.
            Arc::into_inner(lane).is_some()
        })
    };
    drop(lane);
    open.send(()).unwrap();
    assert!(leaver.join().unwrap());
}

#[test]
fn the_thread_in_a_lane_does_not_count_as_another_user_of_it() {
    let helper = Helper::new("fi_test");
    let (lane, did, open) = Lane::gated(&helper);
    let (_other, _) = Lane::new(&helper);
    let second = lane.clone();
    lane.hold();
    burst_ender(&did);
    let leaver = std::thread::spawn(move || {
        lane.seat().leave_unless(|| Arc::strong_count(&lane) > 1);
        let is_second = Arc::strong_count(&lane) > 1;
        drop(second);
        lane.seat().leave_unless(|| Arc::strong_count(&lane) > 1);
        // It is dropped here and not by the thread.
        is_second && Arc::into_inner(lane).is_some()
    });
    open.send(()).unwrap();
    assert!(leaver.join().unwrap());
}

#[test]
fn a_lane_is_driven_whenever_its_descriptor_is_readable() {
    let helper = Helper::new("fi_test");
    let lanes: Vec<_> = (0..3).map(|_| Lane::new(&helper)).collect();
    for (lane, did) in &lanes {
        lane.seat().drive_automatically().unwrap();
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
    for _ in 0..5 {
        for (lane, did) in &lanes {
            lane.notify();
            assert_eq!(did.recv().unwrap(), Did::Drove);
        }
    }
}

#[test]
fn a_lane_without_a_descriptor_is_driven_from_time_to_time() {
    let helper = Helper::new("fi_test");
    let plan = Plan {
        is_polled: true,
        ..Plan::default()
    };
    let (lane, did) = Lane::planned(&helper, plan);
    lane.seat().drive_automatically().unwrap();
    for _ in 0..5 {
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
}

#[test]
fn the_thread_keeps_out_of_the_way_of_an_application_that_drives_itself() {
    let helper = Helper::new("fi_test");
    let plan = Plan {
        calls_step: OFTEN,
        ..Plan::default()
    };
    let (lane, did) = Lane::planned(&helper, plan);
    lane.seat().drive_automatically().unwrap();
    assert_eq!(did.recv().unwrap(), Did::Drove, "nobody has called yet");
    // From here each look finds that there were calls.
    lane.notify();
    while lane.looks.load(Ordering::Relaxed) < 4 {
        std::thread::yield_now();
    }
    assert!(did.try_recv().is_err());
}

#[test]
fn the_thread_drives_a_lane_that_the_application_drives_too_rarely() {
    let helper = Helper::new("fi_test");
    let plan = Plan {
        calls_step: 1,
        ..Plan::default()
    };
    let (lane, did) = Lane::planned(&helper, plan);
    lane.seat().drive_automatically().unwrap();
    assert_eq!(did.recv().unwrap(), Did::Drove, "nobody has called yet");
    for _ in 0..5 {
        lane.notify();
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
}

#[test]
fn stalled_work_is_done_for_an_application_that_calls_too_rarely() {
    let helper = Helper::new("fi_test");
    let plan = Plan {
        calls_step: 1,
        ..Plan::default()
    };
    let (lane, did) = Lane::planned(&helper, plan);
    for _ in 0..3 {
        lane.stall();
        burst_ender(&did);
    }
}

/// Two lanes of a domain have an alarm each: what the application does with one
/// says nothing about the other.
#[test]
fn a_lane_is_driven_though_the_application_drives_another_one() {
    let helper = Helper::new("fi_test");
    let driven_by_application = || Plan {
        calls_step: OFTEN,
        ..Plan::default()
    };
    let (busy, busy_did) = Lane::planned(&helper, driven_by_application());
    let (left, left_did) = Lane::planned(&helper, driven_by_application());
    for (lane, did) in [(&busy, &busy_did), (&left, &left_did)] {
        lane.seat().drive_automatically().unwrap();
        assert_eq!(did.recv().unwrap(), Did::Drove, "nobody has called yet");
        lane.notify();
    }
    while [&busy, &left]
        .iter()
        .any(|lane| lane.looks.load(Ordering::Relaxed) < 2)
    {
        std::thread::yield_now();
    }
    // The application stops driving this one, and continues with the other.
    left.calls_step.store(0, Ordering::Relaxed);
    for _ in 0..3 {
        left.notify();
        while left_did.try_recv().is_err() {
            busy.seat().calls_resumed();
            std::thread::yield_now();
        }
    }
    assert!(busy_did.try_recv().is_err());
}

#[test]
fn a_lane_is_driven_and_its_bursts_are_ended_by_the_same_thread() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    lane.seat().drive_automatically().unwrap();
    assert_eq!(did.recv().unwrap(), Did::Drove);
    lane.hold();
    burst_ender(&did);
    lane.notify();
    assert_eq!(did.recv().unwrap(), Did::Drove);
}

#[test]
fn a_forked_child_closes_lanes_without_waiting_for_a_thread_it_does_not_have() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    lane.seat().drive_automatically().unwrap();
    assert_eq!(did.recv().unwrap(), Did::Drove);
    lane.hold();
    // SAFETY: the child closes lanes, which the test checks to be possible in a forked child, and
    // ends without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: alarm(2) accepts any number, and ends the child if it hangs.
        unsafe { libc::alarm(60) };
        lane.hold();
        let fresh = Helper::new("fi_test");
        drop(lane);
        let is_still_there = helper.has_thread();
        drop(helper);
        // What the child opens itself is helped.
        let (own, own_did) = Lane::new(&fresh);
        own.hold();
        burst_ender(&own_did);
        drop(own);
        // SAFETY: _exit(2) accepts any status, and ends the child only.
        unsafe { libc::_exit(i32::from(is_still_there)) };
    }
    let mut status = 0;
    // SAFETY: the process is the child that was created above, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // The parent's thread is where it was.
    burst_ender(&did);
    lane.notify();
    assert_eq!(did.recv().unwrap(), Did::Drove);
}

#[test]
fn forks_do_not_meet_a_thread_in_a_lane() {
    let helper = Helper::new("fi_test");
    let (lane, _did) = Lane::new(&helper);
    for _ in 0..100 {
        lane.hold();
        // SAFETY: the child makes progress on the lane, which forked children may do, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: alarm(2) accepts any number, and ends the child if it hangs.
            unsafe { libc::alarm(60) };
            lane.progress();
            lane.seat().leave();
            // SAFETY: _exit(2) accepts any status, and ends the child only.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the process is the child that was created above, and `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        lane.progress();
    }
}

#[test]
fn a_lane_whose_wake_up_the_application_takes_is_driven_when_that_stops() {
    let helper = Helper::new("fi_test");
    let (lane, did) = Lane::new(&helper);
    lane.seat().drive_automatically().unwrap();
    assert_eq!(did.recv().unwrap(), Did::Drove);
    // Nothing makes the descriptor readable from here on.
    for _ in 0..3 {
        while !lane.seat().is_relieved() {
            std::thread::yield_now();
        }
        assert_eq!(did.recv().unwrap(), Did::Drove);
    }
}
