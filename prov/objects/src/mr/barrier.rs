//! The asymmetric memory barrier of [`prov_base::sync`], of which one side costs nothing, with a
//! fallback for systems that do not support it: then both sides execute a full barrier.

#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

use prov_base::sync::barrier;

/// Whether [`heavy`] acts as a barrier of all threads, so that [`light`] needs no instruction.
#[cfg(not(loom))]
static REACHES_OTHERS: AtomicBool = AtomicBool::new(false);

/// Determines what the system supports. To be called before threads use these barriers: the objects
/// that they protect are created after it.
pub fn prepare() {
    #[cfg(not(loom))]
    {
        use std::sync::Once;
        static PREPARED: Once = Once::new();
        PREPARED.call_once(|| REACHES_OTHERS.store(barrier::is_available(), Ordering::Relaxed));
    }
}

/// The barrier of the frequent side: stores before it are seen by a thread after its [`heavy`]
/// barrier, or stores of that thread before its barrier are seen here afterwards.
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

/// The barrier of the rare side: a system call.
pub fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if REACHES_OTHERS.load(Ordering::Relaxed) && !barrier::heavy() {
        missed_others();
    }
}

/// The process was denied the system call after it had used it, by a system call filter. From here
/// on every thread executes full barriers; stores that a processor executed before are globally
/// visible long before this function returns.
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

    /// The store-load pattern that the barriers are made for, with a rendezvous in each round.
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
