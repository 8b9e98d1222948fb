//! fi_fabric(3) for a provider without passive endpoints.

use fabric_abi::FI_THREAD_SAFE;
use prov_base::errno::Result;
use prov_util::attr::{Base, Info, Offers};
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use super::{Domain, Provider};

/// A fabric; each of its domains gets a copy of the provider's value.
pub struct SoftFabric<P> {
    own: P,
    offers: Offers,
}

impl<P: Provider> SoftFabric<P> {
    /// Creates a fabric for endpoints of these kinds, which fi_getinfo(3) offers.
    pub fn new(own: P, bases: Vec<Base>) -> Self {
        SoftFabric {
            own,
            offers: Offers::new(bases, P::LOG.core),
        }
    }
}

impl<P: Provider + Clone> domain::Fabric for SoftFabric<P> {
    type Domain = Domain<P>;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        self.offers.clone()
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain<P>> {
        // Authorization keys are not supported, but a size without a key is an error.
        info.domain.authorization()?;
        let mut info = info.clone();
        if P::DOMAINS_MEET {
            info.domain.threading = FI_THREAD_SAFE;
        }
        Ok(Domain::new(this.own.for_domain(), &info, None, P::LOG.mr))
    }
}
