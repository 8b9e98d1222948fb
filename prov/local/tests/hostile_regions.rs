//! Runs the check of the fuzz target `regions` on random bytes.

#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what does not hold fails the test"
)]

#[path = "../../../fuzz/src/regions_check.rs"]
mod regions_check;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_table_leads_an_initiator_astray(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        regions_check::check(&bytes);
    }

    #[test]
    fn nor_does_one_of_small_numbers(
        numbers in prop::collection::vec(any::<u8>(), 0..60)
    ) {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(|number| [0, number]).collect();
        regions_check::check(&bytes);
    }
}
