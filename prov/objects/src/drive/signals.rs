//! The lock-free signals between a lane and the queues that drive it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Seat;
use prov_base::lately::nanoseconds;

/// Reads of queues that have completions, plus progress calls, of which at least one is a progress
/// call: an application that always finds completions makes progress once per this many reads.
pub const READS_WITHOUT_PROGRESS: u64 = 16;

/// A burst is being held back.
const HELD: u8 = 1 << 0;
/// The next read has to drive the lane, whether or not the queue has completions.
const WANTED: u8 = 1 << 1;

/// The progress thread leaves the lane to a thread that sleeps there, and has to know when that one
/// drives the lane.
const SLEPT_AT: u8 = 1 << 2;

/// Number of progress calls between two postponements of the progress thread's alarm: it bounds
/// their cost.
const CALLS_BETWEEN_SIGNS: u64 = 128;
/// The same for visits of a neglected lane, of which there are far fewer.
const VISITS_BETWEEN_SIGNS: u64 = 32;

/// Longest time in nanoseconds that sched_yield(2) takes if no other process runs.
const ALONE: u64 = 2_000;
/// Number of unsuccessful polls between two readings of the clock while another process is known to
/// wait for the processor.
const IMPATIENT: u32 = 16;
/// The same while none is known to wait: about 2 us of polls of shared memory.
const PATIENT: u32 = 64;
/// Time in nanoseconds without an event for any queue of the process, after which a waiting process
/// yields. A round trip between two running processes takes less, and sched_yield(2) takes a
/// fiftieth of it if no other process wants to run.
const YIELD_AFTER: u64 = 20_000;
/// Time in nanoseconds after which a lane without events yields although other queues of the
/// process are busy: those may belong to other threads.
const YIELD_ALONE_AFTER: u64 = 200_000;
/// Shortest time in nanoseconds for which a computing process uses a processor that is yielded to
/// it.
const SLICE: u64 = 500_000;
/// After a yield that took at least a slice, the next wait polls for 1/48 of that time before it
/// yields again, so that a process beside a computing one does not give all of its time away for
/// each message. About 30 processes that only wait for each other soon have less than a slice
/// between them, and yield immediately.
const STAY: u64 = 48;
/// Upper limit of that polling time, in nanoseconds.
const LONGEST_STAY: u64 = 100_000;

thread_local! {
    /// Whether this thread is within [`busy_elsewhere`].
    static IS_BUSY_ELSEWHERE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `drive`, which drives lanes that are idle, for a thread that has busy ones besides: it does
/// not yield the processor for the idle ones.
pub fn busy_elsewhere(drive: impl FnOnce()) {
    let before = IS_BUSY_ELSEWHERE.replace(true);
    drive();
    IS_BUSY_ELSEWHERE.set(before);
}

/// Whether a lane is waiting, as determined from its unsuccessful polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idling {
    /// It has not polled in vain for long.
    No,
    /// It has polled long enough to read the clock, for the first time.
    Begins,
    /// It is still waiting.
    Continues,
}

/// The time of the last event for any queue of this process, with the precision that waiting lanes
/// need. A lane that gets an event reads `brought_by`, and writes it only if a waiting lane has
/// read it since the last time: lanes that are all busy write nothing that others read.
#[repr(align(128))]
struct RecentEvents {
    /// The lane with the first event since a waiting lane last looked, as the address of its
    /// [`Signals`]; 0 if there was none.
    brought_by: AtomicUsize,
    /// When a look last found one, or a thread last yielded, in nanoseconds.
    last: AtomicU64,
}

impl RecentEvents {
    const fn new() -> Self {
        RecentEvents {
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

    /// Returns the time of the last event, for a look at this time, and whether another lane than
    /// this one had an event since the last look.
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

static NEWS: RecentEvents = RecentEvents::new();

/// Whether other processes want the processor, as the last yield of any thread of this one has shown.
static IS_CROWDED: AtomicBool = AtomicBool::new(false);

/// How long the last yield of any thread of this process took, in nanoseconds.
static LAST_YIELD: AtomicU64 = AtomicU64::new(0);

/// Returns how long the last yield of any thread of this process took: the time until it gets a
/// processor again.
pub(super) fn last_yield() -> Duration {
    Duration::from_nanos(LAST_YIELD.load(Ordering::Relaxed))
}

/// Returns whether other processes want the processor.
pub(super) fn is_crowded() -> bool {
    IS_CROWDED.load(Ordering::Relaxed)
}

/// See the module. The lane has no progress thread until it is given a seat.
///
/// Different lanes share no cache line that is written, nor an aligned pair of cache lines, which
/// processors prefetch together.
#[derive(Default)]
#[repr(align(128))]
pub struct Signals {
    /// The reasons why the lane has to be driven, if any. Written with the lane's lock.
    due: AtomicU8,
    /// Approximate count of the application's calls that read queues.
    calls: AtomicU64,
    /// Number of times that threads have driven the lane on behalf of another one.
    visits: AtomicU64,
    /// Whether the lane's descriptor does not tell of all that there is to do.
    is_polled: AtomicBool,
    /// `calls` when a thread last went to sleep at the lane, plus 1; 0 if none has.
    asleep: AtomicU64,
    /// Whether a thread has slept at the lane in a call of this library.
    is_read_by_sleepers: AtomicBool,
    /// Unsuccessful polls between two readings of the clock while other processes want the
    /// processor; 0 while none is known to.
    patience: AtomicU32,
    /// Shortest polling time before a yield, in nanoseconds.
    stay: AtomicU64,
    /// When the wait began.
    since: AtomicU64,
    /// The lane's registration at the progress thread.
    seat: OnceLock<Seat>,
}

impl Signals {
    /// Counts a read of a queue that has completions; an approximate count is enough. Returns
    /// whether the lane has to be driven nevertheless.
    #[inline(always)]
    pub fn read(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls.is_multiple_of(READS_WITHOUT_PROGRESS)
    }

    /// Returns whether there is work that must not wait until a queue is empty.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) != 0
    }

    /// Makes the next read of a queue drive the lane, whether or not the queue has completions.
    /// Called with the lane's lock.
    pub fn drive_next(&self) {
        self.set(WANTED);
    }

    /// Called with the lane's lock when the lane is driven.
    #[inline(always)]
    pub fn serve(&self) {
        if self.due.load(Ordering::Relaxed) & (WANTED | SLEPT_AT) != 0 {
            self.served();
        }
    }

    #[cold]
    #[inline(never)]
    fn served(&self) {
        let was_slept_at = self.due.load(Ordering::Relaxed) & SLEPT_AT != 0;
        self.clear(WANTED | SLEPT_AT);
        if was_slept_at && let Some(seat) = self.seat.get() {
            seat.sleeper_woke();
        }
    }

    /// Records that the lane's descriptor does not tell of all that there is to do.
    pub fn has_to_be_polled(&self) {
        self.is_polled.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Signals::has_to_be_polled`] was called.
    pub fn is_polled(&self) -> bool {
        self.is_polled.load(Ordering::Relaxed)
    }

    /// Called when a thread is about to sleep at the lane.
    pub fn falls_asleep(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.asleep.store(calls.wrapping_add(1), Ordering::SeqCst);
    }

    /// Returns whether a thread has gone to sleep at the lane that has not called since.
    pub fn is_slept_at(&self) -> bool {
        let asleep = self.asleep.load(Ordering::SeqCst);
        asleep != 0 && asleep == self.calls.load(Ordering::SeqCst).wrapping_add(1)
    }

    /// Called when a thread goes to sleep in a call of this library.
    pub fn is_slept_at_by_reader(&self) {
        if !self.is_read_by_sleepers() {
            self.is_read_by_sleepers.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a thread has slept at the lane in a call of this library.
    pub fn is_read_by_sleepers(&self) -> bool {
        self.is_read_by_sleepers.load(Ordering::Relaxed)
    }

    /// Called with the lane's lock by the progress thread, which leaves the lane to a sleeper.
    pub fn is_left_to_sleeper(&self) {
        self.set(SLEPT_AT);
    }

    /// Called by a thread that falls asleep elsewhere: leaves the lane to the progress thread,
    /// unless a thread sleeps there. Returns whether [`Seat::take_care`] has to be called.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.is_slept_at()
            && self
                .seat
                .get()
                .is_some_and(|seat| seat.is_left(self.drives()))
    }

    /// Called by a thread that is awake and has found that the application has not called for some
    /// time: leaves the lane to the progress thread, if that was not told of it before, and no thread
    /// sleeps there. Returns whether [`Seat::take_care`] has to be called.
    #[must_use]
    pub fn is_neglected(&self) -> bool {
        let seat = self.seat.get();
        seat.is_some_and(|seat| !seat.is_cared_for()) && self.is_left()
    }

    fn set(&self, reason: u8) {
        let due = self.due.load(Ordering::Relaxed);
        self.due.store(due | reason, Ordering::Relaxed);
    }

    fn clear(&self, reason: u8) {
        let due = self.due.load(Ordering::Relaxed);
        self.due.store(due & !reason, Ordering::Relaxed);
    }

    /// Counts a progress call of the application. Returns `true` for one in several dozens of
    /// calls, and for the first few.
    #[inline(always)]
    pub fn driven(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
        // Among this many calls, at least one is a progress call, whatever else is counted.
        let is_sign = calls % CALLS_BETWEEN_SIGNS < READS_WITHOUT_PROGRESS;
        if is_sign {
            self.calls_resumed();
        }
        is_sign
    }

    /// Counts a visit: a thread has driven the lane on behalf of another one.
    pub fn visited(&self) {
        let visits = self.visits.load(Ordering::Relaxed).wrapping_add(1);
        self.visits.store(visits, Ordering::Relaxed);
        if visits.is_multiple_of(VISITS_BETWEEN_SIGNS) {
            self.calls_resumed();
        }
    }

    #[cold]
    #[inline(never)]
    fn calls_resumed(&self) {
        if let Some(seat) = self.seat.get() {
            seat.calls_resumed();
        }
    }

    /// Returns the approximate count of the application's calls that read queues. Messages that are
    /// sent with the same count may be coalesced.
    #[inline]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the approximate count of calls and visits that have driven the lane.
    pub fn drives(&self) -> u64 {
        let visits = self.visits.load(Ordering::Relaxed);
        self.calls().wrapping_add(visits)
    }

    /// Returns the number of unsuccessful polls between two readings of the clock. It is smaller
    /// while other processes have used the processor recently: a waiting process that continues to
    /// poll takes it from the process for which it waits.
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

    /// Records that the lane has had an event.
    #[inline(always)]
    pub fn brought(&self) {
        NEWS.note(self.address());
    }

    /// Classifies this many unsuccessful polls in a row.
    #[inline(always)]
    pub fn in_vain(&self, calls: u32) -> Idling {
        let patience = self.patience();
        match calls.is_multiple_of(patience) {
            false => Idling::No,
            true if calls == patience => Idling::Begins,
            true => Idling::Continues,
        }
    }

    /// Yields the processor to other processes, if it is time to.
    #[cold]
    #[inline(never)]
    pub fn wait(&self, waiting: Idling) {
        if IS_BUSY_ELSEWHERE.get() {
            return;
        }
        let now = nanoseconds();
        if !self.may_yield(waiting, now, NEWS.look(self.address(), now)) {
            return;
        }
        let after = self.give_way_at(now);
        self.since.store(after, Ordering::Relaxed);
        // The process has yielded: the waits of its other lanes begin anew.
        NEWS.last.store(after, Ordering::Relaxed);
    }

    /// Yields the processor to other processes.
    #[cold]
    pub fn give_way(&self) {
        self.give_way_at(nanoseconds());
    }

    /// The same, at this time; returns the time afterwards.
    fn give_way_at(&self, now: u64) -> u64 {
        std::thread::yield_now();
        let after = nanoseconds();
        self.yielded(after.saturating_sub(now));
        after
    }

    /// Returns whether to yield now, where `news` is the time of the last event for any queue of
    /// the process, and whether another lane than this one has had one since the last look.
    fn may_yield(&self, waiting: Idling, now: u64, (news, others): (u64, bool)) -> bool {
        if waiting == Idling::Begins {
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

    /// Records that a yield took this many nanoseconds.
    pub fn yielded(&self, pause: u64) {
        LAST_YIELD.store(pause, Ordering::Relaxed);
        let stay = match pause >= SLICE {
            true => (pause / STAY).min(LONGEST_STAY),
            false => 0,
        };
        self.stay.store(stay, Ordering::Relaxed);
        let patience = match (pause > ALONE, self.patience.load(Ordering::Relaxed)) {
            (true, _) => IMPATIENT,
            // A single fast yield may be chance.
            (false, patience @ 1..PATIENT) if patience * 2 < PATIENT => patience * 2,
            (false, _) => 0,
        };
        self.patience.store(patience, Ordering::Relaxed);
        if is_crowded() != (patience != 0) {
            IS_CROWDED.store(patience != 0, Ordering::Relaxed);
        }
    }

    /// Registers the lane at the progress thread with `take`, unless it is registered.
    pub fn seat_with(&self, take: impl FnOnce() -> Seat) {
        self.seat.get_or_init(take);
    }

    /// Returns the lane's registration at the progress thread.
    pub fn seat(&self) -> Option<&Seat> {
        self.seat.get()
    }

    /// Called when the application has consumed the event that would have woken the progress
    /// thread, and will continue to drive the lane: the thread takes over when it stops doing so.
    /// Returns `false` if the thread has to be woken by events.
    pub fn relieves_helper(&self) -> bool {
        self.seat.get().is_none_or(Seat::is_relieved)
    }

    /// Returns whether the next message to a peer has to be held back for coalescing, if `sent` of
    /// them were sent since the application's last call.
    #[inline]
    pub fn holds_after(&self, sent: u64) -> bool {
        match self.seat.get() {
            Some(seat) => seat.holds_after(sent),
            None => sent != 0,
        }
    }

    /// Called with the lane's lock when the first message of a burst is held back.
    #[inline]
    pub fn burst_begins(&self) {
        self.set(HELD);
        if let Some(seat) = self.seat.get() {
            seat.burst_begins();
        }
    }

    /// Called with the lane's lock when no message is held back any more.
    #[inline]
    pub fn burst_ends(&self) {
        self.clear(HELD);
        if let Some(seat) = self.seat.get() {
            seat.burst_ends();
        }
    }

    /// Called with the lane's lock when an operation has no room and none was waiting for room. The
    /// application's progress calls continue with it; if there are none, the progress thread does.
    pub fn stall_begins(&self) {
        if let Some(seat) = self.seat.get() {
            seat.stall_begins();
        }
    }

    /// Called with the lane's lock when no operation waits for room any more.
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

    #[test]
    fn a_thread_that_is_busy_elsewhere_does_not_yield() {
        let signals = Signals::default();
        busy_elsewhere(|| signals.wait(Idling::Begins));
        assert_eq!(signals.since.load(Ordering::Relaxed), 0);
        signals.wait(Idling::Begins);
        assert_ne!(signals.since.load(Ordering::Relaxed), 0);
    }

    /// Nanoseconds per millisecond.
    const MILLISECONDS: u64 = 1_000_000;

    #[test]
    fn a_yield_to_a_computing_process_delays_the_next_yield() {
        let signals = Signals::default();
        let yields = |waiting, now| signals.may_yield(waiting, now, (0, false));
        signals.yielded(3 * MILLISECONDS);
        let stay = 3 * MILLISECONDS / STAY;
        for start in [5 * MILLISECONDS, 9 * MILLISECONDS] {
            assert!(!yields(Idling::Begins, start));
            assert!(!yields(Idling::Continues, start + stay - 1));
            assert!(yields(Idling::Continues, start + stay));
        }
    }

    #[test]
    fn a_lane_yields_after_a_time_in_which_no_queue_has_brought_anything() {
        let signals = Signals::default();
        let start = 5 * MILLISECONDS;
        let yields = |waiting, now, news| signals.may_yield(waiting, now, (news, false));
        assert!(!yields(Idling::Begins, start, start - 1));
        let at = start + YIELD_AFTER;
        assert!(!yields(Idling::Continues, at - 1, start - 1));
        assert!(yields(Idling::Continues, at, start - 1));
        // Another queue has had an event in the meantime.
        assert!(!yields(Idling::Continues, at, start + 1));
        let others = start + YIELD_ALONE_AFTER;
        assert!(!yields(Idling::Continues, others - 1, others - 1));
        assert!(yields(Idling::Continues, others, others));
    }

    #[test]
    fn a_lane_that_others_wait_for_yields_unless_another_queue_brings_something() {
        let signals = Signals::default();
        let start = 5 * MILLISECONDS;
        signals.yielded(ALONE * 10);
        assert!(signals.may_yield(Idling::Begins, start, (start, false)));
        assert!(!signals.may_yield(Idling::Begins, start, (start, true)));
    }

    #[test]
    fn an_event_is_found_by_one_poll() {
        let news = RecentEvents::new();
        assert_eq!(news.look(1, 7), (0, false));
        news.note(1);
        news.note(2);
        assert_eq!(news.look(1, 8), (8, false));
        assert_eq!(news.look(1, 9), (8, false));
        news.note(2);
        assert_eq!(news.look(1, 10), (10, true));
    }

    #[test]
    fn many_processes_that_wait_for_each_other_end_up_yielding_immediately() {
        // Each process yields to this many others, which only wait for as long as they may. TURN is
        // the additional time of one turn in nanoseconds.
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
            [Idling::No, Idling::Begins, Idling::No, Idling::Continues]
        );
    }

    #[test]
    fn a_read_drives_every_nth_time_or_for_a_reason() {
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
