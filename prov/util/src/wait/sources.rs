//! The transports that feed one queue or counter.

use std::os::fd::RawFd;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Wait;
use crate::errno::Result;
use crate::progress::Progress;

/// What has to be driven for a queue to fill: one entry per provider engine,
/// however many endpoints of it are bound to the queue.
#[derive(Default)]
pub struct Sources {
    /// Read without a lock, since an engine may bind and unbind endpoints
    /// while it is being driven.
    list: ArcSwap<Vec<Source>>,
    /// Held by whoever replaces `list`.
    edit: Mutex<()>,
}

#[derive(Clone)]
struct Source {
    progress: Arc<dyn Progress>,
    /// What it answered to `wait_fd` when it was added.
    fd: Option<RawFd>,
    /// How many times it was added, at least once.
    uses: usize,
}

impl Source {
    fn is(&self, progress: &Arc<dyn Progress>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.progress), Arc::as_ptr(progress))
    }
}

impl Sources {
    /// Adds a transport, or counts it once more, and lets `wait` watch it.
    ///
    /// # Errors
    /// Those of [`Wait::watch`].
    pub fn add(&self, progress: Arc<dyn Progress>, wait: Option<&Wait>) -> Result {
        let _edit = self.edit.lock();
        let mut list = Vec::clone(&self.list.load());
        if let Some(source) = list.iter_mut().find(|source| source.is(&progress)) {
            source.uses += 1;
        } else {
            let fd = progress.wait_fd();
            if let Some(wait) = wait {
                wait.watch(fd)?;
            }
            list.push(Source {
                progress,
                fd,
                uses: 1,
            });
        }
        self.list.store(Arc::new(list));
        Ok(())
    }

    /// Takes back one [`Sources::add`].
    pub fn remove(&self, progress: &Arc<dyn Progress>, wait: Option<&Wait>) {
        let _edit = self.edit.lock();
        let mut list = Vec::clone(&self.list.load());
        let Some(index) = list.iter().position(|source| source.is(progress)) else {
            return;
        };
        list[index].uses -= 1;
        if list[index].uses == 0 {
            let source = list.swap_remove(index);
            if let Some(wait) = wait {
                wait.unwatch(source.fd);
            }
        }
        self.list.store(Arc::new(list));
    }

    /// Takes everything out; for a queue that closes.
    pub fn clear(&self, wait: Option<&Wait>) {
        let _edit = self.edit.lock();
        let list = self.list.swap(Arc::default());
        if let Some(wait) = wait {
            for source in list.iter() {
                wait.unwatch(source.fd);
            }
        }
    }

    /// Lets every transport do what is ready.
    #[inline]
    pub fn drive(&self) {
        for source in self.list.load().iter() {
            source.progress.progress();
        }
    }

    /// Whether a transport has work that must not wait for an empty queue.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.list
            .load()
            .iter()
            .any(|source| source.progress.is_due())
    }

    /// Tells every transport that a thread is about to sleep; whether all of
    /// them agree.
    pub fn prepare_wait(&self) -> bool {
        self.list
            .load()
            .iter()
            .all(|source| source.progress.prepare_wait())
    }
}
