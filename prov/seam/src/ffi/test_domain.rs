//! A domain for the tests of objects that belong to one.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::*;

use super::av::{AvDomain, AvTraits};
use super::cntr::CntrDomain;
use super::cq::{CqDomain, CqTraits};
use super::mr::{MrDomain, MrOps};
use super::object::{Class, Handle};
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_objects::av::format::Format;
use prov_objects::mr::{Config, MrTable, Registrar};
use prov_objects::progress::Progress;

pub struct TestDomain {
    pub format: Format,
    pub auth_key_size: Option<usize>,
    pub table: Arc<MrTable>,
    pub api_version: u32,
}

impl TestDomain {
    /// Opens a domain with an address format and a registration mode.
    pub fn open(addr_format: u32, mr_mode: i32) -> Handle<TestDomain> {
        Self::registering(addr_format, mr_mode, Registrar::Software)
    }

    /// Opens a domain with this registrar.
    pub fn registering(addr_format: u32, mr_mode: i32, registrar: Registrar) -> Handle<TestDomain> {
        let format = Format::of(addr_format).expect("tests know what they ask for");
        Self::new(format, mr_mode, registrar)
    }

    /// Opens a domain with any address format.
    pub fn of_format(format: Format, mr_mode: i32) -> Handle<TestDomain> {
        Self::new(format, mr_mode, Registrar::Software)
    }

    fn new(format: Format, mr_mode: i32, registrar: Registrar) -> Handle<TestDomain> {
        let table = MrTable::new(&Config {
            mr_mode,
            registrar,
            ..Config::default()
        });
        let domain = TestDomain {
            format,
            auth_key_size: Some(0),
            table: Arc::new(table),
            api_version: prov_objects::attr::version(2, 7),
        };
        Handle::new(domain, null_mut(), Vec::new())
    }
}

impl Class for TestDomain {
    type Header = fid_domain;

    fn class(&self) -> usize {
        FI_CLASS_DOMAIN
    }

    fn header(&self, fid: fid) -> fid_domain {
        fid_domain {
            fid,
            ops: null_mut(),
            mr: std::ptr::from_ref(MrOps::<TestDomain>::TABLE).cast_mut(),
        }
    }
}

impl AvDomain for TestDomain {
    fn av_traits(&self) -> AvTraits<'_> {
        AvTraits {
            name: "lo",
            format: Some(self.format),
            av_type: FI_AV_UNSPEC,
            user_ids: true,
            api_version: self.api_version,
            auth_key_size: self.auth_key_size,
            is_strict: true,
            target: prov_base::logging::UTIL.av,
        }
    }
}

impl MrDomain for TestDomain {
    fn mr_table(&self) -> &Arc<MrTable> {
        &self.table
    }

    fn api_version(&self) -> u32 {
        self.api_version
    }
}

impl CqDomain for TestDomain {
    fn cq_traits(&self) -> CqTraits {
        CqTraits {
            error_text: |_| None,
            lock: LockKind::Real,
            with_sources: true,
            api_version: self.api_version,
            target: prov_base::logging::UTIL.cq,
        }
    }
}

impl CntrDomain for TestDomain {
    fn cntr_progress(&self) -> Option<Arc<dyn Progress>> {
        None
    }
}

/// A fabric for the tests of objects that belong to one.
pub struct TestFabric {
    api_version: u32,
}

impl TestFabric {
    /// Opens a fabric of an interface version.
    pub fn open(major: u32, minor: u32) -> Handle<TestFabric> {
        let api_version = prov_objects::attr::version(major, minor);
        Handle::new(TestFabric { api_version }, null_mut(), Vec::new())
    }
}

impl Class for TestFabric {
    type Header = fid_fabric;

    fn class(&self) -> usize {
        FI_CLASS_FABRIC
    }

    fn header(&self, fid: fid) -> fid_fabric {
        fid_fabric {
            fid,
            ops: null_mut(),
            api_version: self.api_version,
        }
    }
}

/// A function that opens an object with attributes.
type Open<P, A, T> = unsafe extern "C" fn(*mut P, *mut A, *mut *mut T, *mut c_void) -> c_int;

/// Opens an object of a domain or a fabric.
pub fn open_in<P: Class, A, T>(
    parent: &Handle<P>,
    open: Open<P::Header, A, T>,
    mut attr: A,
    context: *mut c_void,
) -> Result<*mut T> {
    let mut object = null_mut();
    // SAFETY: the domain or fabric is open, and the pointers refer to variables.
    let status = unsafe { open(parent.as_c(), &raw mut attr, &raw mut object, context) };
    Errno::check(status).map(|_| object)
}

/// `fi_close`
pub fn close(fid: *mut fid) -> i32 {
    // SAFETY: the object is open, and the tests close it once.
    unsafe { (*(*fid).ops).close.unwrap()(fid) }
}
