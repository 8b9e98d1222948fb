//! fi_fabric(3): listening outside of any domain.

use std::sync::{Arc, OnceLock};

use prov_base::errno::Result;
use prov_base::sync::LockKind;
use prov_message::objects::{Domain, Requests};
use prov_util::attr::{Info, Offers};
use prov_util::domain;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use crate::LOG;
use crate::bases::{Name, bases};
use crate::domain::Tcp;
use crate::engine::link::listener::Incomer;
use crate::engine::{Core, Lane};
use crate::params::Params;
use crate::passive::{Passive, PassiveEndpoint};

/// A fabric.
pub struct Fabric {
    name: Name,
    params: Arc<Params>,
    /// The lane of the listeners of passive endpoints; created for the first one.
    lane: OnceLock<Arc<Lane>>,
    requests: Arc<Requests<Incomer>>,
}

impl Fabric {
    /// Creates an empty fabric of the provider of this name.
    pub fn new(name: Name, params: Arc<Params>) -> Self {
        Fabric {
            name,
            params,
            lane: OnceLock::new(),
            requests: Arc::default(),
        }
    }

    fn lane(&self) -> Result<Arc<Lane>> {
        if let Some(lane) = self.lane.get() {
            return Ok(lane.clone());
        }
        let lane = Lane::start(LockKind::Real, |signals| {
            Core::new(self.params.clone(), None, None, signals.clone())
        })?;
        Ok(self.lane.get_or_init(|| lane).clone())
    }
}

impl domain::Fabric for Fabric {
    type Domain = Domain<Tcp>;
    type PassiveEndpoint = PassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::new(bases(self.name, &self.params), LOG.core)
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain<Tcp>> {
        Tcp::domain(this.name, this.params.clone(), this.requests.clone(), info)
    }

    fn passive_endpoint(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<PassiveEndpoint> {
        Passive::endpoint(
            this.lane()?,
            this.params.clone(),
            this.requests.clone(),
            info,
        )
    }
}
