//! An endpoint of this library with a host of its own, for tests that pass datagrams themselves.

use prov_rxd::protocol::{Endpoint, Time};

use crate::host::SimHost;
use crate::random::Random;
use crate::world;

pub struct Side {
    pub endpoint: Endpoint<SimHost>,
    pub host: SimHost,
}

/// The endpoint with this number, which gives silent peers up after `give_up`.
pub fn side(number: u32, seed: u64, give_up: Time) -> Side {
    let mut random = Random::new(seed);
    let config = world::config(number, 1, &mut random, true, give_up);
    Side {
        endpoint: Endpoint::new(config),
        host: SimHost::new(random),
    }
}
