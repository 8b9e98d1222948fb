//! The properties of reading an address of lnx, for arbitrary bytes of a peer. Shared by the fuzz
//! target and the provider's tests, which have the functions in scope.

use super::{Composite, extent};
use prov_util::av::format::Extent;

pub fn check(bytes: &[u8]) {
    if let Extent::Unseen(more) = extent(bytes) {
        assert!(more > bytes.len());
        assert!(Composite::read(bytes).is_none());
    }
    let Some(address) = Composite::read(bytes) else {
        return;
    };
    assert_eq!(extent(bytes), Extent::Is(bytes.len()));
    assert!(!address.parts.is_empty());
    let len: usize = address.parts.iter().map(|(_, part)| part.len()).sum();
    assert!(len <= bytes.len().max(255 * address.parts.len()));
    let _ = address.shm();
    let short = address.write_short(64);
    if let Some(short) = short {
        assert_eq!(extent(&short), Extent::Is(64));
        assert!(Composite::read(&short).is_some());
    }
}
