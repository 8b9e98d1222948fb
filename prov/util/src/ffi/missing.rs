//! The functions of table slots that an object does not offer: each returns
//! `-FI_ENOSYS`, so that no slot is ever NULL.

use std::ffi::{c_char, c_int, c_void};

use fabric_abi::*;

const ENOSYS: c_int = -libc::ENOSYS;

macro_rules! missing {
    ($($(#[$doc:meta])* $name:ident($($arg:ty),*) -> $ret:ty;)*) => {
        $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($(_: $arg),*) -> $ret {
                ENOSYS as $ret
            }
        )*
    };
}

missing! {
    /// `fi_ops::tostr`
    tostr(*const fid, *mut c_char, usize) -> c_int;
    /// `fi_ops::ops_set`
    ops_set(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
}
