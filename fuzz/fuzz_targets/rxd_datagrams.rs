//! Any datagrams as those of a peer of rxd with which operations of all kinds are in progress.
#![no_main]

#[path = "../src/rxd_check.rs"]
#[allow(dead_code)]
mod rxd_check;

prov_base::stand_in!();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rxd_check::datagrams(bytes));
