//! fi_fabric(3): what listens outside of any domain.

use std::sync::{Arc, OnceLock};

use prov_util::attr::Info;
use prov_util::domain;
use prov_util::errno::Result;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use crate::connreq::Requests;
use crate::domain::Domain;
use crate::engine::{Engine, Running};
use crate::params::Params;
use crate::passive::PassiveEndpoint;

/// A fabric.
pub struct Fabric {
    params: Arc<Params>,
    /// Drives the listeners of passive endpoints; made for the first one.
    engine: OnceLock<Running>,
    requests: Arc<Requests>,
}

impl Fabric {
    /// Without anything in it.
    pub fn new(params: Arc<Params>) -> Self {
        Fabric {
            params,
            engine: OnceLock::new(),
            requests: Arc::default(),
        }
    }

    fn engine(&self) -> Result<&Running> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        let engine = Engine::start(self.params.clone(), None)?;
        Ok(self.engine.get_or_init(|| engine))
    }
}

impl domain::Fabric for Fabric {
    type Domain = Domain;
    type PassiveEndpoint = PassiveEndpoint;

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain> {
        Domain::new(this.params.clone(), this.requests.clone(), info)
    }

    fn passive_endpoint(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<PassiveEndpoint> {
        PassiveEndpoint::new(
            Arc::clone(this.engine()?),
            this.params.clone(),
            this.requests.clone(),
            info,
        )
    }
}
