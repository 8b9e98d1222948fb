//! The provider's interface to the framework: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_message::objects::LayeredFabric;
use prov_util::attr::{FabricAttr, Info, Request};
use prov_util::provider::{Provider, fi_provider};

use crate::domain::Layered;
use crate::offer;
use crate::params::Params;
use crate::{LOG, VERSION};

/// The provider, with the user's parameters.
pub struct Rxd {
    params: Arc<Params>,
}

prov_util::provider!(Rxd);

impl Provider for Rxd {
    const NAME: &CStr = c"ofi_rxd";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = LayeredFabric<Layered>;

    fn load(provider: &fi_provider) -> Self {
        Rxd {
            params: Arc::new(Params::load(provider)),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        offer::getinfo(request, &self.params)
    }

    fn fabric(&self, attr: &FabricAttr) -> Result<LayeredFabric<Layered>> {
        let found = offer::below_of_fabric(attr)?;
        LayeredFabric::open(&found, self.params.clone(), |core, _| offer::base(core))
    }
}
