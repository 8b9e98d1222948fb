//! Parts of a loan.

use std::marker::PhantomData;
use std::ops::Deref;

use super::Iov;

/// Some of the bytes of a loan, which is borrowed for `'a`. As long as this exists, the loan stays
/// where it is; nothing moves out of a part.
pub struct Part<'a, 'm> {
    iov: Iov<'m>,
    loan: PhantomData<&'a Iov<'m>>,
}

impl<'a, 'm> Part<'a, 'm> {
    /// A description of these bytes of a loan.
    #[inline(always)]
    pub(super) fn new(_loan: &'a Iov<'m>, iov: Iov<'m>) -> Self {
        Part {
            iov,
            loan: PhantomData,
        }
    }

    /// Returns `len` bytes from `offset` on, as [`Iov::slice`] does.
    #[inline]
    #[must_use]
    pub fn narrow(self, offset: usize, len: usize) -> Self {
        Part {
            iov: self.iov.into_slice(offset, len),
            loan: PhantomData,
        }
    }
}

impl<'m> Deref for Part<'_, 'm> {
    type Target = Iov<'m>;

    #[inline(always)]
    fn deref(&self) -> &Iov<'m> {
        &self.iov
    }
}
