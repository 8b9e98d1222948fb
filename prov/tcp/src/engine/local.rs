//! Processes of one host: they copy from each other's memory, and share some.

pub mod copying;
pub mod moving;
pub mod onesided;
