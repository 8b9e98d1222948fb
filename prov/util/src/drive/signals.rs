//! What a lane and the queues that drive it tell each other without its lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::Seat;
use crate::lately::nanoseconds;

/// Reads of queues that have completions, and drives, of which one at least is a
/// drive.
pub const READS_WITHOUT_PROGRESS: u64 = 16;

/// Messages are held back.
const HELD: u8 = 1 << 0;
/// A read is to drive the lane, whatever the queue has.
const WANTED: u8 = 1 << 1;

/// Progress calls after which the thread that drives the lane while the
/// application does not is told of them.
const CALLS_BETWEEN_SIGNS: u64 = 128;

/// What sched_yield(2) takes at most if nobody else runs, in nanoseconds.
const ALONE: u64 = 2_000;
/// Calls in vain after which a process yields that others wait for.
const IMPATIENT: u32 = 16;
/// Calls in vain from which on it yields as usual.
const PATIENT: u32 = 64;
/// What a process that computes takes of a processor at least that is yielded to it,
/// in nanoseconds.
const SLICE: u64 = 500_000;
/// After a yield that took as long, a wait goes on for this part of it before it
/// yields again. So a process beside one that computes does not give all of its time
/// away, for each message. Some 30 that only wait for each other have less than a
/// slice between them before long.
const STAY: u64 = 48;
/// It is no longer than this.
const LONGEST_STAY: u64 = 100_000;

/// Whether a lane waits, for all that its calls know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It was not long in vain.
    No,
    /// It is long enough that others may have their turn, for the first time.
    Begins,
    /// It goes on.
    GoesOn,
}

/// See the module. Of a lane that nobody helps until it is given a seat.
///
/// Lanes share no cache line that is written, nor a pair of them, which
/// processors fetch together.
#[derive(Default)]
#[repr(align(128))]
pub struct Signals {
    /// Why the lane is to be driven, if it is. Written with its lock.
    due: AtomicU8,
    /// Counts, about, the application's calls that read queues.
    calls: AtomicU64,
    /// Calls in vain after which other processes have their turn, where there
    /// are more of them than processors; 0 where that is not known.
    patience: AtomicU32,
    /// How long a wait is to go on before it yields, in nanoseconds.
    stay: AtomicU64,
    /// Since when it has.
    since: AtomicU64,
    /// The lane's place at the thread that helps it.
    seat: OnceLock<Seat>,
}

impl Signals {
    /// A queue is read that has completions. An approximation will do. Whether
    /// it is time to drive the lane all the same.
    #[inline(always)]
    pub fn read(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls.is_multiple_of(READS_WITHOUT_PROGRESS)
    }

    /// Whether work is due that must not wait for a queue to run empty.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) != 0
    }

    /// The next queue that is read is to drive the lane, whatever it has. Called
    /// with the lane's lock.
    pub fn drive_next(&self) {
        self.set(WANTED);
    }

    /// The lane is driven, with its lock.
    #[inline(always)]
    pub fn serve(&self) {
        if self.due.load(Ordering::Relaxed) & WANTED != 0 {
            self.clear(WANTED);
        }
    }

    fn set(&self, reason: u8) {
        let due = self.due.load(Ordering::Relaxed);
        self.due.store(due | reason, Ordering::Relaxed);
    }

    fn clear(&self, reason: u8) {
        let due = self.due.load(Ordering::Relaxed);
        self.due.store(due & !reason, Ordering::Relaxed);
    }

    /// The lane is driven by the application.
    #[inline(always)]
    pub fn driven(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
        // Whatever else counts, one drive at least is among so many.
        if calls % CALLS_BETWEEN_SIGNS < READS_WITHOUT_PROGRESS {
            self.calls_go_on();
        }
    }

    #[cold]
    #[inline(never)]
    fn calls_go_on(&self) {
        if let Some(seat) = self.seat.get() {
            seat.calls_go_on();
        }
    }

    /// About how many calls the application has made that read queues. What is
    /// sent after the same one may go out together.
    #[inline]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls in vain after which other processes are to have their turn: `usual`,
    /// or fewer where others have made use of it lately. A waiting process that
    /// goes on looking then takes the processor from whom it waits for.
    #[inline(always)]
    fn patience(&self, usual: u32) -> u32 {
        match self.patience.load(Ordering::Relaxed) {
            0 => usual,
            patience => patience,
        }
    }

    /// What so many calls in vain in a row are, where others are to have their turn
    /// after `usual` of them.
    #[inline(always)]
    pub fn in_vain(&self, calls: u32, usual: u32) -> Waiting {
        let patience = self.patience(usual);
        match calls.is_multiple_of(patience) {
            false => Waiting::No,
            true if calls == patience => Waiting::Begins,
            true => Waiting::GoesOn,
        }
    }

    /// Lets other processes have their turn, if it is time to.
    #[cold]
    #[inline(never)]
    pub fn wait(&self, waiting: Waiting) {
        let now = nanoseconds();
        if self.stays(waiting, now) {
            return;
        }
        std::thread::yield_now();
        let after = nanoseconds();
        self.since.store(after, Ordering::Relaxed);
        self.yielded(after.saturating_sub(now));
    }

    /// Whether others are to have their turn later.
    fn stays(&self, waiting: Waiting, now: u64) -> bool {
        let stay = self.stay.load(Ordering::Relaxed);
        if stay == 0 {
            return false;
        }
        if waiting == Waiting::Begins {
            self.since.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.since.load(Ordering::Relaxed)) < stay
    }

    fn yielded(&self, pause: u64) {
        let stay = match pause >= SLICE {
            true => (pause / STAY).min(LONGEST_STAY),
            false => 0,
        };
        self.stay.store(stay, Ordering::Relaxed);
        let patience = match (pause > ALONE, self.patience.load(Ordering::Relaxed)) {
            (true, _) => IMPATIENT,
            // It may have been chance.
            (false, patience @ 1..PATIENT) => patience * 2,
            (false, _) => 0,
        };
        self.patience.store(patience, Ordering::Relaxed);
    }

    /// Gives the lane its place at the thread that helps it, made by `take` if it
    /// has none.
    pub fn seat_with(&self, take: impl FnOnce() -> Seat) {
        self.seat.get_or_init(take);
    }

    /// The lane's place at the thread that helps it.
    pub fn seat(&self) -> Option<&Seat> {
        self.seat.get()
    }

    /// The application has taken what would have woken the thread that helps, and
    /// will go on to drive the lane: that thread looks after it when it no longer
    /// does. `false` if it has to be woken by what comes.
    pub fn relieves_helper(&self) -> bool {
        self.seat.get().is_none_or(Seat::is_relieved)
    }

    /// Whether the next message to a peer is to be held back, if `sent` of them
    /// have left after the application's last call.
    #[inline]
    pub fn holds_after(&self, sent: u64) -> bool {
        match self.seat.get() {
            Some(seat) => seat.holds_after(sent),
            None => sent != 0,
        }
    }

    /// Messages are held back from now on, and none were. Called with the lane's
    /// lock, as the next one.
    #[inline]
    pub fn burst_begins(&self) {
        self.set(HELD);
        if let Some(seat) = self.seat.get() {
            seat.burst_begins();
        }
    }

    /// Nothing is held back any more. Called with the lane's lock.
    #[inline]
    pub fn burst_ends(&self) {
        self.clear(HELD);
        if let Some(seat) = self.seat.get() {
            seat.burst_ends();
        }
    }

    /// Something has no room from now on, and nothing waited for some. The calls
    /// that drive the lane go on with it; where there are none, the thread that
    /// helps does. Called with the lane's lock, as the next one.
    pub fn stall_begins(&self) {
        if let Some(seat) = self.seat.get() {
            seat.stall_begins();
        }
    }

    /// Nothing waits for room any more.
    pub fn stall_ends(&self) {
        if let Some(seat) = self.seat.get() {
            seat.stall_ends();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_others_wait_for_yields_sooner_until_they_do_not() {
        let signals = Signals::default();
        assert_eq!(signals.patience(512), 512);
        signals.yielded(ALONE);
        assert_eq!(signals.patience(512), 512);
        signals.yielded(ALONE * 10);
        assert_eq!(signals.patience(512), IMPATIENT);
        let rises: Vec<u32> = std::iter::repeat_with(|| {
            signals.yielded(ALONE);
            signals.patience(512)
        })
        .take_while(|patience| *patience != 512)
        .collect();
        assert!(rises.is_sorted() && rises.len() < 10);
    }

    /// Milliseconds, in nanoseconds.
    const MILLISECONDS: u64 = 1_000_000;

    #[test]
    fn who_yields_to_one_that_computes_does_so_again_later() {
        let signals = Signals::default();
        let stays = |waiting, now| signals.stays(waiting, now);
        assert!(!stays(Waiting::Begins, 0));
        signals.yielded(3 * MILLISECONDS);
        let stay = 3 * MILLISECONDS / STAY;
        for start in [5 * MILLISECONDS, 9 * MILLISECONDS] {
            assert!(stays(Waiting::Begins, start));
            assert!(stays(Waiting::GoesOn, start + stay - 1));
            assert!(!stays(Waiting::GoesOn, start + stay));
        }
        signals.yielded(1000 * MILLISECONDS);
        assert!(!stays(Waiting::GoesOn, 10 * MILLISECONDS));
        signals.yielded(ALONE);
        assert!(!stays(Waiting::Begins, 11 * MILLISECONDS));
    }

    #[test]
    fn many_that_wait_for_each_other_yield_at_once_in_the_end() {
        // Each yields to so many, which do nothing but wait as long as they may. This
        // is what a turn takes besides.
        const TURN: u64 = 2_500;
        for others in [1, 7, 15, 31] {
            let signals = Signals::default();
            signals.yielded(3 * MILLISECONDS);
            let mut rounds = 0;
            while signals.stays(Waiting::Begins, 0) {
                let stay = signals.stay.load(Ordering::Relaxed);
                signals.yielded(others * (stay + TURN));
                rounds += 1;
                assert!(rounds < 20);
            }
        }
    }

    #[test]
    fn a_wait_begins_with_the_first_calls_in_vain() {
        let signals = Signals::default();
        let waits = |calls| signals.in_vain(calls, 64);
        let all = [63, 64, 65, 128].map(waits);
        assert_eq!(
            all,
            [Waiting::No, Waiting::Begins, Waiting::No, Waiting::GoesOn]
        );
    }

    #[test]
    fn a_read_drives_in_its_turn_or_where_there_is_a_reason() {
        let signals = Signals::default();
        let turns = (0..10 * READS_WITHOUT_PROGRESS).filter(|_| signals.read());
        assert_eq!(turns.count(), 10);
        assert!(!signals.is_due());
        signals.drive_next();
        assert!(signals.is_due());
        signals.burst_begins();
        signals.serve();
        assert!(signals.is_due(), "messages are held back still");
        signals.burst_ends();
        assert!(!signals.is_due());
    }
}
