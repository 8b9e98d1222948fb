//! Calls through an object's tables, and closing of objects.

use fabric_abi::fid;

use super::error::check;

/// Calls `object->table->slot(arguments)`; without that slot the result is `-FI_ENOSYS`.
///
/// To be used in an unsafe block: the object must be open and the arguments as the call's
/// manual page says.
macro_rules! call_slot {
    ($object:expr, $($table:ident).+, $slot:ident, $($argument:expr),* $(,)?) => {
        match (*(*$object).$($table).+).$slot {
            Some(function) => function($($argument),*) as isize,
            None => -(fabric_abi::FI_ENOSYS as isize),
        }
    };
}

/// Closes an object; reports a failure on stderr.
///
/// # Safety
/// `object` is the fid of an open object that nobody uses any more.
pub(super) unsafe fn close(object: *mut fid) {
    // SAFETY: the caller guarantees that the object is open and has no other users.
    let returned = unsafe { call_slot!(object, ops, close, object) };
    if let Err(failure) = check("fi_close", returned) {
        eprintln!("{failure}");
    }
}
