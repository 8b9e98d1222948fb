//! A transport for tests: work is given to it by any thread, shows on its
//! descriptor, and is done when it is driven.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use crate::progress::Progress;

type Work = Box<dyn FnOnce() + Send>;

pub struct TestTransport {
    work: Mutex<VecDeque<Work>>,
    readable: OwnedFd,
    /// How often it was driven.
    pub driven: AtomicUsize,
    /// Threads that were about to sleep at some time.
    sleepers: Mutex<HashSet<ThreadId>>,
    more_sleepers: Condvar,
    /// Whether it lets no thread sleep.
    pub is_busy: AtomicBool,
}

impl TestTransport {
    pub fn new() -> Arc<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Arc::new(Self {
            work: Mutex::default(),
            readable: eventfd(0, flags).unwrap(),
            driven: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            more_sleepers: Condvar::new(),
            is_busy: AtomicBool::new(false),
        })
    }

    /// Has `work` done by the thread that drives this next.
    pub fn give(&self, work: impl FnOnce() + Send + 'static) {
        self.work.lock().push_back(Box::new(work));
        rustix::io::write(&self.readable, &1u64.to_ne_bytes()).unwrap();
    }

    /// Returns once `count` threads have said that they are about to sleep.
    pub fn await_sleepers(&self, count: usize) {
        let mut sleepers = self.sleepers.lock();
        while sleepers.len() < count {
            self.more_sleepers.wait(&mut sleepers);
        }
    }

    /// Whether `count` threads say so within this time.
    pub fn sees_sleepers(&self, count: usize, time: Duration) -> bool {
        let mut sleepers = self.sleepers.lock();
        let too_few = |sleepers: &mut HashSet<ThreadId>| sleepers.len() < count;
        let waited = self
            .more_sleepers
            .wait_while_for(&mut sleepers, too_few, time);
        !waited.timed_out()
    }
}

impl Progress for TestTransport {
    fn progress(&self) {
        self.driven.fetch_add(1, Ordering::Relaxed);
        let _ = rustix::io::read(&self.readable, &mut [0u8; 8]);
        loop {
            let work = self.work.lock().pop_front();
            match work {
                Some(work) => work(),
                None => return,
            }
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.readable.as_raw_fd())
    }

    fn prepare_wait(&self) -> bool {
        self.sleepers.lock().insert(std::thread::current().id());
        self.more_sleepers.notify_all();
        !self.is_busy.load(Ordering::Relaxed)
    }
}
