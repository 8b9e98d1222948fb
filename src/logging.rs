//! Logging: one stream and one line format for Rust code, which logs with the
//! `log` macros, and for C providers, which log through `fi_log` (fabric(7)).
//!
//! A Rust target is `<provider>::<subsystem>`, such as `tcp::ep_ctrl`. The format of every line is
//!
//! ```text
//! libfabric:<pid>:<seconds>:<layer>:<provider>:<subsystem>:<function>():<line><level> <message>
//! ```
//!
//! where the layer is empty in most lines ([`log_layer`]).

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record};
use prov_base::logging::origin;

use crate::level::{CORE, Level};
use crate::log_output::Output;
use crate::name_filter::NameFilter;
use crate::params::{self, Definition, Kind};
use crate::{listening, log_layer};

const PARAMETERS: [Definition; 7] = [
    Definition {
        name: "prefer_sysconfig",
        kind: Kind::Bool,
        help: "Where a variable is set both in libfabric.conf and in the environment, \
               take the value of libfabric.conf (default: false)",
    },
    Definition {
        name: "log_interval",
        kind: Kind::Int,
        help: "Milliseconds between log messages of the kind that is limited in rate \
               (default: 2000)",
    },
    Definition {
        name: "log_level",
        kind: Kind::Text,
        help: "What to log: warn, trace, info, debug, each with those before it \
               (default: nothing but unusable settings and defects)",
    },
    Definition {
        name: "log_prov",
        kind: Kind::Text,
        help: "Comma separated list of the providers whose messages to log, \
               or not to log when it begins with ^ (default: all)",
    },
    Definition {
        name: "log_subsys",
        kind: Kind::Text,
        help: "Comma separated list of the subsystems whose messages to log, or not to log \
               when it begins with ^: core, fabric, domain, ep_ctrl, ep_data, av, cq, eq, mr, \
               cntr (default: all)",
    },
    Definition {
        name: "log_location",
        kind: Kind::Text,
        help: "Where to log: stderr, stdout, a file that does not exist yet, or a directory, \
               which gets a file ofi_<pid>.log (default: stderr)",
    },
    Definition {
        name: "log_location_mode",
        kind: Kind::Int,
        help: "Mode of the log file (default: 0600)",
    },
];

/// Reads the settings and starts logging. Only the first call has an effect.
pub fn init() {
    params::define_core(&PARAMETERS);
    let level = params::core_text("log_level");
    let location = params::core_text("log_location");
    let mode = params::core_int("log_location_mode");
    let (output, failure) = match Output::open(location.as_deref(), mode) {
        Ok(output) => (output, None),
        Err(failure) => (Output::Stderr, Some(failure)),
    };
    let logger = Logger {
        rules: Rules {
            // An unknown level, an empty one too, still shows that the user wants to read messages.
            level: level
                .as_deref()
                .map(|text| Level::parse(text).unwrap_or(Level::Warn)),
            providers: filter("log_prov"),
            subsystems: filter("log_subsys"),
        },
        interval_ms: params::core_int("log_interval")
            .and_then(|value| u64::try_from(value).ok())
            .unwrap_or(2000),
        output,
    };
    let logger = LOGGER.get_or_init(|| logger);
    if log::set_logger(logger).is_ok() {
        apply_max_level();
    }
    if let Some(failure) = failure {
        log::error!(target: CORE, "{failure}; logging to stderr");
    }
    if let Some(text) = level.filter(|text| !text.is_empty() && Level::parse(text).is_none()) {
        log::error!(target: CORE, "FI_LOG_LEVEL={text} is not warn, trace, info or debug; using warn");
    }
}

/// Sets the largest level of records that are passed on: all if an application has taken over the
/// log, because it decides for itself.
fn apply_max_level() {
    let level = LOGGER.get().and_then(|logger| logger.rules.level);
    let wanted = match level {
        _ if taken_over().is_some() => LevelFilter::Trace,
        None => LevelFilter::Error,
        Some(Level::Debug) => LevelFilter::Trace,
        Some(level) => level.to_log().to_level_filter(),
    };
    let let_through = match IS_LET_THROUGH.load(Ordering::Acquire) {
        true => LevelFilter::Info,
        false => LevelFilter::Off,
    };
    log::set_max_level(wanted.max(let_through));
}

/// Whether records up to level info reach the logger, whatever the log level.
static IS_LET_THROUGH: AtomicBool = AtomicBool::new(false);

/// Lets records up to level info reach the logger, and with it [`crate::listening`], until the
/// guard is dropped. What is written does not change.
pub fn let_info_through() -> LetThrough {
    IS_LET_THROUGH.store(true, Ordering::Release);
    apply_max_level();
    LetThrough
}

/// See [`let_info_through`].
pub struct LetThrough;

impl Drop for LetThrough {
    fn drop(&mut self) {
        IS_LET_THROUGH.store(false, Ordering::Release);
        apply_max_level();
    }
}

/// A function that gets a record with the names of its provider and of its subsystem.
pub type Forward = fn(&Record, &str, &str);

/// The function for all records instead of this library's own output.
static FORWARD: OnceLock<Forward> = OnceLock::new();
static IS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// Returns the function that gets all records instead of this library's own output.
fn taken_over() -> Option<Forward> {
    match IS_TAKEN_OVER.load(Ordering::Acquire) {
        true => FORWARD.get().copied(),
        false => None,
    }
}

/// Passes all records to `forward` (that of the first call) from now on.
pub fn hand_to(forward: Forward) {
    FORWARD.get_or_init(|| forward);
    IS_TAKEN_OVER.store(true, Ordering::Release);
    apply_max_level();
}

/// Resumes this library's own output.
pub fn take_back() {
    IS_TAKEN_OVER.store(false, Ordering::Release);
    apply_max_level();
}

/// Whether a message of a provider would be written. False before [`init`].
pub fn enabled(level: Level, subsystem: &str) -> bool {
    LOGGER.get().is_some_and(|logger| {
        logger.rules.wants_level(level) && logger.rules.subsystems.allows(subsystem)
    })
}

/// Whether `FI_LOG_PROV` accepts this provider's messages.
pub fn wants_provider(name: &str) -> bool {
    LOGGER
        .get()
        .is_none_or(|logger| logger.rules.providers.allows(name))
}

/// Returns the shortest time between rate-limited messages.
pub fn interval_ms() -> u64 {
    LOGGER.get().map_or(2000, |logger| logger.interval_ms)
}

/// Writes one message of a C provider. It is not filtered, since the provider has called
/// [`enabled`].
pub fn write_message(
    provider: &str,
    level: Level,
    subsystem: &str,
    function: &str,
    line: u32,
    message: &str,
) {
    let Some(logger) = LOGGER.get() else { return };
    logger.output.write(&formatted(
        (provider, subsystem),
        level,
        (function, line),
        &message.trim_end_matches('\n'),
    ));
}

/// Returns a line for the log, which names the provider and the subsystem that it is from, and the
/// function and the line in the source.
fn formatted(
    (provider, subsystem): (&str, &str),
    level: Level,
    (function, line): (&str, u32),
    message: &dyn fmt::Display,
) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "libfabric:{}:{}:{}:{provider}:{subsystem}:{function}():{line}<{}> {message}\n",
        std::process::id(),
        now.as_secs(),
        log_layer::current(),
        level.name(),
    )
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    rules: Rules,
    interval_ms: u64,
    output: Output,
}

/// The messages that the user wants to read.
struct Rules {
    /// `None`: no messages.
    level: Option<Level>,
    providers: NameFilter,
    subsystems: NameFilter,
}

impl Rules {
    fn wants_level(&self, level: Level) -> bool {
        self.level.is_some_and(|most| level <= most)
    }

    fn wants(&self, metadata: &Metadata) -> bool {
        let (provider, subsystem) = origin(metadata.target());
        // FI_LOG_PROV is about providers, and the library itself is none.
        metadata.level() == log::Level::Error
            || (self.wants_level(Level::of(metadata.level()))
                && (provider == "core" || self.providers.allows(provider))
                && self.subsystems.allows(subsystem))
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        taken_over().is_some() || self.rules.wants(metadata)
    }

    fn log(&self, record: &Record) {
        listening::hear(record);
        if let Some(forward) = taken_over() {
            let (provider, subsystem) = origin(record.target());
            forward(record, provider, subsystem);
        } else if self.rules.wants(record.metadata()) {
            self.output.write(&formatted(
                origin(record.target()),
                Level::of(record.level()),
                (
                    record.module_path().unwrap_or("unknown"),
                    record.line().unwrap_or(0),
                ),
                record.args(),
            ));
        }
    }

    fn flush(&self) {}
}

fn filter(name: &str) -> NameFilter {
    params::core_text(name)
        .map(|text| NameFilter::listing(&text))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_shows_itself_and_those_before_it() {
        let rules = Rules {
            level: Some(Level::Info),
            providers: NameFilter::default(),
            subsystems: NameFilter::default(),
        };
        assert!(rules.wants_level(Level::Warn) && rules.wants_level(Level::Trace));
        assert!(rules.wants_level(Level::Info) && !rules.wants_level(Level::Debug));
    }

    #[test]
    fn unusable_settings_are_shown_even_where_nothing_was_asked_for() {
        let rules = Rules {
            level: None,
            providers: NameFilter::parse("udp"),
            subsystems: NameFilter::default(),
        };
        let of = |level| Metadata::builder().level(level).target("tcp::core").build();
        assert!(rules.wants(&of(log::Level::Error)));
        assert!(!rules.wants(&of(log::Level::Warn)));
    }

    #[test]
    fn providers_and_subsystems_are_filtered_apart() {
        let rules = Rules {
            level: Some(Level::Debug),
            providers: NameFilter::parse("^udp"),
            subsystems: NameFilter::parse("cq,mr"),
        };
        let wants = |target| {
            rules.wants(
                &Metadata::builder()
                    .level(log::Level::Debug)
                    .target(target)
                    .build(),
            )
        };
        assert!(wants("tcp::cq") && wants("tcp::mr") && wants("core::mr"));
        assert!(!wants("tcp::core") && !wants("udp::cq"));
    }
}
