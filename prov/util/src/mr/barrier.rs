//! The barrier of [`crate::sync`] of which one side pays nothing, with a way out
//! where the system does not let the other pay for both: then both pay.

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crate::sync::barrier;

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
        PREPARED.call_once(|| REACHES_OTHERS.store(barrier::is_available(), Ordering::Relaxed));
    }
}

/// The side of who passes often: what was stored before is seen by a thread
/// behind a [`heavy`] barrier, or what that stored before its barrier is seen
/// here from now on.
#[inline(always)]
pub fn light() {
    #[cfg(loom)]
    barrier::light();
    #[cfg(not(loom))]
    match REACHES_OTHERS.load(Ordering::Relaxed) {
        true => barrier::light(),
        false => fence(Ordering::SeqCst),
    }
}

/// The side of who passes rarely: a system call.
pub fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if REACHES_OTHERS.load(Ordering::Relaxed) && !barrier::heavy() {
        missed_others();
    }
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

#[cfg(test)]
#[cfg(not(loom))]
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
