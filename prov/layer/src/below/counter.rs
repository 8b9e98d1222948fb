//! Counters of the provider below that tell this side of what they count (fi_peer(3)): what peers
//! do to memory.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use fabric_abi::*;

use super::peer::open_counter;
use super::{Domain, Object};
use prov_base::errno::Result;

/// A counter of the provider below; closed when it is dropped, which must be after what it is bound
/// to.
pub struct Counter {
    /// `None` when it is closed, before its owner is freed.
    object: Option<Object<fid_cntr>>,
    owner: NonNull<Owner>,
    _domain: Arc<Domain>,
}

/// What the counter below counts in.
#[repr(C)]
struct Owner {
    header: fid_peer_cntr,
    count: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: the interface lets any thread call the functions of the object, and `count` is `Send` and
// `Sync`.
unsafe impl Send for Counter {}
// SAFETY: the reason for `Send` holds for shared access, too.
unsafe impl Sync for Counter {}

static OWNER: fi_ops_cntr_owner = fi_ops_cntr_owner {
    size: size_of::<fi_ops_cntr_owner>(),
    inc: Some(increment),
    incerr: Some(ignore),
};

unsafe extern "C" fn increment(owner: *mut fid_peer_cntr) {
    // SAFETY: the header is at the beginning of an `Owner`, which lives until the counter below is
    // closed.
    let owner = unsafe { &*owner.cast::<Owner>() };
    (owner.count)();
}

/// Accesses that fail are not counted.
unsafe extern "C" fn ignore(_: *mut fid_peer_cntr) {}

impl Domain {
    /// Opens a counter, which calls `count` for each event: from below, so that it must call
    /// nothing there.
    ///
    /// # Errors
    /// What the provider returns, which may not share counters.
    pub fn counter(
        self: &Arc<Self>,
        count: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Counter>> {
        let owner = Box::new(Owner {
            header: fid_peer_cntr {
                fid: fid {
                    fclass: FI_CLASS_PEER_CNTR,
                    context: null_mut(),
                    ops: null_mut(),
                },
                owner_ops: (&raw const OWNER).cast_mut(),
            },
            count: Box::new(count),
        });
        let owner = NonNull::from(Box::leak(owner));
        // SAFETY: the domain is open, and the owner is freed after the counter is closed.
        let opened = unsafe { open_counter(self.as_c(), owner.as_ptr().cast()) };
        match opened {
            Ok(object) => Ok(Arc::new(Counter {
                object: Some(object),
                owner,
                _domain: self.clone(),
            })),
            Err(error) => {
                // SAFETY: the owner was allocated above, and nobody else has a pointer to it.
                drop(unsafe { Box::from_raw(owner.as_ptr()) });
                Err(error)
            }
        }
    }
}

impl Counter {
    pub(super) fn fid(&self) -> *mut fid {
        self.object.as_ref().map_or(null_mut(), Object::fid)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.object = None;
        // SAFETY: `Domain::counter` allocated the owner, and the counter that used it is closed.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}
