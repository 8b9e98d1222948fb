//! Receive queues that several queue pairs share.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;

use super::queue_pair::posted;
use super::work::receive_request;
use super::{CompletionQueue, ProtectionDomain, Rdma, ReceiveRequest, XrcDomain, numbered};
use crate::sys::ibverbs::*;

/// A shared receive queue.
pub struct SharedQueue {
    srq: NonNull<ibv_srq>,
    pd: Arc<ProtectionDomain>,
    /// Only the process that created the object destroys it.
    process: Process,
    /// The XRC domain and the number for peers, if it is a queue of XRC.
    xrc: Option<OfXrc>,
    post: unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

struct OfXrc {
    number: u32,
    _domain: Arc<XrcDomain>,
    _queue: Arc<CompletionQueue>,
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for SharedQueue {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    /// Creates a queue for so many outstanding requests, of so many segments each.
    pub fn new(pd: &Arc<ProtectionDomain>, requests: usize, pieces: usize) -> Result<Arc<Self>> {
        let number = |value: usize| u32::try_from(value).map_err(|_| Errno::EINVAL);
        let mut attr = ibv_srq_init_attr {
            srq_context: null_mut(),
            max_wr: number(requests)?,
            max_sge: number(pieces)?,
            srq_limit: 0,
        };
        let context = pd.context();
        // SAFETY: the protection domain is open, and the result keeps it open; `attr` is valid
        // during the call.
        let srq = unsafe { (context.libraries.verbs().ibv_create_srq)(pd.as_ptr(), &mut attr) };
        Ok(Arc::new(SharedQueue {
            srq: NonNull::new(srq).ok_or_else(Errno::last_os_error)?,
            pd: pd.clone(),
            process: Process::current(),
            xrc: None,
            post: context.ops().post_srq_recv.ok_or(Errno::ENOSYS)?,
        }))
    }

    /// Creates a queue of XRC, whose requests complete at `queue`.
    pub fn of_xrc(
        pd: &Arc<ProtectionDomain>,
        domain: &Arc<XrcDomain>,
        queue: &Arc<CompletionQueue>,
        requests: usize,
        pieces: usize,
    ) -> Result<Arc<Self>> {
        let number = |value: usize| u32::try_from(value).map_err(|_| Errno::EINVAL);
        let post = pd.context().ops().post_srq_recv.ok_or(Errno::ENOSYS)?;
        let (srq, srq_number) =
            domain.receive_queue(pd, queue, number(requests)?, number(pieces)?)?;
        Ok(Arc::new(SharedQueue {
            srq,
            pd: pd.clone(),
            process: Process::current(),
            xrc: Some(OfXrc {
                number: srq_number,
                _domain: domain.clone(),
                _queue: queue.clone(),
            }),
            post,
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }
}

impl prov_device::SharedQueue<Rdma> for SharedQueue {
    fn number(&self) -> Option<u32> {
        self.xrc.as_ref().map(|xrc| xrc.number)
    }

    #[inline]
    fn post(&self, request: ReceiveRequest<'_>) -> Result {
        let mut request = receive_request(&request);
        let mut refused = null_mut();
        // SAFETY: the queue is open. The request is read during the call only, and the memory that
        // it describes is valid until the operation completes.
        posted(unsafe { (self.post)(self.as_ptr(), &mut request, &mut refused) })
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let verbs = self.pd.context().libraries.verbs();
        // SAFETY: the queue is open, and all queue pairs that use it are destroyed, since each held
        // a reference.
        let outcome = unsafe { (verbs.ibv_destroy_srq)(self.as_ptr()) };
        if let Err(error) = numbered(outcome) {
            log::warn!(target: crate::LOG.ep_ctrl, "ibv_destroy_srq: {error}");
        }
    }
}
