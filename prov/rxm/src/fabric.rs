//! fi_fabric(3): the fabric below, and what may be opened over it.

use std::sync::Arc;

use prov_message::objects::Domain;
use prov_util::attr::{FabricAttr, Info, Offers};
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::errno::{Errno, Result};
use prov_util::ffi::Handle;
use prov_util::ffi::below;
use prov_util::ffi::fabric::FabricObject;

use crate::domain::Layered;
use crate::params::Params;
use crate::{LOG, offer};

/// A fabric.
pub struct Fabric {
    params: Arc<Params>,
    below: Arc<below::Fabric>,
    /// The layers that it was opened as.
    provider: Option<String>,
    offers: Offers,
}

impl Fabric {
    /// Opens the fabric below that has this name.
    ///
    /// # Errors
    /// `-FI_ENODATA` where there is none, and what the provider below returns.
    pub fn open(attr: &FabricAttr, params: Arc<Params>) -> Result<Self> {
        let found = offer::below_of_fabric(attr, &params)?;
        let first = found.first().ok_or(Errno::ENODATA)?;
        let bases = found.iter().flat_map(|core| offer::bases(core, &params));
        Ok(Fabric {
            below: Arc::new(below::Fabric::open(first)?),
            provider: first.fabric.prov_name.clone(),
            offers: Offers::new(bases.collect(), LOG.core),
            params,
        })
    }
}

impl domain::Fabric for Fabric {
    type Domain = Domain<Layered>;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        self.offers.clone()
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain<Layered>> {
        info.domain.authorization()?;
        let provider = this.provider.as_deref();
        Layered::domain(
            &this.below,
            provider,
            this.api_version(),
            info,
            &this.params,
        )
    }
}
