//! fi_domain(3): a domain over the domains of a link.

use std::sync::Arc;

use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_util::attr::Info;
use prov_util::av::format::Format;
use prov_util::domain;
use prov_util::endpoint::NoSharedReceive;
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::hmem::Functions;
use prov_util::mr::MrTable;
use prov_util::progress::Progress;

use crate::LOG;
use crate::address::FORMAT;
use crate::endpoint::LnxEndpoint;
use crate::resources::Resources;

/// A domain.
pub struct LnxDomain(pub Arc<Resources>);

impl domain::Domain for LnxDomain {
    type Endpoint = LnxEndpoint;
    type SharedReceive = NoSharedReceive;

    const LOG_TARGET: &'static str = LOG.domain;

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<LnxEndpoint> {
        LnxEndpoint::open(&this.0, info)
    }

    /// The receives are in a queue of this provider, where linked ones find out by the address alone whose
    /// memory they are.
    fn set_functions(&self, _: Functions) -> Result {
        Err(Errno::EOPNOTSUPP)
    }

    fn lock(&self) -> LockKind {
        self.0.lock
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.0.memory
    }

    fn progress(&self) -> Option<Arc<dyn Progress>> {
        Some(self.0.all.clone())
    }

    fn address_format(&self, _: u32) -> Option<Format> {
        Some(FORMAT)
    }

    fn atomics(&self) -> Offered {
        self.0.atomics
    }
}
