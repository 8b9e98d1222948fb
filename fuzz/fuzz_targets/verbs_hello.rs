//! Any bytes as the message that connects XRC endpoints of verbs.
#![no_main]

use prov_verbs::hello::*;

#[path = "../src/hello_check.rs"]
mod hello_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hello_check::check(bytes));
