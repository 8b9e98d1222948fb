//! A registration cache: registrations are kept after they are closed, since the same memory is
//! often registered again (fi_mr(3), "Memory registration cache").
//!
//! A device refers to pages, not to addresses: if the application unmaps memory and maps other
//! memory at the same address, a cached registration would let the device access the old pages.
//! Memory is therefore watched ([`monitor`]), and a registration of memory that cannot be watched
//! is not cached. Neither is one of memory that is not private ([`mappings`]): no event announces
//! that a file is truncated, or what other processes do.
//!
//! The unmapping thread may hold any lock, such as the allocator's or that of the device's library,
//! and waits until the monitor has read the event: so the monitor only records changes
//! ([`changes`]). The caller that asks for a registration removes those whose memory has changed,
//! before it trusts one, and closes them.

mod changes;
mod intervals;
mod mappings;
mod monitor;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::changes::{ChangesSince, ReadPosition};
use self::intervals::{Interval, Intervals};
use self::mappings::are_private;
use self::monitor::Monitor;
use prov_base::errno::Result;
use prov_base::services;

/// The limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Number of registrations, in use or not (`FI_MR_CACHE_MAX_COUNT`); 0 disables the cache.
    pub count: usize,
    /// Bytes that they cover (`FI_MR_CACHE_MAX_SIZE`).
    pub bytes: usize,
}

/// The default limits.
const USUAL: CacheLimits = CacheLimits {
    count: 1024,
    bytes: usize::MAX,
};

impl CacheLimits {
    /// Returns the user's limits; `None` if memory is not to be watched (`FI_MR_CACHE_MONITOR`).
    pub fn of_user() -> Option<Self> {
        match services::core_text(c"mr_cache_monitor").as_deref() {
            None | Some("userfaultfd" | "default") => {}
            Some(_) => return None,
        }
        let or = |set: Option<usize>, usual| set.unwrap_or(usual);
        Some(CacheLimits {
            count: or(services::core_size(c"mr_cache_max_count"), USUAL.count),
            bytes: match services::core_size(c"mr_cache_max_size") {
                None | Some(0) => USUAL.bytes,
                Some(bytes) => bytes,
            },
        })
    }
}

/// A cache of a device's registrations.
pub struct Cache<R> {
    state: Mutex<State<R>>,
    monitor: Arc<Monitor>,
    limits: CacheLimits,
}

struct State<R> {
    entries: Intervals<Arc<CachedRegistration<R>>>,
    /// The position in the list of changes up to which the entries are valid.
    known: ReadPosition,
    /// Counts requests, to determine the least recently used entries.
    clock: usize,
}

/// A registration that several users may share.
struct CachedRegistration<R> {
    access: u64,
    registration: R,
    last_use: AtomicUsize,
}

/// A registration in use.
pub struct Registered<R>(Arc<CachedRegistration<R>>);

impl<R> std::ops::Deref for Registered<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0.registration
    }
}

impl<R> Cache<R> {
    /// Creates an empty cache; `None` if its limit is 0, or if the system does not support watching
    /// memory.
    pub fn new(limits: CacheLimits) -> Option<Self> {
        if limits.count == 0 {
            return None;
        }
        let monitor = Monitor::of_process()?;
        let state = State {
            entries: Intervals::default(),
            known: monitor.changes().known(),
            clock: 0,
        };
        Some(Cache {
            state: Mutex::new(state),
            monitor,
            limits,
        })
    }

    /// Returns a registration of `len` bytes at `address` with these permissions: a cached one that
    /// covers these bytes, or the result of `register`. The permissions must not include access by
    /// peers, who would keep it after it is closed.
    ///
    /// # Errors
    /// Those of `register`.
    pub fn get(
        &self,
        address: usize,
        len: usize,
        access: u64,
        register: impl FnOnce() -> Result<R>,
    ) -> Result<Registered<R>> {
        let asked = Interval::new(address, len);
        // After this, memory that the application has unmapped before the call is known to be
        // changed.
        let is_settled = self.monitor.settle();
        let (found, known) = self.find(asked, access);
        if let Some(kept) = found.filter(|_| is_settled) {
            return Ok(Registered(kept));
        }
        // From here on, a change of the memory is noticed.
        let is_watched = is_settled && self.monitor.watch(asked) && are_private(asked);
        let kept = Arc::new(CachedRegistration {
            access,
            registration: register()?,
            last_use: AtomicUsize::new(0),
        });
        if is_watched && len <= self.limits.bytes {
            self.keep(asked, &kept, known);
        }
        Ok(Registered(kept))
    }

    /// Returns a cached registration, and the position in the list of changes.
    fn find(
        &self,
        asked: Interval,
        access: u64,
    ) -> (Option<Arc<CachedRegistration<R>>>, ReadPosition) {
        let mut state = self.state.lock();
        let gone = state.take_changed(&self.monitor);
        let found = (state.find(asked, access), state.known);
        drop(state);
        // Devices are slow to close registrations, so this happens without the lock.
        drop(gone);
        found
    }

    /// Caches a registration of memory that was valid at the position `known`, if the memory has
    /// not changed since.
    fn keep(&self, asked: Interval, kept: &Arc<CachedRegistration<R>>, mut known: ReadPosition) {
        let mut state = self.state.lock();
        let mut gone = state.take_changed(&self.monitor);
        // Later changes will remove it.
        let is_same = !self.monitor.changes().news(&mut known).concern(asked);
        while is_same && !self.has_room(&state, asked) {
            match state.take_oldest() {
                Some(oldest) => gone.push(oldest),
                // All of them are in use.
                None => break,
            }
        }
        if is_same && self.has_room(&state, asked) {
            state.touch(kept);
            state.entries.insert(asked, kept.clone());
        }
        drop(state);
        drop(gone);
    }

    fn has_room(&self, state: &State<R>, asked: Interval) -> bool {
        state.entries.len() < self.limits.count
            && state.entries.bytes().saturating_add(asked.len()) <= self.limits.bytes
    }

    /// Returns the number of cached registrations.
    pub fn len(&self) -> usize {
        let mut state = self.state.lock();
        let gone = state.take_changed(&self.monitor);
        let len = state.entries.len();
        drop(state);
        drop(gone);
        len
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<R> State<R> {
    /// Removes the registrations whose memory has changed. The caller must drop them without the
    /// lock; a registration in use is closed by its last user.
    fn take_changed(&mut self, monitor: &Monitor) -> Vec<Arc<CachedRegistration<R>>> {
        match monitor.changes().news(&mut self.known) {
            ChangesSince::Of(changes) => {
                let gone = changes.into_iter();
                gone.flat_map(|memory| self.entries.take_overlapping(memory))
                    .collect()
            }
            ChangesSince::OfAll => self.entries.take_all(),
        }
    }

    fn touch(&mut self, kept: &CachedRegistration<R>) {
        self.clock += 1;
        kept.last_use.store(self.clock, Ordering::Relaxed);
    }

    fn find(&mut self, asked: Interval, access: u64) -> Option<Arc<CachedRegistration<R>>> {
        let suffices = |kept: &Arc<CachedRegistration<R>>| access & !kept.access == 0;
        let kept = self.entries.find(asked, suffices)?.clone();
        self.touch(&kept);
        Some(kept)
    }

    /// Removes the least recently used of the registrations that are not in use.
    fn take_oldest(&mut self) -> Option<Arc<CachedRegistration<R>>> {
        self.entries.take_least(|kept| {
            let is_idle = Arc::strong_count(kept) == 1;
            is_idle.then(|| kept.last_use.load(Ordering::Relaxed))
        })
    }
}
