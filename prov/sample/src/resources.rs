//! What a domain and its endpoints share: memory and lanes.

use std::sync::Arc;

use prov_base::errno::Result;
use prov_device::mock::{Mock, Queue, Registering};
use prov_device::{DomainParts, Lane};
use prov_util::attr::Info;
use prov_util::cq::Cq;

use crate::Device;

/// Completions that are polled in one call.
const BUNCH: usize = 16;
/// Largest number of entries of a completion queue.
const MOST_COMPLETIONS: usize = 1 << 20;

/// What a domain and its endpoints share.
pub struct Resources {
    pub device: Device,
    pub parts: DomainParts<Mock>,
}

impl Resources {
    /// Opens the domain with these attributes.
    pub fn open(device: &Device, info: &Info) -> Self {
        Resources {
            device: device.clone(),
            parts: DomainParts::new(Registering(device.adapter.clone()), info),
        }
    }

    /// Returns the lane of the endpoints that report to a queue.
    pub fn lane(&self, cq: &Cq) -> Result<Arc<Lane<Mock>>> {
        self.parts.lane(cq, |lock| {
            let ear = self.device.connector.clone();
            Lane::new(lock, BUNCH, MOST_COMPLETIONS, ear, |size, wake| {
                Queue::new(&self.device.adapter, size, wake)
            })
        })
    }
}
