//! Error entries.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use fabric_abi::*;

use super::super::object::Handle;
use super::{copy_text, error_text};
use prov_base::errno::Errno;
use prov_objects::attr::version;
use prov_objects::cq::Cq;

pub(super) unsafe extern "C" fn readerr(
    cq: *mut fid_cq,
    buf: *mut fi_cq_err_entry,
    _flags: u64,
) -> isize {
    if buf.is_null() {
        return Errno::EINVAL.to_c() as isize;
    }
    // SAFETY: this function is only in the tables of queues, and the application passes an open
    // one.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    let error = match this.read_error() {
        Ok(error) => error,
        Err(error) => return error.to_c() as isize,
    };
    let completion = &error.completion;
    // SAFETY: the application passes a structure of its interface version; members of later
    // versions are not accessed.
    unsafe {
        (*buf).op_context = completion.context;
        (*buf).flags = completion.flags;
        (*buf).len = completion.len;
        (*buf).buf = completion.buf;
        (*buf).data = completion.data;
        (*buf).tag = completion.tag;
        (*buf).olen = error.olen;
        (*buf).err = error.err.number();
        (*buf).prov_errno = error.prov_errno;
        if this.api_version() >= version(1, 20) {
            (*buf).src_addr = completion.src;
        }
        let size = &raw mut (*buf).err_data_size;
        put_err_data(
            &raw mut (*buf).err_data,
            size,
            this.api_version(),
            error.err_data,
            |data| this.lend(data),
        );
    }
    1
}

/// Copies error data to the application's buffer, at `place`, whose room is in `size`, and stores the
/// length there. Without room, it calls `lend` with the data and stores its address. Structures before
/// version 1.5 end with the pointer, and have no size.
///
/// # Safety
/// `place` and `size` are members of a structure of this version; `place` holds a pointer to so many
/// bytes, or null.
pub(in crate::ffi) unsafe fn put_err_data(
    place: *mut *mut c_void,
    size: *mut usize,
    api_version: u32,
    data: Box<[u8]>,
    lend: impl FnOnce(Box<[u8]>) -> *const [u8],
) {
    let has_size = api_version >= version(1, 5);
    let len = data.len();
    // SAFETY: the caller guarantees that the members are there in this version, and that `place`
    // contains null or a pointer to as many bytes as `size` says.
    unsafe {
        let room = if has_size { size.read() } else { 0 };
        let put = if room == 0 {
            place.write(match len {
                0 => ptr::null_mut(),
                _ => lend(data).cast_mut().cast(),
            });
            len
        } else {
            let buffer = place.read();
            let copied = if buffer.is_null() { 0 } else { len.min(room) };
            if copied != 0 {
                ptr::copy_nonoverlapping(data.as_ptr(), buffer.cast(), copied);
            }
            copied
        };
        if has_size {
            size.write(put);
        }
    }
}

pub(super) unsafe extern "C" fn strerror(
    cq: *mut fid_cq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: this function is only in the tables of queues; the application passes an open one,
    // and null or a buffer of `len` bytes.
    unsafe {
        match Handle::<Cq>::borrow(cq).error_text(prov_errno) {
            Some(text) => copy_text(text, buf, len),
            None => error_text(prov_errno, buf, len),
        }
    }
}
