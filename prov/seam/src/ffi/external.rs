//! A provider in a library of its own (fi_provider(3)).
//!
//! Such a library has its own copy of everything that is in a provider, and of
//! the `log` crate as well, whose records would go nowhere: here they reach
//! `fi_log` of the library that loaded the provider.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use fabric_abi::symbols::{fi_log, fi_log_enabled};
use fabric_abi::*;
use log::{LevelFilter, Log, Metadata, Record};

use super::provider::Entered;
use prov_base::logging::{SUBSYSTEMS, origin};
use prov_layer::marshal::layout::{self, Layout};

/// Returns the provider for the library that loads it, after installing a logger (`fi_prov_ini`).
pub fn start<P: Entered>() -> *mut fi_provider {
    static LOGGER: LibraryLog = LibraryLog(AtomicPtr::new(null_mut()));
    LOGGER.0.store(P::entry().as_c(), Ordering::Release);
    // No other code in this library sets a logger.
    if log::set_logger(&LOGGER).is_ok() {
        // The log level may change when an application takes over the log, so the library is asked
        // for each record.
        log::set_max_level(LevelFilter::Trace);
    }
    prov_objects::attr::collective::is_external();
    layout::loaded_by(library_layout());
    P::entry().start()
}

/// Returns the layout of `fi_info` in the library that this one is bound to, which may be older or
/// newer. Its interface version is no indication: libraries under development report that of the
/// last release.
fn library_layout() -> &'static Layout {
    const LAYOUTS: [(&CStr, &Layout); 4] = [
        (c"FABRIC_1.10", &layout::CURRENT),
        (c"FABRIC_1.9", &layout::ABI_1_9),
        (c"FABRIC_1.8", &layout::ABI_1_8),
        (c"FABRIC_1.7", &layout::ABI_1_7),
    ];
    let has = |version: &CStr| {
        // SAFETY: both names are terminated, and the symbol is not called.
        let found =
            unsafe { libc::dlvsym(libc::RTLD_DEFAULT, c"fi_getinfo".as_ptr(), version.as_ptr()) };
        !found.is_null()
    };
    LAYOUTS
        .into_iter()
        .find(|(version, _)| has(version))
        // Without fi_tostr_r(3), which is newer than this layout, the provider could not have been
        // loaded.
        .map_or(&layout::ABI_1_3, |(_, layout)| layout)
}

/// The log of the library that loaded the provider.
struct LibraryLog(AtomicPtr<fi_provider>);

impl LibraryLog {
    fn provider(&self) -> *const fi_provider {
        self.0.load(Ordering::Acquire)
    }
}

impl Log for LibraryLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = level(metadata.level());
        // SAFETY: the provider's structure is a static, so it is valid as long as the process.
        unsafe { fi_log_enabled(self.provider(), level, subsystem(metadata.target())) != 0 }
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = |text: String| CString::new(text.replace('\0', "?")).unwrap_or_default();
        let message = text(record.args().to_string());
        let function = text(record.module_path().unwrap_or("unknown").into());
        // SAFETY: the provider's structure is a static, the texts are terminated, and the format
        // has one conversion, for a text.
        unsafe {
            fi_log(
                self.provider(),
                level(record.level()),
                subsystem(record.target()),
                function.as_ptr(),
                record.line().unwrap_or_default() as i32,
                c"%s\n".as_ptr(),
                message.as_ptr(),
            );
        }
    }

    fn flush(&self) {}
}

/// Converts a level to that of the C interface, which has no errors, and whose trace level precedes
/// information, unlike that of the `log` crate.
fn level(level: log::Level) -> fi_log_level {
    match level {
        log::Level::Error | log::Level::Warn => FI_LOG_WARN,
        log::Level::Info => FI_LOG_INFO,
        log::Level::Debug | log::Level::Trace => FI_LOG_DEBUG,
    }
}

/// Returns the subsystem of a record's target.
fn subsystem(target: &str) -> fi_log_subsys {
    let (_, name) = origin(target);
    let index = SUBSYSTEMS.iter().position(|&subsystem| subsystem == name);
    index.map_or(FI_LOG_CORE, |index| index as fi_log_subsys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework as stand_in;

    #[test]
    fn records_reach_the_library_with_their_subsystem_and_level() {
        let provider = Box::leak(Box::new(stand_in::provider("logging")));
        let logger = LibraryLog(AtomicPtr::new(provider));
        for (level, target, message) in [
            (log::Level::Error, "logging::core", "bad"),
            (log::Level::Warn, "logging::mr", "50% gone"),
            (log::Level::Info, "logging::ep_ctrl", "nul \0 inside"),
            (log::Level::Debug, "logging::cq", "nobody asked"),
        ] {
            logger.log(
                &Record::builder()
                    .level(level)
                    .target(target)
                    .module_path(Some("module"))
                    .args(format_args!("{message}"))
                    .build(),
            );
        }
        let expected = [
            "0:0:module: bad\n".to_owned(),
            "0:8:module: 50% gone\n".to_owned(),
            format!("{FI_LOG_INFO}:{FI_LOG_EP_CTRL}:module: nul ? inside\n"),
        ];
        assert_eq!(stand_in::logged("logging"), expected);
    }
}
