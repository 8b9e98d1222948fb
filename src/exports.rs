//! Every symbol of libfabric.so.1. The functions here convert C arguments for the rest of the
//! library and its results to C; they have no other logic.
//!
//! Each one is entered in the symbol table under its versions by a `.symver`
//! directive, which must stay in one codegen unit with the function: hence it
//! stands in the module of the function.

use std::arch::global_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::kept_errno::KeptErrno;
use prov_util::marshal::layout::{self, Layout};

use crate::deep::Deep;
use crate::info::{Info, Owned, free_list};
use crate::old_abi;
use crate::provider::Request;
use crate::version::Version;
use crate::{fabric, framework, getinfo, open, strerror, tostr};

/// Exports a function as `$symbol` at a version: `default` for the one that programs are linked to
/// now, `older` for one that only programs built earlier request.
macro_rules! export {
    (default $version:literal $symbol:ident, $function:ident) => {
        #[cfg(not(test))]
        global_asm!(concat!(
            ".symver ",
            stringify!($function),
            ", ",
            stringify!($symbol),
            "@@",
            $version,
            ", remove"
        ));
        // An executable has no symbol versions; its tests use the plain names.
        #[cfg(test)]
        global_asm!(
            concat!(".globl ", stringify!($symbol)),
            concat!(".set ", stringify!($symbol), ", ", stringify!($function)),
        );
    };
    (older $version:literal $symbol:ident, $function:ident) => {
        #[cfg(not(test))]
        global_asm!(concat!(
            ".symver ",
            stringify!($function),
            ", ",
            stringify!($symbol),
            "@",
            $version,
            ", remove"
        ));
    };
}

pub mod services;

// fi_getinfo(3)

export!(default "FABRIC_1.10" fi_getinfo, fi_getinfo_1_10);
/// `fi_getinfo`.
///
/// # Safety
/// The arguments are as fi_getinfo(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_getinfo_1_10(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are as fi_getinfo(3) demands.
    unsafe { answer(version, node, service, flags, Deep::new(hints), info) }
}

export!(default "FABRIC_1.10" fi_dupinfo, fi_dupinfo_1_10);
/// `fi_dupinfo`, and with NULL `fi_allocinfo`.
///
/// # Safety
/// `info` is NULL or a valid `fi_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_dupinfo_1_10(info: *const fi_info) -> *mut fi_info {
    // SAFETY: the caller guarantees that `info` is NULL or valid.
    let copy = unsafe { Deep::new(info) }.map_or_else(Info::new, Info::duplicate);
    info_or_null(copy)
}

export!(default "FABRIC_1.10" fi_freeinfo, fi_freeinfo_1_10);
/// `fi_freeinfo`.
///
/// # Safety
/// `info` is NULL or a list that this library allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_freeinfo_1_10(info: *mut fi_info) {
    // SAFETY: the caller guarantees that the list is NULL or was allocated by this library, and
    // gives it up.
    unsafe { free_list(info, Owned::All) }
}

/// The three functions on `fi_info` for callers with an older layout.
macro_rules! older_info {
    ($version:literal $layout:expr, $owned:expr, $getinfo:ident $dupinfo:ident $freeinfo:ident) => {
        export!(older $version fi_getinfo, $getinfo);
        #[doc = concat!("`fi_getinfo` of ", $version, ".")]
        ///
        /// # Safety
        /// The arguments are as fi_getinfo(3) demanded at the time.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $getinfo(
            version: u32,
            node: *const c_char,
            service: *const c_char,
            flags: u64,
            hints: *const fi_info,
            info: *mut *mut fi_info,
        ) -> c_int {
            // SAFETY: the caller guarantees that the arguments are as fi_getinfo(3) demanded for
            // this layout.
            unsafe { older_answer(&$layout, version, node, service, flags, hints, info) }
        }

        export!(older $version fi_dupinfo, $dupinfo);
        #[doc = concat!("`fi_dupinfo` of ", $version, ".")]
        ///
        /// # Safety
        /// `info` is NULL or valid in the layout of the time.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $dupinfo(info: *const fi_info) -> *mut fi_info {
            // SAFETY: the caller guarantees that `info` is NULL or valid in this layout.
            let copy = unsafe { old_abi::import(&$layout, info) };
            info_or_null(copy.and_then(|copy| copy.map_or_else(Info::new, Ok)))
        }

        export!(older $version fi_freeinfo, $freeinfo);
        #[doc = concat!("`fi_freeinfo` of ", $version, ".")]
        ///
        /// # Safety
        /// As for the current one.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $freeinfo(info: *mut fi_info) {
            // SAFETY: the caller guarantees that the list is NULL or was allocated by this library,
            // and gives it up.
            unsafe { free_list(info, $owned) }
        }
    };
}

older_info!("FABRIC_1.0" layout::ABI_1_0, Owned::NoKeys, fi_getinfo_1_0 fi_dupinfo_1_0 fi_freeinfo_1_0);
older_info!("FABRIC_1.1" layout::ABI_1_1, Owned::All, fi_getinfo_1_1 fi_dupinfo_1_1 fi_freeinfo_1_1);
older_info!("FABRIC_1.2" layout::ABI_1_2, Owned::All, fi_getinfo_1_2 fi_dupinfo_1_2 fi_freeinfo_1_2);
older_info!("FABRIC_1.3" layout::ABI_1_3, Owned::All, fi_getinfo_1_3 fi_dupinfo_1_3 fi_freeinfo_1_3);
older_info!("FABRIC_1.7" layout::ABI_1_7, Owned::All, fi_getinfo_1_7 fi_dupinfo_1_7 fi_freeinfo_1_7);
older_info!("FABRIC_1.8" layout::ABI_1_8, Owned::All, fi_getinfo_1_8 fi_dupinfo_1_8 fi_freeinfo_1_8);
older_info!("FABRIC_1.9" layout::ABI_1_9, Owned::All, fi_getinfo_1_9 fi_dupinfo_1_9 fi_freeinfo_1_9);

unsafe fn older_answer(
    layout: &Layout,
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: the caller guarantees that the hints are NULL or valid in this layout, and the other
    // arguments as fi_getinfo(3) demands.
    unsafe {
        match old_abi::import(layout, hints) {
            Ok(hints) => {
                let hints = hints.as_ref().map(Info::view);
                answer(version, node, service, flags, hints, info)
            }
            Err(error) => error.to_c(),
        }
    }
}

unsafe fn answer(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: Option<Deep<fi_info>>,
    info: *mut *mut fi_info,
) -> c_int {
    if info.is_null() {
        return Errno::EINVAL.to_c();
    }
    // Providers look for files and addresses that need not be there.
    let _errno = KeptErrno::begin();
    // SAFETY: the caller guarantees that the texts are NULL or terminated, and that the location of
    // the result is NULL or writable.
    unsafe {
        let request = Request {
            version: Version::new(version),
            node: text(node),
            service: text(service),
            flags,
            hints,
        };
        *info = std::ptr::null_mut();
        match getinfo::getinfo(framework::get(), &request) {
            Ok(list) => {
                *info = Info::into_raw_list(list);
                0
            }
            Err(error) => error.to_c(),
        }
    }
}

fn info_or_null(info: Result<Info>) -> *mut fi_info {
    info.map_or(std::ptr::null_mut(), Info::into_raw)
}

// fi_fabric(3), fi_version(3), fi_provider(3)

export!(default "FABRIC_1.1" fi_fabric, fi_fabric_1_1);
/// `fi_fabric`.
///
/// # Safety
/// The arguments are as fi_fabric(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_fabric_1_1(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are as fi_fabric(3) demands.
    unsafe { hand_out(fabric, || fabric::open(framework::get(), attr, context)) }
}

export!(older "FABRIC_1.0" fi_fabric, fi_fabric_1_0);
/// `fi_fabric` of `FABRIC_1.0`, whose attributes do not contain the version of the interface for
/// which the caller was written.
///
/// # Safety
/// The arguments are as fi_fabric(3) demanded at the time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_fabric_1_0(
    attr: *const fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that `attr` is NULL or valid in the layout of ABI 1.0, and the
    // other arguments as fi_fabric(3) demands.
    unsafe {
        match old_abi::import_fabric_attr_1_0(attr) {
            Some(mut attr) => fi_fabric_1_1(&mut attr, fabric, context),
            None => Errno::EINVAL.to_c(),
        }
    }
}

export!(default "FABRIC_1.8" fi_fabric2, fi_fabric2_1_8);
/// `fi_fabric2`.
///
/// # Safety
/// The arguments are as fi_fabric(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_fabric2_1_8(
    info: *mut fi_info,
    fabric: *mut *mut fid_fabric,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if info.is_null() || flags != 0 {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that the arguments are as fi_fabric(3) demands.
    unsafe { fi_fabric_1_1((*info).fabric_attr, fabric, context) }
}

export!(default "FABRIC_1.5" fi_open, fi_open_1_5);
/// `fi_open`.
///
/// # Safety
/// The arguments are as fi_provider(3) demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_open_1_5(
    version: u32,
    name: *const c_char,
    _attr: *mut c_void,
    attr_len: usize,
    flags: u64,
    object: *mut *mut fid,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are as fi_provider(3) demands: the name is
    // NULL or terminated, and the location of the object NULL or writable.
    unsafe {
        let Some(name) = text(name) else {
            return Errno::EINVAL.to_c();
        };
        hand_out(object, || {
            open::open(Version::new(version), name, attr_len, flags, context)
        })
    }
}

export!(default "FABRIC_1.0" fi_version, fi_version_1_0);
/// `fi_version`.
#[unsafe(no_mangle)]
pub extern "C" fn fi_version_1_0() -> u32 {
    Version::LIBRARY.to_c()
}

export!(default "FABRIC_1.0" fi_strerror, fi_strerror_1_0);
/// `fi_strerror` (fi_errno(3)).
#[unsafe(no_mangle)]
pub extern "C" fn fi_strerror_1_0(errnum: c_int) -> *const c_char {
    strerror::text(errnum).as_ptr()
}

/// Stores an object at the caller's pointer.
///
/// # Safety
/// `place` is NULL or valid.
unsafe fn hand_out<T>(place: *mut *mut T, open: impl FnOnce() -> Result<*mut T>) -> c_int {
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    match open() {
        Ok(object) => {
            // SAFETY: the caller guarantees that `place` is NULL or writable, and it was compared
            // with NULL.
            unsafe { *place = object };
            0
        }
        Err(error) => error.to_c(),
    }
}

// Text

export!(default "FABRIC_1.0" fi_tostr, fi_tostr_1_0);
/// `fi_tostr`, whose text is in a buffer of the process and is valid until the next call.
///
/// # Safety
/// `data` is NULL or points to a value of the type. No other thread calls this function or uses its
/// result at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_tostr_1_0(data: *const c_void, datatype: fi_type) -> *mut c_char {
    const ROOM: usize = 8192;
    struct Room(*mut c_char);
    // SAFETY: the pointer refers to memory that is never freed, and callers of `fi_tostr` guarantee
    // that they do not use it at the same time.
    unsafe impl Send for Room {}
    // SAFETY: a shared reference gives the same pointer, whose use callers serialize, as above.
    unsafe impl Sync for Room {}
    static TEXT: OnceLock<Room> = OnceLock::new();
    let text = TEXT.get_or_init(|| Room(Box::leak(Box::new([0 as c_char; ROOM])).as_mut_ptr()));
    // SAFETY: the buffer has `ROOM` bytes, and the caller guarantees that `data` is valid and that
    // no other thread uses the buffer.
    unsafe { fi_tostr_r_1_4(text.0, ROOM, data, datatype) }
}

export!(default "FABRIC_1.4" fi_tostr_r, fi_tostr_r_1_4);
/// `fi_tostr_r`. A text that is too long is truncated.
///
/// # Safety
/// `buf` has room for `len` bytes, and `data` points to a value of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_tostr_r_1_4(
    buf: *mut c_char,
    len: usize,
    data: *const c_void,
    datatype: fi_type,
) -> *mut c_char {
    // The version is the only text that needs no data.
    let missing = data.is_null() && datatype != FI_TYPE_VERSION;
    if buf.is_null() || len == 0 || missing {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller guarantees that `data` is valid for the type and that `buf` has `len`
    // bytes, of which at most `len` are written.
    unsafe {
        let text = tostr::text(data, datatype);
        let fitting = text.len().min(len - 1);
        buf.cast::<u8>().copy_from(text.as_ptr(), fitting);
        buf.add(fitting).write(0);
    }
    buf
}

/// Returns a text of the caller.
///
/// # Safety
/// `pointer` is NULL or a text that stays for `'a`.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller guarantees that the pointer is NULL or refers to a terminated text that
    // lives for 'a.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

// The end of the process, or of the library in it.

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Lets providers release resources that would outlive the process.
extern "C" fn at_exit() {
    if let Some(framework) = framework::existing() {
        framework.registry.clean_up();
    }
}
