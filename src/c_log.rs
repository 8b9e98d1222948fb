//! Logging by C providers: `fi_log_enabled`, `fi_log_ready`, `fi_log`
//! (fi_provider(3)).

use std::ffi::CStr;
use std::sync::OnceLock;
use std::time::Instant;

use prov_base::logging::SUBSYSTEMS;

use crate::level::Level;
use crate::provider::Provider;
use crate::{listening, log_takeover, logging};

/// The level and the subsystem of a message, checked.
#[derive(Clone, Copy)]
pub struct Topic {
    level: Level,
    subsystem: usize,
}

impl Topic {
    /// Converts C values; `None` for undefined values.
    pub fn from_c(level: u32, subsystem: u32) -> Option<Self> {
        let subsystem = subsystem as usize;
        Some(Topic {
            level: Level::from_c(level).filter(|_| subsystem < SUBSYSTEMS.len())?,
            subsystem,
        })
    }
}

/// Whether a message would be written, or is to be recorded ([`crate::listening`]).
pub fn enabled(provider: Provider, topic: Topic) -> bool {
    (topic.level <= Level::Info && listening::is_listening()) || is_written(provider, topic)
}

fn is_written(provider: Provider, topic: Topic) -> bool {
    let imported = log_takeover::imported().and_then(|imported| {
        let flags = log_takeover::filter_flags(provider);
        imported.enabled(provider, topic.level, topic.subsystem, flags)
    });
    imported.unwrap_or_else(|| enabled_here(provider, topic))
}

/// Whether a rate-limited message is due. `show_time` is the earliest time for the next one, in
/// milliseconds of this library's clock.
pub fn ready(provider: Provider, topic: Topic, show_time: &mut u64) -> bool {
    let imported = log_takeover::imported().and_then(|imported| {
        let flags = log_takeover::filter_flags(provider);
        imported.ready(provider, topic.level, topic.subsystem, flags, show_time)
    });
    imported.unwrap_or_else(|| enabled(provider, topic) && due(show_time))
}

/// Writes a message.
pub fn write(provider: Provider, topic: Topic, function: &CStr, line: u32, message: &CStr) {
    let function = function.to_string_lossy();
    let message = message.to_string_lossy();
    if listening::is_listening() {
        listening::hear_message(topic.level, &message);
        // [`enabled`] may have requested it only to record it.
        if !is_written(provider, topic) {
            return;
        }
    }
    let taken = log_takeover::imported().is_some_and(|imported| {
        imported.log(
            provider,
            topic.level,
            topic.subsystem,
            &function,
            line,
            &message,
        )
    });
    if !taken {
        write_here(provider, topic, &function, line, &message);
    }
}

/// Implements [`enabled`] if no application has taken over the log.
#[allow(
    clippy::indexing_slicing,
    reason = "a topic is made with a subsystem that there is"
)]
pub fn enabled_here(provider: Provider, topic: Topic) -> bool {
    logging::enabled(topic.level, SUBSYSTEMS[topic.subsystem]) && !provider.is_silent()
}

/// Implements [`ready`] if no application has taken over the log.
pub fn ready_here(provider: Provider, topic: Topic, show_time: &mut u64) -> bool {
    enabled_here(provider, topic) && due(show_time)
}

/// Implements [`write()`] if no application has taken over the log.
#[allow(
    clippy::indexing_slicing,
    reason = "a topic is made with a subsystem that there is"
)]
pub fn write_here(provider: Provider, topic: Topic, function: &str, line: u32, message: &str) {
    let subsystem = SUBSYSTEMS[topic.subsystem];
    logging::write_message(
        provider.name(),
        topic.level,
        subsystem,
        function,
        line,
        message,
    );
}

fn due(show_time: &mut u64) -> bool {
    let now = now_ms();
    let due = now >= *show_time;
    if due {
        *show_time = now + logging::interval_ms();
    }
    due
}

/// Returns milliseconds since the first call, but never zero, which is the callers' initial value.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed().as_millis();
    u64::try_from(elapsed).unwrap_or(u64::MAX / 2) + 1
}
