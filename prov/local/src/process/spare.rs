//! Descriptors that make the access to another process faster, and that this process can do without.
//!
//! An application may talk to more processes than it may have descriptors for if each takes several. So
//! a part of its limit is for these descriptors, and the others are for what cannot do without: the
//! socket of a link.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// Part of the soft limit of descriptors (`RLIMIT_NOFILE`) that these take together.
const PART: u64 = 4;

/// The last part of the soft limit that is left alone, whatever the others are open for: the lowest
/// free number is given to a descriptor, so that a high one shows that there are few left.
const RESERVE: u64 = 4;

/// Number of these descriptors that are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The permission to have one of these descriptors, until it is dropped.
#[derive(Debug)]
pub(crate) struct Spare(());

impl Spare {
    /// Returns `descriptor` if it may stay open: there are enough others left.
    pub(super) fn keep<T: AsFd>(&self, descriptor: T) -> Option<T> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let number = descriptor.as_fd().as_raw_fd().unsigned_abs();
        (u64::from(number) < limit - limit / RESERVE).then_some(descriptor)
    }

    /// Takes a permission; `None` if the others have used up their part of the limit.
    pub(super) fn take() -> Option<Spare> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(limit / PART).unwrap_or(usize::MAX);
        let one_more = |open: usize| (open < most).then(|| open + 1);
        let counted = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.ok().map(|_| Spare(()))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
