//! Changes that other processes make in the vectors which this one shares with them (fi_av(3)). No
//! event announces them: code that caches numbers of addresses reads the tables' state before it
//! relies on them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::FI_ADDR_NOTAVAIL;
use parking_lot::Mutex;

use super::shared::{Glance, State};
use super::{INSERTIONS, Observer, REMOVALS};

/// The observers of removals from a vector.
pub(super) type Observers = Mutex<Vec<Weak<dyn Observer>>>;

/// Set in [`REMOVALS`] while vectors are shared: a saved version then always differs, so that the
/// tables are read.
pub(super) const ARE_SHARED: u64 = 1 << 63;

/// The shared vectors that this process has open.
static SHARED: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

/// A shared vector.
pub(super) struct Watched {
    table: Glance,
    /// The table's state when it was last read.
    seen: Mutex<State>,
    observers: Arc<Observers>,
}

impl Watched {
    /// Registers a table, which is read for as long as the result lives.
    pub fn new(table: Glance, observers: Arc<Observers>) -> Arc<Watched> {
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
/// [`Changes`](super::Changes).
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
