//! Processes of one host: they copy from each other's memory, and share some.

pub mod linking;
pub mod moving;
