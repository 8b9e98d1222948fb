//! The Rust types against the published facts.

use std::mem::{align_of, offset_of, size_of};

use fabric_abi::*;

include!(concat!(env!("OUT_DIR"), "/facts.rs"));

#[test]
fn every_structure_is_laid_out_as_published() {
    let wrong: Vec<_> = layouts()
        .into_iter()
        .filter(|(is, should, _)| is != should)
        .collect();
    assert!(wrong.is_empty(), "is, should be, what: {wrong:?}");
}

#[test]
fn every_constant_has_its_published_value() {
    let wrong: Vec<_> = constants()
        .into_iter()
        .filter(|(is, should, _)| is != should)
        .collect();
    assert!(wrong.is_empty(), "is, should be, what: {wrong:?}");
}
