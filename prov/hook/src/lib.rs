//! Hooks (fi_hook(7)): layers over any provider that observe its calls.
//!
//! [`wrap`] puts a layer between an application and a provider; each hook is a [`wrap::Hook`], which
//! sees every call before and after it. With `FI_HOOK` unset nothing of this crate runs.

#![warn(missing_docs)]

pub mod below;
pub mod debug;
pub mod dmabuf_peer_mem;
pub mod hmem;
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
pub fn providers() -> [*mut fi_provider; 8] {
    static PERF: Entry = Entry::of::<perf::Perf>();
    static TRACE: Entry = Entry::of::<trace::Trace>();
    static PROFILE: Entry = Entry::of::<profile::Profile>();
    static DEBUG: Entry = Entry::of::<debug::Debug>();
    static NOOP: Entry = Entry::of::<noop::Noop>();
    static HMEM: Entry = Entry::of::<hmem::Hmem>();
    static PEER_MEM: Entry = Entry::of::<dmabuf_peer_mem::DmabufPeerMem>();
    for (name, kind, help) in monitor::PARAMETERS {
        services::define_param(monitor::ENTRY.as_provider(), name, kind, help);
    }
    let entries = [
        &PERF,
        &TRACE,
        &PROFILE,
        &monitor::ENTRY,
        &DEBUG,
        &NOOP,
        &HMEM,
        &PEER_MEM,
    ];
    entries.map(Entry::as_c)
}

#[cfg(test)]
mod stand_in;
