//! fi_domain(3) and fi_endpoint(3): the additions of shm to the objects of a software provider.

use std::sync::Arc;

use crate::listener::Listener;
use fabric_abi::{FI_ADDR_STR, FI_MR_VIRT_ADDR};
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::sync::LockKind;
use prov_local::link::Rules;
use prov_local::onesided::table::RegionTable;
use prov_message::objects::{Domain, Enabling, Provider, SoftEndpoint};
use prov_message::{Lane, Signals};
use prov_util::attr::{Info, MR_BASIC};
use prov_util::av::format::Format;
use prov_util::mr::MrTable;
use prov_util::mr::publish::Publisher;

use crate::engine::endpoint::Rdm;
use crate::engine::{Core, SERVICE};
use crate::params::{ATOMIC_LIMIT, Params};
use crate::rehearsal::rehearse;
use crate::{LOG, address};

/// A domain of shm.
#[derive(Clone)]
pub struct Local {
    params: Arc<Params>,
    /// The table of regions that peers access directly, if that is enabled.
    regions: Option<Arc<RegionTable>>,
}

/// The state of an endpoint before it is enabled.
pub struct Setup {
    name: String,
    /// The order with which the application has opened it.
    rules: Rules,
    /// Reserves the name.
    listener: Option<Listener>,
    /// Whether peers can find the endpoint: not if it is a transmit context alone.
    is_receiver: bool,
}

impl Local {
    /// Creates a domain with the user's parameters.
    pub fn new(params: Arc<Params>) -> Self {
        Local {
            params,
            regions: None,
        }
    }
}

impl Setup {
    /// Reserves a name. Returns `-FI_EADDRINUSE` if another endpoint has it, and the error with which
    /// the system denies what links need.
    fn new(name: String, info: &Info, is_receiver: bool) -> Result<Self> {
        rehearse().map_err(|denial| {
            log::warn!(target: LOG.ep_ctrl, "{denial}");
            denial.error
        })?;
        Ok(Setup {
            listener: Some(Listener::new(SERVICE, &name)?),
            name,
            rules: Rules {
                msg_order: info.tx.msg_order,
                uses_virtual_addresses: info.domain.mr_mode & (FI_MR_VIRT_ADDR | MR_BASIC) != 0,
            },
            is_receiver,
        })
    }
}

/// Calls `open` with each of an endpoint's candidate names, until one is free.
fn first_free<T>(info: &Info, open: impl Fn(String) -> Result<T>) -> Result<T> {
    let names = address::candidates(&info.src_addr).ok_or(Errno::EINVAL)?;
    let mut opened = names.map(open);
    let free = opened.find(|opened| !matches!(opened, Err(Errno::EADDRINUSE)));
    free.unwrap_or(Err(Errno::EADDRINUSE))
}

impl Provider for Local {
    type Core = Core;
    type Setup = Setup;

    const LOG: Targets = LOG;
    const ATOMIC_LIMIT: usize = ATOMIC_LIMIT;
    // The C library's shm ignores event queues and these flags.
    const IS_STRICT: bool = false;
    const IMPORTS_RECEIVES: bool = true;
    const THREAD: &'static str = "fi_shm helper";

    fn address_format(addr_format: u32) -> Option<Format> {
        let check = |text: &[u8]| address::name(text).map(drop).ok_or(Errno::EINVAL);
        (addr_format == FI_ADDR_STR).then(|| Format::text(address::LONGEST).checked_by(check))
    }

    fn for_domain(&self) -> Self {
        let regions = || RegionTable::for_domain(LOG.mr);
        Local {
            params: self.params.clone(),
            regions: (!self.params.disable_cma).then(regions).flatten(),
        }
    }

    fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        let regions = self.regions.clone();
        regions.map(|regions| regions as Arc<dyn Publisher>)
    }

    fn lane(&self, memory: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane<Core>>> {
        let core = |signals: &Arc<Signals>| {
            let (params, regions) = (self.params.clone(), self.regions.clone());
            Core::new(params, memory, regions, signals.clone())
        };
        Lane::start(lock, core)
    }

    fn open(_: &Domain<Self>, info: &Info) -> Result<Setup> {
        first_free(info, |name| Setup::new(name, info, true))
    }

    fn open_contexts(_: &Domain<Self>, info: &Info, pairs: usize) -> Result<Vec<Setup>> {
        first_free(info, |name| {
            let setup = |context| {
                let name = address::context_name(&name, context).ok_or(Errno::EINVAL)?;
                Setup::new(name, info, context < info.ep.receive_contexts())
            };
            (0..pairs).map(setup).collect()
        })
    }

    fn usual_tx_size(&self, _: &Info) -> usize {
        self.params.tx_size
    }

    fn enable(&self, setup: &mut Setup, enabling: Enabling<'_, Self>) -> Result<Box<Rdm>> {
        let av = enabling.bindings.av.clone().ok_or(Errno::ENOAV)?;
        let name = setup.name.clone();
        Ok(Box::new(Rdm {
            rules: setup.rules,
            ..Rdm::new(av, name, &self.params)
        }))
    }

    fn enabled(&self, setup: &mut Setup, ep: &SoftEndpoint<Self>) -> Result {
        if !setup.is_receiver {
            return Ok(());
        }
        let seat = ep.seated()?;
        let listener = setup.listener.take().ok_or(Errno::EOPBADSTATE)?;
        seat.lane.core().open_listener(seat.key, listener)
    }

    fn closed(&self, setup: &mut Setup) {
        setup.listener = None;
    }

    fn name(ep: &SoftEndpoint<Self>) -> Result<Vec<u8>> {
        let mut address = address::of_name(&ep.setup().name);
        address.push(0);
        Ok(address)
    }

    fn set_name(ep: &SoftEndpoint<Self>, name: &[u8]) -> Result {
        let name = address::name(name).ok_or(Errno::EINVAL)?;
        let mut setup = ep.setup();
        if setup.listener.is_none() {
            return Err(Errno::EOPBADSTATE);
        }
        // The old name is released first: the new one may be the same.
        setup.listener = None;
        setup.listener = Some(Listener::new(SERVICE, name)?);
        setup.name = name.to_owned();
        Ok(())
    }
}
