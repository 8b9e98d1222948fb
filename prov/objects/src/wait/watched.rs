//! An epoll descriptor and the descriptors in it.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use rustix::event::epoll;

use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::process::Process;

/// An epoll descriptor and what was added to it.
pub(super) struct Watched {
    epoll: OwnedFd,
    list: Mutex<List>,
    /// The process that created it: a forked child shares the epoll instance, and must not change
    /// it.
    process: Process,
}

#[derive(Default)]
struct List {
    /// The descriptors, with the number of times that each was added, at least 1.
    fds: Vec<(RawFd, usize)>,
    /// Number of transports without a descriptor.
    without_fd: usize,
    /// Counts changes of `fds`.
    changes: u64,
}

impl Watched {
    /// Creates it with `always`, which must stay open as long as this lives.
    pub(super) fn new(always: BorrowedFd<'_>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add_readable(&epoll, always)?;
        Ok(Self {
            epoll,
            list: Mutex::default(),
            process: Process::current(),
        })
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns whether every transport has a descriptor.
    pub(super) fn can_sleep(&self) -> bool {
        self.list.lock().without_fd == 0
    }

    /// Returns the descriptors, and how often the list has changed.
    pub(super) fn list(&self) -> (Vec<RawFd>, u64) {
        let list = self.list.lock();
        (list.fds.iter().map(|&(fd, _)| fd).collect(), list.changes)
    }

    pub(super) fn add(&self, fd: Option<RawFd>) -> Result {
        if !self.process.is_current() {
            return Err(Errno::EOPBADSTATE);
        }
        let mut list = self.list.lock();
        let Some(fd) = fd else {
            list.without_fd += 1;
            return Ok(());
        };
        if let Some((_, uses)) = list.fds.iter_mut().find(|(known, _)| *known == fd) {
            *uses += 1;
            return Ok(());
        }
        // SAFETY: a descriptor from `Progress::wait_fd` is open while its owner is registered,
        // which this call does.
        add_readable(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) })?;
        list.fds.push((fd, 1));
        bounded!(list.fds, OBJECTS);
        list.changes += 1;
        Ok(())
    }

    #[allow(clippy::indexing_slicing, reason = "the position is in the list")]
    pub(super) fn remove(&self, fd: Option<RawFd>) {
        let mut list = self.list.lock();
        let Some(fd) = fd else {
            list.without_fd = list.without_fd.saturating_sub(1);
            return;
        };
        let Some(index) = list.fds.iter().position(|&(known, _)| known == fd) else {
            return;
        };
        list.fds[index].1 -= 1;
        if list.fds[index].1 == 0 {
            list.fds.swap_remove(index);
            list.changes += 1;
            if !self.process.is_current() {
                return;
            }
            // SAFETY: the owner of the descriptor is registered until this call returns, so that
            // the descriptor is open.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if let Err(error) = epoll::delete(&self.epoll, fd) {
                log::debug!(target: UTIL.core, "epoll_ctl(EPOLL_CTL_DEL, {}): {error}", fd.as_raw_fd());
            }
        }
    }
}

fn add_readable(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> Result {
    let data = epoll::EventData::new_u64(fd.as_raw_fd() as u64);
    epoll::add(epoll, fd, data, epoll::EventFlags::IN)?;
    Ok(())
}
