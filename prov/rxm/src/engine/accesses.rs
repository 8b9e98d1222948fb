//! Counters of what peers do to the memory of an endpoint's domain (`FI_RMA_EVENT`).
//!
//! The provider below counts, also the transfers of long messages, which are reads and writes there
//! (rendezvous). The memory of these is registered by this provider, with a counter of its own: the
//! provider below informs the counters of a region before those of the endpoint, from the same
//! thread, so that the second call knows what the first was about.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::errno::Result;
use prov_util::below::{Counter, Domain, Region};
use prov_util::cntr::Cntr;
use prov_util::endpoint::Counters;
use prov_util::ffi::Use;

/// The application's counter of one kind of access.
type Bound = Arc<Mutex<Option<Use<Cntr>>>>;

/// The application's counters of reads and of writes, which may be bound at any time.
#[derive(Clone)]
pub struct BoundCounters([Bound; 2]);

impl BoundCounters {
    /// Counts in these counters of an endpoint from now on.
    pub fn set(&self, counters: &Counters) {
        let new = [&counters.remote_read, &counters.remote_write];
        for (bound, new) in self.0.iter().zip(new) {
            let mut place = bound.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *place, new.clone());
            drop(place);
            // Not under the lock.
            drop(before);
        }
    }
}

/// See the [module](self) description.
pub struct Accesses {
    /// The counters of connections below, with the directions that they count.
    pub of_links: Vec<(u64, Arc<Counter>)>,
    /// The counter of memory that this provider registers for long messages.
    of_messages: Arc<Counter>,
    bound: BoundCounters,
}

thread_local! {
    /// The endpoint whose long message was accessed by the last call from below.
    static MESSAGE_OF: Cell<u64> = const { Cell::new(0) };
}

impl Accesses {
    /// Has the provider below count for these counters of an endpoint. `None` if there are none,
    /// unless they `may_come`, bound to the enabled endpoint.
    ///
    /// # Errors
    /// Those of the provider below, which may not share counters.
    pub fn new(domain: &Arc<Domain>, counters: &Counters, may_come: bool) -> Result<Option<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if counters.remote_read.is_none() && counters.remote_write.is_none() && !may_come {
            return Ok(None);
        }
        let endpoint = NEXT.fetch_add(1, Ordering::Relaxed);
        let bound = [&counters.remote_read, &counters.remote_write]
            .map(|counter| Arc::new(Mutex::new(counter.clone())));
        let mut of_links = Vec::new();
        for (direction, bound) in [FI_REMOTE_READ, FI_REMOTE_WRITE].into_iter().zip(&bound) {
            let bound = bound.clone();
            let counter = domain.counter(move || {
                if MESSAGE_OF.replace(0) != endpoint {
                    count(&bound);
                }
            })?;
            of_links.push((direction, counter));
        }
        let of_messages = domain.counter(move || MESSAGE_OF.set(endpoint))?;
        Ok(Some(Accesses {
            of_links,
            of_messages,
            bound: BoundCounters(bound),
        }))
    }

    /// Excludes accesses to a long message's memory.
    ///
    /// # Errors
    /// Those of the provider below.
    pub fn exclude(&self, region: &Region) -> Result {
        region.count_in(&self.of_messages, FI_REMOTE_READ | FI_REMOTE_WRITE)
    }

    /// The counters, of which others may be bound.
    pub fn bound(&self) -> BoundCounters {
        self.bound.clone()
    }

    /// Ends the counting, since the counters are not bound any more.
    pub fn end(&self) {
        self.bound.set(&Counters::default());
    }
}

fn count(bound: &Bound) {
    let bound = bound.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(counter) = &*bound {
        counter.count(0);
    }
}
