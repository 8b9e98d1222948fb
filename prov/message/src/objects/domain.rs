//! fi_domain(3): memory registration, and the lanes of endpoints.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fabric_abi::{
    FI_EP_MSG, FI_EP_RDM, FI_HMEM, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_RMA_EVENT,
    FI_SHARED_CONTEXT, FI_THREAD_COMPLETION, FI_THREAD_SAFE, FI_TRIGGER, fi_addr_t,
};
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use prov_base::process::Process;
use prov_base::sync::LockKind;
use prov_util::attr::{EpAttr, Info};
use prov_util::av::format::Format;
use prov_util::domain;
use prov_util::drive::Helper;
use prov_util::endpoint::{Bindings, Multicast, OptionValue};
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::ffi::srx::ImportedSrx;
use prov_util::hmem::Functions;
use prov_util::mr::publish::Publisher;
use prov_util::mr::{Config, Job, MrTable, Registrar};
use prov_util::progress::Progress;

use super::{Enabling, SoftEndpoint, SoftSharedReceive};
use crate::endpoints::transport::Transport;
use crate::lane::all::Lanes;
use crate::lane::{Core, Lane};
use crate::receive_limit::receive_limit;

/// Default size of a transmit context, in operations: large enough that applications which do not
/// ask for a size do not meet -FI_EAGAIN.
const USUAL_SIZE: usize = 65536;

/// What a provider adds to the objects of this module: the value of its domains, and the operations
/// of its endpoints that concern names and connections.
pub trait Provider: Send + Sync + Sized + 'static {
    /// The content of its lanes.
    type Core: Core;
    /// The data of an endpoint outside its lane: what it needs until it is enabled, and its
    /// addresses.
    type Setup: Send;

    /// The log targets of its objects.
    const LOG: Targets;

    /// Name of the progress thread; at most 15 bytes.
    const THREAD: &'static str;

    /// The address format for a value of `fi_info::addr_format`.
    fn address_format(addr_format: u32) -> Option<Format> {
        Format::of(addr_format)
    }

    /// See [`Endpoint::IS_STRICT`](prov_util::endpoint::Endpoint::IS_STRICT).
    const IS_STRICT: bool = true;

    /// See [`Endpoint::SHARES_LATE`](prov_util::endpoint::Endpoint::SHARES_LATE).
    const SHARES_LATE: bool = true;

    /// Whether endpoints report to queues of another domain, so that threads with domains of their
    /// own use the same queue.
    const DOMAINS_MEET: bool = false;

    /// Whether a thread makes progress if the application asks for automatic progress.
    fn drives_automatically(&self) -> bool {
        true
    }

    /// Creates a lane with a lock of this kind, or returns the one that all endpoints share.
    ///
    /// # Errors The system's, for the descriptors that the lane needs.
    fn lane(&self, memory: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane<Self::Core>>>;

    /// Returns the value for a new domain of a [`SoftFabric`](super::SoftFabric).
    #[must_use]
    fn for_domain(&self) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }

    /// Returns where a domain's regions are published to peers that access memory by themselves.
    fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        None
    }

    /// Implements fi_endpoint(3).
    ///
    /// # Errors
    /// `-FI_EINVAL` for attributes that the provider does not have.
    fn open(domain: &Domain<Self>, info: &Info) -> Result<Self::Setup>;

    /// `fi_scalable_ep`: as [`Provider::open`], for the contexts of each index
    /// ([`scalable_endpoint`](domain::Domain::scalable_endpoint)).
    ///
    /// # Errors
    /// `-FI_ENOSYS` where there are no scalable endpoints, and those of the system.
    fn open_contexts(
        _domain: &Domain<Self>,
        _info: &Info,
        _pairs: usize,
    ) -> Result<Vec<Self::Setup>> {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_enable(3): creates the endpoint's part for its lane. No step after it may
    /// fail.
    ///
    /// # Errors
    /// `-FI_ENOAV` and the like, and those of the system.
    fn enable(
        &self,
        setup: &mut Self::Setup,
        enabling: Enabling<'_, Self>,
    ) -> Result<<<Self::Core as Core>::Transport as Transport>::Endpoint>;

    /// Called after the endpoint was added to its lane.
    ///
    /// # Errors
    /// Those of the system; the endpoint is then closed in its lane again.
    fn enabled(&self, _setup: &mut Self::Setup, _ep: &SoftEndpoint<Self>) -> Result {
        Ok(())
    }

    /// Implements fi_ep_bind(3) for an enabled endpoint: updates the provider's part in the lane,
    /// if it refers to what is bound. The reports are updated by the caller.
    fn rebound(
        &self,
        _setup: &mut Self::Setup,
        _part: &mut <<Self::Core as Core>::Transport as Transport>::Endpoint,
        _bound: Enabling<'_, Self>,
    ) {
    }

    /// Called by fi_close(3) after the endpoint was removed from its lane.
    fn closed(&self, _setup: &mut Self::Setup) {}

    /// Returns the endpoint's own address.
    fn name(ep: &SoftEndpoint<Self>) -> Result<Vec<u8>>;

    /// Implements fi_setname(3).
    fn set_name(_ep: &SoftEndpoint<Self>, _name: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Returns the connected peer's address.
    fn peer_name(_ep: &SoftEndpoint<Self>) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// `FI_GET_FD`: see [`Endpoint::descriptor`](prov_util::endpoint::Endpoint::descriptor).
    fn descriptor(_ep: &SoftEndpoint<Self>) -> Result<RawFd> {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_connect(3).
    fn connect(_ep: &SoftEndpoint<Self>, _address: &[u8], _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_accept(3).
    fn accept(_ep: &SoftEndpoint<Self>, _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// See [`Endpoint::HAS_MULTICAST`](prov_util::endpoint::Endpoint::HAS_MULTICAST).
    const HAS_MULTICAST: bool = false;

    /// `fi_join` of a multicast group.
    fn join_multicast(_ep: &SoftEndpoint<Self>, _group: &Multicast<'_>) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_close` of a multicast group, by its number.
    fn leave_multicast(_ep: &SoftEndpoint<Self>, _number: fi_addr_t) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_shutdown(3).
    fn shutdown(_ep: &SoftEndpoint<Self>) -> Result {
        Err(Errno::ENOSYS)
    }

    /// See [`domain::Domain::set_functions`].
    ///
    /// # Errors
    /// Those of a provider below.
    fn set_functions(&self, _functions: Functions) -> Result {
        Ok(())
    }

    /// Implements fi_getopt(3) for options of all endpoints that this crate does not handle.
    fn option(&self, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// Implements fi_getopt(3) for options that each endpoint has for itself.
    ///
    /// # Errors
    /// `-FI_ENOPROTOOPT` for an option it does not have.
    fn endpoint_option(_ep: &SoftEndpoint<Self>, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// Implements fi_setopt(3), likewise.
    ///
    /// # Errors
    /// `-FI_ENOPROTOOPT` for an option it does not have, and those of the option.
    fn set_endpoint_option(_ep: &SoftEndpoint<Self>, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }

    /// Returns whether an endpoint with these attributes has a lane of its own, instead of sharing
    /// one by its receive context or completion queue.
    fn is_alone(info: &Info) -> bool {
        info.ep.ep_type == FI_EP_RDM
    }

    /// Default limit of outstanding transmit operations of an endpoint with these attributes.
    fn usual_tx_size(&self, _info: &Info) -> usize {
        USUAL_SIZE
    }

    /// Whether receives may belong to another provider (fi_peer(3)): the lanes receive nothing
    /// while they are [deaf](crate::endpoints::imported_srx).
    const IMPORTS_RECEIVES: bool = false;

    /// The largest atomic operation in bytes; 0 if there are none.
    const ATOMIC_LIMIT: usize = 0;

    /// The supported atomic operations.
    const ATOMICS: Offered = Offered::up_to(Self::ATOMIC_LIMIT);

    /// See [`domain::Domain::needs_queues`].
    fn needs_queues(&self) -> bool {
        true
    }

    /// Returns the atomic operations that this domain supports, if they depend on the provider
    /// below.
    fn atomics(&self) -> Offered {
        Self::ATOMICS
    }

    /// Returns the job that the peers of an endpoint with these attributes belong to.
    fn job(_domain: &Domain<Self>, _setup: &Self::Setup) -> Job {
        Job::NONE
    }
}

/// See the [module](self) description.
pub struct Domain<P: Provider> {
    /// The provider's value.
    pub own: P,
    /// The registered memory, which peers may access.
    pub memory: Arc<MrTable>,
    /// Whether the progress thread drives the lanes while the application does not.
    is_auto: bool,
    lane_lock: LockKind,
    queue_lock: LockKind,
    /// The process that opened it: a forked child cannot enable endpoints.
    process: Process,
    helper: Arc<Helper>,
    lanes: Arc<Lanes<P::Core>>,
    /// Whether a thread that drives one lane drives others: not with `FI_THREAD_COMPLETION`, where
    /// it would make the locks of lanes real that other threads own.
    can_meet: bool,
    /// Lanes that endpoints share by a completion queue.
    by_queue: Mutex<Vec<OfQueue<P>>>,
}

/// The lane of the endpoints that are bound to one completion queue.
struct OfQueue<P: Provider> {
    /// The queue's address.
    queue: usize,
    lane: Weak<Lane<P::Core>>,
}

impl<P: Provider> Domain<P> {
    /// Creates a domain with the attributes in `info`. Peers have proved that they belong to `job`,
    /// which applies to regions without an authorization key of their own.
    pub fn new(own: P, info: &Info, job: Option<Vec<u8>>, mr_target: &'static str) -> Self {
        let registrar = Registrar::Software;
        Self::with_registrar(own, info, job, mr_target, registrar)
    }

    /// Like [`Domain::new`], for memory that is also registered elsewhere.
    pub fn with_registrar(
        own: P,
        info: &Info,
        job: Option<Vec<u8>>,
        mr_target: &'static str,
        registrar: Registrar,
    ) -> Self {
        let has_devices = info.caps & FI_HMEM != 0;
        if has_devices {
            crate::find_devices();
        }
        let memory = Arc::new(MrTable::new(&Config {
            mr_mode: info.domain.mr_mode,
            key_size: info.domain.mr_key_size.clamp(1, 8),
            job,
            registrar,
            publisher: own.publisher(),
            has_devices,
            target: mr_target,
        }));
        let is_auto = info.domain.data_progress == FI_PROGRESS_AUTO
            || info.domain.control_progress == FI_PROGRESS_AUTO;
        let progress = match is_auto {
            true => FI_PROGRESS_AUTO,
            false => FI_PROGRESS_MANUAL,
        };
        // A counter of a region drives all lanes, and an event queue drives those whose connections
        // it reports.
        let is_connected = info.ep.ep_type == FI_EP_MSG;
        // Progress for one context is progress for the other context of its index, too.
        let has_contexts = [info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt]
            .into_iter()
            .any(|count| (2..FI_SHARED_CONTEXT).contains(&count));
        let may_meet = info.caps & FI_RMA_EVENT != 0 || is_connected || has_contexts;
        let threading = match info.domain.threading {
            // What waits for a counter is posted by whichever thread finds it due.
            _ if info.caps & FI_TRIGGER != 0 => FI_THREAD_SAFE,
            FI_THREAD_COMPLETION if may_meet => FI_THREAD_SAFE,
            // An event queue belongs to the fabric: a thread that reads it need not be the one that
            // uses the domain. It makes those locks real that it enters.
            threading => threading,
        };
        Domain {
            own,
            memory,
            is_auto,
            lane_lock: LockKind::for_lane(threading, progress),
            process: Process::current(),
            queue_lock: match is_auto {
                true => LockKind::Real,
                false => LockKind::for_completion(threading),
            },
            helper: Helper::new(P::THREAD),
            lanes: Arc::default(),
            can_meet: is_auto || threading != FI_THREAD_COMPLETION,
            by_queue: Mutex::default(),
        }
    }

    /// Returns `-FI_EOPBADSTATE` in a child of the process that opened the domain.
    pub(super) fn check_process(&self) -> Result {
        let is_current = self.process.is_current();
        is_current.then_some(()).ok_or(Errno::EOPBADSTATE)
    }

    /// Creates the lane for an endpoint or a receive context that shares none by its bindings.
    ///
    /// # Errors
    /// Those of [`Provider::lane`].
    pub(super) fn lane(&self) -> Result<Arc<Lane<P::Core>>> {
        self.new_lane(self.lane_lock)
    }

    /// [`Domain::lane`] for an endpoint with these bindings.
    ///
    /// # Errors
    /// Those of [`Provider::lane`].
    pub(super) fn lane_of(
        &self,
        bindings: &Bindings<SoftSharedReceive<P>>,
    ) -> Result<Arc<Lane<P::Core>>> {
        self.new_lane(match bindings.are_in_set() {
            true => LockKind::Real,
            false => self.lane_lock,
        })
    }

    fn new_lane(&self, lock: LockKind) -> Result<Arc<Lane<P::Core>>> {
        let lane = self.own.lane(&self.memory, lock)?;
        lane.help(&self.helper);
        if P::Core::IS_DRIVEN && self.is_auto && self.own.drives_automatically() {
            match lane.drive_automatically() {
                // A sandbox: as with manual progress, which is all that most software providers of
                // this interface have.
                Err(error @ (Errno::EPERM | Errno::ENOSYS)) => log::warn!(
                    target: P::LOG.domain,
                    "no thread of the library makes progress, only the application's calls do: the \
                     system denies what it needs: {error}"
                ),
                driven => driven?,
            }
        }
        self.lanes.add(&lane)?;
        if !self.is_auto {
            lane.is_one_of(&self.lanes, self.can_meet);
        }
        Ok(lane)
    }

    /// Creates a lane that only the owner of its receives drives.
    ///
    /// # Errors
    /// Those of [`Provider::lane`].
    fn lane_for_owner(&self) -> Result<Arc<Lane<P::Core>>> {
        let lane = self.own.lane(&self.memory, self.lane_lock)?;
        lane.help(&self.helper);
        Ok(lane)
    }

    /// Returns the lane for an endpoint that shares one by its bindings: that of its receive
    /// context or of its completion queue for receives, otherwise for transmits.
    ///
    /// # Errors
    /// Those of [`Provider::lane`].
    pub(super) fn shared_lane(
        &self,
        bindings: &Bindings<SoftSharedReceive<P>>,
    ) -> Result<Arc<Lane<P::Core>>> {
        if let Some(shared) = &bindings.shared {
            return Ok(shared.lane().clone());
        }
        let Some(queue) = bindings.rx_cq.as_ref().or(bindings.tx_cq.as_ref()) else {
            return self.lane_of(bindings);
        };
        let queue = queue.handle().as_c().addr();
        let mut known = self.by_queue.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|of| of.lane.strong_count() != 0);
        let lane = known.iter().find(|of| of.queue == queue);
        if let Some(lane) = lane.and_then(|of| of.lane.upgrade()) {
            return Ok(lane);
        }
        let lane = self.lane_of(bindings)?;
        known.push(OfQueue {
            queue,
            lane: Arc::downgrade(&lane),
        });
        Ok(lane)
    }
}

impl<P: Provider> domain::Domain for Domain<P> {
    type Endpoint = SoftEndpoint<P>;
    type SharedReceive = SoftSharedReceive<P>;

    const LOG_TARGET: &'static str = P::LOG.domain;

    fn lock(&self) -> LockKind {
        self.queue_lock
    }

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<SoftEndpoint<P>> {
        SoftEndpoint::open(this, info)
    }

    fn scalable_endpoint(
        this: &Handle<DomainObject<Self>>,
        info: &Info,
        pairs: usize,
    ) -> Result<Vec<SoftEndpoint<P>>> {
        SoftEndpoint::open_pairs(this, info, pairs)
    }

    fn shared_receive(
        this: &Handle<DomainObject<Self>>,
        size: usize,
        directed: bool,
    ) -> Result<SoftSharedReceive<P>> {
        let most = receive_limit(size);
        Ok(SoftSharedReceive::new(this.lane()?, most, directed))
    }

    fn shared_transmit(this: &Handle<DomainObject<Self>>, size: usize) -> Result<usize> {
        Ok(match size {
            0 => this.own.usual_tx_size(&Info {
                ep: EpAttr {
                    ep_type: FI_EP_RDM,
                    ..EpAttr::default()
                },
                ..Info::default()
            }),
            size => size,
        })
    }

    fn peer_receive(
        this: &Handle<DomainObject<Self>>,
        owner: ImportedSrx,
    ) -> Result<SoftSharedReceive<P>> {
        if !P::IMPORTS_RECEIVES {
            return Err(Errno::EINVAL);
        }
        Ok(SoftSharedReceive::imported(this.lane_for_owner()?, owner))
    }

    fn memory(&self) -> &Arc<MrTable> {
        &self.memory
    }

    fn set_functions(&self, functions: Functions) -> Result {
        self.own.set_functions(functions)
    }

    fn progress(&self) -> Option<Arc<dyn Progress>> {
        match self.can_meet {
            true => Some(self.lanes.clone()),
            false => None,
        }
    }

    fn address_format(&self, addr_format: u32) -> Option<Format> {
        P::address_format(addr_format)
    }

    fn needs_queues(&self) -> bool {
        self.own.needs_queues()
    }

    fn atomics(&self) -> Offered {
        self.own.atomics()
    }
}
