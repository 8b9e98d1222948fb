//! fi_fabric(3) of a provider without passive endpoints.

use fabric_abi::FI_THREAD_SAFE;
use prov_util::attr::{Base, Info, Offers};
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::errno::Result;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use super::{Domain, Provider};

/// A fabric whose domains all have a copy of the provider's value.
pub struct SoftFabric<P> {
    own: P,
    offers: Offers,
}

impl<P: Provider> SoftFabric<P> {
    /// A fabric of endpoints of these kinds, which fi_getinfo(3) offers.
    pub fn new(own: P, bases: Vec<Base>) -> Self {
        SoftFabric {
            own,
            offers: Offers::new(bases, P::LOG.core),
        }
    }
}

impl<P: Provider<Fabric = Self> + Clone> domain::Fabric for SoftFabric<P> {
    type Domain = Domain<P>;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        self.offers.clone()
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain<P>> {
        // There are no keys, but a size without one is wrong.
        info.domain.authorization()?;
        let mut info = info.clone();
        if P::DOMAINS_MEET {
            info.domain.threading = FI_THREAD_SAFE;
        }
        Ok(Domain::new(this.own.for_domain(), &info, None, P::LOG.mr))
    }
}
