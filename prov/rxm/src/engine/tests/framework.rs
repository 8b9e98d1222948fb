//! The framework's functions, which this test binary does not have: tcp is the provider below. If a
//! test asks for it, tcp requires registration ([`super::registering`]).

use std::cell::Cell;

use fabric_abi::{FI_MR_LOCAL, fi_info};

use super::registering;

thread_local! {
    /// Whether the provider below requires memory to be registered (`FI_MR_LOCAL`).
    pub static IS_LOCAL: Cell<bool> = const { Cell::new(false) };
}

fn require_registration(entry: &mut fi_info) {
    if IS_LOCAL.get() {
        // SAFETY: a provider's entry has all of its attributes.
        unsafe { (*entry.domain_attr).mr_mode |= FI_MR_LOCAL };
    }
}

prov_util::stand_in_below!(
    prov_tcp::provider(),
    "tcp",
    require_registration,
    |fabric| {
        if IS_LOCAL.get() {
            // SAFETY: tcp has just opened it.
            unsafe { registering::watch(fabric) };
        }
    }
);

prov_base::stand_in!();
