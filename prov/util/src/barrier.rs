//! Memory barriers of which one side pays nothing.
//!
//! Two threads that each store and then look for what the other stored need a
//! full barrier in between: without one, both may miss the other. Where one of
//! them does so all the time and the other hardly ever, the rare one can pay for
//! both: membarrier(2) makes every thread of the process pass a barrier.

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether [`heavy`] reaches other threads, which need no instruction then.
#[cfg(not(loom))]
static REACHES_OTHERS: AtomicBool = AtomicBool::new(false);

/// Finds out what the system can do. To be called before threads meet by these
/// barriers: what they meet at is made behind it.
pub fn prepare() {
    #[cfg(not(loom))]
    {
        use std::sync::Once;
        static PREPARED: Once = Once::new();
        PREPARED.call_once(|| {
            let reaches_others = register().is_ok() && reach_others().is_ok();
            REACHES_OTHERS.store(reaches_others, Ordering::Relaxed);
        });
    }
}

/// The side of who passes often: what was stored before is seen by a thread
/// behind a [`heavy`] barrier, or what that stored before its barrier is seen
/// here from now on.
#[inline(always)]
pub fn light() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    match REACHES_OTHERS.load(Ordering::Relaxed) {
        true => compiler_fence(Ordering::SeqCst),
        false => fence(Ordering::SeqCst),
    }
}

/// The side of who passes rarely: a system call.
pub fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if REACHES_OTHERS.load(Ordering::Relaxed) {
        // A child of fork(2) may have to register itself.
        let reached = reach_others().or_else(|_| register().and_then(|()| reach_others()));
        if reached.is_err() {
            missed_others();
        }
    }
}

#[cfg(not(loom))]
fn register() -> rustix::io::Result<()> {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
}

#[cfg(not(loom))]
fn reach_others() -> rustix::io::Result<()> {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::PrivateExpedited)
}

/// The process was denied the call after it had used it, by a filter of system
/// calls. From now on everybody has barriers of their own; what a processor
/// stored before is in memory long before this returns.
#[cfg(not(loom))]
#[cold]
fn missed_others() {
    REACHES_OTHERS.store(false, Ordering::SeqCst);
    std::thread::sleep(std::time::Duration::from_millis(10));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// The pattern the barriers are for, with a meeting in each round.
    #[test]
    fn one_of_two_threads_sees_what_the_other_stored() {
        const ROUNDS: usize = 2000;
        prepare();
        let (left, right) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let missed: [AtomicUsize; 2] = Default::default();
        let meeting = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    meeting.wait();
                    left.store(round, Ordering::Relaxed);
                    light();
                    let seen = right.load(Ordering::Relaxed);
                    missed[0].store(usize::from(seen < round), Ordering::Relaxed);
                    meeting.wait();
                }
            });
            for round in 1..=ROUNDS {
                meeting.wait();
                right.store(round, Ordering::Relaxed);
                heavy();
                let seen = left.load(Ordering::Relaxed);
                missed[1].store(usize::from(seen < round), Ordering::Relaxed);
                meeting.wait();
                let both = missed.iter().all(|side| side.load(Ordering::Relaxed) == 1);
                assert!(!both, "both missed the other in round {round}");
            }
        });
    }
}
