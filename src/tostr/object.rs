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
    // SAFETY: the object's own operation, with a buffer of the stated size
    // whose last byte it is not told about, so that a NUL follows the text.
    let result = unsafe { print(object.as_ptr(), room.as_mut_ptr(), ROOM - 1) };
    if result < 0 {
        return None;
    }
    // SAFETY: the last byte is zero.
    let text = unsafe { CStr::from_ptr(room.as_ptr()) };
    Some(text.to_string_lossy().into_owned())
}
