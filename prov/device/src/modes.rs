//! The mode `FI_RX_CQ_DATA` of devices (fi_getinfo(3)): a write with immediate data takes a receive.

use fabric_abi::FI_RX_CQ_DATA;
use prov_util::attr::{Base, Hints, Request};

/// Returns the kinds of endpoints for a request: without the mode for callers that get no data with
/// writes, who do not accept it.
pub fn for_request(request: &Request<'_>, mut bases: Vec<Base>) -> Vec<Base> {
    if !needs_data_mode(request.hints) {
        for base in &mut bases {
            base.limits.mode &= !FI_RX_CQ_DATA;
            base.limits.rx.mode &= !FI_RX_CQ_DATA;
        }
    }
    bases
}

/// Whether the caller may get data with writes of its peers: it has to post receives for these, and
/// only then sets the mode.
fn needs_data_mode(hints: Option<&Hints>) -> bool {
    hints.is_none_or(|hints| {
        let data = hints
            .domain
            .as_ref()
            .map_or(0, |domain| domain.cq_data_size);
        let mode = hints.mode | hints.rx.as_ref().map_or(0, |rx| rx.mode);
        data != 0 || mode & FI_RX_CQ_DATA != 0
    })
}

/// Returns the kinds of endpoints that may be opened. The modes are the caller's responsibility.
pub fn openable(mut bases: Vec<Base>) -> Vec<Base> {
    for base in &mut bases {
        base.limits.mode = 0;
        base.limits.tx.mode = 0;
        base.limits.rx.mode = 0;
    }
    bases
}
