//! The transports that feed one queue or counter.

use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Wait;
use super::snapshot::Snapshot;
use crate::drive::Signals;
use crate::errno::Result;
use crate::progress::Progress;
use crate::sync::LockKind;

/// What has to be driven for a queue to fill: one entry per provider engine,
/// however many endpoints of it are bound to the queue.
pub struct Sources {
    /// Those in `uses`. Read without a lock, since an engine may bind and
    /// unbind endpoints while it is being driven.
    list: Snapshot<Box<[Source]>>,
    uses: Mutex<Vec<Use>>,
}

#[derive(Clone)]
struct Source {
    progress: Arc<dyn Progress>,
    signals: Arc<Signals>,
}

/// A transport that was added.
struct Use {
    source: Source,
    /// What it answered to `wait_fd` then.
    fd: Option<RawFd>,
    /// How many times it was added, at least once.
    count: usize,
}

impl Use {
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
        }
    }

    /// Adds a transport that is driven, or counts it once more, and lets `wait`
    /// watch it.
    ///
    /// # Errors
    /// Those of [`Wait::watch`].
    pub fn add(&self, progress: Arc<dyn Progress>, wait: Option<&Wait>) -> Result {
        if !progress.is_driven() {
            return Ok(());
        }
        let mut uses = self.uses.lock();
        if let Some(known) = uses.iter_mut().find(|known| known.is_of(&progress)) {
            known.count += 1;
            return Ok(());
        }
        let fd = progress.wait_fd();
        if let Some(wait) = wait {
            wait.watch(fd)?;
        }
        let signals = progress.signals();
        uses.push(Use {
            source: Source { progress, signals },
            fd,
            count: 1,
        });
        self.publish(&uses);
        Ok(())
    }

    /// Takes back one [`Sources::add`].
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
        if let Some(wait) = wait {
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
            for source in removed {
                wait.unwatch(source.fd);
            }
        }
    }

    /// Lets every transport do what is ready.
    #[inline(always)]
    pub fn drive(&self) {
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

    /// Tells every transport that a thread is about to sleep; whether all of
    /// them agree.
    pub fn prepare_wait(&self) -> bool {
        self.list
            .read(|list| list.iter().all(|source| source.progress.prepare_wait()))
    }

    fn publish(&self, uses: &[Use]) {
        let list = uses.iter().map(|known| known.source.clone()).collect();
        self.list.replace(|_| list);
    }
}
