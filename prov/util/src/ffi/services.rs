//! What the toolkit and the providers need from the framework: the public C
//! functions that libfabric.so.1 exports, be it this library or another.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use fabric_abi::symbols::*;
use fabric_abi::*;

use crate::logging::UTIL;

/// Makes a parameter known. Without it the parameter cannot be read, which
/// leaves its default.
pub fn define_param(provider: &fi_provider, name: &CStr, kind: fi_param_type, help: &str) {
    // The function takes a format.
    let Ok(help) = CString::new(help.replace('%', "%%")) else {
        return;
    };
    // SAFETY: the strings are C strings, and the format asks for no arguments.
    let status = unsafe { fi_param_define(provider, name.as_ptr(), kind, help.as_ptr()) };
    if status != 0 {
        log::warn!(target: UTIL.core, "cannot define parameter {name:?}: {status}");
    }
}

/// An integer parameter, where the user set it.
pub fn param_int(provider: &fi_provider, name: &CStr) -> Option<i32> {
    let mut value: c_int = 0;
    // SAFETY: an integer parameter stores an `int`.
    let status = unsafe {
        fi_param_get(
            std::ptr::from_ref(provider).cast_mut(),
            name.as_ptr(),
            (&raw mut value).cast(),
        )
    };
    (status == 0).then_some(value)
}

/// A size, where the user set it.
pub fn param_size(provider: &fi_provider, name: &CStr) -> Option<usize> {
    let mut value: usize = 0;
    // SAFETY: a size parameter stores a `size_t`.
    let status = unsafe {
        fi_param_get(
            std::ptr::from_ref(provider).cast_mut(),
            name.as_ptr(),
            (&raw mut value).cast(),
        )
    };
    (status == 0).then_some(value)
}

/// A boolean, where the user set it.
pub fn param_bool(provider: &fi_provider, name: &CStr) -> Option<bool> {
    // Booleans are stored as an `int`.
    param_int(provider, name).map(|value| value != 0)
}

/// A boolean of the framework's own (`FI_<NAME>`), where the user set it.
pub fn core_bool(name: &CStr) -> Option<bool> {
    let mut value: c_int = 0;
    // SAFETY: a boolean stores an `int`.
    unsafe { core_param(name, (&raw mut value).cast()) }.then_some(value != 0)
}

/// A size of the framework's own, likewise.
pub fn core_size(name: &CStr) -> Option<usize> {
    let mut value: usize = 0;
    // SAFETY: a size stores a `size_t`.
    unsafe { core_param(name, (&raw mut value).cast()) }.then_some(value)
}

/// A text of the framework's own, likewise.
pub fn core_text(name: &CStr) -> Option<String> {
    let mut value: *const c_char = std::ptr::null();
    // SAFETY: a text stores a pointer to a C string, which is the framework's and
    // lives as long as it does.
    unsafe {
        let is_set = core_param(name, (&raw mut value).cast()) && !value.is_null();
        is_set.then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    }
}

/// Stores a parameter of the framework's own; whether it is set.
///
/// # Safety
/// `value` is a place for a value of the parameter's type.
unsafe fn core_param(name: &CStr, value: *mut std::ffi::c_void) -> bool {
    // SAFETY: the caller's; without a provider the framework itself is meant.
    unsafe { fi_param_get(std::ptr::null_mut(), name.as_ptr(), value) == 0 }
}

/// A text, where the user set it.
pub fn param_text(provider: &fi_provider, name: &CStr) -> Option<String> {
    let mut value: *const c_char = std::ptr::null();
    // SAFETY: a text parameter stores a pointer to a C string.
    let status = unsafe {
        fi_param_get(
            std::ptr::from_ref(provider).cast_mut(),
            name.as_ptr(),
            (&raw mut value).cast(),
        )
    };
    if status != 0 || value.is_null() {
        return None;
    }
    // SAFETY: the string is the framework's and lives as long as it does.
    let text = unsafe { CStr::from_ptr(value) };
    Some(text.to_string_lossy().into_owned())
}

/// The text of a positive error number (fi_errno(3)).
pub fn strerror(number: c_int) -> &'static CStr {
    // SAFETY: the function takes any number, and its texts are constant.
    unsafe {
        let text = fi_strerror(number);
        if text.is_null() {
            return c"";
        }
        CStr::from_ptr(text)
    }
}

/// The names of the bits or of the enumeration value `bits`, which is of the
/// type `kind` (`FI_TYPE_*`, fi_tostr(3)).
pub fn name_of(bits: u64, kind: fi_type) -> Option<String> {
    let wide = [
        FI_TYPE_CAPS,
        FI_TYPE_MODE,
        FI_TYPE_OP_FLAGS,
        FI_TYPE_MSG_ORDER,
    ];
    let narrow = bits as u32;
    let data: *const c_void = if wide.contains(&kind) {
        (&raw const bits).cast()
    } else {
        (&raw const narrow).cast()
    };
    let mut text = [0u8; 1024];
    // SAFETY: `data` points to a value of the width of `kind`, and `text` has
    // room for its length.
    let written = unsafe { fi_tostr_r(text.as_mut_ptr().cast(), text.len(), data, kind) };
    if written.is_null() {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    Some(text.to_string_lossy().trim_end().to_owned())
}

/// The framework's functions for unit tests, which run without a framework.
#[cfg(test)]
pub mod stand_in {
    use std::collections::HashMap;
    use std::sync::{Mutex, MutexGuard};

    use fabric_abi::*;

    use std::ffi::{CStr, CString, c_char, c_int, c_void};

    struct Param {
        kind: fi_param_type,
        help: String,
    }

    #[derive(Default)]
    struct Table {
        known: HashMap<(String, String), Param>,
        set: HashMap<(String, String), CString>,
    }

    static TABLE: Mutex<Option<Table>> = Mutex::new(None);

    fn table() -> MutexGuard<'static, Option<Table>> {
        let mut table = TABLE.lock().unwrap();
        table.get_or_insert_default();
        table
    }

    /// A provider with a name of its own, so that tests do not meet.
    pub fn provider(name: &str) -> fi_provider {
        // SAFETY: null pointers and zeros are valid in every field.
        let mut provider: fi_provider = unsafe { std::mem::zeroed() };
        provider.name = CString::new(name).unwrap().into_raw();
        provider
    }

    fn key(provider: *const fi_provider, name: *const c_char) -> (String, String) {
        // SAFETY: the tests' providers and names are valid.
        unsafe {
            (
                CStr::from_ptr((*provider).name).to_str().unwrap().into(),
                CStr::from_ptr(name).to_str().unwrap().into(),
            )
        }
    }

    /// Sets a parameter.
    pub fn set(provider: &fi_provider, name: &str, value: &str) {
        let name = CString::new(name).unwrap();
        let key = key(provider, name.as_ptr());
        let value = CString::new(value).unwrap();
        table().as_mut().unwrap().set.insert(key, value);
    }

    /// The help text with which a parameter was defined.
    pub fn help(provider: &fi_provider, name: &str) -> Option<String> {
        let name = CString::new(name).unwrap();
        let key = key(provider, name.as_ptr());
        table()
            .as_ref()
            .unwrap()
            .known
            .get(&key)
            .map(|param| param.help.clone())
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_param_define(
        provider: *const fi_provider,
        name: *const c_char,
        kind: fi_param_type,
        help: *const c_char,
    ) -> c_int {
        // SAFETY: the help text is a C string.
        let help = unsafe { CStr::from_ptr(help) }.to_str().unwrap().to_owned();
        let key = key(provider, name);
        table()
            .as_mut()
            .unwrap()
            .known
            .insert(key, Param { kind, help });
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_param_get(
        provider: *const fi_provider,
        name: *const c_char,
        value: *mut c_void,
    ) -> c_int {
        let key = key(provider, name);
        let table = table();
        let table = table.as_ref().unwrap();
        let Some(param) = table.known.get(&key) else {
            return -libc::ENOENT;
        };
        let Some(text) = table.set.get(&key) else {
            return -libc::ENODATA;
        };
        // SAFETY: the caller's value is of the parameter's type.
        unsafe {
            if param.kind == FI_PARAM_STRING {
                value.cast::<*const c_char>().write(text.as_ptr());
                return 0;
            }
            let Ok(number) = text.to_str().unwrap().parse::<usize>() else {
                return -libc::EINVAL;
            };
            if param.kind == FI_PARAM_SIZE_T {
                value.cast::<usize>().write(number);
            } else {
                value.cast::<c_int>().write(number as c_int);
            }
        }
        0
    }

    /// The messages of the provider of a name, each as
    /// `<level>:<subsystem>:<function>: <message>`.
    pub fn logged(provider: &str) -> Vec<String> {
        let lines = LINES.lock().unwrap();
        lines
            .iter()
            .filter(|(name, _)| name == provider)
            .map(|(_, line)| line.clone())
            .collect()
    }

    static LINES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

    /// Everything but debug messages is wanted.
    #[unsafe(no_mangle)]
    extern "C" fn fi_log_enabled(_: *const fi_provider, level: u32, _: u32) -> c_int {
        (level < FI_LOG_DEBUG).into()
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_log(
        provider: *const fi_provider,
        level: u32,
        subsystem: u32,
        function: *const c_char,
        _line: c_int,
        format: *const c_char,
        message: *const c_char,
    ) {
        // SAFETY: a provider and C strings; the format asks for one of them.
        let [name, function, format, message] = unsafe {
            [(*provider).name, function, format, message]
                .map(|text| CStr::from_ptr(text).to_str().unwrap())
        };
        let message = format.replacen("%s", message, 1);
        let line = format!("{level}:{subsystem}:{function}: {message}");
        LINES.lock().unwrap().push((name.into(), line));
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_strerror(number: c_int) -> *const c_char {
        match number {
            0 => c"Success".as_ptr(),
            libc::ECANCELED => c"Operation canceled".as_ptr(),
            _ => c"An error".as_ptr(),
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn fi_tostr_r(
        _: *mut c_char,
        _: usize,
        _: *const c_void,
        _: fi_type,
    ) -> *mut c_char {
        std::ptr::null_mut()
    }
}
