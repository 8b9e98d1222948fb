//! fi_domain(3) and fi_endpoint(3): what rxd adds to the objects of a software provider.

use std::sync::Arc;

use fabric_abi::FI_PROGRESS_AUTO;
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::sync::LockKind;
use prov_message::objects::{self, BelowFabric, Domain, Enabling, Provider, SoftEndpoint};
use prov_message::{Lane, Signals};
use prov_util::attr::Info;
use prov_util::av::format::Format;
use prov_util::below::{self, DatagramEndpoint};
use prov_util::mr::MrTable;

use crate::LOG;
use crate::address::{OwnName, Vector};
use crate::engine::Core;
use crate::engine::below::{Below, Setting};
use crate::engine::link::Rdm;
use crate::offer;
use crate::params::Params;

/// The provider's part of a domain.
pub struct Layered {
    params: Arc<Params>,
    api_version: u32,
    provider: Option<String>,
    domain: Arc<below::Domain>,
    /// Most bytes of the operands of an atomic operation.
    atomic: usize,
    /// Whether a thread makes progress.
    is_auto: bool,
}

/// The data of an endpoint outside its lane.
pub struct Setup {
    core: Info,
    /// The endpoint below, until the endpoint is enabled.
    below: Option<DatagramEndpoint>,
    /// Its address, once the endpoint is enabled.
    name: Vec<u8>,
    /// Whether threads may sleep until something arrives.
    has_sleepers: bool,
}

impl objects::Layered for Layered {
    type Params = Params;

    fn domain(below: &BelowFabric<Params>, api: u32, info: &Info) -> Result<Domain<Self>> {
        let core = offer::below(api, info, below.provider.as_deref())?;
        let own = Layered {
            params: below.params.clone(),
            api_version: api,
            provider: below.provider.clone(),
            domain: below::Domain::open(&below.fabric, &core)?,
            atomic: offer::atomic(&core),
            is_auto: info.domain.data_progress == FI_PROGRESS_AUTO
                || info.domain.control_progress == FI_PROGRESS_AUTO,
        };
        Ok(Domain::new(own, info, None, LOG.mr))
    }
}

impl Provider for Layered {
    type Core = Core;
    type Setup = Setup;

    const LOG: Targets = LOG;
    const THREAD: &'static str = "fi_rxd helper";
    const IMPORTS_RECEIVES: bool = true;

    /// As with the C library's provider of this name.
    fn needs_queues(&self) -> bool {
        false
    }

    fn atomics(&self) -> Offered {
        Offered::common(self.atomic)
    }

    fn address_format(addr_format: u32) -> Option<Format> {
        Format::of(addr_format)
    }

    fn lane(&self, memory: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane<Core>>> {
        let core = |signals: &Arc<Signals>| Core::new(self.params.clone(), memory, signals.clone());
        Lane::start(lock, core)
    }

    fn open(domain: &Domain<Self>, info: &Info) -> Result<Setup> {
        let own = &domain.own;
        let mut core = offer::below(own.api_version, info, own.provider.as_deref())?;
        core.src_addr = info.src_addr.clone();
        Ok(Setup {
            below: Some(DatagramEndpoint::open(&own.domain, &core)?),
            core,
            name: Vec::new(),
            has_sleepers: own.is_auto,
        })
    }

    fn enable(&self, setup: &mut Setup, enabling: Enabling<'_, Self>) -> Result<Box<Rdm>> {
        let bindings = enabling.bindings;
        let queues = [&bindings.tx_cq, &bindings.rx_cq];
        setup.has_sleepers |= queues
            .into_iter()
            .flatten()
            .any(|cq| cq.can_sleep() || cq.is_peer())
            || bindings.counters.can_sleep()
            // Threads may sleep on another provider's queues.
            || bindings.shared.is_some();
        let av = enabling.bindings.av.clone().ok_or(Errno::ENOAV)?;
        Ok(Box::new(Rdm::new(Vector(av), &self.params)))
    }

    fn enabled(&self, setup: &mut Setup, ep: &SoftEndpoint<Self>) -> Result {
        let seat = ep.seated()?;
        let endpoint = setup.below.take().ok_or(Errno::EOPBADSTATE)?;
        let setting = Setting {
            domain: self.domain.clone(),
            core: setup.core.clone(),
            has_sleepers: setup.has_sleepers,
        };
        let below = Below::open(setting, endpoint)?;
        setup.name = below.name.told.clone();
        seat.lane.core().start(seat.key, below)
    }

    fn closed(&self, setup: &mut Setup) {
        setup.below = None;
    }

    fn name(ep: &SoftEndpoint<Self>) -> Result<Vec<u8>> {
        let setup = ep.setup();
        match &setup.below {
            Some(below) => {
                let name = OwnName::of(below.address()?, || offer::host_address(&setup.core));
                Ok(name.told)
            }
            None => Ok(setup.name.clone()),
        }
    }

    fn set_name(ep: &SoftEndpoint<Self>, name: &[u8]) -> Result {
        let setup = ep.setup();
        let below = setup.below.as_ref().ok_or(Errno::EOPBADSTATE)?;
        below.set_address(name)
    }
}
