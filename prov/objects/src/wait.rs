//! Wait objects: how a thread sleeps until a queue or a counter has something for it.
//!
//! A [`Wait`] is an epoll descriptor that polls readable when its *bell* was rung, or
//! when a transport that feeds the queue has work. Ringing is a system call, so a queue rings only
//! while it is *armed*: a thread that is about to sleep first arms the queue, under the queue's
//! lock, if it is empty. The queue's next entry rings and disarms.
//!
//! Several threads may sleep at the same time. A ring must reach all of them, including those that
//! wake slowly, before another thread silences the bell: a ring records how many sleepers it has to
//! reach, and while some of them have not left, [`Wait::enter`] refuses new ones.

mod attachment;
mod deadline;
mod engine;
mod mutex_cond;
pub mod set;
pub mod snapshot;
mod sources;
#[cfg(test)]
pub(crate) mod test_transport;
mod watched;

use std::os::fd::{AsFd, AsRawFd, RawFd};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};

pub use attachment::{Attachment, Waitable, may_block};
pub use deadline::{Deadline, Remaining};
pub use mutex_cond::MutexCond;
use prov_base::bell::Bell;
use prov_base::errno::Result;
use prov_base::process::Process;
pub use sources::Sources;
use watched::Watched;

/// The kind of wait object that the application asked for (`enum fi_wait_obj`, fi_cq(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// The application will not block.
    None,
    /// The application blocks only in the library's calls.
    Unspec,
    /// The queue is added to a wait set.
    Set,
    /// One descriptor for poll(2) and similar calls.
    Fd,
    /// A pthread mutex and condition variable.
    MutexCond,
    /// The application blocks only in the library's calls, which yield instead of sleeping.
    Yield,
    /// The list of the descriptors that the epoll descriptor of [`WaitKind::Fd`] contains.
    PollFd,
}

/// The wait object of one queue, counter or wait set.
pub struct Wait {
    bell: Bell,
    /// The epoll descriptor of the bell and the transports.
    watched: Watched,
    sleepers: Mutex<Sleepers>,
    /// Present for [`WaitKind::MutexCond`].
    mutex_cond: Option<MutexCond>,
    /// The process that created it: a forked child shares the bell, and must not use it.
    process: Process,
}

#[derive(Default)]
struct Sleepers {
    /// Number of threads between `enter` and the drop of their ticket.
    inside: usize,
    /// Number of those that entered before the last ring.
    owed: usize,
    /// Number of rings.
    rings: u64,
    /// Whether the bell is readable.
    ringing: bool,
    /// Whether the application has prepared to poll the descriptor itself.
    has_native: bool,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The bell rang, or a transport has work.
    Ready,
    /// The timeout expired.
    TimedOut,
    /// A signal handler ran on this thread.
    Interrupted,
    /// The process is a forked child that inherited the object: nothing can wake it.
    Inherited,
}

impl Wait {
    /// Creates a wait object that watches only its bell. `kind` is one with a descriptor or a
    /// condition variable.
    ///
    /// # Errors
    /// Those of epoll_create(2) and [`Bell::new`], such as `FI_EMFILE`.
    pub fn new(kind: WaitKind) -> Result<Self> {
        let bell = Bell::new()?;
        let watched = Watched::new(bell.as_fd())?;
        let mutex_cond = match kind {
            WaitKind::MutexCond => Some(MutexCond::new(watched.epoll().try_clone_to_owned()?)?),
            _ => None,
        };
        Ok(Self {
            bell,
            watched,
            sleepers: Mutex::default(),
            mutex_cond,
            process: Process::current(),
        })
    }

    /// Returns the descriptor to poll for reading.
    pub fn fd(&self) -> RawFd {
        self.watched.epoll().as_raw_fd()
    }

    /// Returns the mutex and the condition variable of [`WaitKind::MutexCond`].
    pub fn mutex_cond(&self) -> Option<&MutexCond> {
        self.mutex_cond.as_ref()
    }

    /// Returns the descriptors in [`Wait::fd`], and how often that list has changed.
    pub fn poll_fds(&self) -> (Vec<RawFd>, u64) {
        let (mut fds, changes) = self.watched.list();
        fds.insert(0, self.bell.as_raw_fd());
        (fds, changes)
    }

    /// Wakes all sleeping threads, and those that poll the descriptor.
    #[cold]
    pub fn ring(&self) {
        self.ring_for(&mut self.sleepers.lock());
    }

    /// Calls [`Wait::ring`] if a thread may be sleeping: for a new descriptor whose transport has
    /// not been informed of the sleepers.
    pub fn ring_for_sleepers(&self) {
        let mut sleepers = self.sleepers.lock();
        if sleepers.inside != 0 || sleepers.has_native {
            self.ring_for(&mut sleepers);
        }
    }

    fn ring_for(&self, sleepers: &mut Sleepers) {
        sleepers.rings += 1;
        sleepers.owed = sleepers.inside;
        if !sleepers.ringing {
            sleepers.ringing = true;
            if !self.process.is_noted() {
                return;
            }
            self.bell.ring();
        }
    }

    /// First step of going to sleep: silences the bell and counts this thread as a sleeper. The
    /// caller then arms its queue and, if that is still empty, calls [`Ticket::pause`]. Returns
    /// `None` while a ring has not reached all of its sleepers: the caller looks at the queue and
    /// tries again.
    pub fn enter(&self) -> Option<Ticket<'_>> {
        let mut sleepers = self.sleepers.lock();
        if !self.silence(&mut sleepers) {
            return None;
        }
        sleepers.inside += 1;
        let rings = sleepers.rings;
        Some(Ticket { wait: self, rings })
    }

    /// [`Wait::enter`] for an application that polls the descriptor or waits for the condition
    /// itself (fi_trywait(3)).
    pub fn prepare_native(&self) -> bool {
        let mut sleepers = self.sleepers.lock();
        sleepers.has_native = true;
        let quiet = self.silence(&mut sleepers);
        drop(sleepers);
        quiet && self.watched.can_sleep()
    }

    /// Last step of fi_trywait(3), if the application will block.
    pub fn native_sleep_begins(&self) {
        if let Some(mutex_cond) = &self.mutex_cond {
            mutex_cond.watch();
        }
    }

    fn silence(&self, sleepers: &mut Sleepers) -> bool {
        if sleepers.owed > 0 {
            return false;
        }
        if sleepers.ringing {
            sleepers.ringing = false;
            if !self.process.is_noted() {
                return true;
            }
            self.bell.silence();
        }
        true
    }

    /// Makes [`Wait::fd`] readable whenever `fd` is; `None` stands for a transport that must be
    /// polled. Calls are counted: each needs its own [`Wait::unwatch`].
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn watch(&self, fd: Option<RawFd>) -> Result {
        self.watched.add(fd)
    }

    /// Undoes one [`Wait::watch`].
    pub fn unwatch(&self, fd: Option<RawFd>) {
        self.watched.remove(fd);
    }

    /// Returns how often the bell was rung.
    #[cfg(test)]
    pub(crate) fn rings(&self) -> u64 {
        self.sleepers.lock().rings
    }

    /// Returns whether [`Wait::fd`] polls readable at present.
    pub fn is_readable(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(
            self.watched.epoll(),
            PollFlags::IN,
        )];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1))
    }
}

/// A thread's entry among the sleepers of a [`Wait`].
pub struct Ticket<'a> {
    wait: &'a Wait,
    /// The number of rings when the thread entered.
    rings: u64,
}

/// What a blocking call does between two looks at its queue. It has no destructor: a thread may be
/// cancelled while it sleeps (pthread_cancel(3)), and then nothing on its stack is dropped.
#[derive(Clone, Copy)]
pub enum Pause<'a> {
    /// Nothing: the sleep has ended in this way.
    Over(Wake),
    /// It yields the processor.
    Yield,
    /// It sleeps.
    Sleep(Sleeper<'a>),
}

/// A thread that is counted among the sleepers of a [`Wait`]: [`Sleeper::leave`] has to be called
/// once, however its sleep ends.
#[derive(Clone, Copy)]
pub struct Sleeper<'a> {
    wait: &'a Wait,
    rings: u64,
    /// `None` for no limit.
    timeout: Option<Timespec>,
}

impl<'a> Ticket<'a> {
    /// Returns what the thread has to do to sleep until the bell rings, a transport has work, or
    /// `deadline` has passed. If a transport can only be polled, it has to yield.
    pub fn pause(self, deadline: Deadline) -> Pause<'a> {
        // A forked child gets no events through inherited objects.
        if !self.wait.process.is_noted() {
            return Pause::Over(Wake::Inherited);
        }
        let timeout = match deadline.remaining() {
            Remaining::Over => return Pause::Over(Wake::TimedOut),
            Remaining::For(duration) => Some(Timespec {
                tv_sec: duration.as_secs() as _,
                tv_nsec: duration.subsec_nanos() as _,
            }),
            Remaining::Forever => None,
        };
        if !self.wait.watched.can_sleep() {
            return Pause::Yield;
        }
        let (wait, rings) = (self.wait, self.rings);
        std::mem::forget(self);
        Pause::Sleep(Sleeper {
            wait,
            rings,
            timeout,
        })
    }
}

impl Sleeper<'_> {
    /// Returns the descriptor to sleep on.
    pub fn fd(&self) -> RawFd {
        self.wait.fd()
    }

    /// Returns the longest time to sleep; `None` for no limit.
    pub fn timeout(&self) -> Option<Timespec> {
        self.timeout
    }

    /// Ends the sleep.
    pub fn leave(self) {
        drop(Ticket {
            wait: self.wait,
            rings: self.rings,
        });
    }
}

impl Pause<'_> {
    /// Sleeps or yields, in a thread that is not cancelled.
    pub fn take(self) -> Wake {
        let sleeper = match self {
            Pause::Over(wake) => return wake,
            Pause::Yield => {
                std::thread::yield_now();
                return Wake::Ready;
            }
            Pause::Sleep(sleeper) => sleeper,
        };
        let mut fds = [PollFd::from_borrowed_fd(
            sleeper.wait.watched.epoll(),
            PollFlags::IN,
        )];
        let outcome = rustix::event::poll(&mut fds, sleeper.timeout.as_ref());
        sleeper.leave();
        match outcome {
            Ok(0) => Wake::TimedOut,
            Err(rustix::io::Errno::INTR) => Wake::Interrupted,
            Ok(_) | Err(_) => Wake::Ready,
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.wait.sleepers.lock();
        sleepers.inside -= 1;
        if sleepers.rings != self.rings {
            sleepers.owed -= 1;
        }
    }
}
