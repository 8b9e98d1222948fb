//! Elements that are updated where they are.

/// A memory image that the processor may be able to update in one step.
pub(super) trait Cell: Sized {
    /// Updates the image at `address` in one step, as [`update_each`](super::target::update_each) describes. `None` if this
    /// processor cannot do that there; the image is unchanged then.
    ///
    /// # Safety
    /// `address` is valid for reads and writes of the image, or for reads if
    /// `update` only returns `None`.
    unsafe fn update_at(address: *mut u8, update: impl FnMut(Self) -> Option<Self>) -> Option<()>;
}
