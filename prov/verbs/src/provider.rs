//! The provider as the framework sees it: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_base::services::core_bool;
use prov_util::attr::{FabricAttr, Info, Request};
use prov_util::provider::{Provider, fi_provider};

use crate::device::allow_unsafe_fork;
use crate::fabric::Fabric;
use crate::getinfo;
use crate::params::Params;
use crate::{LOG, VERSION, affinity};

/// The provider, with the parameters that the user has set.
pub struct Verbs {
    params: Arc<Params>,
}

prov_util::provider!(Verbs);

impl Provider for Verbs {
    const NAME: &CStr = c"verbs";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = Fabric;

    fn load(provider: &fi_provider) -> Self {
        if core_bool(c"fork_unsafe") == Some(true) {
            allow_unsafe_fork();
        }
        Verbs {
            params: Arc::new(Params::load(provider)),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        let mut infos = getinfo::getinfo(request, &self.params)?;
        affinity::order(&mut infos, &self.params);
        Ok(infos)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        Ok(Fabric::new(self.params.clone()))
    }
}
