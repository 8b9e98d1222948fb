//! Fabrics, domains and address vectors.

use std::ptr::{self, NonNull};
use std::rc::Rc;

use fabric_abi::{FI_AV_UNSPEC, FI_EOTHER, fi_av_attr, fid_av, fid_domain, fid_fabric, symbols};

use super::error::check;
use super::slot::close;
use super::{Failure, Info, Result};

/// An open fabric, fi_fabric(3).
pub struct Fabric {
    raw: NonNull<fid_fabric>,
}

impl Fabric {
    pub fn open(info: &Info) -> Result<Rc<Fabric>> {
        let mut raw = ptr::null_mut();
        // SAFETY: attributes of a result of fi_getinfo, and a place for the object.
        let returned =
            unsafe { symbols::fi_fabric((*info.as_ptr()).fabric_attr, &mut raw, ptr::null_mut()) };
        check("fi_fabric", returned as isize)?;
        Ok(Rc::new(Fabric {
            raw: opened("fi_fabric", raw)?,
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut fid_fabric {
        self.raw.as_ptr()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // SAFETY: open; whatever depends on it holds a reference.
        unsafe { close(&raw mut (*self.as_ptr()).fid) };
    }
}

/// An open domain, fi_domain(3).
pub struct Domain {
    raw: NonNull<fid_domain>,
    /// Closed after the domain.
    _fabric: Rc<Fabric>,
}

impl Domain {
    pub fn open(fabric: &Rc<Fabric>, info: &Info) -> Result<Rc<Domain>> {
        let mut raw = ptr::null_mut();
        let object = fabric.as_ptr();
        // SAFETY: an open fabric, a result of fi_getinfo, and a place for the object.
        let returned = unsafe {
            call_slot!(
                object,
                ops,
                domain,
                object,
                info.as_ptr(),
                &mut raw,
                ptr::null_mut()
            )
        };
        check("fi_domain", returned)?;
        let raw = opened("fi_domain", raw)?;
        Ok(Rc::new(Domain {
            raw,
            _fabric: Rc::clone(fabric),
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut fid_domain {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: open; whatever depends on it holds a reference.
        unsafe { close(&raw mut (*self.as_ptr()).fid) };
    }
}

/// An address vector, fi_av(3).
pub struct AddressVector {
    raw: NonNull<fid_av>,
    /// Closed after the address vector.
    _domain: Rc<Domain>,
}

impl AddressVector {
    /// Of the type that the domain prefers.
    pub fn open(domain: &Rc<Domain>, info: &Info) -> Result<Rc<AddressVector>> {
        let mut attr = fi_av_attr::default();
        if info.av_type() != FI_AV_UNSPEC {
            attr.type_ = info.av_type();
        }
        let mut raw = ptr::null_mut();
        let object = domain.as_ptr();
        // SAFETY: an open domain, attributes, and a place for the object.
        let returned = unsafe {
            call_slot!(
                object,
                ops,
                av_open,
                object,
                &mut attr,
                &mut raw,
                ptr::null_mut()
            )
        };
        check("fi_av_open", returned)?;
        let raw = opened("fi_av_open", raw)?;
        Ok(Rc::new(AddressVector {
            raw,
            _domain: Rc::clone(domain),
        }))
    }

    /// Adds one address; what it is called from now on.
    pub fn insert(&self, address: &[u8]) -> Result<u64> {
        let mut name = 0;
        let av = self.raw.as_ptr();
        let data = address.as_ptr().cast();
        // SAFETY: an open address vector, one address, and a place for its name.
        let returned =
            unsafe { call_slot!(av, ops, insert, av, data, 1, &mut name, 0, ptr::null_mut()) };
        match check("fi_av_insert", returned)? {
            1 => Ok(name),
            _ => Err(Failure {
                call: "fi_av_insert",
                code: FI_EOTHER,
            }),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut fid_av {
        self.raw.as_ptr()
    }
}

impl Drop for AddressVector {
    fn drop(&mut self) {
        // SAFETY: open; endpoints bound to it hold a reference.
        unsafe { close(&raw mut (*self.as_ptr()).fid) };
    }
}

/// An object that a call must have returned when it did not fail.
pub(super) fn opened<T>(call: &'static str, raw: *mut T) -> Result<NonNull<T>> {
    NonNull::new(raw).ok_or(Failure {
        call,
        code: FI_EOTHER,
    })
}
