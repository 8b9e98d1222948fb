//! Processes of one host that copy from one another's memory.

pub mod acquaintance;
pub mod copying;
