//! Any bytes as a peer's table of regions.
#![no_main]

#[path = "../src/regions_check.rs"]
mod regions_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| regions_check::check(bytes));
