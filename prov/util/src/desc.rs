//! Memory descriptors: what fi_mr_desc(3) gave for a region, passed back with
//! local memory of that region.

use std::ffi::c_void;

use crate::attr::Opaque;
use crate::buffer::IOV_LIMIT;

/// The descriptors of an operation's local memory, one for each of its
/// [`pieces`](crate::buffer::AppIov::pieces). The seam takes them from the
/// call, whose arrays are gone when it returns; a request that waits keeps a
/// copy. A provider that looks at none pays for the storing of one.
#[derive(Clone, Copy, Debug)]
pub struct Descs(Given);

#[derive(Clone, Copy, Debug)]
enum Given {
    /// By a call with one buffer.
    One(Opaque),
    /// By a call with a vector.
    Each([Opaque; IOV_LIMIT]),
}

impl Descs {
    /// No descriptors: memory that is not registered, or needs not to be.
    pub const NONE: Descs = Descs(Given::One(Opaque::NULL));

    /// That of a single buffer, null for none.
    #[inline(always)]
    pub(crate) fn one(desc: *mut c_void) -> Self {
        Descs(Given::One(Opaque(desc)))
    }

    /// Those of [`IOV_LIMIT`] pieces at most, null for a piece without.
    #[inline]
    pub fn each(descs: impl Iterator<Item = *mut c_void>) -> Self {
        let mut each = [Opaque::NULL; IOV_LIMIT];
        each.iter_mut()
            .zip(descs)
            .for_each(|(place, desc)| *place = Opaque(desc));
        Descs(Given::Each(each))
    }

    /// The descriptor of a piece, by its position; `None` where the
    /// application gave none. It is what the domain put into the region
    /// (`fid_mr::mem_desc`), unless the application made it up.
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
