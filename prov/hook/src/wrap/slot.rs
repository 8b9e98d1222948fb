//! Functions of the tables of objects below.

/// Returns a function of the table that an object has at an offset, or `None` if it has no such
/// table, or one of an older interface without the function, or NULL in its place.
macro_rules! slot {
    ($object:expr, $offset:expr, $table:ident, $slot:ident) => {{
        let object: *mut fid = $object;
        let table = object.byte_add($offset).cast::<*const $table>().read();
        if table.is_null()
            || (&raw const (*table).size).read() <= std::mem::offset_of!($table, $slot)
        {
            None
        } else {
            (&raw const (*table).$slot).read()
        }
    }};
}

pub(super) use slot;
