//! `fi_provider::getinfo` of providers whose addresses are internet addresses.

use std::ffi::{c_char, c_int};

use fabric_abi::fi_info;

use super::{info, status, string};
use crate::attr::Base;
use crate::attr::ip::{self, Request};
use crate::errno::Errno;

/// The arguments of fi_getinfo(3) as C passes them.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Arguments {
    pub version: u32,
    pub node: *const c_char,
    pub service: *const c_char,
    pub flags: u64,
    pub hints: *const fi_info,
    pub info: *mut *mut fi_info,
}

/// Answers with the endpoints out of `bases` that fit, on the interface
/// `iface` or on any, and says in the log (`target`) why others do not.
///
/// # Safety
/// Pointers that are not null are as fi_getinfo(3) demands, and `hints` have
/// the current layout.
pub unsafe fn ip_getinfo(
    arguments: &Arguments,
    bases: &[Base],
    iface: Option<&str>,
    target: &'static str,
) -> c_int {
    if arguments.info.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        arguments.info.write(std::ptr::null_mut());
        let hints = info::hints(arguments.hints);
        let infos = ip::getinfo(
            &Request {
                version: arguments.version,
                node: string(arguments.node),
                service: string(arguments.service),
                flags: arguments.flags,
                hints: hints.as_ref(),
                iface,
                target,
            },
            bases,
        );
        let list = infos.and_then(|infos| info::to_c(&infos));
        status(list.map(|list| arguments.info.write(list)))
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use fabric_abi::*;

    use super::*;
    use crate::attr::{FabricAttr, Info};

    fn arguments(hints: *const fi_info, info: *mut *mut fi_info) -> Arguments {
        Arguments {
            version: crate::attr::version(2, 7),
            node: c"127.0.0.1".as_ptr(),
            service: null(),
            flags: 0,
            hints,
            info,
        }
    }

    #[test]
    fn what_fits_comes_back_as_a_list_and_nothing_as_null() {
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
            let bases = [base.clone(), base];
            let status = ip_getinfo(&arguments(null(), &mut list), &bases, None, "test::core");
            assert_eq!(status, 0);
            let second = info::hints((*list).next).unwrap();
            assert_eq!(second.caps, FI_MSG);
            assert!((*(*list).next).next.is_null());

            let mut hints: fi_info = std::mem::zeroed();
            hints.caps = FI_RMA;
            let mut none = list;
            let status = ip_getinfo(&arguments(&hints, &mut none), &bases, None, "test::core");
            assert_eq!(status, Errno::ENODATA.to_c());
            assert!(none.is_null());
            info::free(list);
        }
    }
}
