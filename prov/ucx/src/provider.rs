//! The provider as the framework sees it: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_util::attr::{FabricAttr, Info, Request};
use prov_util::provider::{Provider, fi_provider};

use crate::fabric::UcxFabric;
use crate::offer;
use crate::params::Params;
use crate::{LOG, VERSION};

/// The provider, with the user's parameters.
pub struct Ucx {
    params: Arc<Params>,
}

prov_util::provider!(Ucx);

impl Provider for Ucx {
    const NAME: &CStr = c"ucx";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = UcxFabric;

    fn load(provider: &fi_provider) -> Self {
        Ucx {
            params: Arc::new(Params::load(provider)),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        offer::getinfo(request, &self.params)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<UcxFabric> {
        UcxFabric::open(&self.params)
    }
}
