//! fi_getinfo(3) for datagrams.

use prov_util::attr::{Base, Info, Request, named};
use prov_util::errno::Result;

use super::name::Name;
use crate::params::Params;

/// The endpoints out of `bases` that fit.
pub fn getinfo(request: &Request<'_>, _params: &Params, bases: &[Base]) -> Result<Vec<Info>> {
    named::getinfo(request, bases, &Naming)
}

/// Addresses are made by the endpoints' devices.
struct Naming;

impl named::Naming for Naming {
    fn is_address(&self, bytes: &[u8]) -> bool {
        Name::decode(bytes).is_some_and(|name| name.encode() == bytes)
    }
}
