//! Any bytes as the stream to an RDM endpoint with operations of all kinds in progress.
#![no_main]

#[path = "../src/endpoint_check.rs"]
mod endpoint_check;

use endpoint_check::{Type, check};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(Type::Rdm, bytes));
