//! Registrations that are kept when they are closed, since the same memory is
//! often registered again (fi_mr(3), "Memory registration cache").
//!
//! What a device knows of memory are pages, not addresses: when the application
//! unmaps memory and maps other memory at the same address, a registration that
//! was kept would have the device access the former. So memory is watched
//! ([`monitor`]), and a registration of memory that cannot be is not kept. Nor is
//! one of memory that is not private ([`mappings`]): nobody tells of files that
//! become shorter, nor of what other processes do.
//!
//! Whoever unmaps may have any lock, of the allocator or of the device's library,
//! and waits until the monitor has read of it: so the monitor only says what has
//! changed ([`changes`]). It is for who asks for a registration to take out those
//! whose memory has, before it trusts one, and to close them.

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

use self::changes::{Known, News};
use self::intervals::{Interval, Intervals};
use self::mappings::are_private;
use self::monitor::Monitor;
use crate::errno::Result;
use crate::services;

/// How much a cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Registrations, in use or not (`FI_MR_CACHE_MAX_COUNT`); 0 keeps none.
    pub count: usize,
    /// Bytes that they cover (`FI_MR_CACHE_MAX_SIZE`).
    pub bytes: usize,
}

/// What is kept unless the user says otherwise.
const USUAL: CacheLimits = CacheLimits {
    count: 1024,
    bytes: usize::MAX,
};

impl CacheLimits {
    /// What the user has set; `None` where memory is not to be watched
    /// (`FI_MR_CACHE_MONITOR`).
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

/// A cache of registrations, which are what a device makes of memory.
pub struct Cache<R> {
    state: Mutex<State<R>>,
    monitor: Arc<Monitor>,
    limits: CacheLimits,
}

struct State<R> {
    entries: Intervals<Arc<Kept<R>>>,
    /// The changes after which the entries' memory is what it was.
    known: Known,
    /// Counts what was asked for, to tell what was not for long.
    clock: usize,
}

/// A registration that may be used by several.
struct Kept<R> {
    access: u64,
    registration: R,
    last_use: AtomicUsize,
}

/// A registration in use.
pub struct Registered<R>(Arc<Kept<R>>);

impl<R> std::ops::Deref for Registered<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0.registration
    }
}

impl<R> Cache<R> {
    /// An empty cache; `None` where it would keep nothing, or the system does not
    /// let memory be watched.
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

    /// A registration of `len` bytes at `address` with these permissions: one
    /// that is kept, of these bytes or more, or what `register` makes. It must
    /// have none that peers can use: they would keep it.
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
        // What the application has unmapped before this call is known then.
        let is_settled = self.monitor.settle();
        let (found, known) = self.find(asked, access);
        if let Some(kept) = found.filter(|_| is_settled) {
            return Ok(Registered(kept));
        }
        // From here on it is noticed if the memory goes.
        let is_watched = is_settled && self.monitor.watch(asked) && are_private(asked);
        let kept = Arc::new(Kept {
            access,
            registration: register()?,
            last_use: AtomicUsize::new(0),
        });
        if is_watched && len <= self.limits.bytes {
            self.keep(asked, &kept, known);
        }
        Ok(Registered(kept))
    }

    /// One that is kept, and the changes that are known now.
    fn find(&self, asked: Interval, access: u64) -> (Option<Arc<Kept<R>>>, Known) {
        let mut state = self.state.lock();
        let gone = state.take_changed(&self.monitor);
        let found = (state.find(asked, access), state.known);
        drop(state);
        // Devices take their time.
        drop(gone);
        found
    }

    /// Keeps what was made of memory that was there when this was known, if it
    /// still is.
    fn keep(&self, asked: Interval, kept: &Arc<Kept<R>>, mut known: Known) {
        let mut state = self.state.lock();
        let mut gone = state.take_changed(&self.monitor);
        // Later changes take it out again.
        let is_same = !self.monitor.changes().news(&mut known).concern(asked);
        while is_same && !self.has_room(&state, asked) {
            match state.take_oldest() {
                Some(oldest) => gone.push(oldest),
                // All are in use.
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

    /// Registrations that are kept.
    pub fn len(&self) -> usize {
        let mut state = self.state.lock();
        let gone = state.take_changed(&self.monitor);
        let len = state.entries.len();
        drop(state);
        drop(gone);
        len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<R> State<R> {
    /// Takes out those whose memory is not what it was. Who closes them must not
    /// have the lock; what is in use goes with its last user.
    fn take_changed(&mut self, monitor: &Monitor) -> Vec<Arc<Kept<R>>> {
        match monitor.changes().news(&mut self.known) {
            News::Of(changes) => {
                let gone = changes.into_iter();
                gone.flat_map(|memory| self.entries.take_overlapping(memory))
                    .collect()
            }
            News::OfAll => self.entries.take_all(),
        }
    }

    fn touch(&mut self, kept: &Kept<R>) {
        self.clock += 1;
        kept.last_use.store(self.clock, Ordering::Relaxed);
    }

    fn find(&mut self, asked: Interval, access: u64) -> Option<Arc<Kept<R>>> {
        let suffices = |kept: &Arc<Kept<R>>| access & !kept.access == 0;
        let kept = self.entries.find(asked, suffices)?.clone();
        self.touch(&kept);
        Some(kept)
    }

    /// Takes out what nobody uses and was asked for the longest time ago.
    fn take_oldest(&mut self) -> Option<Arc<Kept<R>>> {
        self.entries.take_least(|kept| {
            let is_idle = Arc::strong_count(kept) == 1;
            is_idle.then(|| kept.last_use.load(Ordering::Relaxed))
        })
    }
}
