//! Results of fi_getinfo(3).

use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::NonNull;

use fabric_abi::{
    FI_DIRECTED_RECV, FI_EINVAL, FI_ENODATA, FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_TYPE_INFO,
    FI_VERSION, fi_av_type, fi_info, fid_t, symbols,
};

use super::error::check;
use super::{Failure, Hints, Result, text};

/// The results of fi_getinfo.
pub struct InfoList {
    /// The first entry; null in an empty list.
    first: *mut fi_info,
}

impl InfoList {
    /// Returns the matching entries, in this interface version.
    pub fn query(
        node: Option<&str>,
        service: Option<&str>,
        flags: u64,
        hints: Option<&Hints>,
    ) -> Result<InfoList> {
        let node = c_string(node)?;
        let service = c_string(service)?;
        let mut first = std::ptr::null_mut();
        // SAFETY: the texts and the hints are valid or null, and live until the call returns.
        let returned = unsafe {
            symbols::fi_getinfo(
                FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
                node.as_ref().map_or(std::ptr::null(), |s| s.as_ptr()),
                service.as_ref().map_or(std::ptr::null(), |s| s.as_ptr()),
                flags,
                hints.map_or(std::ptr::null(), Hints::as_ptr),
                &mut first,
            )
        };
        check("fi_getinfo", returned as isize)?;
        Ok(InfoList { first })
    }

    /// # Safety
    /// `first` is null or a list that the caller owns and gives away.
    pub(super) unsafe fn from_raw(first: *mut fi_info) -> InfoList {
        InfoList { first }
    }

    /// Returns the best entry.
    pub fn first(&self) -> Result<Info<'_>> {
        let none = Failure {
            call: "fi_getinfo",
            code: FI_ENODATA,
        };
        self.iter().next().ok_or(none)
    }

    /// Disables directed receive in all entries: it has a cost, and is not always needed.
    pub fn drop_directed_receive(&mut self) {
        let mut next = self.first;
        while let Some(mut raw) = NonNull::new(next) {
            // SAFETY: the pointer is an entry of the list, which has no other users while `self` is
            // borrowed mutably.
            let info = unsafe { raw.as_mut() };
            info.caps &= !FI_DIRECTED_RECV;
            // SAFETY: the pointer is null or refers to a structure of this entry, which lives as
            // long as the list.
            if let Some(receive) = unsafe { info.rx_attr.as_mut() } {
                receive.caps &= !FI_DIRECTED_RECV;
            }
            next = info.next;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Info<'_>> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let raw = NonNull::new(next)?;
            // SAFETY: the pointer is an entry of the list, which lives as long as `self`.
            next = unsafe { raw.as_ref().next };
            Some(Info {
                raw,
                list: PhantomData,
            })
        })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        // SAFETY: the list is from fi_getinfo, or null for an empty one, and is freed once.
        unsafe { symbols::fi_freeinfo(self.first) };
    }
}

/// One entry.
#[derive(Clone, Copy)]
pub struct Info<'a> {
    raw: NonNull<fi_info>,
    list: PhantomData<&'a fi_info>,
}

impl<'a> Info<'a> {
    fn raw(&self) -> &'a fi_info {
        // SAFETY: the pointer is an entry of a list that lives for 'a and does not change
        // meanwhile.
        unsafe { self.raw.as_ref() }
    }

    pub fn provider(&self) -> Option<&'a CStr> {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        let fabric = unsafe { self.raw().fabric_attr.as_ref() }?;
        // SAFETY: the pointer is null or refers to a terminated text of this entry, which lives as
        // long as the list.
        unsafe { string(fabric.prov_name) }
    }

    pub fn fabric(&self) -> Option<&'a CStr> {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        let fabric = unsafe { self.raw().fabric_attr.as_ref() }?;
        // SAFETY: the pointer is null or refers to a terminated text of this entry, which lives as
        // long as the list.
        unsafe { string(fabric.name) }
    }

    pub fn domain(&self) -> Option<&'a CStr> {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        let domain = unsafe { self.raw().domain_attr.as_ref() }?;
        // SAFETY: the pointer is null or refers to a terminated text of this entry, which lives as
        // long as the list.
        unsafe { string(domain.name) }
    }

    /// The provider's own version, packed.
    pub fn provider_version(&self) -> u32 {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().fabric_attr.as_ref() }.map_or(0, |fabric| fabric.prov_version)
    }

    /// Type and protocol of the endpoint.
    pub fn endpoint(&self) -> (u32, u32) {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().ep_attr.as_ref() }.map_or((0, 0), |ep| (ep.type_, ep.protocol))
    }

    /// Returns the largest number of bytes of a message, and the number of bytes before one in mode
    /// `FI_MSG_PREFIX`.
    pub fn message_sizes(&self) -> (usize, usize) {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().ep_attr.as_ref() }
            .map_or((0, 0), |ep| (ep.max_msg_size, ep.msg_prefix_size))
    }

    pub fn caps(&self) -> u64 {
        self.raw().caps
    }

    pub fn address_format(&self) -> u32 {
        self.raw().addr_format
    }

    pub fn av_type(&self) -> fi_av_type {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().domain_attr.as_ref() }.map_or(0, |domain| domain.av_type)
    }

    pub fn mr_mode(&self) -> c_int {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().domain_attr.as_ref() }.map_or(0, |domain| domain.mr_mode)
    }

    pub fn domain_caps(&self) -> u64 {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().domain_attr.as_ref() }.map_or(0, |domain| domain.caps)
    }

    /// Returns mode, queue depth, and largest number of bytes of an injected message.
    pub fn transmit(&self) -> (u64, usize, usize) {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().tx_attr.as_ref() }
            .map_or((0, 0, 0), |tx| (tx.mode, tx.size, tx.inject_size))
    }

    /// Returns mode and queue depth.
    pub fn receive(&self) -> (u64, usize) {
        // SAFETY: the pointer is null or refers to a structure of this entry, which lives as long
        // as the list.
        unsafe { self.raw().rx_attr.as_ref() }.map_or((0, 0), |rx| (rx.mode, rx.size))
    }

    /// Returns the handle with which a connection request is answered.
    pub(super) fn handle(&self) -> fid_t {
        self.raw().handle
    }

    pub(super) fn as_ptr(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    /// Returns all of it as text, fi_tostr(3).
    pub fn text(&self) -> Vec<u8> {
        // SAFETY: the data is an fi_info, as FI_TYPE_INFO requires.
        unsafe { text::of(self.raw.as_ptr().cast(), FI_TYPE_INFO) }
    }
}

fn c_string(text: Option<&str>) -> Result<Option<CString>> {
    let failed = Failure {
        call: "fi_getinfo",
        code: FI_EINVAL as c_int,
    };
    text.map(CString::new).transpose().map_err(|_| failed)
}

/// # Safety
/// `text` is null or a C string that lives for 'a.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller keeps the contract of this function, which is that of the called one.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}
