//! What a lane and the queues that drive it tell each other without its lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Seat;

/// Reads in a row that queues may answer with what they have, without the lane
/// being driven.
pub const READS_WITHOUT_PROGRESS: u64 = 16;

/// Progress calls after which the thread that drives the lane while the
/// application does not is told of them.
const CALLS_BETWEEN_SIGNS: u64 = 64;

/// See the module. Of a lane that nobody helps until it is given a seat.
///
/// Lanes share no cache line that is written, nor a pair of them, which
/// processors fetch together.
#[derive(Default)]
#[repr(align(128))]
pub struct Signals {
    /// Whether messages are held back.
    due: AtomicBool,
    /// Counts, about, the application's calls that read queues.
    calls: AtomicU64,
    /// The lane's place at the thread that helps it.
    seat: OnceLock<Seat>,
}

impl Signals {
    /// A queue is read that has completions. An approximation will do. Whether
    /// the lane is to be driven all the same: work is due that must not wait for
    /// the queue to run empty, or it has not been its turn for long.
    #[inline(always)]
    pub fn read(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls.is_multiple_of(READS_WITHOUT_PROGRESS) || self.due.load(Ordering::Relaxed)
    }

    /// The next queue that is read drives the lane, whatever it has.
    pub fn drive_next(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls
            .store(calls | (READS_WITHOUT_PROGRESS - 1), Ordering::Relaxed);
    }

    /// The lane is driven by the application.
    #[inline(always)]
    pub fn driven(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
        if calls.is_multiple_of(CALLS_BETWEEN_SIGNS) {
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

    /// Gives the lane its place at the thread that helps it, made by `take` if it
    /// has none.
    pub fn seat_with(&self, take: impl FnOnce() -> Seat) {
        self.seat.get_or_init(take);
    }

    /// The lane's place at the thread that helps it.
    pub fn seat(&self) -> Option<&Seat> {
        self.seat.get()
    }

    /// Whether the next message to a peer is to be held back, if `sent` of them
    /// have left after the application's last call.
    #[inline]
    pub fn holds_after(&self, sent: u32) -> bool {
        match self.seat.get() {
            Some(seat) => seat.holds_after(sent),
            None => sent != 0,
        }
    }

    /// Messages are held back from now on, and none were. Called with the lane's
    /// lock, as the next one.
    #[inline]
    pub fn burst_begins(&self) {
        self.due.store(true, Ordering::Relaxed);
        if let Some(seat) = self.seat.get() {
            seat.burst_begins();
        }
    }

    /// Nothing is held back any more.
    #[inline]
    pub fn burst_ends(&self) {
        self.due.store(false, Ordering::Relaxed);
        if let Some(seat) = self.seat.get() {
            seat.burst_ends();
        }
    }
}
