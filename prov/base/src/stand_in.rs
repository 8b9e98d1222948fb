//! The framework's functions for programs without the framework.

/// Defines the functions, for the unit tests and fuzz targets of a crate: no parameter is set, no
/// value has a name.
#[macro_export]
macro_rules! stand_in {
    () => {
        mod stand_in {
            use std::ffi::{c_char, c_int, c_void};

            use ::fabric_abi::{fi_param_type, fi_provider, fi_type};

            #[unsafe(no_mangle)]
            extern "C" fn fi_param_define(
                _: *const fi_provider,
                _: *const c_char,
                _: fi_param_type,
                _: *const c_char,
            ) -> c_int {
                0
            }

            #[unsafe(no_mangle)]
            extern "C" fn fi_param_get(
                _: *const fi_provider,
                _: *const c_char,
                _: *mut c_void,
            ) -> c_int {
                -::libc::ENODATA
            }

            #[unsafe(no_mangle)]
            extern "C" fn fi_strerror(_: c_int) -> *const c_char {
                c"an error".as_ptr()
            }

            #[unsafe(no_mangle)]
            extern "C" fn fi_tostr_r(
                buf: *mut c_char,
                len: usize,
                _: *const c_void,
                _: fi_type,
            ) -> *mut c_char {
                if buf.is_null() || len == 0 {
                    return std::ptr::null_mut();
                }
                // SAFETY: the caller passes a buffer of `len` bytes, at least one.
                unsafe { buf.write(0) };
                buf
            }
        }
    };
}
