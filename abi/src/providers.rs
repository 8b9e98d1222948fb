//! Headers for providers only.

pub mod fi_log;
pub mod fi_peer;
pub mod fi_prov;
