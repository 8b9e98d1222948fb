//! What the framework sees: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_base::netif;
use prov_util::attr::{FabricAttr, Info, Request, ip};
use prov_util::provider::{Provider, fi_provider};

use crate::LOG;
use crate::bases::{VERSION, bases};
use crate::domain::Fabric;
use crate::params::Params;

/// The provider, with what the user has set.
pub struct Udp {
    /// The one network interface to use.
    iface: Option<String>,
}

prov_util::provider!(Udp);

impl Provider for Udp {
    const NAME: &CStr = c"udp";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = Fabric;

    fn load(provider: &fi_provider) -> Self {
        let params = Params::load(provider);
        Udp {
            iface: netif::chosen(params.iface, LOG.core),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        ip::getinfo(request, &bases(), self.iface.as_deref())
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        Ok(Fabric)
    }
}
