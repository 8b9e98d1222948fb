//! Completion queues.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::{Adapter, WorkCompletion};
use crate::device::CompletionQueue;

/// A completion queue.
pub struct Queue {
    adapter: Arc<Adapter>,
    number: u32,
    /// Readable after a completion for which the queue was armed.
    bell: Arc<OwnedFd>,
    /// Watches the bell, and the other descriptors that wake a waiting thread.
    watch: OwnedFd,
    process: Process,
}

/// Its state.
pub(super) struct Completions {
    pub(super) entries: VecDeque<WorkCompletion>,
    size: usize,
    is_armed: bool,
    bell: Arc<OwnedFd>,
    /// Whether there was a completion without space for it, which no program survives.
    is_overrun: bool,
}

impl Completions {
    /// Adds a completion.
    pub(super) fn push(&mut self, completion: WorkCompletion) {
        if self.entries.len() == self.size {
            self.is_overrun = true;
            return;
        }
        self.entries.push_back(completion);
        if std::mem::take(&mut self.is_armed) {
            // Fails only if it is readable already.
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Queue {
    /// Creates a queue for `size` completions. A thread that waits for one is also woken when the
    /// device is gone, or any of `also` is readable.
    pub fn new(adapter: &Arc<Adapter>, size: usize, also: &[BorrowedFd<'_>]) -> Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags)?);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let all = [bell.as_fd(), adapter.as_fd()].into_iter();
        for fd in all.chain(also.iter().copied()) {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&watch, fd, data, epoll::EventFlags::IN)?;
        }
        let completions = Completions {
            entries: VecDeque::new(),
            size,
            is_armed: false,
            bell: bell.clone(),
            is_overrun: false,
        };
        let number = adapter.engine().add_queue(completions);
        Ok(Arc::new(Queue {
            adapter: adapter.clone(),
            number,
            bell,
            watch,
            process: Process::current(),
        }))
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    fn with<R>(&self, look: impl FnOnce(&mut Completions) -> R) -> Result<R> {
        let mut engine = self.adapter.engine();
        Ok(look(engine.queue(self.number).ok_or(Errno::EIO)?))
    }
}

impl CompletionQueue<WorkCompletion> for Queue {
    fn poll<'a>(&self, into: &'a mut [WorkCompletion]) -> Result<&'a [WorkCompletion]> {
        let mut engine = self.adapter.engine();
        let queue = engine.queue(self.number).ok_or(Errno::EIO)?;
        if queue.is_overrun {
            return Err(Errno::EIO);
        }
        let mut count = 0;
        for (place, found) in into
            .iter_mut()
            .zip(std::iter::from_fn(|| queue.entries.pop_front()))
        {
            *place = found;
            count += 1;
        }
        let found = into.get(..count).unwrap_or_default();
        found.iter().for_each(|found| engine.polled(found));
        Ok(found)
    }

    fn size(&self) -> usize {
        self.with(|queue| queue.size).unwrap_or(0)
    }

    fn resize(&self, size: usize) -> Result {
        self.with(|queue| queue.size = queue.size.max(size))
    }

    fn arm(&self) -> Result {
        self.with(|queue| queue.is_armed = true)
    }

    fn silence(&self) {
        // An error means that there is nothing to read, which is fine.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
    }

    fn descriptor(&self) -> RawFd {
        self.watch.as_raw_fd()
    }

    fn is_gone(&self) -> bool {
        self.adapter.is_gone()
    }

    fn part(&self) {
        // Fails only if it is not watched any longer.
        let _ = epoll::delete(&self.watch, self.adapter.as_fd());
    }

    fn is_own(&self) -> bool {
        self.process.is_current()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_own() {
            self.adapter.engine().remove_queue(self.number);
        }
    }
}
