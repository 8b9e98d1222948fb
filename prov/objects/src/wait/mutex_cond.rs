//! `FI_WAIT_MUTEX_COND`: a pthread mutex and condition variable, on which applications block after
//! fi_trywait(3).
//!
//! Queues are written under locks of this library, and the application calls this library while it
//! holds the mutex. A writer must therefore not take that mutex: a separate thread watches the wait
//! object's descriptor and signals the condition. It is started by the first wait and sleeps
//! otherwise.

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};

use prov_base::bell::Bell;
use prov_base::errno::Result;
use prov_base::logging::UTIL;
use prov_base::own_thread::OwnThread;
use prov_base::process::Process;

/// The pair, and the thread that signals it.
pub struct MutexCond {
    shared: Arc<Shared>,
    watcher: Mutex<Option<OwnThread>>,
    /// The process that created it: a forked child has no such thread, and shares the descriptors
    /// that wake it.
    process: Process,
}

struct Shared {
    native: Native,
    /// Readable when the condition has to be signalled.
    readable: OwnedFd,
    /// Readable when the thread has to end.
    ending: Bell,
    task: Mutex<Task>,
    task_changed: Condvar,
}

/// The watching thread's task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Rest,
    Watch,
    End,
}

impl MutexCond {
    /// Creates a pair that is signalled after [`MutexCond::watch`] once `readable` is readable.
    ///
    /// # Errors
    /// Those of [`Bell::new`].
    pub fn new(readable: OwnedFd) -> Result<Self> {
        let ending = Bell::new()?;
        Ok(Self {
            shared: Arc::new(Shared {
                native: Native::new(),
                readable,
                ending,
                task: Mutex::new(Task::Rest),
                task_changed: Condvar::new(),
            }),
            watcher: Mutex::new(None),
            process: Process::current(),
        })
    }

    /// Returns the pointers for the application's `struct fi_mutex_cond`; valid while this value
    /// lives.
    pub fn native(&self) -> (*mut libc::pthread_mutex_t, *mut libc::pthread_cond_t) {
        (
            self.shared.native.mutex.get(),
            self.shared.native.cond.get(),
        )
    }

    /// Signals the condition once, when the descriptor becomes readable.
    pub fn watch(&self) {
        let mut watcher = self.watcher.lock();
        if watcher.is_none() {
            let shared = self.shared.clone();
            match OwnThread::start("fi-wait", 64 * 1024, move || shared.run()) {
                Ok(thread) => *watcher = Some(thread),
                Err(error) => {
                    log::warn!(target: UTIL.core, "FI_WAIT_MUTEX_COND has no thread: {error}")
                }
            }
        }
        let mut task = self.shared.task.lock();
        *task = Task::Watch;
        self.shared.task_changed.notify_one();
    }
}

impl Drop for MutexCond {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.get_mut().take() {
            if !self.process.is_current() {
                // A forked child has no thread to wait for.
                return watcher.forget();
            }
            *self.shared.task.lock() = Task::End;
            self.shared.task_changed.notify_one();
            self.shared.ending.ring();
            watcher.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut task = self.task.lock();
            while *task == Task::Rest {
                self.task_changed.wait(&mut task);
            }
            drop(task);

            let mut fds = [self.readable.as_fd(), self.ending.as_fd()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // An interrupted poll signals the condition early, which is permitted for condition
            // variables.
            let _ = rustix::event::poll(&mut fds, None);

            let mut task = self.task.lock();
            if *task == Task::End {
                return;
            }
            *task = Task::Rest;
            drop(task);
            if !self.signal() {
                return;
            }
        }
    }

    /// Signals while holding the application's mutex, so that a thread between fi_trywait(3) and
    /// pthread_cond_wait(3) is not missed. Returns `false` if the thread has to end instead.
    fn signal(&self) -> bool {
        while !self.native.try_broadcast() {
            let mut task = self.task.lock();
            if *task == Task::End {
                return false;
            }
            self.task_changed
                .wait_for(&mut task, Duration::from_millis(1));
        }
        true
    }
}

struct Native {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    cond: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: the mutex and the condition are used only through the pthread functions, which any thread
// may call.
unsafe impl Sync for Native {}
// SAFETY: the mutex and the condition are moved only before their first use, into `Shared`'s Arc.
unsafe impl Send for Native {}

impl Native {
    fn new() -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            cond: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
        }
    }

    /// Wakes all threads in pthread_cond_wait(3), unless the mutex is held.
    fn try_broadcast(&self) -> bool {
        // SAFETY: the mutex is initialised, and lives as long as `self`.
        if unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } != 0 {
            return false;
        }
        // SAFETY: both are initialised and live as long as `self`, and this thread holds the mutex.
        unsafe {
            libc::pthread_cond_broadcast(self.cond.get());
            libc::pthread_mutex_unlock(self.mutex.get());
        }
        true
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: there are no other users: the application gave up its pointers when it closed the
        // object.
        unsafe {
            libc::pthread_cond_destroy(self.cond.get());
            libc::pthread_mutex_destroy(self.mutex.get());
        }
    }
}
