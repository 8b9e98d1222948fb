//! The transports that feed a queue or counter.

use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Wait;
use super::engine::Engine;
use super::snapshot::Snapshot;
use crate::drive::Signals;
use crate::progress::Progress;
use prov_base::errno::Result;
use prov_base::process::Process;
use prov_base::sync::LockKind;

/// The transports that have to be driven to fill a queue: one entry per progress engine, however
/// many of its endpoints are bound to the queue.
pub struct Sources {
    /// The sources in `uses`. Read without a lock, since an engine may bind and unbind endpoints
    /// while it is driven.
    list: Snapshot<Box<[ProgressSource]>>,
    uses: Mutex<Vec<Use>>,
    /// The process that created it: a forked child does not drive inherited transports.
    process: Process,
}

#[derive(Clone)]
struct ProgressSource {
    progress: Engine,
    signals: Arc<Signals>,
    /// Whether threads sleep on its descriptor.
    is_watched: bool,
}

/// A transport that was added.
struct Use {
    source: ProgressSource,
    /// The descriptor that `wait_fd` returned when it was added to the wait object.
    fd: Option<RawFd>,
    /// Number of times that it was added, at least 1.
    count: usize,
}

impl Use {
    fn new(progress: Arc<dyn Progress>, fd: Option<RawFd>, is_watched: bool) -> Self {
        let signals = progress.signals();
        Use {
            source: ProgressSource {
                progress: Engine::new(progress),
                signals,
                is_watched,
            },
            fd,
            count: 1,
        }
    }

    fn is_of(&self, progress: &Arc<dyn Progress>) -> bool {
        self.source.progress.is(progress)
    }
}

impl Sources {
    /// Creates an empty set. `kind` tells whether threads may use it concurrently.
    pub fn new(kind: LockKind) -> Self {
        Self {
            list: Snapshot::new(kind, Box::default()),
            uses: Mutex::default(),
            process: Process::current(),
        }
    }

    /// Adds a transport, or counts it once more, and adds its descriptor to `wait`. Threads that
    /// sleep already are woken once, so that they announce themselves to it.
    ///
    /// # Errors
    /// Those of [`Wait::watch`].
    pub fn add(&self, progress: Arc<dyn Progress>, wait: Option<&Wait>) -> Result {
        if !progress.is_driven() {
            return Ok(());
        }
        let mut uses = self.uses.lock();
        let known = uses.iter_mut().find(|known| known.is_of(&progress));
        if let Some(known) = known.filter(|known| known.source.is_watched) {
            known.count += 1;
            return Ok(());
        }
        let fd = progress.wait_fd();
        if let Some(wait) = wait {
            wait.watch(fd)?;
        }
        match uses.iter_mut().find(|known| known.is_of(&progress)) {
            Some(known) => {
                known.fd = fd;
                known.source.is_watched = true;
                known.count += 1;
            }
            None => uses.push(Use::new(progress, fd, true)),
        }
        self.publish(&uses);
        drop(uses);
        if let Some(wait) = wait {
            wait.ring_for_sleepers();
        }
        Ok(())
    }

    /// Adds a transport, or counts it once more, without waking sleeping threads for it.
    pub fn add_unwatched(&self, progress: Arc<dyn Progress>) {
        if !progress.is_driven() {
            return;
        }
        let mut uses = self.uses.lock();
        match uses.iter_mut().find(|known| known.is_of(&progress)) {
            Some(known) => known.count += 1,
            None => {
                uses.push(Use::new(progress, None, false));
                self.publish(&uses);
            }
        }
    }

    /// Undoes one [`Sources::add`].
    #[allow(clippy::indexing_slicing, reason = "the position is in the list")]
    pub fn remove(&self, progress: &Arc<dyn Progress>, wait: Option<&Wait>) {
        let mut uses = self.uses.lock();
        let Some(index) = uses.iter().position(|known| known.is_of(progress)) else {
            return;
        };
        uses[index].count -= 1;
        if uses[index].count > 0 {
            return;
        }
        let removed = uses.swap_remove(index);
        self.publish(&uses);
        if let Some(wait) = wait.filter(|_| removed.source.is_watched) {
            wait.unwatch(removed.fd);
        }
    }

    /// Removes all transports, for a queue that is being closed.
    pub fn clear(&self, wait: Option<&Wait>) {
        let removed = {
            let mut uses = self.uses.lock();
            self.publish(&[]);
            std::mem::take(&mut *uses)
        };
        if let Some(wait) = wait {
            for known in removed.iter().filter(|known| known.source.is_watched) {
                wait.unwatch(known.fd);
            }
        }
    }

    /// Returns whether they belong to this process, and are not inherited by a child.
    #[inline(always)]
    pub fn are_own(&self) -> bool {
        self.process.is_noted()
    }

    /// Makes progress for every transport. Has no effect in a forked child.
    #[inline(always)]
    pub fn drive(&self) {
        if !self.are_own() {
            return;
        }
        self.list.read(|list| match &**list {
            [only] => only.progress.progress(),
            list => drive_each(list),
        });
    }

    /// Called by a read of a queue that has completions. Returns whether the transports have to be
    /// driven nevertheless, see [`Signals::read`].
    #[inline(always)]
    pub fn read(&self) -> bool {
        self.list.read(|list| {
            // Each has its own count; one that is due suffices to drive all.
            let mut due = list.first().is_some_and(|first| first.signals.read());
            for source in list {
                due |= source.signals.is_due();
            }
            for other in list.iter().skip(1) {
                other.signals.read();
            }
            due
        })
    }

    /// Returns the signals of the transport, if there is one only.
    pub fn only(&self) -> Option<Arc<Signals>> {
        match &**self.uses.lock() {
            [only] => Some(only.source.signals.clone()),
            _ => None,
        }
    }

    /// Informs every transport with a watched descriptor that a thread is about to sleep. Returns
    /// whether all of them agree.
    pub fn prepare_wait(&self) -> bool {
        if !self.are_own() {
            return true;
        }
        self.list.read(|list| {
            let mut watched = list.iter().filter(|source| source.is_watched);
            watched.all(|source| source.progress.prepare_wait())
        })
    }

    /// Called when a thread goes to sleep, after all its sources have agreed
    /// ([`Sources::prepare_wait`]).
    pub fn sleeps(&self) {
        self.list.read(|list| {
            let watched = list.iter().filter(|source| source.is_watched);
            watched.for_each(|source| source.progress.sleeps());
        });
    }

    fn publish(&self, uses: &[Use]) {
        let list = uses.iter().map(|known| known.source.clone()).collect();
        self.list.replace(|_| list);
    }
}

/// Separate from [`Sources::drive`], which therefore saves fewer registers.
#[cold]
#[inline(never)]
fn drive_each(list: &[ProgressSource]) {
    for source in list {
        source.progress.progress();
    }
}
