//! A library without providers, for tests: nothing is below.

use std::ffi::{c_char, c_int, c_void};

use fabric_abi::{fi_fabric_attr, fi_info, fid_fabric};

#[unsafe(no_mangle)]
extern "C" fn fi_getinfo(
    _version: u32,
    _node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    _hints: *const fi_info,
    _list: *mut *mut fi_info,
) -> c_int {
    -libc::ENODATA
}

#[unsafe(no_mangle)]
extern "C" fn fi_freeinfo(_list: *mut fi_info) {}

#[unsafe(no_mangle)]
extern "C" fn fi_fabric(
    _attr: *mut fi_fabric_attr,
    _fabric: *mut *mut fid_fabric,
    _context: *mut c_void,
) -> c_int {
    -libc::ENODATA
}
