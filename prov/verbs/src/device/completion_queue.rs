//! Completion queues of a device, and their completion channels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_device::CompletionQueue as _;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::time::Timespec;

use super::{Context, numbered};
use crate::sys::ibverbs::*;

/// The completion of a work request.
pub type WorkCompletion = ibv_wc;

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

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }
}

impl prov_device::CompletionQueue<WorkCompletion> for CompletionQueue {
    fn is_own(&self) -> bool {
        self.process.is_current()
    }

    fn size(&self) -> usize {
        let _guard = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is open; only `resize` changes its size, which takes the same lock.
        let size = unsafe { (*self.cq.as_ptr()).cqe };
        usize::try_from(size).unwrap_or(0)
    }

    fn resize(&self, size: usize) -> Result {
        let size = i32::try_from(size).map_err(|_| Errno::EINVAL)?;
        let _guard = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is open until it is dropped, and one thread at a time changes its size.
        numbered(unsafe { (self.context.libraries.verbs().ibv_resize_cq)(self.as_ptr(), size) })
    }

    #[inline(always)]
    fn poll<'a>(&self, into: &'a mut [WorkCompletion]) -> Result<&'a [WorkCompletion]> {
        let room = into.len().min(i32::MAX as usize) as i32;
        // SAFETY: the queue is open, and `into` has space for `room` completions.
        let count = unsafe { (self.poll)(self.cq.as_ptr(), room, into.as_mut_ptr()) };
        // An error is negative, and as an unsigned number greater than the number of entries.
        into.get(..count as u32 as usize).ok_or(Errno::EIO)
    }

    fn arm(&self) -> Result {
        let arm = self.context.ops().req_notify_cq.ok_or(Errno::ENOSYS)?;
        // SAFETY: the queue is open until it is dropped.
        numbered(unsafe { arm(self.as_ptr(), 0) })
    }

    fn descriptor(&self) -> RawFd {
        self.watch.as_raw_fd()
    }

    fn is_gone(&self) -> bool {
        let channel = descriptor_of(&self.channel);
        let mut fds = [PollFd::from_borrowed_fd(channel, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let over = PollFlags::ERR | PollFlags::HUP;
        poll(&mut fds, Some(&now)) == Ok(1) && fds[0].revents().intersects(over)
    }

    fn part(&self) {
        for fd in [descriptor_of(&self.channel), self.context.as_fd()] {
            if let Err(error) = epoll::delete(&self.watch, fd) {
                log::debug!(target: crate::LOG.cq, "a device is still watched: {error}");
            }
        }
    }

    fn silence(&self) {
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
