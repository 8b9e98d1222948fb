//! Any bytes as the data of a peer of rxm.
#![no_main]

#[path = "../src/packet_check.rs"]
mod packet_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet_check::check(bytes));
