//! Applications that take over the log: `fi_open` of `"logging"` and
//! `fi_import_log` (fi_provider(3)).

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::*;
use log::Record;
use prov_util::errno::{Errno, Result};
use prov_util::logging::SUBSYSTEMS;

use crate::c_log::{self, Topic};
use crate::logging::{self, Level};
use crate::open::{self, OPS_UNSUPPORTED};
use crate::provider::Provider;
use crate::{core_provider, framework};

/// What an application has put in place of this library's functions. Those
/// that it left out stay as they are.
#[derive(Clone, Copy)]
pub struct Imported(fi_ops_log);

/// Whether an application has taken over the log.
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// The application's functions, where there are any.
pub fn imported() -> Option<Imported> {
    if active() { state().imported } else { None }
}

impl Imported {
    /// Asks the application whether it wants a message; `None` where it leaves
    /// that to this library.
    pub fn enabled(
        self,
        provider: Provider,
        level: Level,
        subsystem: usize,
        flags: u64,
    ) -> Option<bool> {
        let enabled = self.0.enabled?;
        // SAFETY: the application's function, called as fi_ext.h declares it.
        Some(unsafe { enabled(provider.as_ptr(), level as _, subsystem as _, flags) } != 0)
    }

    /// Asks the application whether a message that is limited in rate is due.
    pub fn ready(
        self,
        provider: Provider,
        level: Level,
        subsystem: usize,
        flags: u64,
        show_time: &mut u64,
    ) -> Option<bool> {
        let ready = self.0.ready?;
        // SAFETY: as for `enabled`.
        Some(
            unsafe {
                ready(
                    provider.as_ptr(),
                    level as _,
                    subsystem as _,
                    flags,
                    show_time,
                )
            } != 0,
        )
    }

    /// Hands a message to the application. False where it takes none.
    pub fn log(
        self,
        provider: Provider,
        level: Level,
        subsystem: usize,
        function: &str,
        line: u32,
        message: &str,
    ) -> bool {
        let Some(log) = self.0.log else { return false };
        let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (function, message) = (text(function), text(message));
        // SAFETY: as for `enabled`; both texts outlive the call.
        unsafe {
            log(
                provider.as_ptr(),
                level as _,
                subsystem as _,
                function.as_ptr(),
                line as c_int,
                message.as_ptr(),
            );
        }
        true
    }
}

/// Hands a record of Rust code to the application. False where it takes no
/// messages, and this library writes them.
#[allow(clippy::indexing_slicing, reason = "the position is in the list")]
pub fn forward(record: &Record, provider_name: &str, subsystem: &str) -> bool {
    let Some(imported) = imported() else {
        return false;
    };
    let provider = framework::existing()
        .and_then(|framework| framework.registry.find(provider_name))
        .map_or_else(core_provider::get, |entry| entry.provider);
    let level = Level::of(record.level());
    let subsystem = SUBSYSTEMS
        .iter()
        .position(|&name| name == subsystem)
        .unwrap_or(0);
    let flags = filter_flags(provider);
    let enabled = imported
        .enabled(provider, level, subsystem, flags)
        .unwrap_or_else(|| flags == 0 && logging::enabled(level, SUBSYSTEMS[subsystem]));
    !enabled
        || imported.log(
            provider,
            level,
            subsystem,
            record.module_path().unwrap_or("unknown"),
            record.line().unwrap_or(0),
            &format!("{}\n", record.args()),
        )
}

/// What the application's functions are told about a provider that
/// `FI_LOG_PROV` leaves out.
pub fn filter_flags(provider: Provider) -> u64 {
    if provider.is_silent() {
        FI_LOG_PROV_FILTERED
    } else {
        0
    }
}

/// The object that stands for the log. `EALREADY` while an application has it.
pub fn open_object(context: *mut c_void) -> Result<*mut fid> {
    if active() {
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

static ACTIVE: AtomicBool = AtomicBool::new(false);

struct State {
    imported: Option<Imported>,
    /// The application's object that the functions came with.
    owner: usize,
}

fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State {
        imported: None,
        owner: 0,
    });
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

static OBJECT_OPS: fi_ops = fi_ops {
    close: Some(close_object),
    bind: Some(bind_object),
    ..OPS_UNSUPPORTED
};

/// The operations of an application's object once it is in place.
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
    // SAFETY: open_object allocated it, and the caller gives it up.
    drop(unsafe { Box::from_raw(object.cast::<fid_logging>()) });
    0
}

unsafe extern "C" fn bind_object(_object: *mut fid, imported: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller hands over a valid object.
    open::to_c(unsafe { import(imported, flags) })
}

/// # Safety
/// `object` is NULL or valid, and stays so until it is closed.
unsafe fn import(object: *mut fid, flags: u64) -> Result {
    // SAFETY: the caller's promise; an object of this class is a fid_logging.
    unsafe {
        if flags != 0 || object.is_null() || (*object).fclass != FI_CLASS_LOG {
            return Err(Errno::EINVAL);
        }
        let ops = (*object.cast::<fid_logging>()).ops;
        if ops.is_null() || (*ops).size < size_of::<fi_ops_log>() {
            return Err(Errno::EINVAL);
        }
        // Of several imports the last one counts.
        let mut state = state();
        state.imported = Some(Imported(*ops));
        state.owner = object as usize;
        (*object).ops = (&raw const IMPORTED_OPS).cast_mut();
    }
    ACTIVE.store(true, Ordering::Relaxed);
    logging::apply_max_level();
    Ok(())
}

unsafe extern "C" fn close_imported(object: *mut fid) -> c_int {
    let mut state = state();
    if state.owner == object as usize && state.imported.take().is_some() {
        ACTIVE.store(false, Ordering::Relaxed);
        logging::apply_max_level();
    }
    0
}

unsafe extern "C" fn own_enabled(
    provider: *const fi_provider,
    level: fi_log_level,
    subsystem: fi_log_subsys,
    flags: u64,
) -> c_int {
    // SAFETY: the caller hands over a provider's structure.
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
    // SAFETY: the caller hands over a provider's structure and a place.
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
    // SAFETY: the caller hands over a provider's structure and two texts.
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
