//! fi_fabric(3): the fabric below, and what may be opened over it.

use std::sync::Arc;

use fabric_abi::{FI_EP_RDM, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_RM_DISABLED, FI_RM_ENABLED};
use prov_base::errno::{Errno, Result};
use prov_message::objects::Domain;
use prov_util::attr::{DomainAttr, EpAttr, FabricAttr, Info, Offers, RxAttr, TxAttr};
use prov_util::below;
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use crate::domain::Layered;
use crate::params::Params;
use crate::{LOG, offer};

/// A fabric.
pub struct Fabric {
    params: Arc<Params>,
    below: Arc<below::Fabric>,
    /// The provider name with which it was opened, including layers.
    provider: Option<String>,
    offers: Offers,
}

impl Fabric {
    /// Opens the fabric below with this name.
    ///
    /// # Errors
    /// `-FI_ENODATA` if there is none, and those of the provider below.
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
                ep_type: FI_EP_RDM,
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
