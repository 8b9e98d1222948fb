//! What a lane and the queues that drive it tell each other without its lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
/// Calls in vain between two looks at the clock, while another process is known to
/// want the processor.
const IMPATIENT: u32 = 16;
/// The same where none is known to: some 2 us of calls that look into shared memory.
const PATIENT: u32 = 64;
/// Nanoseconds in which no queue of the process has brought anything, after which a
/// waiting process yields. A round trip between two processes that both run takes
/// less, and sched_yield(2) takes a fiftieth of it where nobody else wants to run.
const YIELD_AFTER: u64 = 20_000;
/// Nanoseconds after which a lane that has brought nothing yields although other
/// queues of the process are busy: those may be other threads'.
const YIELD_ALONE_AFTER: u64 = 200_000;
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
    /// It is long enough for a look at the clock, for the first time.
    Begins,
    /// It goes on.
    GoesOn,
}

/// When something last came to any queue of this process, as far as waiting lanes need
/// to know it. A lane that brings something reads `brought_by`, and writes it only if a
/// waiting lane has looked since the last time: lanes that all have work to do write
/// nothing that others read.
#[repr(align(128))]
struct News {
    /// The lane that brought something first since a waiting lane last looked, by the
    /// address of its [`Signals`]; 0 if none did.
    brought_by: AtomicUsize,
    /// When a look last found that, or a thread last yielded, in nanoseconds.
    last: AtomicU64,
}

impl News {
    const fn new() -> Self {
        News {
            brought_by: AtomicUsize::new(0),
            last: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn note(&self, lane: usize) {
        if self.brought_by.load(Ordering::Relaxed) == 0 {
            self.brought_by.store(lane, Ordering::Relaxed);
        }
    }

    /// When something came last, for a look at this time, and whether another lane than
    /// this one has brought something since the last look.
    fn look(&self, lane: usize, now: u64) -> (u64, bool) {
        match self.brought_by.load(Ordering::Relaxed) {
            0 => (self.last.load(Ordering::Relaxed), false),
            by => {
                self.brought_by.store(0, Ordering::Relaxed);
                self.last.store(now, Ordering::Relaxed);
                (now, by != lane)
            }
        }
    }
}

static NEWS: News = News::new();

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
    /// Calls in vain between two looks at the clock, where other processes want the
    /// processor; 0 where none is known to.
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

    /// Calls in vain between two looks at the clock: fewer where others have made use
    /// of the processor lately. A waiting process that goes on looking then takes it
    /// from whom it waits for.
    #[inline(always)]
    fn patience(&self) -> u32 {
        match self.patience.load(Ordering::Relaxed) {
            0 => PATIENT,
            patience => patience,
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The lane has brought something.
    #[inline(always)]
    pub fn brought(&self) {
        NEWS.note(self.address());
    }

    /// What so many calls in vain in a row are.
    #[inline(always)]
    pub fn in_vain(&self, calls: u32) -> Waiting {
        let patience = self.patience();
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
        if !self.may_yield(waiting, now, NEWS.look(self.address(), now)) {
            return;
        }
        std::thread::yield_now();
        let after = nanoseconds();
        self.since.store(after, Ordering::Relaxed);
        // The process has given way: its other lanes wait anew.
        NEWS.last.store(after, Ordering::Relaxed);
        self.yielded(after.saturating_sub(now));
    }

    /// Whether others are to have their turn now, where something last came to a queue
    /// of the process at `news`, or to another one than this lane's since the last look.
    fn may_yield(&self, waiting: Waiting, now: u64, (news, others): (u64, bool)) -> bool {
        if waiting == Waiting::Begins {
            self.since.store(now, Ordering::Relaxed);
        }
        let since = self.since.load(Ordering::Relaxed);
        let waits = now.saturating_sub(since);
        let stay = self.stay.load(Ordering::Relaxed);
        let is_time = match self.patience.load(Ordering::Relaxed) {
            0 => now.saturating_sub(since.max(news)) >= YIELD_AFTER.max(stay),
            _ => !others && waits >= stay,
        };
        is_time || waits >= YIELD_ALONE_AFTER
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
            (false, patience @ 1..PATIENT) if patience * 2 < PATIENT => patience * 2,
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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_others_wait_for_yields_sooner_until_they_do_not() {
        let signals = Signals::default();
        assert_eq!(signals.patience(), PATIENT);
        signals.yielded(ALONE);
        assert_eq!(signals.patience(), PATIENT);
        signals.yielded(ALONE * 10);
        assert_eq!(signals.patience(), IMPATIENT);
        let rises: Vec<u32> = std::iter::repeat_with(|| {
            signals.yielded(ALONE);
            signals.patience()
        })
        .take_while(|patience| *patience != PATIENT)
        .collect();
        assert!(rises.is_sorted() && rises.len() < 10);
    }

    /// Milliseconds, in nanoseconds.
    const MILLISECONDS: u64 = 1_000_000;

    #[test]
    fn who_yields_to_one_that_computes_does_so_again_later() {
        let signals = Signals::default();
        let yields = |waiting, now| signals.may_yield(waiting, now, (0, false));
        signals.yielded(3 * MILLISECONDS);
        let stay = 3 * MILLISECONDS / STAY;
        for start in [5 * MILLISECONDS, 9 * MILLISECONDS] {
            assert!(!yields(Waiting::Begins, start));
            assert!(!yields(Waiting::GoesOn, start + stay - 1));
            assert!(yields(Waiting::GoesOn, start + stay));
        }
    }

    #[test]
    fn a_lane_yields_after_a_time_in_which_no_queue_has_brought_anything() {
        let signals = Signals::default();
        let start = 5 * MILLISECONDS;
        let yields = |waiting, now, news| signals.may_yield(waiting, now, (news, false));
        assert!(!yields(Waiting::Begins, start, start - 1));
        let at = start + YIELD_AFTER;
        assert!(!yields(Waiting::GoesOn, at - 1, start - 1));
        assert!(yields(Waiting::GoesOn, at, start - 1));
        // Something has come to another queue meanwhile.
        assert!(!yields(Waiting::GoesOn, at, start + 1));
        let others = start + YIELD_ALONE_AFTER;
        assert!(!yields(Waiting::GoesOn, others - 1, others - 1));
        assert!(yields(Waiting::GoesOn, others, others));
    }

    #[test]
    fn a_lane_that_others_wait_for_yields_unless_another_queue_brings_something() {
        let signals = Signals::default();
        let start = 5 * MILLISECONDS;
        signals.yielded(ALONE * 10);
        assert!(signals.may_yield(Waiting::Begins, start, (start, false)));
        assert!(!signals.may_yield(Waiting::Begins, start, (start, true)));
    }

    #[test]
    fn what_has_come_is_found_by_one_look() {
        let news = News::new();
        assert_eq!(news.look(1, 7), (0, false));
        news.note(1);
        news.note(2);
        assert_eq!(news.look(1, 8), (8, false));
        assert_eq!(news.look(1, 9), (8, false));
        news.note(2);
        assert_eq!(news.look(1, 10), (10, true));
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
            loop {
                let stay = signals.stay.load(Ordering::Relaxed);
                if stay == 0 {
                    break;
                }
                signals.yielded(others * (stay + TURN));
                rounds += 1;
                assert!(rounds < 20);
            }
        }
    }

    #[test]
    fn a_wait_begins_with_the_first_calls_in_vain() {
        let signals = Signals::default();
        let waits = |calls| signals.in_vain(calls);
        let all = [PATIENT - 1, PATIENT, PATIENT + 1, 2 * PATIENT].map(waits);
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
