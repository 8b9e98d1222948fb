//! The structures of callers that were built against older headers.

use fabric_abi::*;
use prov_base::errno::Result;
use prov_util::marshal::layout::{self, Layout, widen};

use crate::deep::Deep;
use crate::info::Info;

/// Copies an `fi_info` in an older layout to the current one; `None` if there is none. `next` is
/// not followed.
///
/// # Safety
/// `info` is NULL or points to an `fi_info` of the given layout, whose
/// pointers are NULL or valid, the attributes in the given layout as well.
pub unsafe fn import(layout: &Layout, info: *const fi_info) -> Result<Option<Info>> {
    // SAFETY: the caller guarantees that the structure and its attributes are NULL or valid in this
    // layout.
    unsafe {
        let Some(mut current) = widen(info, layout.info) else {
            return Ok(None);
        };
        let mut tx = widen(current.tx_attr, layout.tx_attr);
        let mut ep = widen(current.ep_attr, layout.ep_attr);
        let mut domain = widen(current.domain_attr, layout.domain_attr);
        let mut fabric = widen(current.fabric_attr, layout.fabric_attr);
        current.tx_attr = pointer_to(&mut tx);
        current.ep_attr = pointer_to(&mut ep);
        current.domain_attr = pointer_to(&mut domain);
        current.fabric_attr = pointer_to(&mut fabric);
        Deep::new(&current).map(Info::duplicate).transpose()
    }
}

/// Returns the attributes of a fabric in the layout of ABI 1.0, which does not contain the version
/// of the interface for which the caller was written.
///
/// # Safety
/// `attr` is NULL or points to a structure of that layout.
pub unsafe fn import_fabric_attr_1_0(attr: *const fi_fabric_attr) -> Option<fi_fabric_attr> {
    // SAFETY: the caller guarantees that `attr` is NULL or valid in the layout of ABI 1.0.
    let mut current = unsafe { widen(attr, layout::ABI_1_0.fabric_attr) }?;
    current.api_version = crate::version::Version::of(1, 0).to_c();
    Some(current)
}

fn pointer_to<T>(value: &mut Option<T>) -> *mut T {
    value
        .as_mut()
        .map_or(std::ptr::null_mut(), |value| &raw mut *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a structure in memory that ends where the layout ends, so that the sanitizers and
    /// valgrind detect any access beyond it.
    fn short<T: Copy>(value: &T, length: usize) -> Box<[u64]> {
        let mut words = vec![0u64; length.div_ceil(8)].into_boxed_slice();
        // SAFETY: the words have at least `length` bytes, and a `T` has no fewer.
        unsafe {
            words
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping((&raw const *value).cast(), length);
        }
        words
    }

    #[test]
    fn fields_that_a_layout_lacks_count_as_zero() {
        type Structures = (
            fi_info,
            fi_ep_attr,
            fi_domain_attr,
            fi_fabric_attr,
            fi_tx_attr,
        );
        // SAFETY: the structures consist of integers and pointers, for which zero is a valid value.
        let zeroes: Structures = unsafe { std::mem::zeroed() };
        let (mut info, mut ep, mut domain, mut fabric, mut tx) = zeroes;
        ep.max_msg_size = 11;
        ep.auth_key_size = 99;
        domain.cq_cnt = 12;
        domain.cntr_cnt = 99;
        fabric.prov_version = 13;
        fabric.api_version = 99;
        tx.size = 14;
        tx.tclass = 99;
        let mut ep = short(&ep, 80);
        let mut domain = short(&domain, 120);
        let mut fabric = short(&fabric, 28);
        let mut tx = short(&tx, 72);
        info.caps = 10;
        info.ep_attr = ep.as_mut_ptr().cast();
        info.domain_attr = domain.as_mut_ptr().cast();
        info.fabric_attr = fabric.as_mut_ptr().cast();
        info.tx_attr = tx.as_mut_ptr().cast();
        let info = short(&info, 112);
        // SAFETY: each structure has the length of its layout in ABI 1.0, and its pointers are NULL
        // or valid.
        let copy = unsafe { import(&layout::ABI_1_0, info.as_ptr().cast()) }
            .unwrap()
            .unwrap();
        let view = copy.view();
        assert_eq!(view.caps, 10);
        assert!(view.nic().is_none() && view.rx_attr().is_none());
        let ep = view.ep_attr().unwrap();
        assert_eq!((ep.max_msg_size, ep.auth_key_size), (11, 0));
        let domain = view.domain_attr().unwrap();
        assert_eq!((domain.cq_cnt, domain.cntr_cnt), (12, 0));
        let fabric = view.fabric_attr().unwrap();
        assert_eq!((fabric.prov_version, fabric.api_version), (13, 0));
        let tx = view.tx_attr().unwrap();
        assert_eq!((tx.size, tx.tclass), (14, 0));
    }

    #[test]
    fn nothing_stays_nothing() {
        // SAFETY: `import` accepts NULL.
        let copy = unsafe { import(&layout::ABI_1_3, std::ptr::null()) };
        assert!(copy.unwrap().is_none());
    }
}
