//! The framework's functions, which this test binary does not have: udp is the provider below.

use std::ffi::{c_char, c_int, c_void};

use fabric_abi::*;
use prov_util::attr::Info;
use prov_util::below::CORE_ONLY;
use prov_util::marshal::info;

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    list: *mut *mut fi_info,
) -> c_int {
    let udp = prov_udp::provider();
    // SAFETY: the caller's arguments are as fi_getinfo(3) demands.
    unsafe {
        let mut wanted = Info::from(info::hints(hints).unwrap());
        wanted.fabric.prov_name = Some("udp".to_owned());
        let hints = info::to_c(&[wanted]).unwrap();
        let getinfo = (*udp).getinfo.unwrap();
        let status = getinfo(version, node, service, flags & !CORE_ONLY, hints, list);
        info::free(hints);
        status
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_freeinfo(list: *mut fi_info) {
    // SAFETY: udp made the list.
    unsafe { info::free(list) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let udp = prov_udp::provider();
    // SAFETY: the caller's arguments are as fi_fabric(3) demands.
    unsafe { (*udp).fabric.unwrap()(attr, fabric, context) }
}
