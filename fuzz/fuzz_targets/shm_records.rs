//! Any bytes as a record of a channel of shm.
#![no_main]

use prov_local::link::records::*;

#[path = "../src/records_check.rs"]
mod records_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| records_check::check(bytes));
