//! What providers call (fi_provider(3)): parameters and the log.

use std::arch::global_asm;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use fabric_abi::*;
use prov_base::collect_arguments;
use prov_base::errno::Errno;

use super::text;
use crate::c_log::{self, Topic};
use crate::params::{self, Kind, Owner, Value};
use crate::provider::Provider;
use crate::variadic::{self, Fixed, VaList};
use crate::{core_provider, framework};

// Parameters: fi_provider(3), fi_info(1)

export!(default "FABRIC_1.0" fi_param_define, fi_param_define_1_0);
/// `fi_param_define(provider, name, type, help, ...)`.
///
/// # Safety
/// The arguments are as fi_provider(3) demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn fi_param_define_1_0(
    _provider: *const fi_provider,
    _name: *const c_char,
    _type: fi_param_type,
    _help: *const c_char,
) -> c_int {
    collect_arguments!(4, param_define)
}

unsafe extern "C" fn param_define(fixed: Fixed, arguments: VaList) -> c_int {
    // SAFETY: fi_param_define has four fixed arguments of these types, and its caller guarantees
    // that the pointers are NULL or valid, and the texts terminated.
    unsafe {
        let provider = fixed.word(0) as *const fi_provider;
        let name = text(fixed.word(1) as *const c_char);
        let kind = kind(fixed.word(2) as fi_param_type);
        let help = fixed.word(3) as *const c_char;
        let (Some(name), Some(kind), false) = (name, kind, help.is_null()) else {
            return Errno::EINVAL.to_c();
        };
        let defined = variadic::format(help, arguments, |help| {
            params::define(owner(provider), &readable(name), kind, &readable(help))
        });
        prov_util::ffi::status(defined.unwrap_or(Err(Errno::ENOMEM)))
    }
}

export!(default "FABRIC_1.0" fi_param_get, fi_param_get_1_0);
/// `fi_param_get`. `value` is unchanged unless the user set the parameter.
///
/// # Safety
/// The arguments are as fi_provider(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_param_get_1_0(
    provider: *mut fi_provider,
    name: *const c_char,
    value: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the texts are NULL or terminated, and that `value` is NULL
    // or refers to a variable of the parameter's type.
    unsafe {
        let (Some(name), false) = (text(name), value.is_null()) else {
            return Errno::EINVAL.to_c();
        };
        match params::get(owner(provider), &readable(name)) {
            Ok(Value::Text(text)) => *value.cast() = text.as_ptr(),
            Ok(Value::Int(number)) => *value.cast() = number,
            Ok(Value::Bool(truth)) => *value.cast() = c_int::from(truth),
            Ok(Value::Size(size)) => *value.cast() = size,
            Err(error) => return error.to_c(),
        }
    }
    0
}

export!(default "FABRIC_1.0" fi_getparams, fi_getparams_1_0);
/// `fi_getparams`: an array that ends with an element without a name.
///
/// # Safety
/// `params` and `count` are places for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_getparams_1_0(params: *mut *mut fi_param, count: *mut c_int) -> c_int {
    if params.is_null() || count.is_null() {
        return Errno::EINVAL.to_c();
    }
    framework::get();
    let mut list: Vec<fi_param> = params::list()
        .into_iter()
        .map(|param| fi_param {
            name: param.variable.into_raw(),
            type_: param_type(param.kind),
            help_string: param.help.into_raw(),
            value: param
                .value
                .map_or(std::ptr::null(), |value| value.into_raw()),
        })
        .collect();
    let length = list.len();
    list.push(fi_param {
        name: std::ptr::null(),
        type_: FI_PARAM_STRING,
        help_string: std::ptr::null(),
        value: std::ptr::null(),
    });
    // SAFETY: the caller guarantees that both locations are writable. The array is freed by
    // fi_freeparams.
    unsafe {
        *params = Box::into_raw(list.into_boxed_slice()).cast();
        *count = length as c_int;
    }
    0
}

export!(default "FABRIC_1.0" fi_freeparams, fi_freeparams_1_0);
/// `fi_freeparams`.
///
/// # Safety
/// `params` is NULL or came from `fi_getparams`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_freeparams_1_0(params: *mut fi_param) {
    if params.is_null() {
        return;
    }
    // SAFETY: the caller guarantees that the array is from fi_getparams, which has made it and its
    // texts from a Box and CStrings, with an element without a name at the end.
    unsafe {
        let mut length = 0;
        while !(*params.add(length)).name.is_null() {
            let param = &*params.add(length);
            for text in [param.name, param.help_string, param.value] {
                if !text.is_null() {
                    drop(CString::from_raw(text.cast_mut()));
                }
            }
            length += 1;
        }
        let array = std::ptr::slice_from_raw_parts_mut(params, length + 1);
        drop(Box::from_raw(array));
    }
}

/// # Safety
/// `provider` is NULL, for the library, or a provider's structure.
unsafe fn owner(provider: *const fi_provider) -> Owner<'static> {
    // SAFETY: the caller guarantees that the pointer is NULL or refers to a provider's structure.
    match unsafe { Provider::from_raw(provider.cast_mut()) } {
        None => Owner::CORE,
        Some(provider) => Owner {
            id: provider.as_ptr() as usize,
            provider: Some(provider.name()),
        },
    }
}

fn kind(value: fi_param_type) -> Option<Kind> {
    Some(match value {
        FI_PARAM_STRING => Kind::Text,
        FI_PARAM_INT => Kind::Int,
        FI_PARAM_BOOL => Kind::Bool,
        FI_PARAM_SIZE_T => Kind::Size,
        _ => return None,
    })
}

fn param_type(kind: Kind) -> fi_param_type {
    match kind {
        Kind::Text => FI_PARAM_STRING,
        Kind::Int => FI_PARAM_INT,
        Kind::Bool => FI_PARAM_BOOL,
        Kind::Size => FI_PARAM_SIZE_T,
    }
}

// Logging: fi_provider(3)

export!(default "FABRIC_1.0" fi_log_enabled, fi_log_enabled_1_0);
/// `fi_log_enabled`.
///
/// # Safety
/// `provider` is NULL or a provider's structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_log_enabled_1_0(
    provider: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
) -> c_int {
    // SAFETY: the caller guarantees that the pointer is NULL or refers to a provider's structure.
    let origin = unsafe { core_provider::unless(provider) };
    Topic::from_c(level, subsys)
        .is_some_and(|topic| c_log::enabled(origin, topic))
        .into()
}

export!(default "FABRIC_1.6" fi_log_ready, fi_log_ready_1_6);
/// `fi_log_ready`.
///
/// # Safety
/// `provider` is NULL or a provider's structure, and `showtime` a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_log_ready_1_6(
    provider: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
    showtime: *mut u64,
) -> c_int {
    // SAFETY: the caller guarantees that `provider` is NULL or a provider's structure, and that
    // `showtime` is NULL or writable.
    let (origin, showtime) = unsafe { (core_provider::unless(provider), showtime.as_mut()) };
    let (Some(topic), Some(showtime)) = (Topic::from_c(level, subsys), showtime) else {
        return 0;
    };
    c_log::ready(origin, topic, showtime).into()
}

export!(default "FABRIC_1.0" fi_log, fi_log_1_0);
/// `fi_log(provider, level, subsystem, function, line, format, ...)`.
///
/// # Safety
/// The arguments are as fi_provider(3) demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn fi_log_1_0(
    _provider: *const fi_provider,
    _level: fi_log_level,
    _subsys: fi_log_subsys,
    _function: *const c_char,
    _line: c_int,
    _format: *const c_char,
) {
    collect_arguments!(6, log)
}

unsafe extern "C" fn log(fixed: Fixed, arguments: VaList) {
    // SAFETY: fi_log has six fixed arguments of these types, and its caller guarantees that they
    // are valid and match the variadic ones.
    unsafe {
        let origin = core_provider::unless(fixed.word(0) as *const fi_provider);
        let topic = Topic::from_c(fixed.word(1) as u32, fixed.word(2) as u32);
        let function = text(fixed.word(3) as *const c_char).unwrap_or_default();
        let line = fixed.word(4) as u32;
        let format = fixed.word(5) as *const c_char;
        if let (Some(topic), false) = (topic, format.is_null()) {
            variadic::format(format, arguments, |message| {
                c_log::write(origin, topic, function, line, message);
            });
        }
    }
}

/// Returns a text as UTF-8. Nearly all are, and those are not copied.
fn readable(text: &CStr) -> Cow<'_, str> {
    text.to_str()
        .map_or_else(|_| text.to_string_lossy(), Cow::Borrowed)
}
