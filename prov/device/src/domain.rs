//! What every domain of a device has: registered memory, and the lanes of its endpoints.

use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_util::attr::Info;
use prov_util::cq::Cq;
use prov_util::mr::{self, MrTable};

use crate::device::Device;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::registrar::{Memory, Registrar};

/// See the [module](self) description.
pub struct DomainParts<D: Device> {
    /// The registered memory.
    pub memory: Arc<MrTable>,
    /// The kind of lock of completion queues and lanes.
    pub lane_lock: LockKind,
    /// The kind of lock of state that several queues share.
    pub domain_lock: LockKind,
    lanes: Lanes<D>,
}

impl<D: Device> DomainParts<D> {
    /// Creates those of a domain with these attributes, whose device registers `memory`.
    pub fn new<M: Memory>(memory: M, info: &Info) -> Self {
        let registrar = Registrar::new(memory);
        let memory = MrTable::new(&mr::Config {
            mr_mode: info.domain.mr_mode,
            key_size: size_of::<u32>(),
            registrar: mr::Registrar::Device(Arc::new(registrar)),
            target: D::LOG.mr,
            ..mr::Config::default()
        });
        let threading = info.domain.threading;
        DomainParts {
            memory: Arc::new(memory),
            lane_lock: LockKind::for_completion(threading),
            domain_lock: LockKind::for_domain(threading),
            lanes: Lanes::default(),
        }
    }

    /// Returns the lane of the endpoints that report to a queue, as [`Lanes::of`].
    pub fn lane(
        &self,
        cq: &Cq,
        make: impl FnOnce(LockKind) -> Result<Arc<Lane<D>>>,
    ) -> Result<Arc<Lane<D>>> {
        self.lanes.of(cq, self.lane_lock, make)
    }
}
