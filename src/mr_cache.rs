//! The cache of memory registrations as an object: `fi_open` of `"mr_cache"` (fi_mr(3)). The
//! providers in this library only enter a registration into a table, which needs no cache; an
//! application's memory monitor is accepted, and its notifications have no effect.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_util::ffi::status;

use crate::own_object::OPS_UNSUPPORTED;

/// Opens the object that represents the cache.
pub fn open_object(context: *mut c_void) -> Result<*mut fid> {
    Ok(Box::into_raw(Box::new(fid {
        fclass: FI_CLASS_MR_CACHE,
        context,
        ops: (&raw const OBJECT_OPS).cast_mut(),
    })))
}

/// The application's monitor, while there is one.
static MONITOR: AtomicPtr<fid> = AtomicPtr::new(std::ptr::null_mut());

static OBJECT_OPS: fi_ops = fi_ops {
    close: Some(close_object),
    bind: Some(bind_object),
    ..OPS_UNSUPPORTED
};

static MONITOR_OPS: fi_ops = fi_ops {
    close: Some(close_monitor),
    ..OPS_UNSUPPORTED
};

static NOTIFY_OPS: fi_ops_mem_notify = fi_ops_mem_notify {
    size: size_of::<fi_ops_mem_notify>(),
    notify: Some(notify),
};

unsafe extern "C" fn close_object(object: *mut fid) -> c_int {
    // SAFETY: open_object has allocated the object as a Box, and its closer does not use it after
    // this.
    drop(unsafe { Box::from_raw(object) });
    0
}

unsafe extern "C" fn bind_object(_object: *mut fid, monitor: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller of fi_import guarantees that the object is valid.
    status(unsafe { import(monitor, flags) })
}

/// # Safety
/// `object` is NULL or valid, and stays so until it is closed.
unsafe fn import(object: *mut fid, flags: u64) -> Result {
    // SAFETY: the caller guarantees that the object is NULL or valid; an object of this class is a
    // fid_mem_monitor, and its table has at least the length that was checked.
    unsafe {
        if flags != 0 || object.is_null() || (*object).fclass != FI_CLASS_MEM_MONITOR {
            return Err(Errno::EINVAL);
        }
        let monitor = object.cast::<fid_mem_monitor>();
        let export = (*monitor).export_ops;
        if export.is_null() || (*export).size < size_of::<fi_ops_mem_monitor>() {
            return Err(Errno::EINVAL);
        }
        MONITOR
            .compare_exchange(
                std::ptr::null_mut(),
                object,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map_err(|_| Errno::EBUSY)?;
        (*monitor).import_ops = (&raw const NOTIFY_OPS).cast_mut();
        (*object).ops = (&raw const MONITOR_OPS).cast_mut();
    }
    Ok(())
}

unsafe extern "C" fn close_monitor(object: *mut fid) -> c_int {
    // Closing a monitor that was replaced has no effect.
    let _ = MONITOR.compare_exchange(
        object,
        std::ptr::null_mut(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    0
}

unsafe extern "C" fn notify(
    _monitor: *mut fid_mem_monitor,
    _address: *const c_void,
    _length: usize,
) {
}
