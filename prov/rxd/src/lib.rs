//! The rxd provider (fi_rxd(7)): reliable datagrams (RDM endpoints) over the datagrams (DGRAM
//! endpoints) of another provider.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

pub mod protocol;

#[cfg(test)]
prov_base::stand_in!();
