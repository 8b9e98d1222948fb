//! Why fi_getinfo(3) offers nothing of a provider.
//!
//! The framework says it of each provider in records whose function is [`FUNCTION`], out of
//! its own rules and of what the provider said while it was asked ([`crate::listening`]): at
//! level info in every case, and at level warn for the first call of a process that finds
//! nothing, where no call before has found something.

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

/// Says about a provider what an application that gets nothing of it should know. `level` is
/// `Info`, or `Warn` in an explanation.
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

/// Where a call of an application has found nothing, and it is the first one and warnings are
/// read, has `ask_again` ask the same once more and say at level warn what was said.
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
    // The reasons are in the log already where it has this level.
    if !listening::is_wanted() {
        let _through = logging::let_info_through();
        listening::explaining(ask_again);
    }
}
