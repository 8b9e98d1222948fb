//! What other processes change in the vectors that this one shares with them (fi_av(3)).
//! Nobody tells of it: who keeps numbers of addresses asks the tables before it relies on
//! them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fabric_abi::FI_ADDR_NOTAVAIL;
use parking_lot::Mutex;

use super::shared::{Glance, State};
use super::{INSERTIONS, Observer, REMOVALS};

/// Whoever is told of removals from a vector.
pub(super) type Observers = Mutex<Vec<Weak<dyn Observer>>>;

/// Set in [`REMOVALS`] while vectors are shared: what is compared with it differs, and so
/// their tables are asked.
pub(super) const ARE_SHARED: u64 = 1 << 63;

/// The shared vectors that this process has open.
static SHARED: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

/// One of them.
pub(super) struct Watched {
    table: Glance,
    /// As it was last.
    seen: Mutex<State>,
    observers: Arc<Observers>,
}

impl Watched {
    /// Has a table asked as long as this is there.
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

/// Tells the observers of a vector that an address was removed, and whoever compares
/// [`Changes`](super::Changes).
pub(super) fn tell(observers: &Observers, fi_addr: u64) {
    let observers = observers.lock().clone();
    for observer in observers.iter().filter_map(Weak::upgrade) {
        observer.removed(fi_addr);
    }
    // Whoever sees it finds that the observers know.
    count(&REMOVALS);
}

fn count(changes: &AtomicU64) {
    changes.fetch_add(1, Ordering::Release);
}

/// Counts what other processes have changed.
pub(super) fn ask() {
    // Who drops the last reference takes the lock.
    let shared: Vec<Arc<Watched>> = SHARED.lock().iter().filter_map(Weak::upgrade).collect();
    shared.iter().for_each(|watched| watched.ask());
}
