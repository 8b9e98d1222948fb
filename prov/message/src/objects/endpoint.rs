//! fi_endpoint(3): an endpoint, and its state in a lane.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fabric_abi::{
    FI_DIRECTED_RECV, FI_OPT_CUDA_API_PERMITTED, FI_OPT_FI_HMEM_P2P, FI_OPT_MIN_MULTI_RECV,
    fi_addr_t,
};
use prov_base::errno::{Errno, Result};
use prov_util::attr::Info;
use prov_util::av::InsertObserver;
use prov_util::endpoint::{self, Bindings, Multicast, OptionValue, Side};
use prov_util::ffi::domain::DomainObject;
use prov_util::ffi::ends::PeerEnds;
use prov_util::ffi::ep::EndpointObject;
use prov_util::ffi::srx::ImportedSrx;
use prov_util::ffi::srx::StartReceives;
use prov_util::ffi::{FidRef, Handle};
use prov_util::hmem;
use prov_util::progress::Progress;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};

use super::shared_receive::Backing;
use super::{Domain, Provider, SoftSharedReceive};
use crate::endpoints::transport::Transport;
use crate::endpoints::{Attributes, Endpoints};
use crate::lane::imported_srx::{Importing, OwnerDrives};
use crate::lane::{Core, Lane};
use crate::operation::Context;
use crate::operation::EpKey;
use crate::receive_limit::receive_limit;
use crate::reports::Reports;

/// See the [module](self) description.
pub struct SoftEndpoint<P: Provider> {
    domain: Handle<DomainObject<Domain<P>>>,
    attributes: Attributes,
    /// Whether it has a lane of its own.
    is_alone: bool,
    /// Whether its two sides are contexts of a scalable endpoint, which threads of their own
    /// may have.
    is_pair: bool,
    /// Its lane and key, once it is enabled.
    place: OnceLock<Seat<P>>,
    setup: Mutex<P::Setup>,
    /// The callbacks for the owner of its receives, if those belong to another provider.
    importing: OnceLock<Arc<Importing<P::Core>>>,
    min_multi_recv: Mutex<Option<usize>>,
}

/// An enabled endpoint's lane and key.
pub struct Seat<P: Provider> {
    /// The lane.
    pub lane: Arc<Lane<P::Core>>,
    /// The endpoint's key in the lane.
    pub key: EpKey,
}

/// The arguments of a provider's part in enabling an endpoint.
pub struct Enabling<'a, P: Provider> {
    /// The domain.
    pub domain: &'a Domain<P>,
    /// The `fid` with which events name the endpoint.
    pub endpoint: FidRef,
    /// The objects that the application has bound.
    pub bindings: &'a Bindings<SoftSharedReceive<P>>,
}

impl<P: Provider> SoftEndpoint<P> {
    /// Opens an endpoint with these attributes.
    ///
    /// # Errors
    /// Those of [`Provider::open`].
    pub(super) fn open(domain: &Handle<DomainObject<Domain<P>>>, info: &Info) -> Result<Self> {
        // A key size without a key is an error, whether or not keys are supported.
        info.ep.authorization()?;
        let setup = P::open(domain, info)?;
        Ok(Self::with_setup(domain, info, setup, false))
    }

    /// The pairs of contexts of a scalable endpoint with these attributes.
    ///
    /// # Errors
    /// Those of [`Provider::open_contexts`].
    pub(super) fn open_pairs(
        domain: &Handle<DomainObject<Domain<P>>>,
        info: &Info,
        pairs: usize,
    ) -> Result<Vec<Self>> {
        info.ep.authorization()?;
        let setups = P::open_contexts(domain, info, pairs)?.into_iter();
        let open = |setup| Self::with_setup(domain, info, setup, true);
        Ok(setups.map(open).collect())
    }

    fn with_setup(
        domain: &Handle<DomainObject<Domain<P>>>,
        info: &Info,
        setup: P::Setup,
        is_pair: bool,
    ) -> Self {
        let own = &domain.own;
        SoftEndpoint {
            attributes: Attributes {
                tx_size: match info.tx.size {
                    0 => own.usual_tx_size(info),
                    size => size,
                },
                most_receives: receive_limit(info.rx.size),
                directed: (info.caps | info.rx.caps) & FI_DIRECTED_RECV != 0,
                job: P::job(domain, &setup),
            },
            is_alone: P::is_alone(info),
            is_pair,
            place: OnceLock::new(),
            setup: Mutex::new(setup),
            importing: OnceLock::new(),
            min_multi_recv: Mutex::new(None),
            domain: domain.clone(),
        }
    }

    /// The provider's data outside the lane.
    pub fn setup(&self) -> MutexGuard<'_, P::Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the domain.
    pub fn domain(&self) -> &Domain<P> {
        &self.domain
    }

    fn min_multi_recv(&self) -> MutexGuard<'_, Option<usize>> {
        let bytes = self.min_multi_recv.lock();
        bytes.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the endpoint use the receives of another provider.
    fn import(
        &self,
        endpoints: &mut Endpoints<<P::Core as Core>::Transport>,
        owner: ImportedSrx,
        lane: &Arc<Lane<P::Core>>,
        key: EpKey,
        bindings: &Bindings<SoftSharedReceive<P>>,
    ) -> Result {
        let importing = self.importing.get_or_init(|| Importing::new(lane, key));
        let home: Arc<dyn StartReceives> = importing.clone();
        endpoints.import_receives(key, owner, Arc::downgrade(&home))?;
        if let Some(av) = &bindings.av {
            let observer: Arc<dyn InsertObserver> = importing.clone();
            av.observe_insertions(Arc::downgrade(&observer));
        }
        Ok(())
    }

    /// Returns whether its messages may take the receives of a shared context: their completions
    /// are reported. A receive context of a scalable endpoint may be opened, and closed, after the
    /// transmit context of its index is enabled.
    fn takes_receives(&self, bindings: &Bindings<SoftSharedReceive<P>>) -> bool {
        !self.is_pair || bindings.report(Side::Receive)
    }

    /// Returns its lane and key; `None` until it is enabled.
    pub fn seat(&self) -> Option<&Seat<P>> {
        self.place.get()
    }

    /// Returns its lane and key; `-FI_EOPBADSTATE` until it is enabled.
    #[inline(always)]
    pub fn seated(&self) -> Result<&Seat<P>> {
        self.place.get().ok_or(Errno::EOPBADSTATE)
    }
}

impl<P: Provider> endpoint::Endpoint for SoftEndpoint<P> {
    type SharedReceive = SoftSharedReceive<P>;

    const IS_STRICT: bool = P::IS_STRICT;
    const SHARES_LATE: bool = P::SHARES_LATE;

    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result<Arc<dyn Progress>> {
        this.domain.check_process()?;
        let own = &this.domain.own;
        let mut setup = this.setup();
        let enabling = Enabling {
            domain: &this.domain,
            endpoint: this.named(),
            bindings,
        };
        let part = own.enable(&mut setup, enabling)?;
        let lane = match this.is_alone && bindings.shared.is_none() {
            true => this.domain.lane_of(bindings)?,
            false => this.domain.shared_lane(bindings)?,
        };
        this.domain.memory.count_all(bindings.counters.remote());
        let backing = bindings.shared.as_ref().map(|shared| shared.backing());
        if this.is_pair && matches!(backing, Some(Backing::Imported(_))) {
            log::warn!(
                target: P::LOG.ep_ctrl,
                "contexts of a scalable endpoint do not have the receives of another provider \
                 (fi_peer(3))"
            );
            return Err(Errno::EINVAL);
        }
        let key = {
            let mut core = lane.core();
            let endpoints = core.endpoints();
            let key = endpoints.add(this.attributes, part);
            if let Some(ep) = endpoints.get_mut(key) {
                ep.reports = Reports::to(bindings);
                if let Some(stx) = &bindings.stx {
                    ep.ledger.share(stx.pool().clone());
                }
                ep.meets_strangers = bindings.av.is_some();
                let inbox = ep.inbox;
                match backing {
                    Some(Backing::Own(shared)) if this.takes_receives(bindings) => {
                        endpoints.share(key, shared)?;
                    }
                    Some(Backing::Own(_)) => {}
                    Some(Backing::Imported(owner)) => {
                        this.import(endpoints, owner, &lane, key, bindings)?;
                    }
                    None => {
                        if let (Some(bytes), Some(inbox)) =
                            (*this.min_multi_recv(), endpoints.inbox_mut(inbox))
                        {
                            inbox.set_min_multi_recv(bytes);
                        }
                    }
                }
            }
            key
        };
        let progress: Arc<dyn Progress> = match backing {
            Some(Backing::Imported(_)) => Arc::new(OwnerDrives(lane.clone())),
            _ => lane.clone(),
        };
        let seat = Seat { lane, key };
        let _ = this.place.set(seat);
        if let Err(error) = own.enabled(&mut setup, this) {
            this.seated()?.lane.core().close(key);
            return Err(error);
        }
        Ok(progress)
    }

    fn rebind(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result {
        let Seat { lane, key } = this.seated()?;
        let own = &this.domain.own;
        let mut setup = this.setup();
        let mut core = lane.core();
        let ep = core.endpoints().get_mut(*key);
        let ep = ep.ok_or(Errno::EOPBADSTATE)?;
        let before = std::mem::replace(&mut ep.reports, Reports::to(bindings));
        if let Some(shared) = &bindings.shared
            && this.takes_receives(bindings)
        {
            drop(core);
            let joined = shared.is_joined_by(lane, *key);
            core = lane.core();
            if let Err(error) = joined {
                if let Some(ep) = core.endpoints().get_mut(*key) {
                    ep.reports = before;
                }
                return Err(error);
            }
        }
        let ep = core.endpoints().get_mut(*key);
        let ep = ep.ok_or(Errno::EOPBADSTATE)?;
        if let Some(stx) = &bindings.stx {
            ep.ledger.share(stx.pool().clone());
        }
        this.domain.memory.count_all(bindings.counters.remote());
        let enabling = Enabling {
            domain: &this.domain,
            endpoint: this.named(),
            bindings,
        };
        own.rebound(&mut setup, &mut ep.own, enabling);
        Ok(())
    }

    fn close_side(
        this: &Handle<EndpointObject<Self>>,
        side: Side,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result {
        if let Some(seat) = this.seat() {
            if side == Side::Transmit {
                seat.lane.linger(seat.key);
            }
            seat.lane.close_side(seat.key, side, Reports::to(bindings));
        }
        Ok(())
    }

    fn receive_limit(&self) -> usize {
        self.attributes.most_receives
    }

    fn close(this: &Handle<EndpointObject<Self>>) -> Result {
        if let Some(seat) = this.seat() {
            seat.lane.linger(seat.key);
            seat.lane.close(seat.key);
            seat.lane.retire_unshared();
        }
        this.domain.own.closed(&mut this.setup());
        Ok(())
    }

    #[inline(always)]
    fn transmit(&self, message: &mut Transmit) -> Result {
        let seat = self.seated()?;
        seat.lane.core().transmit(seat.key, message)
    }

    #[inline(always)]
    fn receive_fast(&self, receive: &mut Receive) -> bool {
        let Some(seat) = self.seat() else {
            return false;
        };
        seat.lane.core().receive_fast(seat.key, receive)
    }

    #[inline]
    fn receive(&self, receive: &mut Receive) -> Result {
        let seat = self.seated()?;
        seat.lane.core().receive(seat.key, receive)
    }

    #[inline]
    fn access(&self, access: &mut RemoteAccess) -> Result {
        let seat = self.seated()?;
        seat.lane.core().access(seat.key, access)
    }

    #[inline]
    fn atomic(&self, atomic: &mut Atomic) -> Result {
        let seat = self.seated()?;
        seat.lane.core().atomic(seat.key, atomic)
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        let seat = self.seated()?;
        let mut core = seat.lane.core();
        let poster = core.endpoints().poster(seat.key)?;
        core.endpoints().cancel(poster, Context::of(context))
    }

    fn take_back(&self, context: *mut c_void) -> Result {
        let seat = self.seated()?;
        seat.lane
            .core()
            .cancel_sending(seat.key, Context::of(context))
    }

    fn name(&self) -> Result<Vec<u8>> {
        P::name(self)
    }

    fn set_name(&self, name: &[u8]) -> Result {
        P::set_name(self, name)
    }

    fn peer_name(&self) -> Result<Vec<u8>> {
        P::peer_name(self)
    }

    fn connect(&self, address: &[u8], data: &[u8]) -> Result {
        P::connect(self, address, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        P::accept(self, data)
    }

    fn descriptor(&self) -> Result<RawFd> {
        P::descriptor(self)
    }

    const HAS_MULTICAST: bool = P::HAS_MULTICAST;

    fn join_multicast(&self, group: &Multicast<'_>) -> Result {
        P::join_multicast(self, group)
    }

    fn leave_multicast(&self, number: fi_addr_t) -> Result {
        P::leave_multicast(self, number)
    }

    fn shutdown(&self) -> Result {
        P::shutdown(self)
    }

    fn tell_ends(&self, ends: PeerEnds) -> Result {
        let seat = self.seated()?;
        seat.lane.core().endpoints().tell_ends(seat.key, ends)
    }

    fn awaits(&self, peer: fi_addr_t, transfers: bool) {
        if let Some(importing) = self.importing.get() {
            importing.awaits(peer, transfers);
        }
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        match name {
            FI_OPT_MIN_MULTI_RECV => {
                let usual = <P::Core as Core>::Transport::MIN_MULTI_RECV;
                Ok(OptionValue::Size(self.min_multi_recv().unwrap_or(usual)))
            }
            _ => match self.domain.own.option(name) {
                Err(Errno::ENOPROTOOPT) => P::endpoint_option(self, name),
                value => value,
            },
        }
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        match (name, value) {
            (FI_OPT_MIN_MULTI_RECV, OptionValue::Size(bytes)) => {
                *self.min_multi_recv() = Some(bytes);
                if let Some(seat) = self.seat() {
                    seat.lane
                        .core()
                        .endpoints()
                        .set_min_multi_recv(seat.key, bytes);
                }
                Ok(())
            }
            (FI_OPT_FI_HMEM_P2P, OptionValue::Int(mode)) if self.domain.memory.hmem().is_some() => {
                hmem::check_p2p(mode)
            }
            (FI_OPT_CUDA_API_PERMITTED, OptionValue::Bool(permitted))
                if self.domain.memory.hmem().is_some() =>
            {
                hmem::check_cuda_calls(permitted)
            }
            (name, value) => P::set_endpoint_option(self, name, value),
        }
    }
}
