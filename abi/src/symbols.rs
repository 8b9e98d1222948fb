//! The functions that libfabric.so.1 exports, for code on the calling side.

use core::ffi::{c_char, c_int, c_void};

use crate::*;

unsafe extern "C" {
    /// Returns a deep copy of one element of a list, or an empty element for NULL; fi_getinfo(3).
    pub fn fi_dupinfo(info: *const fi_info) -> *mut fi_info;

    /// Opens a fabric, fi_fabric(3).
    pub fn fi_fabric(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int;

    /// Opens a fabric with flags, fi_fabric(3).
    pub fn fi_fabric2(
        info: *mut fi_info,
        fabric: *mut *mut fid_fabric,
        flags: u64,
        context: *mut c_void,
    ) -> c_int;

    /// Frees a list that fi_getinfo or fi_dupinfo returned, fi_getinfo(3).
    pub fn fi_freeinfo(info: *mut fi_info);

    /// Frees the result of fi_getparams, fi_provider(3).
    pub fn fi_freeparams(params: *mut fi_param);

    /// Lists the endpoints that match the hints, fi_getinfo(3).
    pub fn fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int;

    /// Lists the parameters that a user can set, fi_provider(3).
    pub fn fi_getparams(params: *mut *mut fi_param, count: *mut c_int) -> c_int;

    /// Writes a log line, fi_provider(3).
    pub fn fi_log(
        prov: *const fi_provider,
        level: fi_log_level,
        subsys: fi_log_subsys,
        func: *const c_char,
        line: c_int,
        fmt: *const c_char,
        ...
    );

    /// Returns whether a log line would be written, fi_provider(3).
    pub fn fi_log_enabled(
        prov: *const fi_provider,
        level: fi_log_level,
        subsys: fi_log_subsys,
    ) -> c_int;

    /// As fi_log_enabled, but true at most once in an interval, whose state `showtime` points to,
    /// fi_provider(3).
    pub fn fi_log_ready(
        prov: *const fi_provider,
        level: fi_log_level,
        subsys: fi_log_subsys,
        showtime: *mut u64,
    ) -> c_int;

    /// Opens an object of the library itself by its name, fi_provider(3).
    pub fn fi_open(
        version: u32,
        name: *const c_char,
        attr: *mut c_void,
        attr_len: usize,
        flags: u64,
        fid: *mut *mut fid,
        context: *mut c_void,
    ) -> c_int;

    /// Announces a parameter, fi_provider(3).
    pub fn fi_param_define(
        provider: *const fi_provider,
        param_name: *const c_char,
        type_: fi_param_type,
        help_string_fmt: *const c_char,
        ...
    ) -> c_int;

    /// Returns the value that the user has set, or -FI_ENODATA, fi_provider(3).
    pub fn fi_param_get(
        provider: *mut fi_provider,
        param_name: *const c_char,
        value: *mut c_void,
    ) -> c_int;

    /// Returns the text of an error number, fi_errno(3).
    pub fn fi_strerror(errnum: c_int) -> *const c_char;

    /// Returns a text for a structure or value in a buffer of the process, valid until the next
    /// call, fi_getinfo(3).
    pub fn fi_tostr(data: *const c_void, datatype: fi_type) -> *mut c_char;

    /// Formats a structure or value into the caller's buffer, fi_getinfo(3).
    pub fn fi_tostr_r(
        buf: *mut c_char,
        len: usize,
        data: *const c_void,
        datatype: fi_type,
    ) -> *mut c_char;

    /// Returns the newest version of the interface that the library supports, fi_version(3).
    pub fn fi_version() -> u32;
}
