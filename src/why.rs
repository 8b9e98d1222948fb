//! Explains why fi_getinfo(3) offers nothing of a provider.
//!
//! The framework reports it for each provider in records whose function is [`FUNCTION`], from its
//! own rules and from the messages of the provider while it was queried ([`crate::listening`]): at
//! level info in every case, and at level warn for the first call of a process that finds nothing,
//! if no call before has found something.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use log::Record;

use crate::level::CORE;
use crate::listening::{self, FUNCTION};
use crate::logging;

/// Whether any fi_getinfo of an application has found something.
static FOUND: AtomicBool = AtomicBool::new(false);
/// Whether a call that found nothing has been explained.
static EXPLAINED: AtomicBool = AtomicBool::new(false);

/// Reports why an application gets nothing of a provider. The level is `Info`, or `Warn` in an
/// explanation.
pub fn say(provider: &str, reason: &dyn fmt::Display) {
    let level = match listening::is_explaining() {
        true => log::Level::Warn,
        false => log::Level::Info,
    };
    if level <= log::max_level() {
        let target = format!("{provider}::core");
        log::logger().log(
            &Record::builder()
                .level(level)
                .target(&target)
                .module_path(Some(FUNCTION))
                .line(Some(line!()))
                .args(format_args!("{reason}"))
                .build(),
        );
    }
}

/// Notes that a call of an application has found something.
pub fn found() {
    if !FOUND.load(Ordering::Relaxed) {
        FOUND.store(true, Ordering::Relaxed);
    }
}

/// If a call of an application has found nothing, it is the first one and warnings are enabled,
/// repeats it with `ask_again` and reports the reasons at level warn.
pub fn explain(ask_again: impl FnOnce()) {
    let is_due = log::log_enabled!(target: CORE, log::Level::Warn)
        && !listening::is_listening()
        && !FOUND.load(Ordering::Relaxed)
        && !EXPLAINED.swap(true, Ordering::Relaxed);
    if !is_due {
        return;
    }
    log::warn!(
        target: CORE,
        "fi_getinfo has found nothing for what this process asks; fi_info --why answers the \
         same question"
    );
    // The reasons are in the log already if it has this level.
    if !listening::is_wanted() {
        let _through = logging::let_info_through();
        listening::explaining(ask_again);
    }
}
