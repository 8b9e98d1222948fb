//! The framework's functions for unit tests, which run without the framework. Crates that depend on
//! this one include this file in their own tests.

#![allow(dead_code, reason = "the tests of a crate use some of it")]

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

/// Creates a provider with a name of its own, so that tests do not affect one another.
pub fn provider(name: &str) -> fi_provider {
    // SAFETY: the structure consists of integers, pointers and optional functions, for which zero
    // is a valid value.
    let mut provider: fi_provider = unsafe { std::mem::zeroed() };
    provider.name = CString::new(name).unwrap().into_raw();
    provider
}

fn key(provider: *const fi_provider, name: *const c_char) -> (String, String) {
    // SAFETY: the providers of the tests are valid, and all names are terminated.
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

/// Returns the help text with which a parameter was defined.
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
    // SAFETY: the tests pass terminated texts.
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
    // SAFETY: the tests pass a variable of the parameter's type.
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

/// Returns the messages of the provider with this name, each as `<level>:<subsystem>:<function>:
/// <message>`.
pub fn logged(provider: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    lines
        .iter()
        .filter(|(name, _)| name == provider)
        .map(|(_, line)| line.clone())
        .collect()
}

static LINES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// All messages but debug messages are enabled.
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
    // SAFETY: the tests pass a valid provider and terminated texts; the format has one conversion,
    // for `message`.
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
