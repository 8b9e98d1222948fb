//! `struct fi_info`: owned copies and lists of them (fi_getinfo(3)).
//!
//! Everything is allocated with the C library's `malloc`, because applications insert strings of
//! their own and remove the library's.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use fabric_abi::*;
use prov_base::errno::{Errno, Result};

use crate::deep::Deep;
use crate::version::Version;

/// One `fi_info` with everything that it points to, except the next one in a list: `next` is NULL.
pub struct Info(NonNull<fi_info>);

impl Info {
    /// Creates an empty one with empty attributes (`fi_allocinfo`).
    pub fn new() -> Result<Self> {
        let info = Info(allocate()?);
        let raw = info.0.as_ptr();
        // SAFETY: the structure was just allocated and has no other users; on an early return Drop
        // frees the members that are set.
        unsafe {
            (*raw).tx_attr = allocate()?.as_ptr();
            (*raw).rx_attr = allocate()?.as_ptr();
            (*raw).ep_attr = allocate()?.as_ptr();
            (*raw).domain_attr = allocate()?.as_ptr();
            (*raw).fabric_attr = allocate()?.as_ptr();
        }
        Ok(info)
    }

    /// Copies everything but `next` (`fi_dupinfo`). Both refer to the same object as handle.
    pub fn duplicate(source: Deep<fi_info>) -> Result<Self> {
        // If a later part fails, Drop frees the parts copied so far, so each structure is stored
        // with its pointers cleared and these are set afterwards.
        let copy = Info(duplicate(&fi_info {
            next: null_mut(),
            src_addr: null_mut(),
            dest_addr: null_mut(),
            tx_attr: null_mut(),
            rx_attr: null_mut(),
            ep_attr: null_mut(),
            domain_attr: null_mut(),
            fabric_attr: null_mut(),
            nic: null_mut(),
            ..*source
        })?);
        // SAFETY: the structure was just allocated and has no other users.
        let raw = unsafe { &mut *copy.0.as_ptr() };
        raw.src_addr = duplicate_bytes(source.src_addr())?;
        raw.dest_addr = duplicate_bytes(source.dest_addr())?;
        raw.tx_attr = duplicate_opt(source.tx_attr())?;
        raw.rx_attr = duplicate_opt(source.rx_attr())?;
        if let Some(attr) = source.ep_attr() {
            let mut ep = duplicate(&fi_ep_attr {
                auth_key: null_mut(),
                ..*attr
            })?;
            raw.ep_attr = ep.as_ptr();
            // SAFETY: the structure was just allocated and has no other users.
            unsafe { ep.as_mut() }.auth_key = duplicate_bytes(attr.auth_key())?.cast();
        }
        if let Some(attr) = source.domain_attr() {
            let mut domain = duplicate(&fi_domain_attr {
                name: null_mut(),
                auth_key: null_mut(),
                ..*attr
            })?;
            raw.domain_attr = domain.as_ptr();
            // SAFETY: the structure was just allocated and has no other users.
            let domain = unsafe { domain.as_mut() };
            domain.name = duplicate_text(attr.name())?;
            domain.auth_key = duplicate_bytes(attr.auth_key())?.cast();
        }
        if let Some(attr) = source.fabric_attr() {
            let mut fabric = duplicate(&fi_fabric_attr {
                name: null_mut(),
                prov_name: null_mut(),
                ..*attr
            })?;
            raw.fabric_attr = fabric.as_ptr();
            // SAFETY: the structure was just allocated and has no other users.
            let fabric = unsafe { fabric.as_mut() };
            fabric.name = duplicate_text(attr.name())?;
            fabric.prov_name = duplicate_text(attr.prov_name())?;
        }
        raw.nic = duplicate_nic(source.nic())?;
        Ok(copy)
    }

    /// Takes ownership of a list that `fi_freeinfo` would have freed.
    ///
    /// # Safety
    /// `head` is NULL or the first of a list that this library, or a provider
    /// for it, allocated and that nobody else uses any more.
    pub unsafe fn from_raw_list(head: *mut fi_info) -> Vec<Self> {
        let mut list = Vec::new();
        let mut next = NonNull::new(head);
        while let Some(info) = next {
            // SAFETY: the caller guarantees that each element is valid and has no other users.
            unsafe {
                next = NonNull::new((*info.as_ptr()).next);
                (*info.as_ptr()).next = null_mut();
            }
            list.push(Info(info));
        }
        list
    }

    /// Passes a list to C; NULL if it is empty.
    pub fn into_raw_list(list: Vec<Self>) -> *mut fi_info {
        list.into_iter().rfold(null_mut(), |next, info| {
            let raw = info.into_raw();
            // SAFETY: the element was an `Info`, which has no other users.
            unsafe { (*raw).next = next };
            raw
        })
    }

    /// Passes this one to C.
    pub fn into_raw(self) -> *mut fi_info {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Returns the structure for reading.
    #[allow(clippy::expect_used, reason = "the pointer is a NonNull")]
    pub fn view(&self) -> Deep<'_, fi_info> {
        // SAFETY: an `Info` owns its structure, whose pointers are all NULL or valid.
        unsafe { Deep::new(self.0.as_ptr()) }.expect("an Info is never NULL")
    }

    /// Sets the name and the version of the provider, and the version of the interface that the
    /// caller requested.
    pub fn set_provider(&mut self, name: &CStr, version: Version, api: Version) -> Result {
        let raw = self.0.as_ptr();
        // SAFETY: the `Info` owns the structure, and the name that is freed was allocated by
        // malloc, like all of its parts.
        unsafe {
            if (*raw).fabric_attr.is_null() {
                (*raw).fabric_attr = allocate()?.as_ptr();
            }
            let attr = (*raw).fabric_attr;
            let copy = duplicate_text(Some(name))?;
            libc::free((*attr).prov_name.cast());
            (*attr).prov_name = copy;
            (*attr).prov_version = version.to_c();
            (*attr).api_version = api.to_c();
        }
        Ok(())
    }
}

#[cfg(test)]
impl Info {
    /// Sets the type of endpoint.
    pub fn set_endpoint_type(&mut self, endpoint: fi_ep_type) {
        // SAFETY: the `Info` owns the structure, whose attributes `new` and `duplicate` have
        // allocated.
        unsafe { (*(*self.0.as_ptr()).ep_attr).type_ = endpoint };
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the `Info` owns its structure, which was allocated by malloc, like all of its
        // parts, and is not used after this.
        unsafe { free(self.0.as_ptr(), Owned::All) }
    }
}

/// Which keys the structures to be freed contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owned {
    /// Everything in the current layout.
    All,
    /// No authorization keys: the attributes may be the application's own, in
    /// the layout of ABI 1.0, which ends before them.
    NoKeys,
}

/// Frees a list (`fi_freeinfo`).
///
/// # Safety
/// As for [`Info::from_raw_list`]; with [`Owned::NoKeys`] the endpoint and
/// domain attributes may be as short as those of ABI 1.0.
pub unsafe fn free_list(mut info: *mut fi_info, owned: Owned) {
    while !info.is_null() {
        // SAFETY: the caller guarantees that each element is valid, was allocated by malloc, and
        // has no other users.
        unsafe {
            let next = (*info).next;
            free(info, owned);
            info = next;
        }
    }
}

/// Frees one element.
///
/// # Safety
/// As for [`free_list`].
unsafe fn free(info: *mut fi_info, owned: Owned) {
    // SAFETY: the caller guarantees that the structure and its parts were allocated by malloc and
    // have no other users; free(3) accepts NULL.
    unsafe {
        libc::free((*info).src_addr);
        libc::free((*info).dest_addr);
        libc::free((*info).tx_attr.cast());
        libc::free((*info).rx_attr.cast());
        let ep = (*info).ep_attr;
        if !ep.is_null() && owned == Owned::All {
            libc::free((*ep).auth_key.cast());
        }
        libc::free(ep.cast());
        let domain = (*info).domain_attr;
        if !domain.is_null() {
            if owned == Owned::All {
                libc::free((*domain).auth_key.cast());
            }
            libc::free((*domain).name.cast());
        }
        libc::free(domain.cast());
        let fabric = (*info).fabric_attr;
        if !fabric.is_null() {
            libc::free((*fabric).name.cast());
            libc::free((*fabric).prov_name.cast());
        }
        libc::free(fabric.cast());
        close_nic((*info).nic);
        libc::free(info.cast());
    }
}

/// A zeroed `T` from malloc. Only for C structures, for which zero is a value.
fn allocate<T>() -> Result<NonNull<T>> {
    // SAFETY: calloc(3) accepts all sizes, and its result is checked.
    NonNull::new(unsafe { libc::calloc(1, size_of::<T>()) }.cast()).ok_or(Errno::ENOMEM)
}

/// Copies a C structure to memory from malloc.
fn duplicate<T: Copy>(source: &T) -> Result<NonNull<T>> {
    let copy = allocate::<T>()?;
    // SAFETY: the memory was just allocated with the size of a `T`, and is aligned for all types.
    unsafe { copy.as_ptr().write(*source) };
    Ok(copy)
}

fn duplicate_opt<T: Copy>(source: Option<&T>) -> Result<*mut T> {
    source.map_or(Ok(null_mut()), |source| {
        duplicate(source).map(NonNull::as_ptr)
    })
}

/// Copies bytes to memory from malloc. Empty contents get an allocation of their own, as for an
/// address of length zero.
fn duplicate_bytes(source: Option<&[u8]>) -> Result<*mut c_void> {
    let Some(source) = source else {
        return Ok(null_mut());
    };
    // SAFETY: malloc(3) accepts all sizes, its result is checked, and it has the length of the
    // source.
    unsafe {
        let copy = libc::malloc(source.len().max(1));
        if copy.is_null() {
            return Err(Errno::ENOMEM);
        }
        copy.cast::<u8>()
            .copy_from_nonoverlapping(source.as_ptr(), source.len());
        Ok(copy)
    }
}

fn duplicate_text(source: Option<&CStr>) -> Result<*mut c_char> {
    duplicate_bytes(source.map(CStr::to_bytes_with_nul)).map(<*mut c_void>::cast)
}

/// Copies a network interface's object, with the function of its provider. One that cannot be
/// copied is left out.
fn duplicate_nic(source: Option<Deep<fid>>) -> Result<*mut fid_nic> {
    let Some(source) = source else {
        return Ok(null_mut());
    };
    let Some(control) = source.operations().and_then(|ops| ops.control) else {
        return Ok(null_mut());
    };
    let mut copy: *mut fid_nic = null_mut();
    let command = FI_DUP as c_int;
    // SAFETY: the function belongs to the object and is called as fi_nic(3) says; `copy` is
    // writable.
    let result = unsafe { control(source.as_ptr().cast_mut(), command, (&raw mut copy).cast()) };
    match Errno::check(result) {
        Ok(_) => Ok(copy),
        Err(Errno::ENOSYS) => Ok(null_mut()),
        Err(error) => Err(error),
    }
}

/// # Safety
/// `nic` is NULL or an object that nobody else uses.
unsafe fn close_nic(nic: *mut fid_nic) {
    // SAFETY: the caller guarantees that the object is NULL or valid.
    let Some(object) = (unsafe { Deep::new(nic.cast_const().cast::<fid>()) }) else {
        return;
    };
    if let Some(close) = object.operations().and_then(|ops| ops.close) {
        // SAFETY: the function belongs to the object, which the caller guarantees to have no other
        // users, and which is not used after this.
        unsafe { close(nic.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: &mut *mut c_char, value: &CStr) {
        *pointer = duplicate_text(Some(value)).unwrap();
    }

    /// Returns one with a value in every field that a copy has to follow.
    fn full() -> Info {
        let info = Info::new().unwrap();
        // SAFETY: the structure and its attributes were just allocated and have no other users; the
        // tests free them with the `Info`.
        unsafe {
            let raw = &mut *info.0.as_ptr();
            raw.caps = 7;
            raw.src_addr = duplicate_bytes(Some(b"source")).unwrap();
            raw.src_addrlen = 6;
            raw.dest_addr = duplicate_bytes(Some(b"destination")).unwrap();
            raw.dest_addrlen = 11;
            (*raw.tx_attr).size = 128;
            (*raw.rx_attr).size = 256;
            (*raw.ep_attr).auth_key = duplicate_bytes(Some(b"ep")).unwrap().cast();
            (*raw.ep_attr).auth_key_size = 2;
            text(&mut (*raw.domain_attr).name, c"domain");
            (*raw.domain_attr).auth_key = duplicate_bytes(Some(b"key")).unwrap().cast();
            (*raw.domain_attr).auth_key_size = 3;
            text(&mut (*raw.fabric_attr).name, c"fabric");
            text(&mut (*raw.fabric_attr).prov_name, c"tcp");
        }
        info
    }

    #[test]
    fn a_new_one_has_all_attributes_and_they_are_empty() {
        let info = Info::new().unwrap();
        let view = info.view();
        assert_eq!(view.caps, 0);
        assert_eq!(view.tx_attr().unwrap().size, 0);
        assert_eq!(view.rx_attr().unwrap().size, 0);
        assert_eq!(view.ep_attr().unwrap().max_msg_size, 0);
        assert!(view.domain_attr().unwrap().name().is_none());
        assert!(view.fabric_attr().unwrap().prov_name().is_none());
        assert!(view.nic().is_none() && view.src_addr().is_none());
    }

    #[test]
    fn a_copy_shares_nothing_with_its_source() {
        let source = full();
        let copy = Info::duplicate(source.view()).unwrap();
        let (a, b) = (source.view(), copy.view());
        assert_eq!(b.caps, 7);
        assert_eq!((b.src_addr(), b.dest_addr()), (a.src_addr(), a.dest_addr()));
        assert_eq!(b.tx_attr().unwrap().size, 128);
        assert_eq!(b.rx_attr().unwrap().size, 256);
        assert_eq!(b.domain_attr().unwrap().name(), Some(c"domain"));
        assert_eq!(b.fabric_attr().unwrap().name(), Some(c"fabric"));
        assert_eq!(b.prov_name().as_deref(), Some("tcp"));
        assert_ne!(a.src_addr, b.src_addr);
        assert_ne!(a.tx_attr, b.tx_attr);
        assert_ne!(a.ep_attr().unwrap().auth_key, b.ep_attr().unwrap().auth_key);
        assert_ne!(
            a.domain_attr().unwrap().auth_key,
            b.domain_attr().unwrap().auth_key
        );
        assert_ne!(a.domain_attr().unwrap().name, b.domain_attr().unwrap().name);
        drop(source);
        assert_eq!(copy.view().src_addr(), Some(&b"source"[..]));
    }

    #[test]
    fn a_copy_leaves_missing_parts_missing() {
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let empty: fi_info = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is valid: all its pointers are NULL.
        let copy = Info::duplicate(unsafe { Deep::new(&empty) }.unwrap()).unwrap();
        assert!(copy.view().tx_attr().is_none() && copy.view().domain_attr().is_none());
    }

    #[test]
    fn the_copy_of_a_text_address_ends_with_its_nul() {
        let source = full();
        // SAFETY: the `Info` owns the structure; the old address is freed before it is replaced.
        unsafe {
            let raw = &mut *source.0.as_ptr();
            raw.addr_format = FI_ADDR_STR;
            libc::free(raw.src_addr);
            raw.src_addr = duplicate_text(Some(c"fi_shm://7")).unwrap().cast();
            raw.src_addrlen = 10;
            libc::free(raw.dest_addr);
            raw.dest_addr = null_mut();
        }
        let copy = Info::duplicate(source.view()).unwrap();
        assert_eq!(copy.view().src_addr(), Some(&b"fi_shm://7\0"[..]));
    }

    #[test]
    fn lists_keep_their_order_through_c() {
        let list = (1..=3).map(|caps| {
            let info = full();
            // SAFETY: the `Info` owns the structure.
            unsafe { (*info.0.as_ptr()).caps = caps };
            info
        });
        let head = Info::into_raw_list(list.collect());
        // SAFETY: the list was made by `into_raw_list` and has no other users.
        let list = unsafe { Info::from_raw_list(head) };
        let caps: Vec<u64> = list.iter().map(|info| info.view().caps).collect();
        assert_eq!(caps, [1, 2, 3]);
        assert!(Info::into_raw_list(Vec::new()).is_null());
    }

    #[test]
    fn the_provider_is_entered_in_place_of_the_old_name() {
        let mut info = full();
        info.set_provider(c"tcp;ofi_rxm", Version::of(200, 7), Version::of(1, 18))
            .unwrap();
        let attr = info.view().fabric_attr().unwrap();
        assert_eq!(attr.prov_name(), Some(c"tcp;ofi_rxm"));
        assert_eq!(attr.prov_version, Version::of(200, 7).to_c());
        assert_eq!(attr.api_version, Version::of(1, 18).to_c());
    }
}
