//! The checks of the fuzz targets on their seeds and on damaged copies of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "what does not hold fails the test"
)]

#[path = "../../../fuzz/src/handshake_check.rs"]
mod handshake_check;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/stream_check.rs"]
mod stream_check;

use proptest::prelude::*;
use proptest::sample::Index;

#[test]
fn well_formed_handshakes_and_streams_pass() {
    seeds::handshakes()
        .iter()
        .for_each(|s| handshake_check::check(s));
    seeds::streams().iter().for_each(|s| stream_check::check(s));
}

/// Changes bytes, and cuts the end off or replaces it by random bytes.
fn damaged(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<Index>(), any::<u8>()), 0..4);
    let end = (any::<Index>(), prop::collection::vec(any::<u8>(), 0..50));
    (prop::sample::select(seeds), changes, prop::option::of(end)).prop_map(
        |(mut bytes, changes, end)| {
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some((at, tail)) = end {
                bytes.truncate(at.index(bytes.len()));
                bytes.extend(tail);
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 5_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_handshakes_do_no_harm(bytes in damaged(seeds::handshakes())) {
        handshake_check::check(&bytes);
    }

    #[test]
    fn damaged_streams_do_no_harm(bytes in damaged(seeds::streams())) {
        stream_check::check(&bytes);
    }
}
