//! Registrations that are kept when they are closed, since the same memory is
//! often registered again (fi_mr(3), "Memory registration cache").
//!
//! What a device knows of memory are pages, not addresses: when the application
//! unmaps memory and maps other memory at the same address, a registration that
//! was kept would have the device access the former. So memory is watched
//! ([`monitor`]), and a registration of memory that cannot be is not kept.

mod intervals;
mod monitor;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use self::intervals::{Interval, Intervals};
use self::monitor::{Monitor, Watcher};
use crate::errno::Result;
use crate::ffi::services;

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
pub struct Cache<R: Send + Sync + 'static> {
    table: Arc<Table<R>>,
    monitor: Arc<Monitor>,
    limits: CacheLimits,
}

struct Table<R> {
    state: Mutex<State<R>>,
}

struct State<R> {
    entries: Intervals<Arc<Kept<R>>>,
    /// What is being registered, and whether it is the same memory still.
    coming: Vec<Coming>,
    /// Counts what was asked for, to tell what was not for long.
    clock: usize,
}

/// Memory that is being registered, by the number of the call.
struct Coming {
    call: usize,
    memory: Interval,
    is_same: bool,
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

impl<R: Send + Sync + 'static> Cache<R> {
    /// An empty cache; `None` where it would keep nothing, or the system does not
    /// let memory be watched.
    pub fn new(limits: CacheLimits) -> Option<Self> {
        if limits.count == 0 {
            return None;
        }
        let monitor = Monitor::of_process()?;
        let table = Arc::new(Table {
            state: Mutex::new(State {
                entries: Intervals::default(),
                coming: Vec::new(),
                clock: 0,
            }),
        });
        let watcher: Arc<dyn Watcher> = table.clone();
        monitor.tell(Arc::downgrade(&watcher));
        Some(Cache {
            table,
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
        self.monitor.settle();
        let call = {
            let mut state = self.table.state.lock();
            if let Some(kept) = state.find(asked, access) {
                return Ok(Registered(kept));
            }
            state.comes(asked)
        };
        // From here on it is noticed if the memory goes.
        let is_watched = self.monitor.watch(asked);
        let made = register();
        let mut state = self.table.state.lock();
        let is_same = state.has_come(call);
        let kept = Arc::new(Kept {
            access,
            registration: made?,
            last_use: AtomicUsize::new(0),
        });
        if is_same && is_watched && len <= self.limits.bytes {
            self.keep(state, asked, &kept);
        }
        Ok(Registered(kept))
    }

    fn keep(&self, mut state: MutexGuard<'_, State<R>>, asked: Interval, kept: &Arc<Kept<R>>) {
        let mut gone = Vec::new();
        while !self.has_room(&state, asked) {
            match state.take_oldest() {
                Some(oldest) => gone.push(oldest),
                // All are in use.
                None => break,
            }
        }
        if self.has_room(&state, asked) {
            state.touch(kept);
            state.entries.insert(asked, kept.clone());
        }
        drop(state);
        // Devices take their time.
        drop(gone);
    }

    fn has_room(&self, state: &State<R>, asked: Interval) -> bool {
        state.entries.len() < self.limits.count
            && state.entries.bytes().saturating_add(asked.len()) <= self.limits.bytes
    }

    /// Registrations that are kept.
    pub fn len(&self) -> usize {
        self.table.state.lock().entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<R> State<R> {
    /// Memory is going to be registered; the number of the call.
    fn comes(&mut self, memory: Interval) -> usize {
        self.clock += 1;
        self.coming.push(Coming {
            call: self.clock,
            memory,
            is_same: true,
        });
        self.clock
    }

    /// It is, or has failed to be; whether it is the same memory still.
    fn has_come(&mut self, call: usize) -> bool {
        let position = self.coming.iter().position(|coming| coming.call == call);
        position.is_some_and(|position| self.coming.swap_remove(position).is_same)
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

impl<R: Send + Sync> Watcher for Table<R> {
    fn gone(&self, memory: Interval) {
        let mut state = self.state.lock();
        for coming in &mut state.coming {
            coming.is_same &= !coming.memory.overlaps(&memory);
        }
        let gone = state.entries.take_overlapping(memory);
        drop(state);
        // What is in use goes with its last user.
        drop(gone);
    }
}
