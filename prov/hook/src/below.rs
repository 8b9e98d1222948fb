//! The provider below a hook, for the log.

use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::ptr::NonNull;

use fabric_abi::symbols::{fi_log, fi_log_enabled};
use fabric_abi::*;

/// The provider whose calls a hook observes.
#[derive(Clone, Copy, Debug)]
pub struct Below(NonNull<fi_provider>);

// SAFETY: a provider's structure is constant once it is registered, but for the member that the
// framework synchronizes itself.
unsafe impl Send for Below {}
// SAFETY: as above.
unsafe impl Sync for Below {}

impl Below {
    /// Returns the provider of a structure that is not null.
    ///
    /// # Safety
    /// It is the structure of a registered provider, which stays loaded.
    pub unsafe fn of(provider: *mut fi_provider) -> Option<Self> {
        NonNull::new(provider).map(Below)
    }

    /// Returns its name.
    pub fn name(self) -> String {
        // SAFETY: the structure stays, and so does its name.
        unsafe {
            let name = (*self.0.as_ptr()).name;
            if name.is_null() {
                return String::new();
            }
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }

    /// Returns whether the log has messages of this level about the provider.
    pub fn logs(self, level: fi_log_level, subsystem: fi_log_subsys) -> bool {
        // SAFETY: the structure stays.
        unsafe { fi_log_enabled(self.0.as_ptr(), level, subsystem) != 0 }
    }

    /// Writes a message to the log, if it has such messages.
    pub fn log(self, level: fi_log_level, subsystem: fi_log_subsys, message: &dyn Display) {
        if !self.logs(level, subsystem) {
            return;
        }
        let message = CString::new(message.to_string().replace('\0', "?")).unwrap_or_default();
        // SAFETY: the structure stays, the strings are C strings, and the format asks for one.
        unsafe {
            fi_log(
                self.0.as_ptr(),
                level,
                subsystem,
                c"hook".as_ptr(),
                0,
                c"%s\n".as_ptr(),
                message.as_ptr(),
            );
        }
    }

    /// Writes a message of level `trace`, which hooks write (fi_hook(7)).
    pub fn trace(self, subsystem: fi_log_subsys, message: &dyn Display) {
        self.log(FI_LOG_TRACE, subsystem, message);
    }

    /// Writes a warning.
    pub fn warn(self, subsystem: fi_log_subsys, message: &dyn Display) {
        self.log(FI_LOG_WARN, subsystem, message);
    }
}
