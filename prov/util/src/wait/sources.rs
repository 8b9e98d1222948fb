//! The transports that feed one queue or counter.

use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Wait;
use super::snapshot::Snapshot;
use crate::drive::Signals;
use crate::errno::Result;
use crate::process::Process;
use crate::progress::Progress;
use crate::sync::LockKind;

/// What has to be driven for a queue to fill: one entry per provider engine,
/// however many endpoints of it are bound to the queue.
pub struct Sources {
    /// Those in `uses`. Read without a lock, since an engine may bind and
    /// unbind endpoints while it is being driven.
    list: Snapshot<Box<[Source]>>,
    uses: Mutex<Vec<Use>>,
    /// A child of fork(2) drives nothing that it inherited.
    process: Process,
}

#[derive(Clone)]
struct Source {
    progress: Arc<dyn Progress>,
    signals: Arc<Signals>,
    /// Whether threads sleep at its descriptor.
    is_watched: bool,
}

/// A transport that was added.
struct Use {
    source: Source,
    /// What it answered to `wait_fd` when it was watched.
    fd: Option<RawFd>,
    /// How many times it was added, at least once.
    count: usize,
}

impl Use {
    fn new(progress: Arc<dyn Progress>, fd: Option<RawFd>, is_watched: bool) -> Self {
        let signals = progress.signals();
        Use {
            source: Source {
                progress,
                signals,
                is_watched,
            },
            fd,
            count: 1,
        }
    }

    fn is_of(&self, progress: &Arc<dyn Progress>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.source.progress), Arc::as_ptr(progress))
    }
}

impl Sources {
    /// None. `kind` tells whether threads may meet here.
    pub fn new(kind: LockKind) -> Self {
        Self {
            list: Snapshot::new(kind, Box::default()),
            uses: Mutex::default(),
            process: Process::current(),
        }
    }

    /// Adds a transport that is driven, or counts it once more, and lets `wait`
    /// watch it. Who sleeps already looks once more, and tells it.
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

    /// Adds a transport that is driven, or counts it once more, without having
    /// anybody who sleeps wake for it.
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

    /// Takes back one [`Sources::add`].
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

    /// Takes everything out; for a queue that closes.
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

    /// Whether they are this process's own, and not inherited by a child.
    #[inline(always)]
    pub fn are_own(&self) -> bool {
        self.process.is_noted()
    }

    /// Lets every transport do what is ready. Nothing in a forked child.
    #[inline(always)]
    pub fn drive(&self) {
        if !self.are_own() {
            return;
        }
        self.list.read(|list| {
            if let [only] = &**list {
                return only.progress.progress();
            }
            for source in list {
                source.progress.progress();
            }
        });
    }

    /// A queue is read that has what the reader wants. Whether transports are to
    /// be driven all the same, see [`Signals::read`].
    #[inline(always)]
    pub fn read(&self) -> bool {
        self.list.read(|list| {
            // Each has its own count; one turn is enough for all.
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

    /// [`Sources::read`] where there is one transport and that takes a few
    /// instructions.
    #[inline(always)]
    pub fn read_at_once(&self) -> Option<bool> {
        // SAFETY: signals are read and written, and nobody is called.
        unsafe {
            self.list.look_at_once(
                #[inline(always)]
                |list| match &**list {
                    [only] => Some(only.signals.read() || only.signals.is_due()),
                    _ => None,
                },
            )?
        }
    }

    /// Tells every transport at whose descriptor threads sleep that one is about to;
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

    fn publish(&self, uses: &[Use]) {
        let list = uses.iter().map(|known| known.source.clone()).collect();
        self.list.replace(|_| list);
    }
}
