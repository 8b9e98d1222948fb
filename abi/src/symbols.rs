//! The functions that libfabric.so.1 exports, for code on the calling side.

use core::ffi::{c_char, c_int, c_void};

use crate::*;

unsafe extern "C" {
    pub fn fi_dupinfo(a: *const fi_info) -> *mut fi_info;
    pub fn fi_fabric(a: *mut fi_fabric_attr, b: *mut *mut fid_fabric, c: *mut c_void) -> c_int;
    pub fn fi_fabric2(a: *mut fi_info, b: *mut *mut fid_fabric, c: u64, d: *mut c_void) -> c_int;
    pub fn fi_freeinfo(a: *mut fi_info);
    pub fn fi_freeparams(a: *mut fi_param);
    pub fn fi_getinfo(
        a: u32,
        b: *const c_char,
        c: *const c_char,
        d: u64,
        e: *const fi_info,
        f: *mut *mut fi_info,
    ) -> c_int;
    pub fn fi_getparams(a: *mut *mut fi_param, b: *mut c_int) -> c_int;
    pub fn fi_log(
        a: *const fi_provider,
        b: fi_log_level,
        c: fi_log_subsys,
        d: *const c_char,
        e: c_int,
        f: *const c_char,
        ...
    );
    pub fn fi_log_enabled(a: *const fi_provider, b: fi_log_level, c: fi_log_subsys) -> c_int;
    pub fn fi_log_ready(
        a: *const fi_provider,
        b: fi_log_level,
        c: fi_log_subsys,
        d: *mut u64,
    ) -> c_int;
    pub fn fi_open(
        a: u32,
        b: *const c_char,
        c: *mut c_void,
        d: usize,
        e: u64,
        f: *mut *mut fid,
        g: *mut c_void,
    ) -> c_int;
    pub fn fi_param_define(
        a: *const fi_provider,
        b: *const c_char,
        c: fi_param_type,
        d: *const c_char,
        ...
    ) -> c_int;
    pub fn fi_param_get(a: *mut fi_provider, b: *const c_char, c: *mut c_void) -> c_int;
    pub fn fi_strerror(a: c_int) -> *const c_char;
    pub fn fi_tostr(a: *const c_void, b: fi_type) -> *mut c_char;
    pub fn fi_tostr_r(a: *mut c_char, b: usize, c: *const c_void, d: fi_type) -> *mut c_char;
    pub fn fi_version() -> u32;
}
