//! The framework's functions, which this test binary does not have: tcp is the provider below. If a
//! test asks for it, tcp requires registration ([`super::registering`]).

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use fabric_abi::*;
use prov_util::attr::Info;
use prov_util::below::CORE_ONLY;
use prov_util::marshal::info;

use super::registering;

thread_local! {
    /// Whether the provider below requires memory to be registered (`FI_MR_LOCAL`).
    pub static IS_LOCAL: Cell<bool> = const { Cell::new(false) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    list: *mut *mut fi_info,
) -> c_int {
    let tcp = prov_tcp::provider();
    // SAFETY: the caller's arguments are as fi_getinfo(3) demands.
    unsafe {
        let mut wanted = Info::from(info::hints(hints).unwrap());
        wanted.fabric.prov_name = Some("tcp".to_owned());
        wanted.domain.mr_mode &= !FI_MR_LOCAL;
        let hints = info::to_c(&[wanted]).unwrap();
        let getinfo = (*tcp).getinfo.unwrap();
        let status = getinfo(version, node, service, flags & !CORE_ONLY, hints, list);
        info::free(hints);
        if status == 0 && IS_LOCAL.get() {
            let mut next = *list;
            while !next.is_null() {
                (*(*next).domain_attr).mr_mode |= FI_MR_LOCAL;
                next = (*next).next;
            }
        }
        status
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_freeinfo(list: *mut fi_info) {
    // SAFETY: tcp made the list.
    unsafe { info::free(list) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let tcp = prov_tcp::provider();
    // SAFETY: the caller's arguments are as fi_fabric(3) demands.
    unsafe {
        let status = (*tcp).fabric.unwrap()(attr, fabric, context);
        if status == 0 && IS_LOCAL.get() {
            registering::watch(*fabric);
        }
        status
    }
}

prov_base::stand_in!();
