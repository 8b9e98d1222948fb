//! The attempt of a thread to enter a lock as its owner: the instructions that a lock costs where it
//! is not needed.

use super::words::Bias;

/// The outcome of an attempt.
pub(super) enum Attempt {
    /// The thread is inside.
    Entered,
    /// The thread is not the owner, or is inside already. Nothing has changed.
    NotTheOwner,
    /// The thread has stored that it is inside, and another one has claimed the lock.
    Claimed,
}

pub(super) use by_processor::enter;

/// The compiler keeps atomic loads apart from the comparisons of what they have loaded, which are one
/// instruction each here.
#[cfg(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(loom, miri))
))]
mod by_processor {
    use std::mem::offset_of;

    use super::{Attempt, Bias};
    use crate::sync::words::{FREE, INSIDE};

    /// Stores that the owner is inside, if this thread is the owner, which is outside, and then tests
    /// whether another thread has claimed the lock.
    #[inline(always)]
    pub(in crate::sync) fn enter(bias: &Bias, thread: usize) -> Attempt {
        // SAFETY: the pointer is a reference, and its fields are atomic: they may be written. Each
        // instruction accesses one of them once, atomically, but for the addition: between its load
        // and its store nobody else writes the word, since it contains the number of this thread and
        // only the owner writes it. Loads and stores of this processor, and of a compiler for which
        // the block may access all memory, have the order of `barrier::light` and of an acquiring
        // load.
        unsafe {
            std::arch::asm!(
                "cmp qword ptr [{bias} + {owner}], {thread}",
                "jne {is_other}",
                "add qword ptr [{bias} + {owner}], {inside}",
                "cmp dword ptr [{bias} + {claim}], {free}",
                "jne {is_claimed}",
                bias = in(reg) std::ptr::from_ref(bias),
                thread = in(reg) thread,
                owner = const offset_of!(Bias, owner),
                claim = const offset_of!(Bias, claim),
                inside = const INSIDE,
                free = const FREE,
                is_other = label { return Attempt::NotTheOwner },
                is_claimed = label { return Attempt::Claimed },
                options(nostack),
            );
        }
        Attempt::Entered
    }
}

#[cfg(not(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(any(loom, miri))
)))]
mod by_processor {
    use super::{Attempt, Bias};
    use crate::sync::words::{FREE, INSIDE};
    use crate::sync::{Ordering, barrier};

    /// Stores that the owner is inside, if this thread is the owner, which is outside, and then tests
    /// whether another thread has claimed the lock.
    #[inline(always)]
    pub(in crate::sync) fn enter(bias: &Bias, thread: usize) -> Attempt {
        if bias.owner.load(Ordering::Relaxed) != thread {
            return Attempt::NotTheOwner;
        }
        bias.owner.store(thread + INSIDE, Ordering::Relaxed);
        barrier::light();
        match bias.claim.load(Ordering::Acquire) {
            FREE => Attempt::Entered,
            _ => Attempt::Claimed,
        }
    }
}
