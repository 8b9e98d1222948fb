//! The provider of collective operations (fi_collective(3)), `off_coll`: barriers, broadcasts,
//! reductions and exchanges of groups of endpoints. It has no network of its own: its endpoints
//! transfer over those of another provider (`FI_PEER_TRANSFER`, fi_peer(3)), which forwards the
//! application's calls.
//!
//! `program` determines the steps of each member, as a list of messages and copies; `engine` has
//! the groups and executes the programs; `endpoint` reports to the application's queues.

#![deny(clippy::indexing_slicing)]
#![deny(unsafe_code)]

mod agreement;
mod endpoint;
mod engine;
mod memory;
mod operation;
pub mod program;
#[allow(unsafe_code)]
mod scratch;
mod tags;

use std::ffi::CStr;
use std::sync::Arc;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::log_targets;
use prov_base::logging::Targets;
use prov_base::sync::LockKind;
use prov_util::attr::{
    Base, DomainAttr, EpAttr, FabricAttr, Info, Offers, Request, RxAttr, TxAttr, named, version,
};
use prov_util::domain;
use prov_util::endpoint::{NoPassiveEndpoint, NoSharedReceive};
use prov_util::ffi::Handle;
use prov_util::ffi::domain::{DomainObject, PeerDomain};
use prov_util::ffi::ep::TransferOwner;
use prov_util::ffi::fabric::FabricObject;
use prov_util::mr::{Config, MrTable};
use prov_util::provider;

use self::endpoint::CollEndpoint;

const LOG: Targets = log_targets!("off_coll");
const VERSION: u32 = version(207, 0);

/// The provider.
pub struct Coll;

prov_util::provider!(Coll);

impl provider::Provider for Coll {
    const NAME: &CStr = c"off_coll";
    const VERSION: u32 = VERSION;
    const LOG: Targets = LOG;
    type Fabric = CollFabric;

    fn load(_: &fi_provider) -> Self {
        Coll
    }

    fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        named::getinfo(request, &bases(), &Nameless)
    }

    fn fabric(&self, _: &FabricAttr) -> Result<CollFabric> {
        Ok(CollFabric)
    }
}

/// Addresses: the endpoints have those of the endpoints that they transfer over.
struct Nameless;

impl named::Naming for Nameless {
    fn is_address(&self, _: &[u8]) -> bool {
        false
    }
}

fn bases() -> Vec<Base> {
    const FLAGS: u64 = FI_COMPLETION;
    let name = || Some("off_coll".to_owned());
    let info = Info {
        caps: FI_COLLECTIVE | FI_PEER | FI_LOCAL_COMM | FI_REMOTE_COMM,
        tx: TxAttr {
            caps: FI_COLLECTIVE,
            op_flags: FLAGS,
            size: usize::MAX,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: FI_COLLECTIVE,
            op_flags: FLAGS,
            size: usize::MAX,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: FI_EP_RDM,
            max_msg_size: usize::MAX,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            ..EpAttr::default()
        },
        domain: DomainAttr {
            name: name(),
            caps: FI_LOCAL_COMM | FI_REMOTE_COMM,
            threading: FI_THREAD_SAFE,
            control_progress: FI_PROGRESS_MANUAL,
            data_progress: FI_PROGRESS_MANUAL,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_UNSPEC,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            name: name(),
            prov_name: name(),
            prov_version: VERSION,
            ..FabricAttr::default()
        },
        ..Info::default()
    };
    vec![info.into()]
}

/// A fabric of the provider.
pub struct CollFabric;

impl domain::Fabric for CollFabric {
    type Domain = CollDomain;
    type PassiveEndpoint = NoPassiveEndpoint;

    fn offers(&self) -> Offers {
        Offers::new(bases(), LOG.core)
    }

    /// Always fails: a domain needs an owner (fi_peer(3)).
    fn domain(_: &Handle<FabricObject<Self>>, _: &Info) -> Result<CollDomain> {
        Err(Errno::EINVAL)
    }

    fn peer_domain(_: &Handle<FabricObject<Self>>, _: &Info, _: PeerDomain) -> Result<CollDomain> {
        Ok(CollDomain {
            memory: Arc::new(MrTable::new(&Config {
                // The owner of an endpoint may have them.
                has_devices: true,
                ..Config::default()
            })),
        })
    }
}

/// A domain that works for a domain of another provider.
pub struct CollDomain {
    /// Always empty.
    memory: Arc<MrTable>,
}

impl domain::Domain for CollDomain {
    type Endpoint = CollEndpoint;
    type SharedReceive = NoSharedReceive;

    const LOG_TARGET: &'static str = LOG.domain;

    /// Always fails: an endpoint needs an owner's endpoint.
    fn endpoint(_: &Handle<DomainObject<Self>>, _: &Info) -> Result<CollEndpoint> {
        Err(Errno::EINVAL)
    }

    fn transfer_endpoint(
        _: &Handle<DomainObject<Self>>,
        _: &Info,
        owner: TransferOwner,
    ) -> Result<CollEndpoint> {
        Ok(CollEndpoint::new(owner))
    }

    fn lock(&self) -> LockKind {
        LockKind::Real
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.memory
    }
}
