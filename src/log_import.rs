//! Applications that take over the log: `fi_open` of `"logging"` and
//! `fi_import_log` (fi_provider(3)).

use std::ffi::{CStr, c_char, c_int, c_void};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_util::ffi::status;

use crate::c_log::{self, Topic};
use crate::own_object::OPS_UNSUPPORTED;
use crate::{core_provider, log_takeover};

/// Opens the object that represents the log. `EALREADY` while an application has taken it over.
pub fn open_object(context: *mut c_void) -> Result<*mut fid> {
    if log_takeover::active() {
        return Err(Errno::EALREADY);
    }
    let object = Box::new(fid_logging {
        fid: fid {
            fclass: FI_CLASS_LOG,
            context,
            ops: (&raw const OBJECT_OPS).cast_mut(),
        },
        ops: (&raw const OWN_OPS).cast_mut(),
    });
    Ok(Box::into_raw(object).cast())
}

static OBJECT_OPS: fi_ops = fi_ops {
    close: Some(close_object),
    bind: Some(bind_object),
    ..OPS_UNSUPPORTED
};

/// The operations of an application's object after it was imported.
static IMPORTED_OPS: fi_ops = fi_ops {
    close: Some(close_imported),
    ..OPS_UNSUPPORTED
};

static OWN_OPS: fi_ops_log = fi_ops_log {
    size: size_of::<fi_ops_log>(),
    enabled: Some(own_enabled),
    ready: Some(own_ready),
    log: Some(own_log),
};

unsafe extern "C" fn close_object(object: *mut fid) -> c_int {
    // SAFETY: open_object has allocated the object as a Box, and its closer does not use it after
    // this.
    drop(unsafe { Box::from_raw(object.cast::<fid_logging>()) });
    0
}

unsafe extern "C" fn bind_object(_object: *mut fid, imported: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller of fi_import guarantees that the object is valid.
    status(unsafe { import(imported, flags) })
}

/// # Safety
/// `object` is NULL or valid, and stays so until it is closed.
unsafe fn import(object: *mut fid, flags: u64) -> Result {
    // SAFETY: the caller guarantees that the object is NULL or valid; an object of this class is a
    // fid_logging, and its table has at least the length that was checked.
    unsafe {
        if flags != 0 || object.is_null() || (*object).fclass != FI_CLASS_LOG {
            return Err(Errno::EINVAL);
        }
        let ops = (*object.cast::<fid_logging>()).ops;
        if ops.is_null() || (*ops).size < size_of::<fi_ops_log>() {
            return Err(Errno::EINVAL);
        }
        (*object).ops = (&raw const IMPORTED_OPS).cast_mut();
        log_takeover::take(*ops, object);
    }
    Ok(())
}

unsafe extern "C" fn close_imported(object: *mut fid) -> c_int {
    log_takeover::release(object);
    0
}

unsafe extern "C" fn own_enabled(
    provider: *const fi_provider,
    level: fi_log_level,
    subsystem: fi_log_subsys,
    flags: u64,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is NULL or refers to a provider's structure.
    let provider = unsafe { core_provider::unless(provider) };
    Topic::from_c(level, subsystem)
        .is_some_and(|topic| {
            flags & FI_LOG_PROV_FILTERED == 0 && c_log::enabled_here(provider, topic)
        })
        .into()
}

unsafe extern "C" fn own_ready(
    provider: *const fi_provider,
    level: fi_log_level,
    subsystem: fi_log_subsys,
    flags: u64,
    show_time: *mut u64,
) -> c_int {
    // SAFETY: the caller guarantees that `provider` is NULL or a provider's structure, and that
    // `show_time` is NULL or writable.
    let (provider, show_time) = unsafe { (core_provider::unless(provider), show_time.as_mut()) };
    let (Some(topic), Some(show_time)) = (Topic::from_c(level, subsystem), show_time) else {
        return 0;
    };
    (flags & FI_LOG_PROV_FILTERED == 0 && c_log::ready_here(provider, topic, show_time)).into()
}

unsafe extern "C" fn own_log(
    provider: *const fi_provider,
    level: fi_log_level,
    subsystem: fi_log_subsys,
    function: *const c_char,
    line: c_int,
    message: *const c_char,
) {
    if function.is_null() || message.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that `provider` is NULL or a provider's structure, and that
    // both texts are terminated.
    unsafe {
        if let Some(topic) = Topic::from_c(level, subsystem) {
            c_log::write_here(
                core_provider::unless(provider),
                topic,
                &CStr::from_ptr(function).to_string_lossy(),
                line as u32,
                &CStr::from_ptr(message).to_string_lossy(),
            );
        }
    }
}
