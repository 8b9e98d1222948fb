//! The functions of an application that has taken over the log.

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::*;
use log::Record;
use prov_base::logging::SUBSYSTEMS;

use crate::level::Level;
use crate::provider::Provider;
use crate::{core_provider, framework, logging};

/// The functions of an application that replace this library's. Those that it left out are not
/// replaced.
#[derive(Clone, Copy)]
pub struct Imported(fi_ops_log);

/// Whether an application has taken over the log.
pub fn active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Returns the application's functions, if there are any.
pub fn imported() -> Option<Imported> {
    if active() { state().imported } else { None }
}

impl Imported {
    /// Asks the application whether it wants a message; `None` if it leaves that to this library.
    pub fn enabled(
        self,
        provider: Provider,
        level: Level,
        subsystem: usize,
        flags: u64,
    ) -> Option<bool> {
        let enabled = self.0.enabled?;
        // SAFETY: the application has imported the function for calls with these arguments, as
        // fi_ext.h declares it.
        Some(unsafe { enabled(provider.as_ptr(), level as _, subsystem as _, flags) } != 0)
    }

    /// Asks the application whether a rate-limited message is due.
    pub fn ready(
        self,
        provider: Provider,
        level: Level,
        subsystem: usize,
        flags: u64,
        show_time: &mut u64,
    ) -> Option<bool> {
        let ready = self.0.ready?;
        // SAFETY: the application has imported the function for calls with these arguments, as in
        // `enabled`.
        Some(
            unsafe {
                ready(
                    provider.as_ptr(),
                    level as _,
                    subsystem as _,
                    flags,
                    show_time,
                )
            } != 0,
        )
    }

    /// Passes a message to the application. Returns false if it accepts none.
    pub fn log(
        self,
        provider: Provider,
        level: Level,
        subsystem: usize,
        function: &str,
        line: u32,
        message: &str,
    ) -> bool {
        let Some(log) = self.0.log else { return false };
        let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (function, message) = (text(function), text(message));
        // SAFETY: the application has imported the function for calls with these arguments, as in
        // `enabled`; both texts live until it returns.
        unsafe {
            log(
                provider.as_ptr(),
                level as _,
                subsystem as _,
                function.as_ptr(),
                line as c_int,
                message.as_ptr(),
            );
        }
        true
    }
}

/// Passes a record of Rust code to the application.
#[allow(clippy::indexing_slicing, reason = "the position is in the list")]
fn forward(record: &Record, provider_name: &str, subsystem: &str) {
    let Some(imported) = imported() else {
        return;
    };
    let provider = framework::existing()
        .and_then(|framework| framework.registry.find(provider_name))
        .map_or_else(core_provider::get, |entry| entry.provider);
    let level = Level::of(record.level());
    let subsystem = SUBSYSTEMS
        .iter()
        .position(|&name| name == subsystem)
        .unwrap_or(0);
    let flags = filter_flags(provider);
    let enabled = imported
        .enabled(provider, level, subsystem, flags)
        .unwrap_or_else(|| flags == 0 && logging::enabled(level, SUBSYSTEMS[subsystem]));
    if enabled {
        imported.log(
            provider,
            level,
            subsystem,
            record.module_path().unwrap_or("unknown"),
            record.line().unwrap_or(0),
            &format!("{}\n", record.args()),
        );
    }
}

/// Returns the flags for the application's functions about a provider that `FI_LOG_PROV` excludes.
pub fn filter_flags(provider: Provider) -> u64 {
    if provider.is_silent() {
        FI_LOG_PROV_FILTERED
    } else {
        0
    }
}

static ACTIVE: AtomicBool = AtomicBool::new(false);

struct State {
    imported: Option<Imported>,
    /// The application's object that the functions came with.
    owner: usize,
}

fn state() -> MutexGuard<'static, State> {
    static STATE: Mutex<State> = Mutex::new(State {
        imported: None,
        owner: 0,
    });
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an application's functions take over the log. The last ones replace earlier ones.
///
/// # Safety
/// They may be called as fi_ext.h declares them until [`release`] is called for this owner,
/// or others take over.
pub unsafe fn take(ops: fi_ops_log, owner: *const fid) {
    let mut state = state();
    state.imported = Some(Imported(ops));
    state.owner = owner.addr();
    ACTIVE.store(true, Ordering::Relaxed);
    logging::hand_to(forward);
}

/// Removes the functions of an object, if they are still in use.
pub fn release(owner: *const fid) {
    let mut state = state();
    if state.owner == owner.addr() && state.imported.take().is_some() {
        ACTIVE.store(false, Ordering::Relaxed);
        logging::take_back();
    }
}
