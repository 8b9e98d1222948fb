//! What a provider implements. The traits and the functions of the tables that call them
//! belong together: an implementation is handed its own object (`Handle`).

pub mod domain;
pub mod endpoint;
pub mod provider;
