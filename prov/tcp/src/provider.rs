//! The provider as the framework sees it: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_message::attributes;
use prov_util::attr::{FabricAttr, Info, Request, ip};
use prov_util::provider::{Provider, fi_provider};

use crate::bases::{Name, bases};
use crate::fabric::Fabric;
use crate::params::Params;
use crate::wire::handshake::Features;
use crate::{LOG, VERSION};

/// The provider, with the parameters that the user has set.
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
        Tcp {
            params: checked(Params::load(provider)),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        getinfo(Name::Tcp, &self.params, request)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        Ok(Fabric::new(Name::Tcp, self.params.clone()))
    }
}

/// Checks the parameters that the user has set, and drops those that cannot be used.
pub fn checked(mut params: Params) -> Arc<Params> {
    params.drop_unknown_interface();
    params.report_empty_port_range();
    Arc::new(params)
}

/// Implements fi_getinfo(3) for the provider of this name.
///
/// # Errors
/// `-FI_ENODATA` if nothing matches.
pub fn getinfo(name: Name, params: &Params, request: &Request<'_>) -> Result<Vec<Info>> {
    let mut infos = ip::getinfo(request, &bases(name, params), params.first_interface())?;
    if params.features().has(Features::REGIONS) {
        attributes::leave_out_order_behind_messages(request, &mut infos);
    }
    Ok(infos)
}
