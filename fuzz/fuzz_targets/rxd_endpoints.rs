//! Two endpoints of rxd, and any order of operations, losses, repetitions and times.
#![no_main]

#[path = "../src/rxd_check.rs"]
#[allow(dead_code)]
mod rxd_check;

prov_base::stand_in!();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rxd_check::events(bytes));
