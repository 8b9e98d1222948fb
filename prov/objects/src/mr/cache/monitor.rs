//! The monitor of changes in the memory mappings, which uses userfaultfd(2).
//!
//! Ranges are registered for write protection, which is never enabled: so no access to them is ever
//! delayed, while changes of their mappings are reported. The thread that unmaps memory continues
//! when the event has been read, and a look-up in the cache first waits until the event is in
//! [`Monitor::changes`] ([`Monitor::settle`]).
//!
//! The reading thread allocates nothing, frees nothing and takes no lock: the unmapping thread may
//! hold any lock, including that of malloc(3), and the reader would wait for memory that it unmaps
//! itself.
//!
//! The kernel's limits: private anonymous memory since Linux 5.7, shared memory and huge pages
//! since 5.19 (but not truncations of their files, or what other processes do), files not at all;
//! for other memory [`Monitor::watch`] returns false. If vm.unprivileged_userfaultfd is 0,
//! processes without privileges can watch nevertheless, since faults in the kernel do not matter
//! here.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prov_base::machine::page_size;
use rustix::event::{PollFd, PollFlags, poll};

use super::changes::{Changes, ReadPosition};
use super::intervals::Interval;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::own_thread::without_signals;

/// The monitor of a process.
pub struct Monitor {
    /// The userfaultfd.
    file: std::fs::File,
    /// The process whose memory it watches; it does not watch that of children.
    process: u32,
    changes: Changes<REMEMBERED>,
    /// Odd while an event was read that is not yet in `changes`.
    turns: AtomicU64,
    /// Whether a caller has waited for changes to settle without success.
    is_restless: AtomicBool,
}

/// Limit of polls for changes to settle, and the number of the first ones that do not sleep:
/// together they take at least a quarter of a second.
const WAITS: u32 = 5000;
const YIELDS: u32 = 100;

/// Capacity of the list of changes: with more changes between two look-ups, the whole cache is
/// dropped.
const REMEMBERED: usize = 1024;

/// `struct uffdio_api`
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_writeprotect`
#[repr(C)]
struct WriteProtect {
    start: u64,
    len: u64,
    mode: u64,
}

const API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const USER_MODE_ONLY: libc::c_int = 1;

const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_REMAP: u64 = 1 << 2;
const FEATURE_REMOVE: u64 = 1 << 3;
const FEATURE_UNMAP: u64 = 1 << 6;
const FEATURES: u64 = FEATURE_WRITE_PROTECT | FEATURE_REMAP | FEATURE_REMOVE | FEATURE_UNMAP;

/// `struct uffd_msg`
const MESSAGE: usize = 32;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

impl Monitor {
    /// Returns the monitor of this process, which is created on first use; `None` if the system
    /// does not support it, or if only a parent process has one.
    pub fn of_process() -> Option<Arc<Self>> {
        static MONITOR: OnceLock<Option<Arc<Monitor>>> = OnceLock::new();
        let start = || {
            let started = Self::start();
            started
                .inspect_err(|error| {
                    log::info!(target: UTIL.mr, "memory cannot be watched: {error}");
                })
                .ok()
        };
        let monitor = MONITOR.get_or_init(start).clone();
        monitor.filter(|monitor| monitor.process == std::process::id())
    }

    fn start() -> Result<Arc<Self>> {
        let monitor = Arc::new(Self::new()?);
        let reader = monitor.clone();
        let thread = std::thread::Builder::new().name("fi-memory".to_owned());
        without_signals(|| thread.spawn(move || reader.read_all()))?;
        Ok(monitor)
    }

    /// Creates a monitor without a reading thread.
    fn new() -> Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: the call takes flags only, and accesses no memory.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd =
            Errno::check(i32::try_from(fd).unwrap_or(-1)).map_err(|_| Errno::last_os_error())?;
        // SAFETY: the descriptor is new, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut api = Api {
            api: API,
            features: FEATURES,
            ioctls: 0,
        };
        // SAFETY: the call reads and writes the structure only.
        match unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &mut api) } {
            0 => {}
            _ => return Err(Errno::last_os_error()),
        }
        Ok(Monitor {
            file: fd.into(),
            process: std::process::id(),
            changes: Changes::new(),
            turns: AtomicU64::new(0),
            is_restless: AtomicBool::new(false),
        })
    }

    /// Returns the list of changes.
    pub fn changes(&self) -> &Changes<REMEMBERED> {
        &self.changes
    }

    /// Makes the kernel report changes of memory. Returns whether it can.
    pub fn watch(&self, memory: Interval) -> bool {
        let page = page_size();
        let start = memory.start() & !(page - 1);
        let Some(end) = memory.end().checked_next_multiple_of(page) else {
            return false;
        };
        let mut register = Register {
            start: start as u64,
            len: (end - start) as u64,
            mode: MODE_WRITE_PROTECT,
            ioctls: 0,
        };
        // SAFETY: the call reads and writes the structure, and changes only where changes of the
        // mapping are reported.
        let outcome = unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_REGISTER, &mut register) };
        if outcome != 0 {
            let error = Errno::last_os_error();
            log::debug!(target: UTIL.mr, "memory at {start:#x} cannot be watched: {error}");
        }
        outcome == 0
    }

    /// Waits until everything that any thread has unmapped before is in the list of changes.
    /// Returns whether it is. Gives up if memory is unmapped all the time.
    pub fn settle(&self) -> bool {
        // An unmapping thread leaves this state only when its event has been read.
        if !self.comes_true(|| !self.is_changing()) {
            return false;
        }
        let turn = self.turns.load(Ordering::Acquire);
        turn.is_multiple_of(2) || self.comes_true(|| self.turns.load(Ordering::Acquire) != turn)
    }

    /// Returns whether a thread may have unmapped memory and not been released.
    ///
    /// From before the memory goes until the unmapping thread has learnt that its event was read,
    /// the kernel refuses every operation on watched memory with `EAGAIN`, and checks this
    /// condition first. (Before Linux 5.15 it did not count such threads: the first one that was
    /// released ended the condition.)
    fn is_changing(&self) -> bool {
        let mut nothing = WriteProtect {
            start: 0,
            len: 0,
            mode: 0,
        };
        let file = self.file.as_raw_fd();
        // SAFETY: the call reads the structure, which describes an empty range.
        let outcome = unsafe { libc::ioctl(file, UFFDIO_WRITEPROTECT, &mut nothing) };
        let is_changing = outcome != 0 && Errno::last_os_error() == Errno::EAGAIN;
        // Reads the kernel's answer before `turns`.
        fence(Ordering::SeqCst);
        is_changing
    }

    /// Waits for other threads to fulfil a condition. Returns whether they have.
    fn comes_true(&self, condition: impl Fn() -> bool) -> bool {
        let mut waits = 0;
        while !condition() {
            // After one unsuccessful wait, the next ones do not wait.
            if waits == WAITS || self.is_restless.load(Ordering::Relaxed) {
                self.is_restless.store(true, Ordering::Relaxed);
                return false;
            }
            match waits < YIELDS {
                true => std::thread::yield_now(),
                // The other thread may have a lower priority.
                false => std::thread::sleep(Duration::from_micros(50)),
            }
            waits += 1;
        }
        self.is_restless.store(false, Ordering::Relaxed);
        true
    }

    fn read_all(&self) {
        let mut told = self.changes.known();
        loop {
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            if poll(&mut fds, None).is_err() {
                // Other threads wait for this one, so it continues after any error.
                std::thread::sleep(Duration::from_millis(1));
            }
            self.read(&mut told);
        }
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "the system returns no more than there was room for, and messages are whole"
    )]
    fn read(&self, told: &mut ReadPosition) {
        self.turns.fetch_add(1, Ordering::AcqRel);
        let mut messages = [0u8; MESSAGE * 16];
        // This releases the unmapping threads.
        if let Ok(length) = (&self.file).read(&mut messages) {
            for message in messages[..length].chunks_exact(MESSAGE) {
                self.happened(message, told);
            }
        }
        self.turns.fetch_add(1, Ordering::AcqRel);
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "the system returns no more than there was room for, and messages are whole"
    )]
    fn happened(&self, message: &[u8], told: &mut ReadPosition) {
        let word = |position: usize| {
            let bytes = message
                .get(8 + 8 * position..)
                .and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes) as usize)
        };
        let memory = match message[0] {
            EVENT_UNMAP | EVENT_REMOVE => {
                let (start, end) = (word(0), word(1));
                Interval::new(start, end.saturating_sub(start))
            }
            EVENT_REMAP => {
                let (from, to, len) = (word(0), word(1), word(2));
                self.forget(to, len);
                Interval::new(from, len)
            }
            _ => return,
        };
        self.changes.tell(told, memory);
    }

    /// Stops watching moved memory at its new place, where no registration refers to it.
    fn forget(&self, start: usize, len: usize) {
        let range = [start as u64, len as u64];
        // SAFETY: the call reads `range`, and changes only where changes of the mapping are
        // reported.
        unsafe { libc::ioctl(self.file.as_raw_fd(), UFFDIO_UNREGISTER, &range) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn changes_settle_only_after_another_threads_unmap_was_read() {
        let Ok(monitor) = Monitor::new() else {
            println!("no userfaultfd(2) here");
            return;
        };
        let mut told = monitor.changes().known();
        let mut known = told;
        let mapping = memmap2::MmapMut::map_anon(16 * page_size()).unwrap();
        let memory = Interval::new(mapping.as_ptr().addr(), mapping.len());
        assert!(monitor.watch(memory));
        assert!(monitor.settle());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(mapping));
            while !monitor.is_changing() {
                std::thread::yield_now();
            }
            let settled = [monitor.settle(), monitor.settle()];
            while monitor.is_changing() {
                monitor.read(&mut told);
            }
            assert_eq!(settled, [false, false]);
        });
        assert!(monitor.settle());
        assert!(monitor.changes().news(&mut known).concern(memory));
    }
}
