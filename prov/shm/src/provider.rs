//! The provider as the framework sees it: name, parameters, fi_getinfo(3) and fi_fabric(3).

use std::ffi::CStr;
use std::sync::Arc;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_message::objects::SoftFabric;
use prov_message::{attributes, limit_gdrcopy};
use prov_util::attr::{Base, FabricAttr, Info, Request, named, version};
use prov_util::provider::{Provider, fi_provider};

use crate::domain::Local;
use crate::params::{Params, SIZES};
use crate::rehearsal::rehearse;
use crate::{LOG, address};

/// Version of the provider, which is that of the library: 2.7.0.
const VERSION: u32 = version(207, 0);

/// The provider, with the parameters that the user has set.
pub struct Shm {
    params: Arc<Params>,
}

prov_util::provider!(Shm);

impl Provider for Shm {
    const NAME: &CStr = c"shm";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = SoftFabric<Local>;

    fn load(provider: &fi_provider) -> Self {
        let params = Params::load(provider);
        limit_gdrcopy(params.max_gdrcopy_size);
        Shm {
            params: Arc::new(params),
        }
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        let mut infos = named::getinfo(request, &self.bases(), self)?;
        if let Err(denial) = rehearse() {
            log::info!(target: LOG.core, "{denial}");
            return Err(Errno::ENODATA);
        }
        if takes_virtual_addresses(request) {
            for info in &mut infos {
                info.domain.mr_mode |= FI_MR_VIRT_ADDR;
            }
            // The C library offers such callers no order of remote accesses at all.
            attributes::leave_out_order_behind_messages(request, &mut infos);
        }
        Ok(infos)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<Self::Fabric> {
        Ok(SoftFabric::new(
            Local::new(self.params.clone()),
            self.bases(),
        ))
    }
}

/// Whether peers refer to registered memory by virtual addresses, and not by offsets in the region:
/// if the caller supports that, or does not say.
fn takes_virtual_addresses(request: &Request<'_>) -> bool {
    let hints = request.hints.and_then(|hints| hints.domain.as_ref());
    request.version >= version(1, 5)
        && hints.is_none_or(|domain| domain.mr_mode & FI_MR_VIRT_ADDR != 0)
}

impl Shm {
    /// Returns the kinds of endpoints.
    fn bases(&self) -> Vec<Base> {
        let mut info = attributes::with_devices(attributes::rdm("shm", VERSION, SIZES));
        info.addr_format = FI_ADDR_STR;
        info.ep.protocol = FI_PROTO_SHM;
        info.ep.protocol_version = 1;
        let base = |limits: Info| Base {
            limits,
            tx_size: self.params.tx_size,
            rx_size: self.params.rx_size,
            inject_size: 0,
            // A progress thread for each domain is only for applications that request it; it takes
            // time from others.
            progress: FI_PROGRESS_MANUAL,
        };
        let shared = attributes::with_shared_receive(info.clone());
        vec![base(attributes::with_contexts(info)), base(shared)]
    }
}

impl named::Naming for Shm {
    fn address(&self, node: Option<&str>, service: Option<&str>) -> Result<Vec<u8>> {
        Ok((address::of_service(node, service) + "\0").into_bytes())
    }

    fn is_address(&self, bytes: &[u8]) -> bool {
        bytes.ends_with(b"\0") && address::name(bytes).is_some()
    }

    fn own(&self) -> Vec<u8> {
        (address::own() + "\0").into_bytes()
    }

    /// The first endpoint of this process, as in the C library.
    fn peer(&self) -> Vec<u8> {
        self.own()
    }
}
