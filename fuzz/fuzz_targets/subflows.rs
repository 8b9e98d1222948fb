//! Any bytes on a subflow of a connection, and in what is said about subflows.
#![no_main]

#[path = "../src/subflows_check.rs"]
mod subflows_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| subflows_check::check(bytes));
