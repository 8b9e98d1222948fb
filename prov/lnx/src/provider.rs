//! The provider's interface to the framework: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_util::attr::{FabricAttr, Info, Request};
use prov_util::provider::{Provider, fi_provider};

use crate::fabric::LnxFabric;
use crate::offer;
use crate::params::Params;
use crate::settings::Settings;
use crate::{LOG, VERSION};

/// The provider, with the user's parameters.
pub struct Lnx {
    settings: Option<Arc<Settings>>,
    /// Why there are no links, if the user has asked for some.
    problem: Option<Errno>,
}

prov_util::provider!(Lnx);

impl Lnx {
    fn settings(&self) -> Result<&Arc<Settings>> {
        match (&self.settings, self.problem) {
            (Some(settings), _) => Ok(settings),
            (None, Some(problem)) => Err(problem),
            (None, None) => Err(Errno::ENODATA),
        }
    }
}

impl Provider for Lnx {
    const NAME: &CStr = c"lnx";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = LnxFabric;

    fn load(provider: &fi_provider) -> Self {
        match Settings::of(&Params::load(provider)) {
            Ok(settings) => Lnx {
                settings: settings.map(Arc::new),
                problem: None,
            },
            Err(problem) => Lnx {
                settings: None,
                problem: Some(problem),
            },
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        let settings = self.settings().inspect_err(|error| {
            if *error == Errno::ENODATA {
                request.refuse(&"FI_LNX_PROV_LINKS names no providers to link, such as shm+tcp");
            }
        })?;
        offer::getinfo(request, settings)
    }

    fn fabric(&self, attr: &FabricAttr) -> Result<LnxFabric> {
        LnxFabric::open(attr, self.settings()?)
    }
}
