//! Structures of C callers, read safely.
//!
//! An application passes a structure that points to others. The function that receives it asserts
//! once, by creating a [`Deep`], that these pointers are as the interface requires; from then on
//! reading is safe.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::Deref;

use fabric_abi::*;

/// A C structure whose pointers are each NULL or valid for `'a`, with the lengths in the fields
/// that belong to them.
pub struct Deep<'a, T>(&'a T);

impl<T> Clone for Deep<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Deep<'_, T> {}

impl<T> Deref for Deep<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<'a, T> Deep<'a, T> {
    /// Returns the structure at `pointer`; `None` if that is NULL.
    ///
    /// # Safety
    /// A pointer that is not NULL points to a `T` which nobody changes during
    /// `'a`, and so does, in turn, each pointer in it that this module reads.
    pub unsafe fn new(pointer: *const T) -> Option<Self> {
        // SAFETY: the caller guarantees that a pointer that is not NULL refers to a `T` that does
        // not change during 'a.
        unsafe { pointer.as_ref() }.map(Deep)
    }

    /// Returns the address of the structure.
    pub fn as_ptr(self) -> *const T {
        self.0
    }

    /// Returns the structure behind one of this one's pointers.
    fn child<U>(self, pointer: *const U) -> Option<Deep<'a, U>> {
        // SAFETY: the caller of `new` has guaranteed that the pointers in this structure are NULL
        // or valid for 'a.
        unsafe { Deep::new(pointer) }
    }

    fn text(self, pointer: *const c_char) -> Option<&'a CStr> {
        // SAFETY: as in `child`, the pointer is valid for 'a; the texts of the interface end with
        // NUL.
        (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
    }

    fn bytes(self, pointer: *const c_void, length: usize) -> Option<&'a [u8]> {
        // A length that no object can have is a marker, such as FI_AV_AUTH_KEY.
        let present = !pointer.is_null() && isize::try_from(length).is_ok();
        // SAFETY: as in `child`, the pointer is valid for 'a; the structure gives the length of the
        // bytes.
        present.then(|| unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
    }
}

impl<'a> Deep<'a, fi_info> {
    /// Returns the local address, of `src_addrlen` bytes.
    pub fn src_addr(self) -> Option<&'a [u8]> {
        self.address(self.src_addr, self.src_addrlen)
    }

    /// Returns the peer's address, of `dest_addrlen` bytes.
    pub fn dest_addr(self) -> Option<&'a [u8]> {
        self.address(self.dest_addr, self.dest_addrlen)
    }

    /// Returns an address. A text ends with its NUL, which callers may or may not include in the
    /// length.
    fn address(self, pointer: *const c_void, length: usize) -> Option<&'a [u8]> {
        if self.addr_format == FI_ADDR_STR {
            self.text(pointer.cast()).map(CStr::to_bytes_with_nul)
        } else {
            self.bytes(pointer, length)
        }
    }

    /// Returns the object that this information is about.
    pub fn handle(self) -> Option<Deep<'a, fid>> {
        self.child(self.handle)
    }

    /// Returns the attributes of the transmit context.
    pub fn tx_attr(self) -> Option<&'a fi_tx_attr> {
        Some(self.child(self.tx_attr)?.0)
    }

    /// Returns the attributes of the receive context.
    pub fn rx_attr(self) -> Option<&'a fi_rx_attr> {
        Some(self.child(self.rx_attr)?.0)
    }

    /// Returns the attributes of the endpoint.
    pub fn ep_attr(self) -> Option<Deep<'a, fi_ep_attr>> {
        self.child(self.ep_attr)
    }

    /// Returns the attributes of the domain.
    pub fn domain_attr(self) -> Option<Deep<'a, fi_domain_attr>> {
        self.child(self.domain_attr)
    }

    /// Returns the attributes of the fabric.
    pub fn fabric_attr(self) -> Option<Deep<'a, fi_fabric_attr>> {
        self.child(self.fabric_attr)
    }

    /// Returns the object of the network interface.
    pub fn nic(self) -> Option<Deep<'a, fid>> {
        // The object's own structure begins with its fid.
        self.child(self.nic.cast::<fid>())
    }

    /// Returns the provider's name, layers included.
    pub fn prov_name(self) -> Option<Cow<'a, str>> {
        Some(self.fabric_attr()?.prov_name()?.to_string_lossy())
    }
}

impl<'a> Deep<'a, fi_ep_attr> {
    /// The authorization key.
    pub fn auth_key(self) -> Option<&'a [u8]> {
        self.bytes(self.auth_key.cast(), self.auth_key_size)
    }
}

impl<'a> Deep<'a, fi_domain_attr> {
    /// The authorization key.
    pub fn auth_key(self) -> Option<&'a [u8]> {
        self.bytes(self.auth_key.cast(), self.auth_key_size)
    }

    /// The domain's name.
    pub fn name(self) -> Option<&'a CStr> {
        self.text(self.name)
    }

    /// The name for people.
    pub fn name_text(self) -> Cow<'a, str> {
        shown(self.name())
    }
}

impl<'a> Deep<'a, fi_fabric_attr> {
    /// The fabric's name.
    pub fn name(self) -> Option<&'a CStr> {
        self.text(self.name)
    }

    /// The provider's name, layers included.
    pub fn prov_name(self) -> Option<&'a CStr> {
        self.text(self.prov_name)
    }

    /// The fabric's name for people.
    pub fn name_text(self) -> Cow<'a, str> {
        shown(self.name())
    }

    /// The provider's name for people.
    pub fn prov_name_text(self) -> Cow<'a, str> {
        shown(self.prov_name())
    }
}

impl<'a> Deep<'a, fi_av_attr> {
    /// The name of a shared address vector, for people.
    pub fn name_text(self) -> Cow<'a, str> {
        shown(self.text(self.name))
    }
}

impl Deep<'_, fi_mr_attr> {
    /// Returns the address of the list of the memory's segments, of either kind.
    pub fn regions(self) -> *const c_void {
        // SAFETY: the structure begins with a union of two pointers, of which either can be read as
        // the other.
        unsafe { self.as_ptr().cast::<*const c_void>().read() }
    }
}

impl Deep<'_, fid> {
    /// Returns the operations that every object has. The table of an older provider may be shorter;
    /// the operations after its end do not exist.
    pub fn operations(self) -> Option<fi_ops> {
        if self.ops.is_null() {
            return None;
        }
        let mut all = MaybeUninit::<fi_ops>::zeroed();
        // SAFETY: the table has as many bytes as its first member says, and no more than the size
        // of `fi_ops` are copied; the rest of the copy is zero, which is an absent function.
        unsafe {
            let length = (*self.ops).size.min(size_of::<fi_ops>());
            all.as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(self.ops.cast(), length);
            Some(all.assume_init())
        }
    }
}

/// Formats a text like C's `%s`.
fn shown(text: Option<&CStr>) -> Cow<'_, str> {
    text.map_or(Cow::Borrowed("(null)"), CStr::to_string_lossy)
}
