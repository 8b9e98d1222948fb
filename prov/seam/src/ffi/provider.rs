//! `struct fi_provider`: the functions of a provider that a library calls.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use fabric_abi::*;

use super::fabric::FabricObject;
use super::getinfo::{self, Arguments};
use crate::provider::Provider;
use prov_layer::marshal::info;
use prov_objects::attr::version;

/// A provider for which [`crate::provider!`] has created an entry.
pub trait Entered: Provider {
    /// Returns the entry.
    fn entry() -> &'static ProviderEntry<Self>;
}

/// A provider's C structure, and the provider once it has been loaded.
pub struct ProviderEntry<P> {
    c: UnsafeCell<fi_provider>,
    loaded: OnceLock<P>,
}

// SAFETY: this library never writes to the C structure, and the framework,
// whose member `context` is, synchronizes its own accesses. The name is a
// constant.
unsafe impl<P: Sync + Send> Sync for ProviderEntry<P> {}

impl<P: Entered> ProviderEntry<P> {
    /// Creates the entry, without loading the provider.
    #[expect(clippy::new_without_default, reason = "it is for statics alone")]
    pub const fn new() -> Self {
        ProviderEntry {
            c: UnsafeCell::new(fi_provider {
                version: P::VERSION,
                fi_version: version(2, 7),
                context: fi_context {
                    internal: [std::ptr::null_mut(); 4],
                },
                name: P::NAME.as_ptr(),
                getinfo: Some(fi_getinfo::<P>),
                fabric: Some(fi_fabric::<P>),
                cleanup: Some(cleanup),
            }),
            loaded: OnceLock::new(),
        }
    }

    /// Loads the provider, and returns the structure for the library.
    pub fn start(&self) -> *mut fi_provider {
        prov_base::atomic_ops::share_with_other_copies();
        self.provider();
        self.as_c()
    }

    /// Returns the structure.
    pub(super) fn as_c(&self) -> *mut fi_provider {
        self.c.get()
    }

    fn provider(&self) -> &P {
        self.loaded.get_or_init(|| {
            // SAFETY: no code writes to the structure before `start` has returned it.
            P::load(unsafe { &*self.c.get() })
        })
    }
}

unsafe extern "C" fn fi_getinfo<P: Entered>(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    list: *mut *mut fi_info,
) -> c_int {
    let arguments = Arguments {
        version,
        node,
        service,
        flags,
        hints,
        list,
    };
    // SAFETY: the library passes arguments as fi_getinfo(3) demands, and hints
    // in its layout.
    unsafe {
        getinfo::answer(&arguments, P::NAME, P::LOG.core, |request| {
            P::entry().provider().getinfo(request)
        })
    }
}

unsafe extern "C" fn fi_fabric<P: Entered>(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    log::info!(
        target: P::LOG.fabric,
        "opening a fabric of {}",
        file_of(P::entry().as_c().addr()).unwrap_or_default().display()
    );
    // SAFETY: the library passes a valid `fi_fabric_attr` and a writable location for the fabric.
    unsafe {
        let attr = info::fabric(attr);
        let api_version = attr.as_ref().map_or(0, |attr| attr.api_version);
        let made = attr.and_then(|attr| P::entry().provider().fabric(&attr));
        FabricObject::open(made, api_version, fabric, context)
    }
}

/// All resources belong to objects that the application closes.
unsafe extern "C" fn cleanup() {}

/// Returns the file of the program or library that contains a function or a static.
pub fn file_of(address: usize) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills in the structure unless it
    // returns zero; the file name lives as long as the library.
    let name = unsafe {
        if libc::dladdr(address as *const c_void, found.as_mut_ptr()) == 0 {
            return None;
        }
        let name = found.assume_init().dli_fname;
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().unwrap_or(path))
}
