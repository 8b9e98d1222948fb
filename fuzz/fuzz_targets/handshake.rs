//! Any bytes as a connection handshake.
#![no_main]

#[path = "../src/handshake_check.rs"]
mod handshake_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| handshake_check::check(bytes));
