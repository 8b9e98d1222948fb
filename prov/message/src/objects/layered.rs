//! fi_fabric(3) for a provider that is layered over another one: the fabric below, and the
//! endpoints that can be opened over it.

use std::sync::Arc;

use fabric_abi::{FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_RM_DISABLED, FI_RM_ENABLED};
use prov_base::errno::{Errno, Result};
use prov_util::attr::{Base, DomainAttr, EpAttr, Info, Offers, RxAttr, TxAttr};
use prov_util::below;
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use super::{Domain, Provider};

/// A provider that opens endpoints of another one.
pub trait Layered: Provider {
    /// Its parameters.
    type Params: Send + Sync;

    /// Opens a domain with these attributes, and the corresponding domain below.
    ///
    /// # Errors
    /// `-FI_ENODATA` if there is none, and those of the provider below.
    fn domain(below: &BelowFabric<Self::Params>, api: u32, info: &Info) -> Result<Domain<Self>>;
}

/// The fabric below, and how it was found.
pub struct BelowFabric<P> {
    pub params: Arc<P>,
    pub fabric: Arc<below::Fabric>,
    /// The provider name with which it was opened, including layers.
    pub provider: Option<String>,
}

/// A fabric over another one.
pub struct LayeredFabric<P: Layered> {
    below: BelowFabric<P::Params>,
    offers: Offers,
}

impl<P: Layered> LayeredFabric<P> {
    /// Opens the fabric below that these endpoints belong to, for the endpoints that `bases` makes
    /// of each of them.
    ///
    /// # Errors
    /// `-FI_ENODATA` if there is none, and those of the provider below.
    pub fn open<B: IntoIterator<Item = Base>>(
        found: &[Info],
        params: Arc<P::Params>,
        bases: impl Fn(&Info, &P::Params) -> B,
    ) -> Result<Self> {
        let first = found.first().ok_or(Errno::ENODATA)?;
        let bases = found.iter().flat_map(|core| bases(core, &params));
        Ok(LayeredFabric {
            offers: Offers::new(bases.collect(), P::LOG.core),
            below: BelowFabric {
                fabric: Arc::new(below::Fabric::open(first)?),
                provider: first.fabric.prov_name.clone(),
                params,
            },
        })
    }
}

impl<P: Layered> domain::Fabric for LayeredFabric<P> {
    type Domain = Domain<P>;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        self.offers.clone()
    }

    /// The endpoint below is selected by the attributes of the endpoint, the domain below by those
    /// of the domain, the addresses and the message order.
    fn for_domain(&self, info: Info) -> Info {
        let known = |value, all: &[u32]| if all.contains(&value) { value } else { 0 };
        let progress = |value| known(value, &[FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL]);
        Info {
            caps: info.caps & self.offers.caps(),
            tx: TxAttr {
                msg_order: info.tx.msg_order,
                ..TxAttr::default()
            },
            rx: RxAttr {
                msg_order: info.rx.msg_order,
                ..RxAttr::default()
            },
            ep: EpAttr {
                ep_type: fabric_abi::FI_EP_RDM,
                ..EpAttr::default()
            },
            domain: DomainAttr {
                control_progress: progress(info.domain.control_progress),
                data_progress: progress(info.domain.data_progress),
                resource_mgmt: known(info.domain.resource_mgmt, &[FI_RM_DISABLED, FI_RM_ENABLED]),
                ..info.domain
            },
            ..info
        }
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Domain<P>> {
        info.domain.authorization()?;
        P::domain(&this.below, this.api_version(), info)
    }
}
