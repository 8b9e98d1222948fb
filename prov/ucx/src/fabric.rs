//! fi_fabric(3): all that UCX reaches is one network.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_util::attr::{Info, Offers};
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use crate::LOG;
use crate::domain::UcxDomain;
use crate::offer;
use crate::params::Params;
use crate::sys::Libucp;

/// A fabric.
pub struct UcxFabric {
    params: Arc<Params>,
    ucp: Libucp,
}

impl UcxFabric {
    /// Opens the fabric.
    ///
    /// # Errors
    /// `-FI_ENODATA` without libucp.
    pub fn open(params: &Arc<Params>) -> Result<Self> {
        Ok(UcxFabric {
            params: params.clone(),
            ucp: Libucp::get().map_err(|_| Errno::ENODATA)?,
        })
    }
}

impl domain::Fabric for UcxFabric {
    type Domain = UcxDomain;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::new(vec![offer::base(&self.params)], LOG.core)
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<UcxDomain> {
        info.domain.authorization()?;
        UcxDomain::open(this.ucp, &this.params, info)
    }
}
