//! A provider, in C or in this project, behind `struct fi_provider` (fi_provider(3)).

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr::NonNull;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::uncancelled::Uncancelled;

use crate::deep::Deep;
use crate::info::Info;
use crate::log_layer;
use crate::version::Version;

/// The kind of a provider. The values are those in `fi_provider::context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Drives a network.
    Core = 0,
    /// Is layered over a core provider to offer more.
    Utility = 1,
    /// Observes the calls of another provider.
    Hook = 2,
    /// Serves other providers with operations that hardware may take over.
    Offload = 3,
    /// Combines several providers into one.
    Link = 4,
}

/// A provider that stays loaded for as long as the process lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Provider(NonNull<fi_provider>);

// SAFETY: the interface requires that a provider's functions can be called from any thread; the
// structure changes only while the registry is built, by one thread.
unsafe impl Send for Provider {}
// SAFETY: a shared reference permits the same calls, as above.
unsafe impl Sync for Provider {}

impl Provider {
    /// Wraps the result of a provider's entry point.
    ///
    /// # Safety
    /// `raw` is NULL or a provider's structure which, with the code behind it,
    /// is valid until the provider is dropped from the registry for good.
    pub unsafe fn from_raw(raw: *mut fi_provider) -> Option<Self> {
        NonNull::new(raw).map(Provider)
    }

    /// Returns the structure, for C functions.
    pub fn as_ptr(self) -> *mut fi_provider {
        self.0.as_ptr()
    }

    /// Returns its own name; `None` if it has none, in which case it cannot be used.
    pub fn c_name(self) -> Option<&'static CStr> {
        let name = self.raw().name;
        // SAFETY: a provider's name is a terminated text that lives as long as the provider.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    }

    /// Returns its own name for output and for comparisons.
    pub fn name(self) -> &'static str {
        self.c_name()
            .and_then(|name| name.to_str().ok())
            .unwrap_or("unnamed")
    }

    /// The provider's own version.
    pub fn version(self) -> Version {
        Version::new(self.raw().version)
    }

    /// Returns the version of the interface for which it was written.
    pub fn fi_version(self) -> Version {
        Version::new(self.raw().fi_version)
    }

    /// Whether it can open fabrics, which is required.
    pub fn opens_fabrics(self) -> bool {
        self.raw().fabric.is_some()
    }

    /// Whether it answers `fi_getinfo`, which hooks do not.
    pub fn answers_getinfo(self) -> bool {
        self.raw().getinfo.is_some()
    }

    /// Returns its kind, according to its name and its functions.
    pub fn class(self) -> Class {
        let starts_with = |prefix: &str| {
            self.name()
                .get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        if !self.answers_getinfo() {
            Class::Hook
        } else if starts_with("ofi_") {
            Class::Utility
        } else if starts_with("off_") {
            Class::Offload
        } else if self.name().eq_ignore_ascii_case("lnx") {
            Class::Link
        } else {
            Class::Core
        }
    }

    /// Stores in the provider's structure the values that other C code reads there: the class as an
    /// `int`, then a byte each for silent logging and for a core provider that is not to be layered
    /// over.
    pub fn set_context(self, class: Class, silent: bool, alone: bool) {
        // SAFETY: the interface reserves this member for the library; it has 32 bytes and is
        // aligned for pointers.
        unsafe {
            let context = (&raw mut (*self.as_ptr()).context).cast::<u8>();
            context.cast::<i32>().write(class as i32);
            context.add(4).write(u8::from(silent));
            context.add(5).write(u8::from(alone));
        }
    }

    /// Whether `FI_LOG_PROV` excludes this provider.
    pub fn is_silent(self) -> bool {
        // SAFETY: the member has 32 bytes; it is zero, or has a value from `set_context`.
        unsafe {
            let context = (&raw const (*self.as_ptr()).context).cast::<u8>();
            context.add(4).read() != 0
        }
    }

    /// Returns the provider's results for these hints.
    pub fn getinfo(self, request: &Request) -> Result<Vec<Info>> {
        let getinfo = self.raw().getinfo.ok_or(Errno::ENOSYS)?;
        let mut head = std::ptr::null_mut();
        let hints = request
            .hints
            .map_or(std::ptr::null(), |hints| hints.as_ptr());
        let _uncancelled = Uncancelled::begin();
        // SAFETY: the arguments are as fi_getinfo(3) demands: the texts are NULL or terminated, and
        // `head` is writable.
        let result = log_layer::asking(self.name(), || unsafe {
            getinfo(
                request.version.to_c(),
                text_pointer(request.node),
                text_pointer(request.service),
                request.flags,
                hints,
                &mut head,
            )
        });
        outcome(result)?;
        // SAFETY: the provider has allocated the list for the caller, and does not use it.
        Ok(unsafe { Info::from_raw_list(head) })
    }

    /// Opens a fabric.
    ///
    /// # Safety
    /// The arguments are valid for the provider's `fabric` function.
    pub unsafe fn open_fabric(
        self,
        attr: *mut fi_fabric_attr,
        context: *mut c_void,
    ) -> Result<*mut fid_fabric> {
        let open = self.raw().fabric.ok_or(Errno::ENODEV)?;
        let mut fabric = std::ptr::null_mut();
        let _uncancelled = Uncancelled::begin();
        // SAFETY: the caller guarantees that the arguments are valid for the provider's function.
        outcome(unsafe { open(attr, &mut fabric, context) })?;
        Ok(fabric)
    }

    /// Lets the provider release its resources. It must not be used afterwards.
    pub fn clean_up(self) {
        if let Some(cleanup) = self.raw().cleanup {
            // SAFETY: the function takes no arguments, and the registry calls it once.
            unsafe { cleanup() }
        }
    }

    /// Returns the file of the provider's code.
    pub fn library_path(self) -> Option<PathBuf> {
        prov_util::ffi::provider::file_of(self.raw().fabric? as usize)
    }

    fn raw(&self) -> &fi_provider {
        // SAFETY: the caller of `from_raw` has guaranteed that the structure is valid as long as
        // the process.
        unsafe { self.0.as_ref() }
    }
}

/// The arguments of one `fi_getinfo` call.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The interface version for which the application was written.
    pub version: Version,
    pub node: Option<&'a CStr>,
    pub service: Option<&'a CStr>,
    pub flags: u64,
    pub hints: Option<Deep<'a, fi_info>>,
}

/// Converts the result of a provider's function: anything but zero is an error.
fn outcome(result: i32) -> Result {
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::new(result))
    }
}

fn text_pointer(text: Option<&CStr>) -> *const c_char {
    text.map_or(std::ptr::null(), CStr::as_ptr)
}

#[cfg(test)]
pub mod fake {
    //! Providers for the tests of the registry.

    use super::*;

    unsafe extern "C" fn no_fabric(
        _: *mut fi_fabric_attr,
        _: *mut *mut fid_fabric,
        _: *mut c_void,
    ) -> i32 {
        -libc::ENODEV
    }

    unsafe extern "C" fn one_info(
        _version: u32,
        _node: *const c_char,
        _service: *const c_char,
        _flags: u64,
        _hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> i32 {
        let list = vec![Info::new().expect("memory for one fi_info")];
        // SAFETY: the registry passes a writable location for the list.
        unsafe { *info = Info::into_raw_list(list) };
        0
    }

    /// Creates a provider that answers `fi_getinfo` with one empty result, or one that does not
    /// answer at all.
    pub fn provider(name: &'static CStr, version: Version, answers: bool) -> Provider {
        let raw = Box::leak(Box::new(fi_provider {
            version: version.to_c(),
            fi_version: Version::LIBRARY.to_c(),
            // SAFETY: the member consists of four pointers, for which NULL is a valid value.
            context: unsafe { std::mem::zeroed() },
            name: name.as_ptr(),
            getinfo: answers.then_some(one_info as _),
            fabric: Some(no_fabric),
            cleanup: None,
        }));
        // SAFETY: the structure was leaked, so it is valid as long as the process.
        unsafe { Provider::from_raw(raw) }.unwrap()
    }
}
