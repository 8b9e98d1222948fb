//! Any bytes as an address of lnx.
#![no_main]

use prov_lnx::*;

#[path = "../src/address_check.rs"]
mod address_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| address_check::check(bytes));
