//! fi_domain(3) and fi_endpoint(3): what rxm adds to the objects of a software provider.

use std::ffi::c_int;
use std::sync::Arc;

use fabric_abi::{
    FI_MR_LOCAL, FI_OPT_BUFFERED_LIMIT, FI_OPT_BUFFERED_MIN, FI_PROGRESS_AUTO, FI_RMA_EVENT,
    FI_THREAD_SAFE,
};
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::services::core_bool;
use prov_base::sync::LockKind;
use prov_message::objects::{self, BelowFabric, Domain, Enabling, Provider, Seat, SoftEndpoint};
use prov_message::{Lane, Signals};
use prov_util::attr::{Info, MODE_BUFFERED_RECV, MODE_LOCAL_MR, MR_BASIC, is_rma_target};
use prov_util::av::format::Format;
use prov_util::below::{self, Eq, PassiveEndpoint};
use prov_util::endpoint::{Counters, OptionValue};
use prov_util::hmem::Functions;
use prov_util::mr::{MrTable, Registrar};

use crate::LOG;
use crate::engine::Core;
use crate::engine::accesses::{Accesses, BoundCounters};
use crate::engine::below::{Below, Setting};
use crate::engine::buffered::{Bounds, Buffered};
use crate::engine::endpoint::Rdm;
use crate::engine::removal::Closer;
use crate::listening::Listening;
use crate::memory;
use crate::offer;
use crate::params::{ATOMIC_LIMIT, ATOMICS, Params};
use crate::wire::connection::REQUEST;

/// Default of `FI_OPT_BUFFERED_MIN`: number of bytes of an announced message that are shown to the
/// application before it claims the message.
const FIRST_BYTES: usize = 64;

/// The provider's part of a domain.
pub struct Layered {
    params: Arc<Params>,
    api_version: u32,
    provider: Option<String>,
    fabric: Arc<below::Fabric>,
    domain: Arc<below::Domain>,
    memory: Arc<memory::Below>,
    /// Whether the application registers the memory of its operations.
    has_descs: bool,
    /// Whether regions have the mode `FI_MR_BASIC` below.
    is_basic: bool,
    /// Whether a thread makes progress for transfers.
    is_auto: bool,
    /// Whether peers lose their connections when their addresses are removed.
    closes_removed: bool,
}

/// The data of an endpoint outside its lane.
pub struct Setup {
    core: Info,
    /// Whether peers access memory that the application registers.
    is_target: bool,
    eq: Arc<Eq>,
    passive: Arc<PassiveEndpoint>,
    is_enabled: bool,
    /// Whether threads may sleep until something arrives.
    has_sleepers: bool,
    /// Whether the application reads messages in the provider's buffer (`FI_BUFFERED_RECV`).
    is_buffered: bool,
    /// Limits of the part of such messages that the application sees. Without the mode, the minimum
    /// can be set nevertheless, and has no effect.
    bounds: Bounds,
    /// The messages that the application reads in place, until the endpoint is enabled.
    buffered: Option<Box<Buffered>>,
    /// Counts what peers do to memory, until the endpoint is enabled.
    accesses: Option<Accesses>,
    /// The counters of that, where they may be bound to the enabled endpoint.
    bound: Option<BoundCounters>,
    /// Whether it is a pair of contexts of a scalable endpoint, one of which may be opened when the
    /// other is enabled already.
    is_context: bool,
    /// Which context of a scalable endpoint it is; 0 where it is none.
    context: u8,
    /// Ends connections when addresses are removed.
    closer: Option<Arc<Closer>>,
}

impl objects::Layered for Layered {
    type Params = Params;

    fn domain(below: &BelowFabric<Params>, api: u32, info: &Info) -> Result<Domain<Self>> {
        let BelowFabric {
            params,
            fabric,
            provider,
        } = below;
        let core = offer::below(api, info, provider.as_deref(), params)?;
        let domain = below::Domain::open(fabric, &core)?;
        let has_descs = info.domain.mr_mode & FI_MR_LOCAL != 0 || info.mode & MODE_LOCAL_MR != 0;
        let memory = memory::Below::new(domain.clone(), has_descs && is_local(&core));
        let is_auto = params.data_auto_progress
            || info.domain.data_progress == FI_PROGRESS_AUTO
            || info.domain.control_progress == FI_PROGRESS_AUTO;
        let mut info = info.clone();
        if params.data_auto_progress {
            info.domain.data_progress = FI_PROGRESS_AUTO;
            info.domain.threading = FI_THREAD_SAFE;
        }
        let own = Layered {
            params: params.clone(),
            api_version: api,
            provider: provider.clone(),
            fabric: fabric.clone(),
            domain,
            memory: memory.clone(),
            has_descs,
            is_basic: core.domain.mr_mode == MR_BASIC,
            is_auto,
            closes_removed: core_bool(c"av_remove_cleanup") == Some(true),
        };
        let registrar = Registrar::Both(memory);
        Ok(Domain::with_registrar(own, &info, None, LOG.mr, registrar))
    }
}

impl Layered {
    /// The endpoint below for an endpoint with these attributes.
    fn core(&self, info: &Info) -> Result<Info> {
        let provider = self.provider.as_deref();
        let mut info = info.clone();
        if self.is_basic {
            // The capabilities of this endpoint may differ from those that the domain was opened for.
            info.domain.mr_mode = MR_BASIC;
        }
        offer::below(self.api_version, &info, provider, &self.params)
    }

    /// Has the provider below count what peers do to memory. One that cannot is an error only if
    /// the application has asked for it.
    fn accesses(&self, setup: &Setup, counters: &Counters) -> Result<Option<Accesses>> {
        let may_come = setup.is_context && setup.core.caps & FI_RMA_EVENT != 0;
        let accesses = Accesses::new(&self.domain, counters, may_come);
        match accesses {
            Err(error) if setup.core.caps & FI_RMA_EVENT == 0 => {
                log::info!(
                    target: LOG.cntr,
                    "the provider below counts no accesses of peers: {error}"
                );
                Ok(None)
            }
            accesses => accesses,
        }
    }

    fn setup(&self, info: &Info, core: Info, listening: Listening) -> Setup {
        Setup {
            core,
            is_target: is_rma_target(info.caps),
            eq: listening.eq,
            passive: Arc::new(listening.passive),
            is_enabled: false,
            has_sleepers: self.is_auto,
            is_buffered: info.mode & MODE_BUFFERED_RECV != 0,
            bounds: Bounds {
                least: FIRST_BYTES.min(self.params.longest_front()),
                most: self.params.buffer_size,
            },
            buffered: None,
            accesses: None,
            bound: None,
            is_context: false,
            context: 0,
            closer: None,
        }
    }

    /// Has connections end within fi_av_remove(3).
    fn watch_removals(&self, setup: &mut Setup, ep: &Seat<Self>) {
        if self.closes_removed {
            setup.closer = Some(Closer::watch(&ep.lane, ep.key));
        }
    }
}

/// Returns whether the provider below requires the memory of operations to be registered.
fn is_local(core: &Info) -> bool {
    core.domain.mr_mode & FI_MR_LOCAL != 0 || core.mode & MODE_LOCAL_MR != 0
}

impl Provider for Layered {
    type Core = Core;
    type Setup = Setup;

    const LOG: Targets = LOG;
    const ATOMIC_LIMIT: usize = ATOMIC_LIMIT;
    const ATOMICS: Offered = ATOMICS;
    const IMPORTS_RECEIVES: bool = true;

    fn set_functions(&self, functions: Functions) -> Result {
        self.memory.set_functions(functions)
    }

    const THREAD: &'static str = "fi_rxm helper";

    fn address_format(addr_format: u32) -> Option<Format> {
        Format::of(addr_format)
    }

    fn lane(&self, memory: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane<Core>>> {
        let core = |signals: &Arc<Signals>| Core::new(self.params.clone(), memory, signals.clone());
        Lane::start(lock, core)
    }

    fn open(domain: &Domain<Self>, info: &Info) -> Result<Setup> {
        let core = domain.own.core(info)?;
        let listening = Listening::open(&domain.own.fabric, &core)?;
        listening.takes(REQUEST)?;
        Ok(domain.own.setup(info, core, listening))
    }

    fn open_contexts(domain: &Domain<Self>, info: &Info, pairs: usize) -> Result<Vec<Setup>> {
        if info.mode & MODE_BUFFERED_RECV != 0 {
            log::warn!(
                target: LOG.ep_ctrl,
                "fi_scalable_ep: contexts have no messages in the provider's buffers \
                 (FI_BUFFERED_RECV)"
            );
            return Err(Errno::EINVAL);
        }
        let core = domain.own.core(info)?;
        let row = Listening::open_in_row(&domain.own.fabric, &core, pairs)?;
        let setup = |(context, listening)| Setup {
            context,
            is_context: true,
            ..domain.own.setup(info, core.clone(), listening)
        };
        Ok((0..=u8::MAX).zip(row).map(setup).collect())
    }

    fn usual_tx_size(&self, _: &Info) -> usize {
        self.params.tx_size
    }

    fn enable(&self, setup: &mut Setup, enabling: Enabling<'_, Self>) -> Result<Box<Rdm>> {
        let bindings = enabling.bindings;
        let queues = [&bindings.tx_cq, &bindings.rx_cq];
        setup.has_sleepers |= queues.into_iter().flatten().any(|cq| cq.can_sleep() || cq.is_peer())
            || bindings.counters.can_sleep()
            // Threads may sleep on another provider's queues.
            || bindings.shared.is_some();
        let av = enabling.bindings.av.clone().ok_or(Errno::ENOAV)?;
        if setup.is_buffered && bindings.shared.is_some() {
            // The receives belong to another provider, which does not report such messages.
            return Err(Errno::EINVAL);
        }
        setup.accesses = self.accesses(setup, &bindings.counters)?;
        setup.bound = setup.accesses.as_ref().map(Accesses::bound);
        let endpoint = enabling.endpoint;
        let buffered = || Box::new(Buffered::new(endpoint, setup.bounds));
        setup.buffered = setup.is_buffered.then(buffered);
        Ok(Box::new(Rdm::new(av, setup.context, &self.params)))
    }

    fn enabled(&self, setup: &mut Setup, ep: &SoftEndpoint<Self>) -> Result {
        let seat = ep.seated()?;
        let is_local = is_local(&setup.core);
        let setting = Setting {
            domain: self.domain.clone(),
            memory: self.memory.clone(),
            core: setup.core.clone(),
            sizes: offer::sizes(&setup.core, &self.params),
            is_local,
            has_descs: self.has_descs && is_local,
            has_sleepers: setup.has_sleepers,
            closes_removed: self.closes_removed,
            is_target: setup.is_target,
            accesses: setup.accesses.take(),
        };
        let (eq, passive) = (setup.eq.clone(), setup.passive.clone());
        let below = Below::open(setting, eq, passive, &self.params)?;
        let buffered = setup.buffered.take();
        seat.lane.core().start(seat.key, below, buffered)?;
        self.watch_removals(setup, seat);
        setup.is_enabled = true;
        Ok(())
    }

    fn rebound(&self, setup: &mut Setup, _: &mut Box<Rdm>, enabling: Enabling<'_, Self>) {
        if let Some(bound) = &setup.bound {
            bound.set(&enabling.bindings.counters);
        }
    }

    fn closed(&self, setup: &mut Setup) {
        // It refers to the endpoint, which would otherwise keep itself alive.
        setup.buffered = None;
        setup.accesses = None;
        setup.bound = None;
        setup.closer = None;
    }

    fn endpoint_option(ep: &SoftEndpoint<Self>, name: c_int) -> Result<OptionValue> {
        let setup = ep.setup();
        let bounds = &setup.bounds;
        match name {
            FI_OPT_BUFFERED_MIN => Ok(OptionValue::Size(bounds.least)),
            FI_OPT_BUFFERED_LIMIT if setup.is_buffered => Ok(OptionValue::Size(bounds.most)),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_endpoint_option(ep: &SoftEndpoint<Self>, name: c_int, value: OptionValue) -> Result {
        let params = &ep.domain().own.params;
        let mut setup = ep.setup();
        let (is_enabled, is_buffered) = (setup.is_enabled, setup.is_buffered);
        let bounds = &mut setup.bounds;
        let (FI_OPT_BUFFERED_MIN | FI_OPT_BUFFERED_LIMIT, OptionValue::Size(bytes)) = (name, value)
        else {
            return Err(Errno::ENOPROTOOPT);
        };
        if name == FI_OPT_BUFFERED_LIMIT && !is_buffered {
            return Err(Errno::ENOPROTOOPT);
        }
        if is_enabled {
            return Err(Errno::EOPBADSTATE);
        }
        match name {
            FI_OPT_BUFFERED_MIN if bytes > bounds.most.min(params.longest_front()) => {
                Err(Errno::EINVAL)
            }
            FI_OPT_BUFFERED_MIN => {
                bounds.least = bytes;
                Ok(())
            }
            _ => {
                bounds.most = match bytes {
                    usize::MAX => params.buffer_size,
                    bytes if bytes > params.buffer_size => return Err(Errno::EMSGSIZE),
                    bytes => bytes,
                };
                bounds.least = bounds.least.min(bounds.most);
                Ok(())
            }
        }
    }

    fn name(ep: &SoftEndpoint<Self>) -> Result<Vec<u8>> {
        ep.setup().passive.address()
    }

    fn set_name(ep: &SoftEndpoint<Self>, name: &[u8]) -> Result {
        let setup = ep.setup();
        match setup.is_enabled {
            true => Err(Errno::EOPBADSTATE),
            false => setup.passive.set_address(name),
        }
    }
}
