//! Levels of log messages, and the target of the framework's own.

/// The target of the framework's own records.
pub const CORE: &str = "core::core";

/// The level of a message, the most important first (`enum fi_log_level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Warn,
    Trace,
    Info,
    Debug,
}

impl Level {
    /// All levels, indexed by their C value.
    pub const ALL: [Level; 4] = [Level::Warn, Level::Trace, Level::Info, Level::Debug];

    /// The level of a C value.
    pub fn from_c(value: u32) -> Option<Level> {
        Self::ALL.get(value as usize).copied()
    }

    /// The name that users write and read.
    pub fn name(self) -> &'static str {
        match self {
            Level::Warn => "warn",
            Level::Trace => "trace",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// Returns the level of a Rust record. `log` has nothing between warnings and information, and
    /// its own trace is the finest.
    pub fn of(level: log::Level) -> Level {
        match level {
            log::Level::Error | log::Level::Warn => Level::Warn,
            log::Level::Info => Level::Info,
            log::Level::Debug | log::Level::Trace => Level::Debug,
        }
    }

    /// The level of a Rust record.
    pub fn to_log(self) -> log::Level {
        match self {
            Level::Warn => log::Level::Warn,
            Level::Trace | Level::Info => log::Level::Info,
            Level::Debug => log::Level::Debug,
        }
    }

    /// The level of a name.
    pub fn parse(text: &str) -> Option<Level> {
        Self::ALL
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(text.trim()))
    }
}
