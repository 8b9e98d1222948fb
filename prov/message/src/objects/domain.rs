//! fi_domain(3): memory registrations, and the lanes of endpoints.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fabric_abi::{
    FI_EP_MSG, FI_EP_RDM, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_RMA_EVENT, FI_THREAD_COMPLETION,
    FI_THREAD_DOMAIN, FI_THREAD_SAFE,
};
use prov_util::atomic_ops::Offered;
use prov_util::attr::Info;
use prov_util::av::format::Format;
use prov_util::domain;
use prov_util::drive::Helper;
use prov_util::endpoint::{Bindings, OptionValue};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::Handle;
use prov_util::ffi::domain::DomainObject;
use prov_util::ffi::srx::ImportedSrx;
use prov_util::logging::{Targets, UTIL};
use prov_util::mr::publish::Publisher;
use prov_util::mr::{Config, Job, MrTable, Registrar};
use prov_util::process::Process;
use prov_util::progress::Progress;
use prov_util::sync::LockKind;
use prov_util::warn_again;
use rustix::event::epoll;

use super::{Enabling, SoftEndpoint, SoftSharedReceive};
use crate::endpoints::inbox::Transport;
use crate::lane::{Core, Lane};

/// Operations of one kind that may be posted at once where nobody says how many.
const USUAL_SIZE: usize = 65536;

/// What a provider adds to the objects of a software provider: the value that
/// its domains have, and what its endpoints do about names and connections.
pub trait Provider: Send + Sync + Sized + 'static {
    /// Its fabric.
    type Fabric: domain::Fabric<Domain = Domain<Self>>;
    /// What its lanes hold.
    type Core: Core;
    /// What an endpoint has besides what its lane knows of it: what it needs
    /// until it is enabled, and its addresses.
    type Setup: Send;

    /// Where its objects log.
    const LOG: Targets;

    /// What the thread is called that helps the lanes, in 15 bytes at most.
    const THREAD: &'static str;

    /// The format of addresses, by the number in `fi_info::addr_format`.
    fn address_format(addr_format: u32) -> Option<Format> {
        Format::of(addr_format)
    }

    /// See [`Endpoint::IS_STRICT`](prov_util::endpoint::Endpoint::IS_STRICT).
    const IS_STRICT: bool = true;

    /// Whether endpoints report to queues of another domain, so that threads
    /// which have domains of their own meet there all the same.
    const DOMAINS_MEET: bool = false;

    /// Whether a thread drives transfers where the application asks for
    /// automatic progress.
    fn drives_automatically(&self) -> bool {
        true
    }

    /// A new lane, with a lock of this kind, or one that all endpoints are in.
    ///
    /// # Errors
    /// What the system says to the descriptors that it needs.
    fn lane(&self, memory: &Arc<MrTable>, lock: LockKind) -> Result<Arc<Lane<Self::Core>>>;

    /// What a new domain of a [`SoftFabric`](super::SoftFabric) has.
    #[must_use]
    fn for_domain(&self) -> Self
    where
        Self: Clone,
    {
        self.clone()
    }

    /// Where a domain's regions are announced to peers that access memory by themselves.
    fn publisher(&self) -> Option<Arc<dyn Publisher>> {
        None
    }

    /// `fi_endpoint`
    ///
    /// # Errors
    /// `-FI_EINVAL` for attributes that the provider does not have.
    fn open(domain: &Domain<Self>, info: &Info) -> Result<Self::Setup>;

    /// `fi_enable`: the endpoint's own part, for its lane. Nothing may fail after
    /// it.
    ///
    /// # Errors
    /// `-FI_ENOAV` and the like, and those of the system.
    fn enable(
        &self,
        setup: &mut Self::Setup,
        enabling: Enabling<'_, Self>,
    ) -> Result<<<Self::Core as Core>::Transport as Transport>::Endpoint>;

    /// The endpoint has got its place in the lane.
    ///
    /// # Errors
    /// Those of the system; the endpoint then is closed in its lane again.
    fn enabled(&self, _setup: &mut Self::Setup, _ep: &SoftEndpoint<Self>) -> Result {
        Ok(())
    }

    /// `fi_ep_bind` of an enabled endpoint: the own part of it in its lane follows,
    /// where that has anything of what is bound. Reports do so without it.
    fn rebound(
        &self,
        _setup: &mut Self::Setup,
        _part: &mut <<Self::Core as Core>::Transport as Transport>::Endpoint,
        _bound: Enabling<'_, Self>,
    ) {
    }

    /// `fi_close` of an endpoint that its lane knows no longer.
    fn closed(&self, _setup: &mut Self::Setup) {}

    /// The endpoint's own address.
    fn name(ep: &SoftEndpoint<Self>) -> Result<Vec<u8>>;

    /// `fi_setname`
    fn set_name(_ep: &SoftEndpoint<Self>, _name: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// The connected peer's address.
    fn peer_name(_ep: &SoftEndpoint<Self>) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// `FI_GET_FD`: see [`Endpoint::descriptor`](prov_util::endpoint::Endpoint::descriptor).
    fn descriptor(_ep: &SoftEndpoint<Self>) -> Result<RawFd> {
        Err(Errno::ENOSYS)
    }

    /// `fi_connect`
    fn connect(_ep: &SoftEndpoint<Self>, _address: &[u8], _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_accept`
    fn accept(_ep: &SoftEndpoint<Self>, _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_shutdown`
    fn shutdown(_ep: &SoftEndpoint<Self>) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_getopt` for what not all endpoints have.
    fn option(&self, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// `fi_getopt` for what each endpoint has for itself.
    ///
    /// # Errors
    /// `-FI_ENOPROTOOPT` for an option it does not have.
    fn endpoint_option(_ep: &SoftEndpoint<Self>, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// `fi_setopt`, likewise.
    ///
    /// # Errors
    /// `-FI_ENOPROTOOPT` for an option it does not have, and those of the option.
    fn set_endpoint_option(_ep: &SoftEndpoint<Self>, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }

    /// Whether an endpoint with these attributes has a lane of its own, and does
    /// not share one by its receive context or completion queue.
    fn is_alone(info: &Info) -> bool {
        info.ep.ep_type == FI_EP_RDM
    }

    /// Operations that an endpoint with these attributes may have posted at once
    /// where the application names no number.
    fn usual_tx_size(&self, _info: &Info) -> usize {
        USUAL_SIZE
    }

    /// Receives that it may have posted at once, likewise.
    fn usual_rx_size(&self, _info: &Info) -> usize {
        USUAL_SIZE
    }

    /// Receives that a shared context may have posted at once, likewise.
    fn usual_shared_size(&self) -> usize {
        USUAL_SIZE
    }

    /// Whether receives may be another provider's (fi_peer(3)): the lanes take
    /// in nothing while they are [deaf](crate::endpoints::foreign).
    const IMPORTS_RECEIVES: bool = false;

    /// The largest atomic operation, in bytes; 0 where there are none.
    const ATOMIC_LIMIT: usize = 0;

    /// The atomic operations that there are.
    const ATOMICS: Offered = Offered::up_to(Self::ATOMIC_LIMIT);

    /// To whom peers of an endpoint with these attributes belong.
    fn job(_domain: &Domain<Self>, _setup: &Self::Setup) -> Job {
        Job::NONE
    }
}

/// See the [module](self) description.
pub struct Domain<P: Provider> {
    /// What the provider adds.
    pub own: P,
    /// What peers may access.
    pub memory: Arc<MrTable>,
    /// Whether transfers are driven while the application does not.
    is_auto: bool,
    lane_lock: LockKind,
    queue_lock: LockKind,
    /// A forked child enables no endpoint here.
    process: Process,
    helper: Arc<Helper>,
    lanes: Arc<Lanes<P::Core>>,
    /// Whether a thread may be in any lane, whatever others do.
    can_meet: bool,
    /// Lanes that endpoints share by a completion queue.
    by_queue: Mutex<Vec<OfQueue<P>>>,
}

/// The lane of the endpoints that are bound to a completion queue.
struct OfQueue<P: Provider> {
    /// The queue's address.
    queue: usize,
    lane: Weak<Lane<P::Core>>,
}

impl<P: Provider> Domain<P> {
    /// A domain with the attributes in `info`; peers have proved `job` for
    /// regions without an authorization key of their own.
    pub fn new(own: P, info: &Info, job: Option<Vec<u8>>, mr_target: &'static str) -> Self {
        let registrar = Registrar::Software;
        Self::with_registrar(own, info, job, mr_target, registrar)
    }

    /// As [`Domain::new`], where somebody else registers memory, too.
    pub fn with_registrar(
        own: P,
        info: &Info,
        job: Option<Vec<u8>>,
        mr_target: &'static str,
        registrar: Registrar,
    ) -> Self {
        let memory = Arc::new(MrTable::new(&Config {
            mr_mode: info.domain.mr_mode,
            key_size: info.domain.mr_key_size.clamp(1, 8),
            job,
            registrar,
            publisher: own.publisher(),
            target: mr_target,
        }));
        let is_auto = info.domain.data_progress == FI_PROGRESS_AUTO
            || info.domain.control_progress == FI_PROGRESS_AUTO;
        let progress = match is_auto {
            true => FI_PROGRESS_AUTO,
            false => FI_PROGRESS_MANUAL,
        };
        // Whoever has a counter of a region drives all lanes, and whoever reads an event
        // queue those whose connections it tells of.
        let is_connected = info.ep.ep_type == FI_EP_MSG;
        let may_meet = info.caps & FI_RMA_EVENT != 0 || is_connected;
        let threading = match info.domain.threading {
            FI_THREAD_COMPLETION if may_meet => FI_THREAD_SAFE,
            // An event queue belongs to the fabric: the threads that read it need not be
            // the one that has the domain.
            FI_THREAD_DOMAIN if is_connected => FI_THREAD_SAFE,
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

    /// `-FI_EOPBADSTATE` in a child of the process that opened it.
    pub(super) fn check_process(&self) -> Result {
        let is_current = self.process.is_current();
        is_current.then_some(()).ok_or(Errno::EOPBADSTATE)
    }

    /// The lane for an endpoint or a receive context that shares none by what it
    /// is bound to.
    ///
    /// # Errors
    /// Those of [`Provider::lane`].
    pub(super) fn lane(&self) -> Result<Arc<Lane<P::Core>>> {
        self.new_lane(self.lane_lock)
    }

    /// [`Domain::lane`] for an endpoint that is bound so.
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
            lane.drive_automatically()?;
        }
        self.lanes.add(&lane)?;
        Ok(lane)
    }

    /// A lane that only the owner of its receives drives.
    ///
    /// # Errors
    /// Those of [`Provider::lane`].
    fn lane_for_owner(&self) -> Result<Arc<Lane<P::Core>>> {
        let lane = self.own.lane(&self.memory, self.lane_lock)?;
        lane.help(&self.helper);
        Ok(lane)
    }

    /// The lane for an endpoint that is bound so and shares it with others: that
    /// of its receive context, or of its completion queue for receives or else
    /// transmits.
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
    type Fabric = P::Fabric;
    type Endpoint = SoftEndpoint<P>;
    type SharedReceive = SoftSharedReceive<P>;

    const LOG_TARGET: &'static str = P::LOG.domain;

    fn lock(&self) -> LockKind {
        self.queue_lock
    }

    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<SoftEndpoint<P>> {
        SoftEndpoint::open(this, info)
    }

    fn shared_receive(
        this: &Handle<DomainObject<Self>>,
        size: usize,
    ) -> Result<SoftSharedReceive<P>> {
        let size = match size {
            0 => this.own.usual_shared_size(),
            size => size,
        };
        Ok(SoftSharedReceive::new(this.lane()?, size))
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

    fn progress(&self) -> Option<Arc<dyn Progress>> {
        match self.can_meet {
            true => Some(self.lanes.clone()),
            false => None,
        }
    }

    fn address_format(&self, addr_format: u32) -> Option<Format> {
        P::address_format(addr_format)
    }

    fn atomics(&self) -> Offered {
        P::ATOMICS
    }
}

/// All lanes of a domain: what a counter drives that counts accesses of peers to
/// memory, whichever endpoint they come to.
struct Lanes<C: Core> {
    state: Mutex<LanesState<C>>,
}

struct LanesState<C: Core> {
    list: Vec<Weak<Lane<C>>>,
    /// Readable when a lane's descriptor is; made when it is first asked for.
    poller: Option<OwnedFd>,
}

impl<C: Core> Default for Lanes<C> {
    fn default() -> Self {
        Lanes {
            state: Mutex::new(LanesState {
                list: Vec::new(),
                poller: None,
            }),
        }
    }
}

impl<C: Core> Lanes<C> {
    fn state(&self) -> MutexGuard<'_, LanesState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, lane: &Arc<Lane<C>>) -> Result {
        let mut state = self.state();
        let is_known = |known: &Weak<Lane<C>>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(lane));
        state.list.retain(|lane| lane.strong_count() != 0);
        if !state.list.iter().any(is_known) {
            if let Some(poller) = &state.poller {
                watch(poller, lane)?;
            }
            state.list.push(Arc::downgrade(lane));
        }
        Ok(())
    }

    fn all(&self) -> Vec<Arc<Lane<C>>> {
        self.state().list.iter().filter_map(Weak::upgrade).collect()
    }
}

impl<C: Core> Progress for Lanes<C> {
    fn is_driven(&self) -> bool {
        C::IS_DRIVEN
    }

    fn progress(&self) {
        self.all().iter().for_each(|lane| lane.progress());
    }

    fn wait_fd(&self) -> Option<RawFd> {
        let mut state = self.state();
        if state.poller.is_none() {
            let poller = watch_all(&state.list).inspect_err(|error| {
                warn_again!(target: UTIL.domain, "who waits for all lanes is not woken: {error}");
            });
            state.poller = Some(poller.ok()?);
        }
        state.poller.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn prepare_wait(&self) -> bool {
        self.all().iter().all(|lane| lane.prepare_wait())
    }
}

/// A poller of all lanes.
fn watch_all<C: Core>(lanes: &[Weak<Lane<C>>]) -> Result<OwnedFd> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for lane in lanes.iter().filter_map(Weak::upgrade) {
        watch(&poller, &lane)?;
    }
    Ok(poller)
}

/// Has a poller tell when a lane's has something. The system forgets it with
/// the lane's.
fn watch<C: Core>(poller: &OwnedFd, lane: &Lane<C>) -> Result {
    let core = lane.core();
    let Some(fd) = core.poller() else {
        return Ok(());
    };
    let data = epoll::EventData::new_u64(0);
    epoll::add(poller, fd, data, epoll::EventFlags::IN)?;
    Ok(())
}
