//! libfabric.so.1: the functions that applications and providers call directly. All other calls go
//! through the function tables of a provider's objects.

#![deny(clippy::indexing_slicing)]
mod c_log;
mod candidate;
mod config_file;
mod core_provider;
mod deep;
pub mod exports;
mod fabric;
mod framework;
mod getinfo;
mod info;
mod intern;
mod layering;
mod level;
mod listening;
mod loader;
mod log_import;
mod log_layer;
mod log_output;
mod log_takeover;
mod logging;
mod misspelt;
mod mr_cache;
mod name_filter;
mod old_abi;
mod open;
mod own_object;
mod params;
mod provider;
mod registry;
mod rights;
mod strerror;
mod tostr;
mod variadic;
mod version;
mod why;
