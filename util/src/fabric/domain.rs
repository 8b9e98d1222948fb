//! Fabrics, domains and address vectors.

use std::ptr;
use std::rc::Rc;

use fabric_abi::{FI_AV_UNSPEC, FI_EOTHER, fi_av_attr, fid_av, fid_domain, fid_fabric, symbols};

use super::error::check;
use super::object::Object;
use super::{Failure, Info, Result};

/// An open fabric, fi_fabric(3).
pub struct Fabric {
    object: Object<fid_fabric>,
}

impl Fabric {
    pub fn open(info: &Info) -> Result<Rc<Fabric>> {
        // SAFETY: the attributes are those of a result of fi_getinfo, and the location of the
        // object is writable.
        let object = unsafe {
            Object::open("fi_fabric", |place| {
                symbols::fi_fabric((*info.as_ptr()).fabric_attr, place, ptr::null_mut()) as isize
            })
        }?;
        Ok(Rc::new(Fabric { object }))
    }

    pub(super) fn as_ptr(&self) -> *mut fid_fabric {
        self.object.as_ptr()
    }
}

/// An open domain, fi_domain(3).
pub struct Domain {
    object: Object<fid_domain>,
    /// Closed after the domain.
    _fabric: Rc<Fabric>,
}

impl Domain {
    pub fn open(fabric: &Rc<Fabric>, info: &Info) -> Result<Rc<Domain>> {
        let parent = fabric.as_ptr();
        // SAFETY: the fabric is open, the info is a result of fi_getinfo, and the location of the
        // object is writable.
        let object = unsafe {
            Object::open("fi_domain", |place| {
                call_slot!(
                    parent,
                    ops,
                    domain,
                    parent,
                    info.as_ptr(),
                    place,
                    ptr::null_mut()
                )
            })
        }?;
        Ok(Rc::new(Domain {
            object,
            _fabric: Rc::clone(fabric),
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut fid_domain {
        self.object.as_ptr()
    }
}

/// An address vector, fi_av(3).
pub struct AddressVector {
    object: Object<fid_av>,
    /// Closed after the address vector.
    _domain: Rc<Domain>,
}

impl AddressVector {
    /// Opens an address vector of the type that the domain prefers.
    pub fn open(domain: &Rc<Domain>, info: &Info) -> Result<Rc<AddressVector>> {
        let mut attr = fi_av_attr::default();
        if info.av_type() != FI_AV_UNSPEC {
            attr.type_ = info.av_type();
        }
        let parent = domain.as_ptr();
        // SAFETY: the domain is open, the attributes are valid, and the location of the object is
        // writable.
        let object = unsafe {
            Object::open("fi_av_open", |place| {
                call_slot!(
                    parent,
                    ops,
                    av_open,
                    parent,
                    &mut attr,
                    place,
                    ptr::null_mut()
                )
            })
        }?;
        Ok(Rc::new(AddressVector {
            object,
            _domain: Rc::clone(domain),
        }))
    }

    /// Adds one address; returns its index.
    pub fn insert(&self, address: &[u8]) -> Result<u64> {
        let mut name = 0;
        let av = self.object.as_ptr();
        let data = address.as_ptr().cast();
        // SAFETY: the address vector is open, `data` is one address of its format, and `name` is
        // writable.
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
        self.object.as_ptr()
    }
}
