//! Completion queues of a device, and their completion channels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::time::Timespec;

use super::{Context, numbered};
use crate::sys::ibverbs::*;

/// The completion of a work request.
pub type WorkCompletion = ibv_wc;

/// Buffer for the completions of one poll.
pub struct Bunch {
    entries: Box<[WorkCompletion]>,
    /// Number of entries.
    room: i32,
}

impl Bunch {
    /// Allocates a buffer for `size` completions. `-FI_EINVAL` for a number that the library's
    /// interface cannot represent.
    pub fn new(size: usize) -> Result<Self> {
        Ok(Bunch {
            room: i32::try_from(size).map_err(|_| Errno::EINVAL)?,
            entries: vec![WorkCompletion::default(); size].into(),
        })
    }
}

/// A completion queue with a completion channel of its own.
pub struct CompletionQueue {
    cq: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    /// Watches the channel, and the other descriptors that wake a waiting thread.
    watch: OwnedFd,
    context: Context,
    /// Held while the library reads or changes the queue's size.
    resizing: Mutex<()>,
    /// Only the process that created the object destroys it.
    process: Process,
    poll: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for CompletionQueue {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// Creates a queue for at least `size` completions. A thread that waits for one is also woken
    /// when the device has an asynchronous event, or any of `also` is readable.
    pub fn new(context: Context, size: usize, also: &[BorrowedFd<'_>]) -> Result<Arc<Self>> {
        let verbs = context.libraries.verbs();
        let poll = context.ops().poll_cq.ok_or(Errno::ENOSYS)?;
        let size = i32::try_from(size).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the device is open, as long as its `Context` exists.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(context.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(Errno::last_os_error)?;
        let made = watch(channel, &context, also).and_then(|watch| {
            // SAFETY: the device and the channel are open; the result keeps them open.
            let cq = unsafe {
                (verbs.ibv_create_cq)(context.as_ptr(), size, null_mut(), channel.as_ptr(), 0)
            };
            let cq = NonNull::new(cq).ok_or_else(Errno::last_os_error)?;
            Ok((cq, watch))
        });
        match made {
            Ok((cq, watch)) => Ok(Arc::new(CompletionQueue {
                cq,
                channel,
                watch,
                context,
                resizing: Mutex::new(()),
                process: Process::current(),
                poll,
            })),
            Err(error) => {
                // SAFETY: the channel is open, and has no other users.
                unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    /// Whether this process created the queue. A forked child does not have its memory.
    pub fn is_own(&self) -> bool {
        self.process.is_current()
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// Returns the number of completions that the queue can hold.
    pub fn size(&self) -> usize {
        let _guard = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is open; only `resize` changes its size, which takes the same lock.
        let size = unsafe { (*self.cq.as_ptr()).cqe };
        usize::try_from(size).unwrap_or(0)
    }

    /// Enlarges the queue to at least `size` completions.
    pub fn resize(&self, size: usize) -> Result {
        let size = i32::try_from(size).map_err(|_| Errno::EINVAL)?;
        let _guard = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is open until it is dropped, and one thread at a time changes its size.
        numbered(unsafe { (self.context.libraries.verbs().ibv_resize_cq)(self.as_ptr(), size) })
    }

    /// Removes completions from the queue.
    #[inline(always)]
    pub fn poll<'a>(&self, bunch: &'a mut Bunch) -> Result<&'a [WorkCompletion]> {
        let Bunch { entries, room } = bunch;
        // SAFETY: the queue is open, and `entries` has space for `room` completions.
        let count = unsafe { (self.poll)(self.cq.as_ptr(), *room, entries.as_mut_ptr()) };
        // An error is negative, and as an unsigned number greater than the number of entries.
        entries.get(..count as u32 as usize).ok_or(Errno::EIO)
    }

    /// Makes the next completion signal [`Self::descriptor`].
    pub fn arm(&self) -> Result {
        let arm = self.context.ops().req_notify_cq.ok_or(Errno::ENOSYS)?;
        // SAFETY: the queue is open until it is dropped.
        numbered(unsafe { arm(self.as_ptr(), 0) })
    }

    /// Returns the descriptor that is readable if a completion was added since [`Self::arm`], or if
    /// another watched descriptor is readable.
    pub fn descriptor(&self) -> RawFd {
        self.watch.as_raw_fd()
    }

    /// Whether the device is gone, so that the channel will not signal again.
    pub fn is_gone(&self) -> bool {
        let channel = descriptor_of(&self.channel);
        let mut fds = [PollFd::from_borrowed_fd(channel, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let over = PollFlags::ERR | PollFlags::HUP;
        poll(&mut fds, Some(&now)) == Ok(1) && fds[0].revents().intersects(over)
    }

    /// Stops watching the device's descriptors: those of a device that is gone stay readable for
    /// ever.
    pub fn part(&self) {
        for fd in [descriptor_of(&self.channel), self.context.as_fd()] {
            if let Err(error) = epoll::delete(&self.watch, fd) {
                log::debug!(target: crate::LOG.cq, "a device is still watched: {error}");
            }
        }
    }

    /// Reads the events that make the descriptor readable.
    pub fn silence(&self) {
        let verbs = self.context.libraries.verbs();
        let (mut cq, mut context) = (null_mut(), null_mut());
        let mut count = 0;
        // SAFETY: the channel is open and does not block; all of its events are of this queue, the
        // only one of the channel, and as many are acknowledged as were read.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut cq, &mut context) == 0 {
                count += 1;
            }
            if count != 0 {
                (verbs.ibv_ack_cq_events)(self.as_ptr(), count);
            }
        }
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

/// Returns the descriptor of a channel that is open as long as the borrow.
fn descriptor_of(channel: &NonNull<ibv_comp_channel>) -> BorrowedFd<'_> {
    // SAFETY: the channel is open until it is dropped, and so is its descriptor.
    unsafe { BorrowedFd::borrow_raw((*channel.as_ptr()).fd) }
}

/// Makes the channel non-blocking, and watches it, its device and the others.
fn watch(
    channel: NonNull<ibv_comp_channel>,
    context: &Context,
    also: &[BorrowedFd<'_>],
) -> Result<OwnedFd> {
    let channel = descriptor_of(&channel);
    fcntl_setfl(channel, fcntl_getfl(channel)? | OFlags::NONBLOCK)?;
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let all = [channel, context.as_fd()].into_iter();
    for fd in all.chain(also.iter().copied()) {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watch, fd, data, epoll::EventFlags::IN)?;
    }
    Ok(watch)
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if !self.is_own() {
            return;
        }
        let verbs = self.context.libraries.verbs();
        // Unacknowledged events would prevent its destruction.
        self.silence();
        // SAFETY: both objects are open, and all queue pairs that report to the queue are
        // destroyed, since each held a reference.
        let outcome = unsafe {
            numbered((verbs.ibv_destroy_cq)(self.as_ptr()))
                .and(numbered((verbs.ibv_destroy_comp_channel)(
                    self.channel.as_ptr(),
                )))
        };
        if let Err(error) = outcome {
            log::warn!(target: crate::LOG.cq, "ibv_destroy_cq: {error}");
        }
    }
}
