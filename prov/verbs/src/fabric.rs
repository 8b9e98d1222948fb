//! fi_fabric(3): the network of the devices, and its connections.

use std::sync::{Arc, OnceLock};

use prov_base::errno::Result;
use prov_message::objects::Requests;
use prov_util::attr::{Info, Offers};
use prov_util::domain;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use crate::LOG;
use crate::bases::openable;
use crate::domain::Domain;
use crate::manager::{Incomer, Manager};
use crate::name_server::NameServer;
use crate::params::Params;
use crate::passive::{Passive, PassiveEndpoint};
use crate::resources::Resources;

/// A fabric.
pub struct Fabric {
    params: Arc<Params>,
    /// Created on first use.
    manager: OnceLock<Arc<Manager>>,
    requests: Arc<Requests<Incomer>>,
    /// Runs as long as the fabric is open.
    _names: Option<Arc<NameServer>>,
}

impl Fabric {
    /// Creates an empty fabric.
    pub fn new(params: Arc<Params>) -> Self {
        Fabric {
            _names: params.name_server().and_then(NameServer::start),
            params,
            manager: OnceLock::new(),
            requests: Arc::default(),
        }
    }

    fn manager(&self) -> Result<Arc<Manager>> {
        if let Some(manager) = self.manager.get() {
            return Ok(manager.clone());
        }
        let manager = Manager::new()?;
        Ok(self.manager.get_or_init(|| manager).clone())
    }
}

impl domain::Fabric for Fabric {
    type Domain = Domain;
    type PassiveEndpoint = PassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::new(openable(&self.params), LOG.core)
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain> {
        info.domain.authorization()?;
        let (manager, requests) = (this.manager()?, this.requests.clone());
        let resources = Resources::open(this.params.clone(), manager, requests, info)?;
        Ok(Domain(Arc::new(resources)))
    }

    fn passive_endpoint(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<PassiveEndpoint> {
        Passive::endpoint(
            this.params.clone(),
            this.manager()?,
            this.requests.clone(),
            info,
        )
    }
}
