//! The framework's functions for the unit tests of a layered provider, which run without the
//! framework.

use fabric_abi::{FI_MR_LOCAL, fi_info};
use prov_objects::attr::Info;

use crate::marshal::info;

/// What is asked of the provider of this name: the caller's hints, without registration of local
/// memory.
///
/// # Safety
/// `hints` are valid, or null.
pub unsafe fn asked(hints: *const fi_info, name: &str) -> Info {
    // SAFETY: the caller guarantees that the hints are valid.
    let mut asked = unsafe { info::hints(hints) }
        .map(Info::from)
        .unwrap_or_default();
    asked.fabric.prov_name = Some(name.to_owned());
    asked.domain.mr_mode &= !FI_MR_LOCAL;
    asked
}

/// Defines fi_getinfo(3), fi_freeinfo(3) and fi_fabric(3) with one provider, the provider below.
/// `$offered` is called with each entry that it offers, and `$opened` with each fabric that it
/// opens, before the layered provider has them.
#[macro_export]
macro_rules! stand_in_below {
    ($provider:expr, $name:literal) => {
        $crate::stand_in_below!($provider, $name, |_| {}, |_| {});
    };
    ($provider:expr, $name:literal, $offered:expr, $opened:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn fi_getinfo(
            version: u32,
            node: *const ::std::ffi::c_char,
            service: *const ::std::ffi::c_char,
            flags: u64,
            hints: *const ::fabric_abi::fi_info,
            list: *mut *mut ::fabric_abi::fi_info,
        ) -> ::std::ffi::c_int {
            use $crate::marshal::info;
            let offered: fn(&mut ::fabric_abi::fi_info) = $offered;
            // SAFETY: the caller's arguments are as fi_getinfo(3) demands, and the provider returns
            // a list of valid entries.
            unsafe {
                let hints = info::to_c(&[$crate::below::stand_in::asked(hints, $name)]).unwrap();
                let getinfo = (*$provider).getinfo.unwrap();
                let flags = flags & !$crate::below::CORE_ONLY;
                let status = getinfo(version, node, service, flags, hints, list);
                info::free(hints);
                let mut next = if status == 0 {
                    *list
                } else {
                    ::std::ptr::null_mut()
                };
                while let Some(entry) = next.as_mut() {
                    offered(entry);
                    next = entry.next;
                }
                status
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn fi_freeinfo(list: *mut ::fabric_abi::fi_info) {
            // SAFETY: the provider made the list, with the same functions.
            unsafe { $crate::marshal::info::free(list) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn fi_fabric(
            attr: *mut ::fabric_abi::fi_fabric_attr,
            fabric: *mut *mut ::fabric_abi::fid_fabric,
            context: *mut ::std::ffi::c_void,
        ) -> ::std::ffi::c_int {
            let opened: fn(*mut ::fabric_abi::fid_fabric) = $opened;
            // SAFETY: the caller's arguments are as fi_fabric(3) demands.
            unsafe {
                let status = (*$provider).fabric.unwrap()(attr, fabric, context);
                if status == 0 {
                    opened(*fabric);
                }
                status
            }
        }
    };
}
