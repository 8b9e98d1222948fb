//! Which state of the address vectors code has seen that caches numbers of addresses. No event
//! announces the changes that other processes make in vectors which this one shares with them
//! (fi_av(3)): the tables' state is read before the cache is relied on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::FI_ADDR_NOTAVAIL;
use parking_lot::Mutex;

use super::Observer;
use super::shared::{HeaderView, State};

/// The observers of removals from a vector.
pub(super) type Observers = Mutex<Vec<Weak<dyn Observer>>>;

pub(super) static INSERTIONS: AtomicU64 = AtomicU64::new(0);
static REMOVALS: AtomicU64 = AtomicU64::new(0);

/// Version numbers of the address vectors of this process: code that caches numbers of addresses
/// compares two of these to decide whether to look them up again. A change is counted before the
/// call that makes it returns. If other processes may change a vector, [`Changes::now`] always
/// differs from a saved value, so that [`Changes::asked`] is called.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    insertions: u64,
    removals: u64,
}

impl Changes {
    /// Returns the current version.
    #[inline]
    pub fn now() -> Self {
        Changes {
            insertions: INSERTIONS.load(Ordering::Acquire),
            removals: REMOVALS.load(Ordering::Acquire),
        }
    }

    /// Returns the current version for saving, after counting the changes of other processes.
    pub fn asked() -> Self {
        ask();
        let Changes {
            insertions,
            removals,
        } = Changes::now();
        Changes {
            insertions,
            removals: removals & !ARE_SHARED,
        }
    }

    /// Returns whether addresses have been removed since this version.
    #[inline(always)]
    pub fn is_before_a_removal(self) -> bool {
        self.removals != REMOVALS.load(Ordering::Acquire)
    }
}

/// Set in [`REMOVALS`] while vectors are shared: a saved version then always differs, so that the
/// tables are read.
pub(super) const ARE_SHARED: u64 = 1 << 63;

/// The shared vectors that this process has open.
static SHARED: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

/// A shared vector.
pub(super) struct Watched {
    table: HeaderView,
    /// The table's state when it was last read.
    seen: Mutex<State>,
    observers: Arc<Observers>,
}

impl Watched {
    /// Registers a table, which is read for as long as the result lives.
    pub fn new(table: HeaderView, observers: Arc<Observers>) -> Arc<Watched> {
        let seen = Mutex::new(table.state().unwrap_or_default());
        let watched = Arc::new(Watched {
            table,
            seen,
            observers,
        });
        let mut shared = SHARED.lock();
        shared.push(Arc::downgrade(&watched));
        REMOVALS.fetch_or(ARE_SHARED, Ordering::Release);
        watched
    }

    fn ask(&self) {
        let Ok(now) = self.table.state() else {
            return;
        };
        let mut seen = self.seen.lock();
        if *seen == now {
            return;
        }
        let has_only_grown = now.has_only_grown_since(&seen);
        *seen = now;
        drop(seen);
        if !has_only_grown {
            tell(&self.observers, FI_ADDR_NOTAVAIL);
        }
        count(&INSERTIONS);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut shared = SHARED.lock();
        shared.retain(|watched| watched.strong_count() != 0);
        if shared.is_empty() {
            REMOVALS.fetch_and(!ARE_SHARED, Ordering::Release);
        }
    }
}

/// Informs the observers of a vector that an address was removed, and counts the removal for
/// [`Changes`].
pub(super) fn tell(observers: &Observers, fi_addr: u64) {
    let observers = observers.lock().clone();
    for observer in observers.iter().filter_map(Weak::upgrade) {
        observer.removed(fi_addr);
    }
    // Code that sees the new count finds that the observers were informed.
    count(&REMOVALS);
}

fn count(changes: &AtomicU64) {
    changes.fetch_add(1, Ordering::Release);
}

/// Counts the changes of other processes.
pub(super) fn ask() {
    // Dropping the last reference takes the lock, so the list is collected first.
    let shared: Vec<Arc<Watched>> = SHARED.lock().iter().filter_map(Weak::upgrade).collect();
    shared.iter().for_each(|watched| watched.ask());
}
