//! The historical layouts of `fi_info` and its attributes.
//!
//! Every ABI change has appended members, so a structure of the current layout can be passed to any
//! caller, old or new. An older structure that is read ends earlier; missing members count as zero.

use std::mem::{MaybeUninit, offset_of};
use std::sync::OnceLock;

use fabric_abi::*;

/// The size in bytes of each structure in an older layout.
#[allow(missing_docs)]
pub struct Layout {
    pub info: usize,
    pub tx_attr: usize,
    pub ep_attr: usize,
    pub domain_attr: usize,
    pub fabric_attr: usize,
}

/// libfabric 1.0 to 1.4.
pub const ABI_1_0: Layout = Layout {
    info: offset_of!(fi_info, nic),
    tx_attr: offset_of!(fi_tx_attr, tclass),
    ep_attr: offset_of!(fi_ep_attr, auth_key_size),
    domain_attr: offset_of!(fi_domain_attr, cntr_cnt),
    fabric_attr: offset_of!(fi_fabric_attr, api_version),
};

/// libfabric 1.5 and 1.6.
pub const ABI_1_1: Layout = Layout {
    ep_attr: offset_of!(fi_ep_attr, xpu_ctx),
    domain_attr: offset_of!(fi_domain_attr, tclass),
    fabric_attr: size_of::<fi_fabric_attr>(),
    ..ABI_1_0
};

/// libfabric 1.7 and 1.8.
pub const ABI_1_2: Layout = Layout {
    info: size_of::<fi_info>(),
    ..ABI_1_1
};

/// libfabric 1.9 to 1.19.
pub const ABI_1_3: Layout = Layout {
    tx_attr: size_of::<fi_tx_attr>(),
    domain_attr: offset_of!(fi_domain_attr, max_ep_auth_key),
    ..ABI_1_2
};

/// libfabric 1.20 to 1.22.
pub const ABI_1_7: Layout = Layout {
    domain_attr: offset_of!(fi_domain_attr, max_group_id),
    ..ABI_1_3
};

/// libfabric 2.0 to 2.4.
pub const ABI_1_8: Layout = Layout {
    domain_attr: offset_of!(fi_domain_attr, max_cntr_value),
    ..ABI_1_7
};

/// libfabric 2.5 and 2.6.
pub const ABI_1_9: Layout = Layout {
    domain_attr: offset_of!(fi_domain_attr, max_xpu_ctx_cnt),
    ..ABI_1_8
};

/// This library's layout.
pub const CURRENT: Layout = Layout {
    info: size_of::<fi_info>(),
    tx_attr: size_of::<fi_tx_attr>(),
    ep_attr: size_of::<fi_ep_attr>(),
    domain_attr: size_of::<fi_domain_attr>(),
    fabric_attr: size_of::<fi_fabric_attr>(),
};

/// Returns the layout of structures that the library passes to its providers: the current one,
/// unless [`loaded_by`] has set another.
pub fn of_library() -> &'static Layout {
    LIBRARY.get().copied().unwrap_or(&CURRENT)
}

/// Records the layout of the library that has loaded this provider.
pub fn loaded_by(layout: &'static Layout) {
    // Set once: it is the library whose symbols this one is bound to.
    LIBRARY.get_or_init(|| layout);
}

static LIBRARY: OnceLock<&'static Layout> = OnceLock::new();

/// Returns the first `length` bytes of a structure, and zeros for the rest.
///
/// # Safety
/// `source` is NULL or has `length` bytes, which is at most the size of `T`;
/// `T` is a C structure for which zero is a value, and so are the bytes.
pub unsafe fn widen<T: Copy>(source: *const T, length: usize) -> Option<T> {
    debug_assert!(length <= size_of::<T>());
    if source.is_null() {
        return None;
    }
    let mut wide = MaybeUninit::<T>::zeroed();
    // SAFETY: the caller guarantees that the source has `length` bytes, no more than a `T`, which
    // the copy can hold; the rest of the copy is zero.
    unsafe {
        wide.as_mut_ptr()
            .cast::<MaybeUninit<u8>>()
            .copy_from_nonoverlapping(source.cast(), length);
        Some(wide.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_their_time() {
        for (layout, info, tx, ep, domain, fabric) in [
            (&ABI_1_0, 112, 72, 80, 120, 28),
            (&ABI_1_1, 112, 72, 96, 184, 32),
            (&ABI_1_2, 120, 72, 96, 184, 32),
            (&ABI_1_3, 120, 80, 96, 192, 32),
            (&ABI_1_7, 120, 80, 96, 200, 32),
            (&ABI_1_8, 120, 80, 96, 208, 32),
            (&ABI_1_9, 120, 80, 96, 224, 32),
        ] {
            assert_eq!(layout.info, info);
            assert_eq!(layout.tx_attr, tx);
            assert_eq!(layout.ep_attr, ep);
            assert_eq!(layout.domain_attr, domain);
            assert_eq!(layout.fabric_attr, fabric);
        }
    }
}
