//! Fabric objects with a text of their own.

use std::ffi::{CStr, c_char};

use fabric_abi::fid;

use crate::deep::Deep;

/// Largest length of one object's text in bytes.
const ROOM: usize = 4096;

/// Returns the text of the object's provider, if it has one.
pub fn text(object: Deep<fid>) -> Option<String> {
    let print = object.operations()?.tostr?;
    let mut room = [0 as c_char; ROOM];
    // SAFETY: the function belongs to the object, and writes at most `ROOM - 1` bytes, so that the
    // last byte of the buffer stays zero.
    let result = unsafe { print(object.as_ptr(), room.as_mut_ptr(), ROOM - 1) };
    if result < 0 {
        return None;
    }
    // SAFETY: the buffer is terminated, since its last byte is zero.
    let text = unsafe { CStr::from_ptr(room.as_ptr()) };
    Some(text.to_string_lossy().into_owned())
}
