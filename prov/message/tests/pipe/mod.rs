//! A transport whose links have no properties, for tests that only count or account messages, and
//! what tests of transports need: an endpoint, and messages.

#![allow(dead_code, reason = "each test program uses some of it")]

use prov_message::{Arrival, Attributes, Endpoints, EpKey, Transport};
use prov_util::mr::Job;
use slotmap::DefaultKey;

pub enum Pipe {}

impl Transport for Pipe {
    type Link = DefaultKey;
    type Ack = ();
    type Name = u64;
    type Endpoint = ();
}

/// Adds an endpoint with so many operations and receives.
pub fn add<T>(endpoints: &mut Endpoints<T>, operations: usize, receives: usize) -> EpKey
where
    T: Transport<Endpoint = ()>,
{
    let attributes = Attributes {
        tx_size: operations,
        most_receives: receives,
        directed: false,
        job: Job::NONE,
    };
    endpoints.add(attributes, ())
}

/// A message whose sender cannot announce it, untagged without a tag.
pub fn arrival<T: Transport<Ack = ()>>(
    (ep, link): (EpKey, T::Link),
    src: u64,
    tag: Option<u64>,
    len: usize,
) -> Arrival<T> {
    Arrival {
        link,
        ep,
        src,
        tagged: tag.is_some(),
        tag: tag.unwrap_or(0),
        len,
        data: None,
        ack: (),
        announces: false,
    }
}
