//! The toolkit of providers, under one name: the objects (`prov-objects`), the layer kit
//! (`prov-layer`) and the seam to C (`prov-seam`). ARCHITECTURE.md has the map.

#![forbid(unsafe_code)]

pub use prov_layer::{below, marshal, missing, stand_in_below};
pub use prov_objects::{
    attr, av, cntr, cq, desc, drive, fid, hmem, matching, mr, peer_ends, poll_set, progress,
    request, transmit_pool, wait,
};
pub use prov_seam::{
    collective, connection, domain, endpoint, external, ffi, object, provider, transfers, trigger,
};

pub use wait::set as wait_set;

/// Event queues, and what reports the events of connections to them.
pub mod eq {
    pub use prov_objects::eq::*;
    pub use prov_seam::connection::ConnectionEvents;
}
