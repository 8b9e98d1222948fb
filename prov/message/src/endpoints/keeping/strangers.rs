//! What strangers may leave: peers that no address vector knows, all of them together
//! in the whole process.
//!
//! Anybody who reaches an endpoint is a stranger until its address is inserted, a peer
//! that starts earlier than the receiver as well as one that means harm. So a
//! stranger's message is not refused, but waits on its link sooner than one of a known
//! peer. It counts where it is kept, on top of the budgets of its lane. A stranger
//! may have as much as is left for all others, as in [`Budget`](crate::budget::Budget).
//!
//! Other lanes may take up everything, and do not tell when they give it back. So a
//! lane that keeps nothing of strangers does not look at what others do: the first one
//! in each lane always has room, and when a lane has given up all that it kept, one of
//! those that wait there goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

use prov_util::memory_limit::half_of_memory;

/// How much all lanes of a process keep of strangers.
#[derive(Debug, Default)]
pub struct StrangersKept {
    bytes: AtomicUsize,
    announcements: AtomicUsize,
}

impl StrangersKept {
    /// Nothing.
    pub const fn new() -> Self {
        StrangersKept {
            bytes: AtomicUsize::new(0),
            announcements: AtomicUsize::new(0),
        }
    }
}

/// That of this process.
static STRANGERS: StrangersKept = StrangersKept::new();

/// How much may be kept of all strangers, and where it is counted.
#[derive(Clone, Copy, Debug)]
pub struct StrangersLimits {
    pub of: &'static StrangersKept,
    /// Bytes of unexpected messages, each of which counts as [`MESSAGE_COST`] more.
    pub bytes: usize,
    pub announcements: usize,
}

/// Announcements of all strangers: each of them may have some of this, and no sender
/// has as many operations under way.
const ANNOUNCEMENTS: usize = 1 << 18;

impl StrangersLimits {
    /// Of this process: 128 MiB, or an eighth of what known peers may leave at most if that
    /// is less.
    pub fn of_process() -> Self {
        StrangersLimits {
            of: &STRANGERS,
            bytes: (half_of_memory() / 8).min(128 << 20),
            announcements: ANNOUNCEMENTS,
        }
    }
}

/// Bytes that a message of a stranger counts as on top of its own: this limits the
/// number of messages, and covers the memory that keeping one takes.
pub const MESSAGE_COST: usize = 1 << 10;

/// A lane's part in one of the counts.
pub(crate) struct Share {
    all: &'static AtomicUsize,
    limit: usize,
    /// What this lane keeps.
    here: usize,
    /// How much of it is of links that have ended.
    left_behind: usize,
}

impl Share {
    /// The parts in bytes and in announcements.
    pub fn of(limits: &StrangersLimits) -> [Share; 2] {
        let share = |all, limit| Share {
            all,
            limit,
            here: 0,
            left_behind: 0,
        };
        [
            share(&limits.of.bytes, limits.bytes),
            share(&limits.of.announcements, limits.announcements),
        ]
    }

    /// What is compared with a [ceiling](Self::ceiling).
    pub fn total(&self) -> usize {
        match self.here {
            0 => 0,
            _ => self.all.load(Ordering::Relaxed),
        }
    }

    /// How high the total may be for `cost` more to be kept of a link of which
    /// `account` is; `None` where even 0 is too high.
    pub fn ceiling(&self, account: usize, cost: usize) -> Option<usize> {
        let taken = cost.checked_mul(2)?.checked_add(account)?;
        self.limit.checked_sub(taken)
    }

    /// Keeps `cost` more.
    pub fn charge(&mut self, account: &mut usize, cost: usize) {
        *account += cost;
        self.here += cost;
        self.all.fetch_add(cost, Ordering::Relaxed);
    }

    /// Keeps `cost` no longer; `None` for a link that has ended. What was kept of a
    /// stranger that is known by now does not count any more.
    pub fn refund(&mut self, account: Option<&mut usize>, cost: usize) {
        let account = account.unwrap_or(&mut self.left_behind);
        let counted = cost.min(*account);
        *account -= counted;
        self.give_back(counted);
    }

    /// A stranger has become known.
    pub fn forgive(&mut self, account: &mut usize) {
        self.give_back(std::mem::take(account));
    }

    /// A link has ended, of which `account` is kept.
    pub fn leave_behind(&mut self, account: usize) {
        self.left_behind += account;
    }

    fn give_back(&mut self, cost: usize) {
        self.here -= cost;
        self.all.fetch_sub(cost, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.here, Ordering::Relaxed);
    }
}
