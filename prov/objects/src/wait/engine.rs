//! A progress engine that is called often.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::progress::Progress;

/// An `Arc` that keeps the address of its object. The address of the object within the allocation
/// depends on the object's alignment, which takes five instructions where the type is not known.
#[derive(Clone)]
pub(super) struct Engine {
    object: NonNull<dyn Progress>,
    owner: Arc<dyn Progress>,
}

// SAFETY: it is used as a reference to the object, which is `Sync`, and owned by an `Arc` that is
// `Send`, both of which `Progress` requires.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

impl Engine {
    pub(super) fn new(owner: Arc<dyn Progress>) -> Self {
        Engine {
            object: NonNull::from(&*owner),
            owner,
        }
    }

    /// Returns whether this is its object.
    pub(super) fn is(&self, other: &Arc<dyn Progress>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.owner), Arc::as_ptr(other))
    }
}

impl Deref for Engine {
    type Target = dyn Progress;

    #[inline(always)]
    fn deref(&self) -> &(dyn Progress + 'static) {
        // SAFETY: the object is in the allocation of `owner`, which lives as long as this value and
        // gives no exclusive reference to it.
        unsafe { self.object.as_ref() }
    }
}
