//! Hooks (fi_hook(7)): layers over any provider that observe its calls.
//!
//! [`wrap`] puts a layer between an application and a provider; each hook is a [`wrap::Hook`], which
//! sees every call before and after it. With `FI_HOOK` unset nothing of this crate runs.

#![warn(missing_docs)]

pub mod below;
pub mod debug;
pub mod monitor;
pub mod noop;
pub mod perf;
pub mod profile;
pub mod tally;
pub mod trace;
pub mod wrap;

use fabric_abi::fi_provider;
use prov_base::services;

use crate::wrap::Entry;

/// Returns the hooks, for the framework, and defines their parameters.
pub fn providers() -> [*mut fi_provider; 6] {
    static PERF: Entry = Entry::of::<perf::Perf>();
    static TRACE: Entry = Entry::of::<trace::Trace>();
    static PROFILE: Entry = Entry::of::<profile::Profile>();
    static DEBUG: Entry = Entry::of::<debug::Debug>();
    static NOOP: Entry = Entry::of::<noop::Noop>();
    for (name, kind, help) in monitor::PARAMETERS {
        services::define_param(monitor::ENTRY.as_provider(), name, kind, help);
    }
    [&PERF, &TRACE, &PROFILE, &monitor::ENTRY, &DEBUG, &NOOP].map(Entry::as_c)
}

#[cfg(test)]
mod stand_in;
