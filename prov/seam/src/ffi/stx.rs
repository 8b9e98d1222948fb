//! Shared transmit contexts (fi_endpoint(3), `fi_stx_context`): endpoints that are
//! bound to one have their operations counted together, and those without a queue or a
//! counter of their own complete at those of the context.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

use super::missing;
use super::object::{AnyFid, Class, Handle};
use crate::endpoint::{Bindings, NoSharedReceive, SharedReceive};
use prov_base::errno::{Errno, Result};
use prov_objects::transmit_pool::TransmitPool;

/// A shared transmit context as C sees it. Its endpoints keep it working after it is
/// closed: Sandia OpenSHMEM closes it before them.
pub struct SharedTransmitObject(Arc<SharedTransmit>);

/// What the endpoints of a shared transmit context have in common.
pub struct SharedTransmit {
    pool: Arc<TransmitPool>,
    /// The queue and the counters for transmits of endpoints that have none.
    bound: Mutex<Bindings<NoSharedReceive>>,
}

impl SharedTransmitObject {
    /// A context for this many operations.
    pub(super) fn new(size: usize) -> Self {
        SharedTransmitObject(Arc::new(SharedTransmit {
            pool: Arc::new(TransmitPool::new(size)),
            bound: Mutex::default(),
        }))
    }

    /// What endpoints that are bound to it keep.
    pub(super) fn shared(&self) -> Arc<SharedTransmit> {
        self.0.clone()
    }
}

impl SharedTransmit {
    /// The operations of all endpoints that are bound to it.
    pub fn pool(&self) -> &Arc<TransmitPool> {
        &self.pool
    }

    fn bound(&self) -> MutexGuard<'_, Bindings<NoSharedReceive>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has an endpoint without a queue or a counter for transmits complete them at those
    /// of this context.
    pub(super) fn complete<S: SharedReceive>(&self, bindings: &mut Bindings<S>) {
        let bound = self.bound();
        let mut counters = bound.counters.clone();
        bindings.tx_cq = bindings.tx_cq.take().or(bound.tx_cq.clone());
        let places = bindings.counters.places().into_iter();
        for ((_, place), (_, shared)) in places.zip(counters.places()) {
            *place = place.take().or(shared.take());
        }
    }
}

impl Class for SharedTransmitObject {
    type Header = fid_stx;

    fn class(&self) -> usize {
        FI_CLASS_STX_CTX
    }

    fn header(&self, fid: fid) -> fid_stx {
        fid_stx {
            fid,
            ops: ptr::from_ref(&missing::EP).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        *this.0.bound() = Bindings::default();
        Ok(())
    }

    /// What drives a queue are the endpoints that complete there.
    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        const QUEUE: u64 = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
        const COUNTERS: u64 = FI_SEND | FI_READ | FI_WRITE;
        if flags & !(QUEUE | COUNTERS) != 0 {
            return Err(Errno::EBADFLAGS);
        }
        match other.class() {
            FI_CLASS_CQ | FI_CLASS_CNTR => {}
            _ => return Err(Errno::EINVAL),
        }
        this.0.bound().bind(other, flags, true)
    }

    unsafe fn control(_: &Handle<Self>, command: c_int, _: *mut c_void) -> Result<c_int> {
        match command {
            // It is ready as soon as it is open.
            FI_ENABLE => Ok(0),
            _ => Err(Errno::ENOSYS),
        }
    }
}
