//! Reads the library's log in a tool: `fi_import_log` of fi_provider(3).

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::{
    FI_CLASS_LOG, FI_LOG_INFO, FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_VERSION, fi_log_level,
    fi_log_subsys, fi_ops_log, fi_provider, fid, fid_logging, symbols,
};

use super::Result;
use super::error::check;
use super::slot::close;

/// A message of level info or a more important one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Name of the provider; `core` for the library itself.
    pub provider: String,
    /// The function that it comes from.
    pub function: String,
    pub text: String,
}

/// Makes a call while all messages of the library up to level info are collected here, instead of
/// being written where the environment says.
///
/// # Errors
/// Those of `fi_open`, for a library whose log cannot be taken over.
pub fn while_listening<T>(call: impl FnOnce() -> T) -> Result<(T, Vec<Message>)> {
    let mut ops = Box::new(OPS);
    let mut object = Box::new(fid_logging {
        fid: fid {
            fclass: FI_CLASS_LOG,
            context: std::ptr::null_mut(),
            ops: std::ptr::null_mut(),
        },
        ops: &raw mut *ops,
    });
    let raw: *mut fid = (&raw mut *object).cast();
    messages().clear();
    // SAFETY: the object and its operations live until the object is closed below.
    unsafe { import(raw)? };
    let answer = call();
    // SAFETY: the library has set the operations of the object, which is open and has no other
    // users.
    unsafe { close(raw) };
    let heard = std::mem::take(&mut *messages());
    Ok((answer, heard))
}

const OPS: fi_ops_log = fi_ops_log {
    size: size_of::<fi_ops_log>(),
    enabled: Some(enabled),
    ready: Some(ready),
    log: Some(log),
};

/// `fi_import`.
///
/// # Safety
/// `object` is an `fid_logging` that stays until it is closed.
unsafe fn import(object: *mut fid) -> Result<()> {
    let version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
    let mut log: *mut fid = std::ptr::null_mut();
    let (attr, context) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the name is terminated, and `log` is writable.
    let returned =
        unsafe { symbols::fi_open(version, c"logging".as_ptr(), attr, 0, 0, &mut log, context) };
    check("fi_open", returned as isize)?;
    // SAFETY: the library has opened `log`, and the caller guarantees that the object lives until
    // it is closed.
    let returned = unsafe { call_slot!(log, ops, bind, log, object, 0) };
    // SAFETY: `log` was opened above, and has no other users.
    unsafe { close(log) };
    check("fi_import", returned).map(|_| ())
}

static MESSAGES: Mutex<Vec<Message>> = Mutex::new(Vec::new());

fn messages() -> MutexGuard<'static, Vec<Message>> {
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn enabled(
    _provider: *const fi_provider,
    level: fi_log_level,
    _subsystem: fi_log_subsys,
    _flags: u64,
) -> c_int {
    (level <= FI_LOG_INFO).into()
}

unsafe extern "C" fn ready(
    _provider: *const fi_provider,
    _level: fi_log_level,
    _subsystem: fi_log_subsys,
    _flags: u64,
    _show_time: *mut u64,
) -> c_int {
    // Rate-limited messages do not concern the result of a call.
    0
}

unsafe extern "C" fn log(
    provider: *const fi_provider,
    level: fi_log_level,
    _subsystem: fi_log_subsys,
    function: *const c_char,
    _line: c_int,
    message: *const c_char,
) {
    if level > FI_LOG_INFO {
        return;
    }
    // SAFETY: the library passes null or a provider's structure, and two terminated texts.
    let (name, function, message) = unsafe {
        let name = provider.as_ref().map_or(std::ptr::null(), |raw| raw.name);
        (text(name), text(function), text(message))
    };
    messages().push(Message {
        provider: name,
        function,
        text: message.trim_end().to_owned(),
    });
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller keeps the contract of this function, which is that of the called one.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
