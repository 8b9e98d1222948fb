//! fi_domain(3): domains on a device.

use std::ffi::CStr;
use std::sync::Arc;

use fabric_abi::{FI_EP_DGRAM, FI_EP_MSG, FI_PROTO_RDMA_CM_IB_XRC, FI_SHARED_CONTEXT};
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_device::Device as _;
use prov_device::posting::ATOMICS;
use prov_util::attr::Info;
use prov_util::domain;
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::mr::MrTable;

use crate::LOG;
use crate::device::{Rdma, SharedQueue};
use crate::endpoint::Endpoint;
use crate::lane::{Shared, SharedReceive};
use crate::resources::Resources;

/// A domain.
pub struct Domain(pub Arc<Resources>);

impl domain::Domain for Domain {
    type Endpoint = Endpoint;
    type SharedReceive = SharedReceive;

    const LOG_TARGET: &'static str = LOG.domain;

    fn lock(&self) -> LockKind {
        self.0.parts.lane_lock
    }

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<Endpoint> {
        match info.ep.ep_type {
            FI_EP_MSG if is_xrc(info) == this.0.xrc.is_some() => {
                Endpoint::connected(this.0.clone(), info)
            }
            FI_EP_DGRAM if info.ep.rx_ctx_cnt != FI_SHARED_CONTEXT && this.0.xrc.is_none() => {
                Endpoint::datagrams(this.0.clone(), info)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn shared_receive(
        this: &Handle<DomainObject<Self>>,
        size: usize,
        _directed: bool,
    ) -> Result<SharedReceive> {
        let size = match size {
            0 => this.0.params.rx_size,
            size => size,
        };
        let size = size.min(this.0.limits.requests_per_shared_queue);
        let shared = match this.0.xrc {
            Some(_) => Shared::with_number(size, this.0.parts.domain_lock)?,
            None => Shared::new(size, this.0.parts.domain_lock, |size| {
                SharedQueue::new(&this.0.pd, size, this.0.shared_pieces())
            })?,
        };
        Ok(SharedReceive::new(shared))
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.0.parts.memory
    }

    fn atomics(&self) -> Offered {
        match self.0.limits.has_atomics {
            true => ATOMICS,
            false => Offered::NONE,
        }
    }

    fn error_text(status: i32) -> Option<&'static CStr> {
        Rdma::error_text(status)
    }
}

/// Whether endpoints with these attributes use XRC.
fn is_xrc(info: &Info) -> bool {
    info.ep.protocol == FI_PROTO_RDMA_CM_IB_XRC
}
