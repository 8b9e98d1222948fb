//! Any bytes in place of the stream to a RDM endpoint that has everything
//! under way.
#![no_main]

#[path = "../src/endpoint_check.rs"]
mod endpoint_check;

use endpoint_check::{Type, check};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(Type::Rdm, bytes));
