//! What the framework sees: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use prov_util::attr::{FabricAttr, Info, Request, ip};
use prov_util::errno::Result;
use prov_util::logging::Targets;
use prov_util::provider::{Provider, fi_provider};

use crate::bases::bases;
use crate::fabric::Fabric;
use crate::params::Params;
use crate::{LOG, VERSION};

/// The provider, with what the user has set.
pub struct Tcp {
    params: Arc<Params>,
}

prov_util::provider!(Tcp);

impl Provider for Tcp {
    const NAME: &CStr = c"tcp";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = Fabric;

    fn load(provider: &fi_provider) -> Self {
        let mut params = Params::load(provider);
        params.drop_unknown_interface();
        params.report_empty_port_range();
        Tcp {
            params: Arc::new(params),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        ip::getinfo(request, &bases(&self.params), self.params.iface.as_deref())
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        Ok(Fabric::new(self.params.clone()))
    }
}
