//! Limits what strangers, the peers that are in no address vector, may leave in the whole process.
//!
//! Anybody who reaches an endpoint is a stranger until its address is inserted: a peer that starts
//! earlier than the receiver as well as an attacker. A stranger's message is therefore not refused,
//! but held back on its link sooner than one of a known peer. It is accounted here on top of the
//! budgets of its lane. A stranger may use as much as is left for all others, as in
//! [`Budget`](crate::budget::Budget).
//!
//! Other lanes may use up everything, and do not notify this one when they release it. A lane that
//! keeps nothing of strangers therefore ignores the others: the first stranger's message in each
//! lane always has room, and when a lane has released everything, one of its waiting links
//! continues.

use std::sync::atomic::{AtomicUsize, Ordering};

use prov_base::memory_limit::half_of_memory;

/// The counters of what all lanes of a process keep of strangers, or have taken to keep it. In a
/// cache line, and a pair of them, of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StrangersKept {
    bytes: AtomicUsize,
    announcements: AtomicUsize,
}

impl StrangersKept {
    /// Creates counters of zero.
    pub const fn new() -> Self {
        StrangersKept {
            bytes: AtomicUsize::new(0),
            announcements: AtomicUsize::new(0),
        }
    }
}

/// The counters of this process.
static STRANGERS: StrangersKept = StrangersKept::new();

/// The limits for all strangers, and the counters that they apply to.
#[derive(Clone, Copy, Debug)]
pub struct StrangersLimits {
    pub of: &'static StrangersKept,
    /// Bytes of unexpected messages; each message costs [`MESSAGE_COST`] in addition.
    pub bytes: usize,
    pub announcements: usize,
}

/// Limit of announcements of all strangers together: it leaves a share for each of many strangers,
/// and exceeds the number of operations that one sender has outstanding.
const ANNOUNCEMENTS: usize = 1 << 18;

impl StrangersLimits {
    /// The limits of this process: 128 MiB, or an eighth of what known peers may leave if that is
    /// less.
    pub fn of_process() -> Self {
        StrangersLimits {
            of: &STRANGERS,
            bytes: (half_of_memory() / 8).min(128 << 20),
            announcements: ANNOUNCEMENTS,
        }
    }
}

/// Bytes that each message of a stranger costs in addition to its payload: this limits the number
/// of messages, and covers the bookkeeping.
pub const MESSAGE_COST: usize = 1 << 10;

/// Limit of what a lane takes from a counter beyond what it keeps: about as much as 64 short
/// messages cost.
const STEP: usize = 64 << 10;
/// The same, as a part of the counter's limit.
const STEP_OF_LIMIT: usize = 1 << 10;

/// One lane's part of one counter. While it keeps anything it takes in steps, so that lanes of
/// different threads rarely write the counter.
pub(crate) struct Share {
    all: &'static AtomicUsize,
    limit: usize,
    step: usize,
    /// The amount that this lane keeps.
    here: usize,
    /// The amount that it has taken in addition; 0 while it keeps nothing.
    reserve: usize,
    /// The part of `here` that belongs to links that have ended.
    left_behind: usize,
}

impl Share {
    /// The parts for bytes and for announcements.
    pub fn of(limits: &StrangersLimits) -> [Share; 2] {
        let share = |all, limit| Share {
            all,
            limit,
            step: STEP.min(limit / STEP_OF_LIMIT),
            here: 0,
            reserve: 0,
            left_behind: 0,
        };
        [
            share(&limits.of.bytes, limits.bytes),
            share(&limits.of.announcements, limits.announcements),
        ]
    }

    /// The value that is compared with a [ceiling](Self::ceiling).
    pub fn total(&self) -> usize {
        match self.here {
            0 => 0,
            _ => self
                .all
                .load(Ordering::Relaxed)
                .saturating_sub(self.reserve),
        }
    }

    /// The highest total at which `cost` more may be kept of a link whose account is `account`;
    /// `None` if even 0 is too high.
    pub fn ceiling(&self, account: usize, cost: usize) -> Option<usize> {
        let taken = cost.checked_mul(2)?.checked_add(account)?;
        self.limit.checked_sub(taken)
    }

    /// Adds `cost` to a link's account.
    pub fn charge(&mut self, account: &mut usize, cost: usize) {
        *account += cost;
        self.here += cost;
        self.reserve = match self.reserve.checked_sub(cost) {
            Some(left) => left,
            None => {
                let taken = cost - self.reserve + self.step;
                self.all.fetch_add(taken, Ordering::Relaxed);
                self.step
            }
        };
    }

    /// Subtracts `cost` from a link's account; pass `None` for a link that has ended. Does not
    /// count what was forgiven when the stranger became known.
    pub fn refund(&mut self, account: Option<&mut usize>, cost: usize) {
        let account = account.unwrap_or(&mut self.left_behind);
        let counted = cost.min(*account);
        *account -= counted;
        self.give_back(counted);
    }

    /// Clears the account of a stranger that has become known.
    pub fn forgive(&mut self, account: &mut usize) {
        self.give_back(std::mem::take(account));
    }

    /// Records that a link has ended whose account is `account`.
    pub fn leave_behind(&mut self, account: usize) {
        self.left_behind += account;
    }

    fn give_back(&mut self, cost: usize) {
        self.here -= cost;
        self.reserve += cost;
        let (most, kept) = match self.here {
            0 => (0, 0),
            _ => (2 * self.step, self.step),
        };
        if self.reserve > most {
            self.all.fetch_sub(self.reserve - kept, Ordering::Relaxed);
            self.reserve = kept;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let taken = self.here + self.reserve;
        self.all.fetch_sub(taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KEPT: StrangersKept = StrangersKept::new();

    /// How often the counter has changed in a row of charges and refunds of `cost`, `window` at a time.
    fn changes(share: &mut Share, window: usize, cost: usize) -> usize {
        let mut account = 0;
        let mut before = share.all.load(Ordering::Relaxed);
        let mut changes = 0;
        let mut look = |share: &Share| {
            let now = share.all.load(Ordering::Relaxed);
            changes += usize::from(std::mem::replace(&mut before, now) != now);
            assert_eq!(now, share.here + share.reserve);
            assert_eq!(share.total(), share.here);
        };
        for _ in 0..window {
            share.charge(&mut account, cost);
            look(share);
        }
        for _ in 0..window {
            share.refund(Some(&mut account), cost);
            look(share);
        }
        changes
    }

    #[test]
    fn a_lane_takes_in_steps_and_gives_all_back() {
        let limits = StrangersLimits {
            of: &KEPT,
            bytes: 128 << 20,
            announcements: 16,
        };
        let [mut bytes, mut announcements] = Share::of(&limits);
        assert!(changes(&mut bytes, 64, MESSAGE_COST + 8) <= 4);
        assert!(changes(&mut bytes, 1024, MESSAGE_COST + 8) <= 64);
        assert_eq!(KEPT.bytes.load(Ordering::Relaxed), 0);
        // A small limit is kept to exactly.
        assert_eq!(changes(&mut announcements, 8, 1), 16);
        bytes.charge(&mut 0, 7);
        drop(bytes);
        assert_eq!(KEPT.bytes.load(Ordering::Relaxed), 0);
    }
}
