//! Any bytes as the stream that follows a handshake.
#![no_main]

#[path = "../src/stream_check.rs"]
mod stream_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stream_check::check(bytes));
