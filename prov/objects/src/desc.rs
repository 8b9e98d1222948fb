//! Memory descriptors: the values of fi_mr_desc(3) for a region, which the application passes with
//! local memory of that region.

use std::ffi::c_void;

use crate::attr::Opaque;
use prov_base::buffer::IOV_LIMIT;

/// The descriptors of an operation's local memory, one for each of its
/// [`pieces`](prov_base::buffer::AppIov::pieces). They are copied from the call, whose arrays are
/// invalid after it returns. A provider that uses none pays for storing one pointer.
#[derive(Clone, Copy, Debug)]
pub struct Descs(Given);

#[derive(Clone, Copy, Debug)]
enum Given {
    /// Of a call with one buffer.
    One(Opaque),
    /// Of a call with a vector.
    Each([Opaque; IOV_LIMIT]),
}

impl Descs {
    /// No descriptors: the memory is not registered, or need not be.
    pub const NONE: Descs = Descs(Given::One(Opaque::NULL));

    /// The descriptor of a single buffer; null for none.
    #[inline(always)]
    pub fn one(desc: *mut c_void) -> Self {
        Descs(Given::One(Opaque(desc)))
    }

    /// The descriptors of up to [`IOV_LIMIT`] pieces; null for a piece without one.
    #[inline]
    pub fn each(descs: impl Iterator<Item = *mut c_void>) -> Self {
        let mut each = [Opaque::NULL; IOV_LIMIT];
        each.iter_mut()
            .zip(descs)
            .for_each(|(place, desc)| *place = Opaque(desc));
        Descs(Given::Each(each))
    }

    /// Returns the descriptor of a piece, by its index; `None` if the application gave none. It is
    /// the value of `fid_mr::mem_desc`, unless the application invented it.
    #[inline]
    pub fn of_piece(&self, position: usize) -> Option<Opaque> {
        let desc = match &self.0 {
            Given::One(desc) => (position == 0).then_some(desc),
            Given::Each(each) => each.get(position),
        };
        desc.copied().filter(|&desc| desc != Opaque::NULL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(address: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(address)
    }

    #[test]
    fn every_piece_has_its_own_descriptor_or_none() {
        let descs = Descs::each([8, 0, 16].map(pointer).into_iter());
        let found = [0, 1, 2, 3, IOV_LIMIT].map(|position| descs.of_piece(position));
        let [a, c] = [8, 16].map(|address| Some(Opaque(pointer(address))));
        assert_eq!(found, [a, None, c, None, None]);
    }

    #[test]
    fn one_descriptor_is_of_the_first_piece() {
        let descs = Descs::one(pointer(8));
        assert_eq!(descs.of_piece(0), Some(Opaque(pointer(8))));
        assert_eq!(descs.of_piece(1), None);
        assert_eq!(Descs::NONE.of_piece(0), None);
    }
}
