//! fi_domain(3): a domain on a device.

use std::sync::Arc;

use fabric_abi::FI_EP_MSG;
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_device::SharedReceive;
use prov_device::lane::Shared;
use prov_device::mock::{Mock, SharedReceives};
use prov_device::posting::ATOMICS;
use prov_util::attr::Info;
use prov_util::domain;
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::mr::MrTable;

use crate::LOG;
use crate::attributes::QUEUE;
use crate::endpoint::Endpoint;
use crate::resources::Resources;

/// A domain.
pub struct Domain(pub Arc<Resources>);

impl domain::Domain for Domain {
    type Endpoint = Endpoint;
    type SharedReceive = SharedReceive<Mock>;

    const LOG_TARGET: &'static str = LOG.domain;

    fn lock(&self) -> LockKind {
        self.0.parts.lane_lock
    }

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<Endpoint> {
        match info.ep.ep_type {
            FI_EP_MSG => Endpoint::open(&this.0, info),
            _ => Err(Errno::EINVAL),
        }
    }

    fn shared_receive(
        this: &Handle<DomainObject<Self>>,
        size: usize,
        _directed: bool,
    ) -> Result<SharedReceive<Mock>> {
        let size = if size == 0 { QUEUE } else { size };
        let adapter = &this.0.device.adapter;
        let make = |size| Ok(SharedReceives::new(adapter, size));
        let shared = Shared::new(size, this.0.parts.domain_lock, make)?;
        Ok(SharedReceive::new(shared))
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.0.parts.memory
    }

    fn atomics(&self) -> Offered {
        ATOMICS
    }
}
