//! Completion queues of the provider below (fi_cq(3)).

use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::*;

use super::slots::{Memory, Slot, Slots};
use super::{Domain, Object};
use prov_base::errno::{Errno, Result};

/// A completion queue; closed when it is dropped, which must be after the endpoints that are bound
/// to it.
pub struct Cq {
    object: Object<fid_cq>,
    _domain: Arc<Domain>,
    /// The memory of slots, to which contexts of completions point.
    _memory: Arc<Memory>,
}

/// Number of completions per read.
pub const BATCH: usize = 32;

/// Completions that were read and have not been taken.
pub struct Batch {
    entries: [fi_cq_data_entry; BATCH],
    /// The sources of the entries, if they were read with them.
    sources: [fi_addr_t; BATCH],
    count: usize,
    next: usize,
}

// SAFETY: the pointers in the batch are dereferenced only with the slots to which they belong, by
// the owner of these.
unsafe impl Send for Batch {}

/// A completion.
#[derive(Debug)]
pub struct Completion {
    /// The slot of the operation; `None` for an operation of a peer.
    pub slot: Option<Slot>,
    /// `FI_SEND`, `FI_REMOTE_WRITE`, ...
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Immediate data, if `flags` has `FI_REMOTE_CQ_DATA`.
    pub data: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            entries: [fi_cq_data_entry {
                op_context: null_mut(),
                flags: 0,
                len: 0,
                buf: null_mut(),
                data: 0,
            }; BATCH],
            sources: [FI_ADDR_NOTAVAIL as fi_addr_t; BATCH],
            count: 0,
            next: 0,
        }
    }
}

impl Batch {
    /// Takes the next completion of the last read, from the queue of these slots; `None` if there
    /// are no more.
    #[inline]
    #[allow(clippy::indexing_slicing, reason = "as many were read as are counted")]
    pub fn next<T>(&mut self, slots: &mut Slots<T>) -> Option<Completion> {
        if self.next == self.count {
            return None;
        }
        let entry = &self.entries[self.next];
        self.next += 1;
        Some(Completion {
            // SAFETY: the contexts of completions are those of the operations, which were posted
            // with pointers from `Slots::lend`, or null.
            slot: unsafe { slots.returned(entry.op_context) },
            flags: entry.flags,
            len: entry.len,
            data: entry.data,
        })
    }
}

impl Batch {
    /// Returns whether the last read had as many completions as one can have: more may be there.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// [`Batch::next`] after [`Cq::read_from`]: the completion with its source, a number of the
    /// address vector below, or `FI_ADDR_NOTAVAIL`.
    #[inline]
    #[allow(clippy::indexing_slicing, reason = "as many were read as are counted")]
    pub fn next_from<T>(&mut self, slots: &mut Slots<T>) -> Option<(Completion, fi_addr_t)> {
        let at = self.next;
        let completion = self.next(slots)?;
        Some((completion, self.sources[at]))
    }
}

impl Cq {
    /// Opens a queue for at least this many completions, of operations with these slots; with a
    /// descriptor to sleep on if requested.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open<T>(
        domain: &Arc<Domain>,
        slots: &Slots<T>,
        size: usize,
        has_fd: bool,
    ) -> Result<Arc<Cq>> {
        let mut attr = fi_cq_attr {
            size,
            flags: 0,
            format: FI_CQ_FORMAT_DATA,
            wait_obj: if has_fd { FI_WAIT_FD } else { FI_WAIT_NONE },
            signaling_vector: 0,
            wait_cond: FI_CQ_COND_NONE,
            wait_set: null_mut(),
            xpu_ctx: null_mut(),
        };
        let mut cq = null_mut();
        // SAFETY: the domain is open, and the attributes are valid during the call.
        let object = unsafe {
            let open = (*(*domain.as_c()).ops).cq_open.ok_or(Errno::ENOSYS)?;
            let status = open(domain.as_c(), &mut attr, &mut cq, null_mut());
            Object::opened(status, cq)?
        };
        Ok(Arc::new(Cq {
            object,
            _domain: domain.clone(),
            _memory: slots.memory(),
        }))
    }

    pub(super) fn fid(&self) -> *mut fid {
        self.object.fid()
    }

    /// Returns the descriptor to sleep on, after [`super::Fabric::may_sleep`].
    ///
    /// # Errors
    /// What the provider returns.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.object.wait_fd()
    }

    /// Reads completions.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there are none, `-FI_EAVAIL` for an error entry, to be read with
    /// [`Cq::read_error`].
    #[inline]
    pub fn read(&self, batch: &mut Batch) -> Result {
        (batch.count, batch.next) = (0, 0);
        // SAFETY: the object is open, and the batch has space for `BATCH` entries.
        let read = unsafe {
            let read = (*(*self.object.as_ptr()).ops).read.ok_or(Errno::ENOSYS)?;
            read(
                self.object.as_ptr(),
                batch.entries.as_mut_ptr().cast(),
                BATCH,
            )
        };
        match usize::try_from(read) {
            Ok(count) => {
                batch.count = count.min(BATCH);
                Ok(())
            }
            Err(_) => Err(Errno::new(read as i32)),
        }
    }

    /// Reads completions with their sources, to be taken with [`Batch::next_from`].
    ///
    /// # Errors
    /// Those of [`Cq::read`].
    #[inline]
    pub fn read_from(&self, batch: &mut Batch) -> Result {
        (batch.count, batch.next) = (0, 0);
        // SAFETY: the object is open, and the batch has space for `BATCH` entries.
        let read = unsafe {
            let read = (*(*self.object.as_ptr()).ops).readfrom;
            read.ok_or(Errno::ENOSYS)?(
                self.object.as_ptr(),
                batch.entries.as_mut_ptr().cast(),
                BATCH,
                batch.sources.as_mut_ptr(),
            )
        };
        match usize::try_from(read) {
            Ok(count) => {
                batch.count = count.min(BATCH);
                Ok(())
            }
            Err(_) => Err(Errno::new(read as i32)),
        }
    }

    /// Reads an error entry: the completion and its error.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is none.
    pub fn read_error<T>(&self, slots: &mut Slots<T>) -> Result<(Completion, Errno)> {
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let mut entry: fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the object is open, and `entry` is writable.
        let read = unsafe {
            let read = (*(*self.object.as_ptr()).ops).readerr;
            read.ok_or(Errno::ENOSYS)?(self.object.as_ptr(), &mut entry, 0)
        };
        match read {
            0 => return Err(Errno::EAGAIN),
            error if error < 0 => return Err(Errno::new(error as i32)),
            _ => {}
        }
        let completion = Completion {
            // SAFETY: the contexts of completions are those of the operations, which were posted
            // with pointers from `Slots::lend`, or null.
            slot: unsafe { slots.returned(entry.op_context) },
            flags: entry.flags,
            len: entry.len,
            data: entry.data,
        };
        Ok((completion, Errno::new(entry.err)))
    }
}
