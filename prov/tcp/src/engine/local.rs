//! Processes of one host: they copy from one another's memory, and share some.

pub mod copying;
pub mod moving;
pub mod onesided;
