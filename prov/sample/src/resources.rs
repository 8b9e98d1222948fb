//! What a domain and its endpoints share: memory and lanes.

use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_device::mock::{Mock, Queue, Registering};
use prov_device::{Lane, Lanes, Registrar};
use prov_util::attr::Info;
use prov_util::cq::Cq;
use prov_util::mr::{self, MrTable};

use crate::{Device, LOG};

/// Completions that are polled in one call.
const BUNCH: usize = 16;
/// Largest number of entries of a completion queue.
const MOST_COMPLETIONS: usize = 1 << 20;

/// What a domain and its endpoints share.
pub struct Resources {
    pub device: Device,
    pub memory: Arc<MrTable>,
    lanes: Lanes<Mock>,
    /// The kind of lock of lanes.
    pub lane_lock: LockKind,
    /// The kind of lock of what several queues share.
    pub domain_lock: LockKind,
}

impl Resources {
    /// Opens the domain with these attributes.
    pub fn open(device: &Device, info: &Info) -> Self {
        let registrar = Registrar::new(Registering(device.adapter.clone()));
        let memory = MrTable::new(&mr::Config {
            mr_mode: info.domain.mr_mode,
            key_size: size_of::<u32>(),
            registrar: mr::Registrar::Device(Arc::new(registrar)),
            target: LOG.mr,
            ..mr::Config::default()
        });
        let threading = info.domain.threading;
        Resources {
            device: device.clone(),
            memory: Arc::new(memory),
            lanes: Lanes::default(),
            lane_lock: LockKind::for_completion(threading),
            domain_lock: LockKind::for_domain(threading),
        }
    }

    /// Returns the lane of the endpoints that report to a queue.
    pub fn lane(&self, cq: &Cq) -> Result<Arc<Lane<Mock>>> {
        self.lanes.of(cq, self.lane_lock, |lock| {
            let ear = self.device.connector.clone();
            Lane::new(lock, BUNCH, MOST_COMPLETIONS, ear, |size, wake| {
                Queue::new(&self.device.adapter, size, wake)
            })
        })
    }
}
