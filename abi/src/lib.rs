//! The C interface of libfabric as Rust types and constants. No logic.
//!
//! One module per C header, all re-exported flat, every item under its C name.
//! Enumerations are plain integers with constants ([`c_enum`]): a C caller can pass any value,
//! and a Rust enum that holds a value it does not list is undefined behaviour.
//! Objects that libfabric returns begin with a [`fid`]; operation tables are structures of optional
//! function pointers.

#![no_std]
#![allow(non_camel_case_types, non_upper_case_globals)]
#![allow(clippy::type_complexity)]

#[macro_use]
mod c_enum;
#[macro_use]
mod layout;

pub mod fabric;
pub mod fi_atomic;
pub mod fi_cm;
pub mod fi_collective;
pub mod fi_domain;
pub mod fi_endpoint;
pub mod fi_eq;
pub mod fi_errno;
pub mod fi_ext;
pub mod fi_profile;
pub mod fi_rma;
pub mod fi_tagged;
pub mod fi_trigger;
pub mod fi_xpu;
pub mod monitor;
pub mod providers;
pub mod symbols;

pub use fabric::*;
pub use fi_atomic::*;
pub use fi_cm::*;
pub use fi_collective::*;
pub use fi_domain::*;
pub use fi_endpoint::*;
pub use fi_eq::*;
pub use fi_errno::*;
pub use fi_ext::*;
pub use fi_profile::*;
pub use fi_rma::*;
pub use fi_tagged::*;
pub use fi_trigger::*;
pub use fi_xpu::*;
pub use providers::fi_log::*;
pub use providers::fi_peer::*;
pub use providers::fi_prov::*;
