//! Records what providers log while fi_getinfo(3) queries them.
//!
//! A provider logs at level info why it has no result. While one is queried, and the reasons are
//! wanted ([`crate::why`]), the messages of the querying thread are recorded.

use std::cell::{Cell, RefCell};
use std::fmt;

use log::Record;

use crate::level::{CORE, Level};
use crate::params;

/// The function name in the records of [`crate::why`].
pub const FUNCTION: &str = "fi_getinfo";

thread_local! {
    /// Number of providers that this thread is querying: a layered one queries the library in turn.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Their messages, the innermost provider last.
    static HEARD: RefCell<Vec<Vec<String>>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread records reasons that no log level requests.
    static EXPLAINING: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work` with the messages of the providers that are being queried; `None` if there are
/// none.
fn with_heard<T>(work: impl FnOnce(&mut Vec<Vec<String>>) -> T) -> Option<T> {
    if !is_listening() {
        return None;
    }
    HEARD
        .try_with(|heard| Some(work(&mut *heard.try_borrow_mut().ok()?)))
        .ok()
        .flatten()
}

/// Whether the reasons are wanted.
pub fn is_wanted() -> bool {
    is_explaining() || log::log_enabled!(target: CORE, log::Level::Info)
}

/// Whether this thread is querying a provider and records its messages.
pub fn is_listening() -> bool {
    DEPTH.get() > 0
}

/// Queries a provider; returns its answer and its messages, which are empty unless they are wanted.
pub fn listen<T>(ask: impl FnOnce() -> T) -> (T, Vec<String>) {
    if !is_wanted() {
        return (ask(), Vec::new());
    }
    DEPTH.set(DEPTH.get() + 1);
    with_heard(|heard| heard.push(Vec::new()));
    let answer = ask();
    let said = with_heard(Vec::pop).flatten().unwrap_or_default();
    DEPTH.set(DEPTH.get() - 1);
    (answer, said)
}

/// Passes the reasons of a provider on to the one that is layered over it. Returns false if there
/// is none: an application has called.
pub fn pass_up(provider: &str, reasons: &[String]) -> bool {
    let said = reasons.iter();
    let said: Vec<String> = said
        .map(|reason| format!("over {provider}: {reason}"))
        .collect();
    with_heard(|heard| heard.last_mut().map(|above| above.extend(said)))
        .flatten()
        .is_some()
}

/// Records a message of Rust code, if a provider is being queried. Messages about set parameters
/// are not reasons.
pub fn hear(record: &Record) {
    if record.level() <= log::Level::Info
        && record.module_path() != Some(params::MODULE)
        && record.module_path() != Some(FUNCTION)
    {
        keep(&record.args());
    }
}

/// Records a message of a C provider, likewise.
pub fn hear_message(level: Level, message: &str) {
    if level <= Level::Info {
        keep(&message.trim_end());
    }
}

/// Records a reason of the provider that is being queried, if there is one.
pub fn keep(said: &dyn fmt::Display) {
    if is_listening() {
        let said = said.to_string();
        // Kinds of endpoints that differ in other attributes have the same reason.
        with_heard(|heard| {
            let heard = heard.last_mut()?;
            (!heard.contains(&said)).then(|| heard.push(said))
        });
    }
}

/// Whether this thread explains a call that found nothing.
pub fn is_explaining() -> bool {
    EXPLAINING.get()
}

/// Makes this thread record messages of providers during `asking`, whatever the log level.
pub fn explaining<T>(asking: impl FnOnce() -> T) -> T {
    EXPLAINING.set(true);
    let answer = asking();
    EXPLAINING.set(false);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(level: log::Level, text: &str) {
        let target = "fake::core";
        hear(
            &Record::builder()
                .level(level)
                .target(target)
                .module_path(Some("fake"))
                .args(format_args!("{text}"))
                .build(),
        );
    }

    #[test]
    fn messages_of_a_provider_that_is_queried_are_recorded() {
        record(log::Level::Info, "before");
        let asking = || {
            record(log::Level::Info, "no FI_HMEM");
            record(log::Level::Debug, "a detail");
            hear_message(Level::Warn, "no device\n");
            7
        };
        let (answer, said) = explaining(|| listen(asking));
        record(log::Level::Info, "after");
        assert_eq!(answer, 7);
        assert_eq!(said, ["no FI_HMEM", "no device"]);
    }

    #[test]
    fn reasons_of_a_provider_below_are_reported_with_its_name() {
        let layered = || {
            let (_, below) = listen(|| record(log::Level::Info, "no route"));
            assert!(pass_up("tcp", &below));
        };
        let (_, said) = explaining(|| listen(layered));
        assert!(!pass_up("tcp", &said));
        assert_eq!(said, ["over tcp: no route"]);
    }

    #[test]
    fn nothing_is_kept_if_no_object_is_to_be_notified() {
        let (_, said) = listen(|| {
            assert!(!is_listening());
            record(log::Level::Info, "unheard");
        });
        assert!(said.is_empty());
    }
}
