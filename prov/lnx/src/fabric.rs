//! fi_fabric(3): the links that the user has configured.

use std::sync::Arc;

use fabric_abi::FI_THREAD_DOMAIN;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_util::attr::{FabricAttr, Info, Offers, version};
use prov_util::below;
use prov_util::domain;
use prov_util::endpoint::NoPassiveEndpoint;
use prov_util::ffi::Handle;
use prov_util::ffi::fabric::FabricObject;

use crate::LOG;
use crate::domain::LnxDomain;
use crate::offer::{self, Core};
use crate::resources::{LinkedDomain, Resources};
use crate::settings::Settings;

/// A fabric. The fabrics of linked providers are opened with the domains.
pub struct LnxFabric {
    settings: Arc<Settings>,
    offers: Offers,
}

impl LnxFabric {
    /// Opens the fabric.
    ///
    /// # Errors
    /// `-FI_ENODATA` if no link can be opened.
    pub fn open(attr: &FabricAttr, settings: &Arc<Settings>) -> Result<Self> {
        let bases = offer::bases(settings, attr.api_version.max(version(1, 5)));
        if bases.is_empty() {
            return Err(Errno::ENODATA);
        }
        Ok(LnxFabric {
            settings: settings.clone(),
            offers: Offers::new(bases, LOG.core),
        })
    }
}

impl domain::Fabric for LnxFabric {
    type Domain = LnxDomain;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        self.offers.clone()
    }

    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<LnxDomain> {
        info.domain.authorization()?;
        let cores = offer::for_domain(&this.settings, this.api_version(), info)?;
        let is_virtual = offer::is_virtual(info.domain.mr_mode);
        let mut fabrics: Vec<(FabricAttr, Arc<below::Fabric>)> = Vec::new();
        let mut linked = Vec::new();
        for Core { mut info, is_shm } in cores {
            info.domain.mr_mode = match is_virtual {
                true => fabric_abi::FI_MR_VIRT_ADDR,
                false => 0,
            };
            let known = fabrics.iter().find(|(attr, _)| *attr == info.fabric);
            let fabric = match known {
                Some((_, fabric)) => fabric.clone(),
                None => {
                    let fabric = Arc::new(below::Fabric::open(&info)?);
                    fabrics.push((info.fabric.clone(), fabric.clone()));
                    fabric
                }
            };
            let domain = below::Domain::open(&fabric, &info).inspect_err(|error| {
                log::warn!(
                    target: LOG.domain,
                    "domain {} of a link does not open: {error}",
                    info.domain.name.as_deref().unwrap_or_default()
                );
            })?;
            linked.push(LinkedDomain {
                domain,
                info,
                is_shm,
            });
        }
        let lock = match info.domain.threading {
            FI_THREAD_DOMAIN => LockKind::Elided,
            _ => LockKind::Real,
        };
        let resources = Resources::new(this.settings.clone(), linked, info, lock);
        Ok(LnxDomain(Arc::new(resources)))
    }
}
