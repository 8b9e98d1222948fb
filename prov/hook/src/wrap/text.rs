//! Calls as text, for the trace hook: the name of the function and its arguments.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;

use fabric_abi::symbols::fi_tostr_r;
use fabric_abi::*;
use libc::iovec;

use super::call::{Call, elements};
use super::value::Value;

impl fmt::Display for Call<'_> {
    /// The name of the function and its arguments, as a call in C with names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.operation().facts();
        write!(f, "{}({:#x}", facts.name, self.object())?;
        for (name, value) in facts.arguments.iter().zip(self.values()) {
            write!(f, ", {name}=")?;
            // SAFETY: the pointers are those of the call that the application is in.
            unsafe { write_value(f, *value, self) }?;
        }
        f.write_str(")")
    }
}

/// # Safety
/// The value is an argument of the call, which lasts.
unsafe fn write_value(f: &mut fmt::Formatter<'_>, value: Value, call: &Call<'_>) -> fmt::Result {
    // SAFETY: the caller's promise.
    unsafe {
        match value {
            Value::Number(u64::MAX) | Value::Signed(-1) => f.write_str("-1"),
            Value::Number(number) => write!(f, "{number:#x}"),
            Value::Count(count) => write!(f, "{count}"),
            Value::Signed(number) => write!(f, "{number}"),
            Value::Text(text) if !text.is_null() => {
                write!(f, "{:?}", CStr::from_ptr(text).to_string_lossy())
            }
            Value::Vector(vector) if !vector.is_null() => {
                let count = call.number(call.operation().facts().count);
                write_parts(f, vector, count.unwrap_or_default() as usize)
            }
            Value::Msg(msg) if !msg.is_null() => {
                let msg = &*msg;
                f.write_str("{msg_iov=")?;
                write_parts(f, msg.msg_iov, msg.iov_count)?;
                write!(
                    f,
                    ", addr={:#x}, context={:?}, data={:#x}}}",
                    msg.addr, msg.context, msg.data
                )
            }
            Value::Tagged(msg) if !msg.is_null() => {
                let msg = &*msg;
                f.write_str("{msg_iov=")?;
                write_parts(f, msg.msg_iov, msg.iov_count)?;
                write!(
                    f,
                    ", addr={:#x}, tag={:#x}, ignore={:#x}, context={:?}, data={:#x}}}",
                    msg.addr, msg.tag, msg.ignore, msg.context, msg.data
                )
            }
            Value::Rma(msg) if !msg.is_null() => {
                let msg = &*msg;
                f.write_str("{msg_iov=")?;
                write_parts(f, msg.msg_iov, msg.iov_count)?;
                write!(f, ", addr={:#x}, rma_iov=[", msg.addr)?;
                for at in 0..msg.rma_iov_count {
                    let part = &*msg.rma_iov.add(at);
                    let space = if at == 0 { "" } else { ", " };
                    write!(
                        f,
                        "{space}{:#x}+{} key {:#x}",
                        part.addr, part.len, part.key
                    )?;
                }
                write!(f, "], context={:?}, data={:#x}}}", msg.context, msg.data)
            }
            Value::Atomic(msg) if !msg.is_null() => {
                let msg = &*msg;
                write!(
                    f,
                    "{{{} elements, addr={:#x}, datatype={}, op={}, context={:?}, data={:#x}}}",
                    elements(msg.msg_iov, msg.iov_count),
                    msg.addr,
                    msg.datatype,
                    msg.op,
                    msg.context,
                    msg.data
                )
            }
            Value::Memory(attr) if !attr.is_null() => {
                write_structure(f, attr.cast(), FI_TYPE_MR_ATTR)
            }
            Value::Structure(place, type_) if !place.is_null() && type_ != FI_TYPE_INFO => {
                write_structure(f, place, type_)
            }
            other => write!(f, "{:#x}", other.address()),
        }
    }
}

/// # Safety
/// `first` is the first of `count` parts, unless null.
unsafe fn write_parts(
    f: &mut fmt::Formatter<'_>,
    first: *const iovec,
    count: usize,
) -> fmt::Result {
    f.write_str("[")?;
    if !first.is_null() {
        for at in 0..count {
            // SAFETY: the caller's promise.
            let part = unsafe { &*first.add(at) };
            let space = if at == 0 { "" } else { ", " };
            write!(f, "{space}{:?}+{}", part.iov_base, part.iov_len)?;
        }
    }
    f.write_str("]")
}

/// Writes the text that fi_tostr(3) has for a structure, on one line.
///
/// # Safety
/// A structure of the type is at `place`.
unsafe fn write_structure(
    f: &mut fmt::Formatter<'_>,
    place: *const c_void,
    type_: fi_type,
) -> fmt::Result {
    let mut text = [0u8; 2048];
    // SAFETY: the caller's promise; the function writes a C string within the length.
    let text = unsafe {
        let start = text.as_mut_ptr().cast::<c_char>();
        if fi_tostr_r(start, text.len(), place, type_).is_null() {
            return write!(f, "{place:?}");
        }
        CStr::from_ptr(start).to_string_lossy()
    };
    f.write_str("{")?;
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        f.write_str(line)?;
        if lines.peek().is_some() && !line.ends_with('{') {
            f.write_str(", ")?;
        }
    }
    f.write_str("}")
}
