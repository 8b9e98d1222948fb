//! `fi_open`: objects of the library itself, by name (fi_provider(3)).

use std::ffi::{CStr, c_void};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};

use crate::version::Version;
use crate::{log_import, mr_cache};

/// The first interface with named objects.
const SINCE: Version = Version::of(1, 13);

/// Opens the object with this name. None of them has attributes or flags.
pub fn open(
    version: Version,
    name: &CStr,
    attr_len: usize,
    flags: u64,
    context: *mut c_void,
) -> Result<*mut fid> {
    let open: fn(*mut c_void) -> Result<*mut fid> = if is(name, "mr_cache") {
        mr_cache::open_object
    } else if is(name, "logging") {
        log_import::open_object
    } else {
        return Err(Errno::ENOSYS);
    };
    if version < SINCE || attr_len != 0 {
        return Err(Errno::EINVAL);
    }
    if flags != 0 {
        return Err(Errno::EBADFLAGS);
    }
    open(context)
}

fn is(name: &CStr, known: &str) -> bool {
    name.to_bytes().eq_ignore_ascii_case(known.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    fn error(version: Version, name: &CStr, attr_len: usize, flags: u64) -> Option<Errno> {
        open(version, name, attr_len, flags, null_mut()).err()
    }

    #[test]
    fn an_unknown_name_is_not_supported() {
        assert_eq!(
            error(Version::of(2, 0), c"nothing", 0, 0),
            Some(Errno::ENOSYS)
        );
    }

    #[test]
    fn old_interfaces_attributes_and_flags_are_refused() {
        for name in [c"mr_cache", c"LOGGING"] {
            assert_eq!(error(Version::of(1, 12), name, 0, 0), Some(Errno::EINVAL));
            assert_eq!(error(Version::of(2, 0), name, 8, 0), Some(Errno::EINVAL));
            assert_eq!(error(Version::of(2, 0), name, 0, 1), Some(Errno::EBADFLAGS));
        }
    }

    #[test]
    fn the_cache_opens_and_closes() {
        let object = open(Version::of(1, 13), c"mr_cache", 0, 0, null_mut()).unwrap();
        // SAFETY: the object was just opened and has no other users; it is not used after it is
        // closed.
        unsafe {
            assert_eq!((*object).fclass, FI_CLASS_MR_CACHE);
            assert_eq!((*(*object).ops).close.unwrap()(object), 0);
        }
    }
}
