//! Runs the check of the endpoint fuzz targets on their seeds.

#[path = "../../../../../fuzz/src/endpoint_check.rs"]
mod endpoint_check;

use super::seeds;
use endpoint_check::{Type, check};

#[test]
fn well_formed_streams_do_no_harm_to_endpoints() {
    for seed in seeds::streams() {
        for choice in 0..32 {
            for kind in [Type::Msg, Type::Rdm] {
                let mut input = vec![choice, seed[1]];
                input.extend(&seed[2..]);
                check(kind, &input);
            }
        }
    }
}
