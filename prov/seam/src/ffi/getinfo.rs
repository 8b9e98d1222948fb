//! `fi_provider::getinfo`: fi_getinfo(3) between the C interface and a provider.

use std::ffi::{CStr, c_char, c_int};

use fabric_abi::fi_info;

use super::{status, string};
use prov_base::errno::{Errno, Result};
use prov_layer::marshal::info;
use prov_objects::attr::{Info, Request};

/// The arguments of fi_getinfo(3) in C form.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    pub version: u32,
    pub node: *const c_char,
    pub service: *const c_char,
    pub flags: u64,
    pub hints: *const fi_info,
    pub list: *mut *mut fi_info,
}

/// Delivers the result of `getinfo` of the provider `name`. `target` is the log target for
/// mismatches.
///
/// # Safety
/// Pointers that are not null are as fi_getinfo(3) demands, and `hints` have
/// the library's layout.
pub(super) unsafe fn answer(
    arguments: &Arguments,
    name: &CStr,
    target: &'static str,
    getinfo: impl FnOnce(&Request<'_>) -> Result<Vec<Info>>,
) -> c_int {
    if arguments.list.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that the texts, the hints and the location of the list are null
    // or as fi_getinfo(3) demands; that location was compared with null.
    unsafe {
        arguments.list.write(std::ptr::null_mut());
        let hints = info::hints(arguments.hints);
        let infos = getinfo(&Request {
            version: arguments.version,
            node: string(arguments.node),
            service: string(arguments.service),
            flags: arguments.flags,
            hints: hints.as_ref(),
            target,
        });
        let list = infos.and_then(|mut infos| {
            infos.iter_mut().for_each(|info| leave_out(info, name));
            info::to_c(&infos)
        });
        status(list.map(|list| arguments.list.write(list)))
    }
}

/// Removes a provider name that is the provider's own, which the library enters itself: it would
/// interpret an entered name as that of a provider below, and concatenate both.
fn leave_out(info: &mut Info, name: &CStr) {
    let entered = info.fabric.prov_name.as_deref();
    if entered.is_some_and(|entered| entered.as_bytes() == name.to_bytes()) {
        info.fabric.prov_name = None;
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use fabric_abi::*;

    use super::*;
    use prov_objects::attr::{Base, FabricAttr, ip};

    fn arguments(hints: *const fi_info, list: *mut *mut fi_info) -> Arguments {
        Arguments {
            version: prov_objects::attr::version(2, 7),
            node: c"127.0.0.1".as_ptr(),
            service: null(),
            flags: 0,
            hints,
            list,
        }
    }

    #[test]
    fn matches_are_returned_as_a_list_and_no_match_as_null() {
        let base = Base::from(Info {
            caps: FI_MSG,
            addr_format: FI_SOCKADDR_IP,
            fabric: FabricAttr {
                prov_name: Some("test".into()),
                ..FabricAttr::default()
            },
            ..Info::default()
        });
        let mut list = null_mut();
        // SAFETY: all pointers are valid, and the list is read before it is
        // freed.
        unsafe {
            let mut other = base.clone();
            other.limits.ep.protocol_version = 1;
            let bases = [base, other];
            let ask = |arguments| {
                answer(&arguments, c"test", "test::core", |request| {
                    ip::getinfo(request, &bases, None)
                })
            };
            let status = ask(arguments(null(), &mut list));
            assert_eq!(status, 0);
            let second = info::hints((*list).next).unwrap();
            assert_eq!(second.caps, FI_MSG);
            assert_eq!(second.fabric.unwrap().prov_name, None);
            assert!((*(*list).next).next.is_null());

            let mut hints: fi_info = std::mem::zeroed();
            hints.caps = FI_RMA;
            let mut none = list;
            let status = ask(arguments(&hints, &mut none));
            assert_eq!(status, Errno::ENODATA.to_c());
            assert!(none.is_null());
            assert_eq!(ask(arguments(null(), null_mut())), Errno::EINVAL.to_c());
            info::free(list);
        }
    }
}
