//! The sample provider: connected endpoints on the mock device (`prov_device::mock`), an example of a
//! provider whose data a device moves.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod attributes;
mod domain;
mod endpoint;
mod passive;
mod resources;

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_device::mock::{Adapter, Connector};
use prov_device::modes;
use prov_util::attr::{FabricAttr, Info, Offers, Request, ip};
use prov_util::domain as objects;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;
use prov_util::provider::{self, fi_provider};

use domain::Domain;
use passive::{Passive, PassiveEndpoint};
use resources::Resources;

/// Version of the provider.
const VERSION: u32 = prov_util::attr::version(207, 0);
/// Where the provider logs.
const LOG: Targets = prov_base::log_targets!("sample");

/// The provider.
#[derive(Default)]
pub struct Sample(OnceLock<Device>);

prov_util::provider!(Sample);

/// The open device, with its connections.
#[derive(Clone)]
pub struct Device {
    adapter: Arc<Adapter>,
    connector: Arc<Connector>,
}

impl Device {
    fn open() -> Result<Self> {
        Ok(Device {
            adapter: Adapter::new()?,
            connector: Connector::new()?,
        })
    }
}

impl provider::Provider for Sample {
    const NAME: &CStr = c"sample";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = Fabric;

    fn load(_: &fi_provider) -> Self {
        Sample::default()
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        let bases = modes::for_request(request, attributes::bases());
        ip::getinfo(request, &bases, None)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Fabric> {
        let device = Device::open()?;
        Ok(Fabric(self.0.get_or_init(|| device).clone()))
    }
}

/// A fabric.
pub struct Fabric(Device);

impl objects::Fabric for Fabric {
    type Domain = Domain;
    type PassiveEndpoint = PassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::new(modes::openable(attributes::bases()), LOG.core)
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain> {
        Ok(Domain(Arc::new(Resources::open(&this.0, info))))
    }

    fn passive_endpoint(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<PassiveEndpoint> {
        Passive::endpoint(&this.0.connector, info)
    }
}
