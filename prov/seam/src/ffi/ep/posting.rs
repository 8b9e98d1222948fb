//! What all ways of posting a message or a receive have in common.

use fabric_abi::{FI_MULTI_RECV, FI_TAGGED_MULTI_RECV};

use super::super::posted;
use crate::endpoint::Endpoint;
use prov_objects::request::{ONE_MESSAGE, Receive, Select, Transmit};

/// Returns [`ONE_MESSAGE`] for a buffer that takes one tagged message although it is for several:
/// that of an endpoint without `FI_TAGGED_MULTI_RECV`.
#[inline(always)]
pub(in crate::ffi) fn one_message(receive: &Receive, caps: u64) -> u64 {
    let is_tagged = matches!(receive.select, Select::Tagged { .. });
    match is_tagged && receive.flags & FI_MULTI_RECV != 0 && caps & FI_TAGGED_MULTI_RECV == 0 {
        true => ONE_MESSAGE,
        false => 0,
    }
}

/// Posts a message. All callers share this copy of the endpoint's code.
#[inline(never)]
pub(in crate::ffi) fn transmit<E: Endpoint>(ep: &E, message: &mut Transmit) -> isize {
    posted(ep.transmit(message))
}
