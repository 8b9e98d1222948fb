//! What the framework calls: `struct fi_provider`.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use fabric_abi::*;
use prov_util::attr::version;
use prov_util::ffi::fabric::FabricObject;
use prov_util::ffi::getinfo::{Arguments, ip_getinfo};
use prov_util::ffi::info;

use crate::LOG;
use crate::bases::bases;
use crate::fabric::Fabric;
use crate::params::Params;

/// Version of the provider, which goes with that of the library: 2.7.0.
pub const VERSION: u32 = version(207, 0);

struct Static(UnsafeCell<fi_provider>);

// SAFETY: this library never writes to it, and the framework, whose members
// `context` is for, synchronizes its own accesses.
unsafe impl Sync for Static {}

static PROVIDER: Static = Static(UnsafeCell::new(fi_provider {
    version: VERSION,
    fi_version: version(2, 7),
    context: fi_context {
        internal: [std::ptr::null_mut(); 4],
    },
    name: c"tcp".as_ptr(),
    getinfo: Some(getinfo),
    fabric: Some(fabric),
    cleanup: Some(cleanup),
}));

static PARAMS: OnceLock<Arc<Params>> = OnceLock::new();

/// The provider. The first call defines its parameters and reads them.
pub fn provider() -> *mut fi_provider {
    params();
    PROVIDER.0.get()
}

/// What the user has set.
pub fn params() -> &'static Arc<Params> {
    PARAMS.get_or_init(|| {
        // SAFETY: nobody writes to the structure before it has been returned
        // from `provider`.
        Arc::new(Params::load(unsafe { &*PROVIDER.0.get() }))
    })
}

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    let arguments = Arguments {
        version,
        node,
        service,
        flags,
        hints,
        info,
    };
    let params = params();
    // SAFETY: the framework passes arguments as fi_getinfo(3) demands.
    unsafe {
        ip_getinfo(
            &arguments,
            &bases(params),
            params.iface.as_deref(),
            LOG.core,
        )
    }
}

unsafe extern "C" fn fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the framework passes a valid `fi_fabric_attr` and a place for
    // the fabric.
    unsafe {
        let attr = info::fabric(attr);
        let api_version = attr.as_ref().map_or(0, |attr| attr.api_version);
        let made = attr.map(|_| Fabric::new(params().clone()));
        FabricObject::open(made, api_version, fabric, context)
    }
}

/// Everything belongs to objects that the application closes.
unsafe extern "C" fn cleanup() {}
