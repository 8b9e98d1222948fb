//! Active endpoints: objects, aliases and control. `binding` contains their bindings, `shared` the
//! shared receive contexts, and `receiver` what both have in common, such as options. The data
//! calls are in `msg`, `tagged`, `rma` and `atomic`, and their tables in `tables`.

mod binding;
mod contexts;
mod control;
mod device;
mod early;
mod offload;
mod operations;
mod pairs;
mod posting;
mod receiver;
pub(super) mod scalable;
mod shared;
pub(super) mod transfer;
mod triggering;

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

pub use operations::Limits;
pub(in crate::ffi) use operations::OperationFlags;
pub(in crate::ffi) use posting::{one_message, transmit};
pub(in crate::ffi) use receiver::{Calls, Receiver, Tables};
pub use shared::SharedReceiveObject;
pub use transfer::{TransferOwner, TransferPeer};
pub(in crate::ffi) use triggering::{Request, counter};

use self::binding::{bound_too_late, lacks_shared};
use self::contexts::Context;
use self::early::EarlyReceives;
use self::offload::{Collectives, WithPeer};
use self::operations::split_direction;
use super::object::{AnyFid, AnyUse, Class, FidRef, Handle, Use};
use super::options::Options;
use crate::endpoint::{Bindings, Endpoint, OptionValue, SharedReceive, Side};
use crate::trigger::Triggers;
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_objects::attr::Info;
use prov_objects::eq::Eq;
use prov_objects::hmem::Hmem;
use prov_objects::progress::Progress;
use prov_objects::request::Receive;

/// The C object of an endpoint: the provider's endpoint, or an alias of it, with the flags of
/// operations that are posted through this object.
pub struct EndpointObject<E: Endpoint> {
    opened: Arc<Opened<E>>,
    /// An alias keeps the original object open, and closes nothing.
    is_alias: bool,
    /// Which context of a scalable endpoint it is; none where it is an endpoint.
    context: Option<Context<E>>,
    /// The capabilities that it was opened with.
    caps: u64,
    limits: Limits,
    /// The process that opened it: a forked child moves no data through inherited endpoints.
    process: Process,
    /// The same, or no process where each data call is to be looked at: its flags (`FI_TRIGGER`), or its
    /// buffers (`FI_HMEM`).
    fast_path: Process,
    /// `inject_size` in bytes.
    pub(super) inject_size: usize,
    /// Flags of transmits.
    pub(super) tx: OperationFlags,
    /// Flags of receives.
    pub(super) rx: OperationFlags,
}

/// The state that an endpoint and its aliases share.
struct Opened<E: Endpoint> {
    endpoint: E,
    /// Whether receives come from a shared context (`FI_SHARED_CONTEXT`).
    shares_receives: bool,
    /// Whether transmits count together with those of other endpoints (`FI_SHARED_CONTEXT`).
    shares_transmits: bool,
    /// Whether it is connected, which its event queue reports.
    is_connected: bool,
    stage: Mutex<Stage<E>>,
    /// Whether receives may be for one sender alone.
    is_directed: bool,
    /// What waits for counters in the domain.
    triggers: Arc<Triggers>,
    /// Memory of devices, of an endpoint with `FI_HMEM`.
    hmem: Option<Arc<Hmem>>,
    /// Whether anything of this endpoint ever has.
    is_triggered: AtomicBool,
    /// What is needed to open a peer for collective operations; `None` for endpoints without such
    /// operations or with their own.
    offload: Option<Offload>,
    /// That peer, once the endpoint is enabled.
    collectives: Mutex<Option<Arc<Collectives>>>,
}

/// What an endpoint's domain has for it.
pub struct Surroundings {
    /// What waits for counters.
    pub triggers: Arc<Triggers>,
    /// Memory of devices.
    pub hmem: Option<Arc<Hmem>>,
}

impl From<Arc<Triggers>> for Surroundings {
    fn from(triggers: Arc<Triggers>) -> Self {
        Surroundings {
            triggers,
            hmem: None,
        }
    }
}

/// The arguments for opening a peer for collective operations.
pub struct Offload {
    pub(super) info: Info,
    pub(super) domain: FidRef,
    pub(super) api_version: u32,
}

/// The stage of an endpoint's life.
enum Stage<E: Endpoint> {
    New(New<E::SharedReceive>),
    /// Reads of the bound objects drive it.
    Enabled(Bindings<E::SharedReceive>, Arc<dyn Progress>),
    Closed,
}

/// An endpoint that is not enabled.
struct New<S: SharedReceive> {
    bindings: Bindings<S>,
    receives: EarlyReceives,
    /// Whether fi_enable(3) was called and waits for the shared receive context.
    is_wanted: bool,
}

/// When an endpoint with shared receives is enabled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Haste {
    /// As soon as its shared context is bound, if it is a connected endpoint, which moves no data
    /// before.
    Patient,
    /// Immediately, because it is about to be connected.
    Prompt,
}

impl<E: Endpoint> EndpointObject<E> {
    /// Creates the object of a new endpoint with these attributes.
    pub fn open(
        endpoint: E,
        info: &Info,
        context: *mut c_void,
        limits: Limits,
        domain: AnyUse,
        offload: Option<Offload>,
        surroundings: impl Into<Surroundings>,
    ) -> Handle<Self> {
        let Surroundings { triggers, hmem } = surroundings.into();
        let process = Process::current();
        let object = EndpointObject {
            opened: Arc::new(Opened {
                endpoint,
                shares_receives: info.ep.rx_ctx_cnt == FI_SHARED_CONTEXT,
                shares_transmits: info.ep.tx_ctx_cnt == FI_SHARED_CONTEXT,
                is_connected: info.ep.ep_type == FI_EP_MSG,
                stage: Mutex::new(Stage::New(New {
                    bindings: Bindings::default(),
                    receives: EarlyReceives::default(),
                    is_wanted: false,
                })),
                is_directed: (info.caps | info.rx.caps) & FI_DIRECTED_RECV != 0,
                triggers,
                hmem: hmem.filter(|_| info.caps & FI_HMEM != 0),
                is_triggered: AtomicBool::new(false),
                offload,
                collectives: Mutex::new(None),
            }),
            is_alias: false,
            context: None,
            caps: info.caps,
            limits,
            process,
            fast_path: fast_path(process, info.caps),
            inject_size: info.tx.inject_size,
            tx: OperationFlags::new(info.tx.op_flags),
            rx: OperationFlags::new(info.rx.op_flags),
        };
        Handle::new(object, context, vec![domain])
    }

    /// Returns the endpoint for connecting or moving data: `-FI_EOPBADSTATE` in a child of the
    /// process that opened it.
    #[inline(always)]
    pub(super) fn to_move(&self) -> Result<&E> {
        match self.process.is_noted() {
            true => Ok(&self.opened.endpoint),
            false => Err(Errno::EOPBADSTATE),
        }
    }

    /// The event queue that is bound.
    pub(super) fn event_queue(&self) -> Option<Use<Eq>> {
        match &*self.stage() {
            Stage::New(new) => new.bindings.eq.clone(),
            Stage::Enabled(bindings, _) => bindings.eq.clone(),
            Stage::Closed => None,
        }
    }

    /// The endpoint, for a data call in which nothing is to be looked at; [`EndpointObject::post_watchfully`] is for the
    /// others.
    #[inline(always)]
    pub(super) fn fast_path(&self) -> Option<&E> {
        match self.fast_path.is_noted() {
            true => Some(&self.opened.endpoint),
            false => None,
        }
    }

    /// Returns whether bindings are checked strictly and event queues are kept: joined groups
    /// report to them.
    fn is_strict(&self) -> bool {
        E::IS_STRICT || self.has_collectives()
    }

    /// The direction of a context of a scalable endpoint.
    pub(super) fn side(&self) -> Option<Side> {
        self.context.as_ref().map(|context| context.side)
    }

    /// Returns whether it was opened for collective operations.
    pub(super) fn has_collectives(&self) -> bool {
        self.caps & FI_COLLECTIVE != 0
    }

    /// Returns the supported atomic operations.
    pub(super) fn atomics(&self) -> Offered {
        self.limits.atomic
    }

    fn stage(&self) -> MutexGuard<'_, Stage<E>> {
        let stage = self.opened.stage.lock();
        stage.unwrap_or_else(PoisonError::into_inner)
    }

    fn alias(this: &Handle<Self>, flags: u64, context: *mut c_void) -> Result<Handle<Self>> {
        let (direction, flags) = split_direction(flags)?;
        this.limits.check_flags(direction, flags)?;
        let (tx, rx) = match direction {
            FI_RECV => (this.tx.default(), flags),
            _ => (flags, this.rx.default()),
        };
        let alias = EndpointObject {
            opened: this.opened.clone(),
            is_alias: true,
            context: this.context.clone(),
            caps: this.caps,
            limits: this.limits,
            process: this.process,
            fast_path: fast_path(this.fast_path, flags),
            inject_size: this.inject_size,
            tx: OperationFlags::alias(&this.tx, tx),
            rx: OperationFlags::alias(&this.rx, rx),
        };
        Ok(Handle::new(alias, context, vec![Use::of(this).any()]))
    }

    /// Implements fi_enable(3). An enabled endpoint stays enabled.
    fn enable(this: &Handle<Self>) -> Result {
        this.to_move()?;
        match &this.context {
            Some(context) => context.enable(this.caps),
            None => Self::enable_in(this, &mut this.stage(), Haste::Patient),
        }
    }

    /// Enables the endpoint before it is connected (fi_cm(3)).
    pub(super) fn enable_to_connect(this: &Handle<Self>) -> Result {
        this.to_move()?;
        Self::enable_in(this, &mut this.stage(), Haste::Prompt)
    }

    fn enable_in(this: &Handle<Self>, stage: &mut Stage<E>, haste: Haste) -> Result {
        let new = match stage {
            Stage::New(new) => new,
            Stage::Enabled(..) => return Ok(()),
            Stage::Closed => return Err(Errno::EOPBADSTATE),
        };
        let opened = &this.opened;
        if opened.shares_transmits && new.bindings.stx.is_none() {
            return Err(lacks_shared("transmit"));
        }
        new.bindings.share_transmits();
        // An endpoint that connects without a queue reports only the connection.
        if let Haste::Patient = haste
            && this.limits.needs_queues
        {
            new.bindings.check(this.caps)?;
        }
        if opened.shares_receives && new.bindings.shared.is_none() {
            match haste {
                _ if !opened.is_connected => return Err(lacks_shared("receive")),
                Haste::Patient => {
                    new.is_wanted = true;
                    return Ok(());
                }
                Haste::Prompt => {}
            }
        }
        let peer = this.open_peer(this.as_c(), &mut new.bindings)?;
        if this.limits.caps & FI_TRIGGER != 0 {
            // Deferred work reports through it.
            new.bindings.transfers.get_or_insert_default();
        }
        new.bindings.share_deferred();
        let mut progress = E::enable(this, &new.bindings)?;
        if let (Some(peer), Some(transfers)) = (peer, &new.bindings.transfers) {
            progress = Arc::new(WithPeer {
                inner: progress,
                transfers: transfers.clone(),
                peer: peer.clone(),
            });
            *opened.collectives() = Some(peer);
        }
        let bindings = std::mem::take(&mut new.bindings);
        let receives = std::mem::take(&mut new.receives);
        let added = bindings.add_source(&progress, opened.is_connected);
        receives.post_all(&bindings, |receive| opened.endpoint.receive(receive));
        *stage = Stage::Enabled(bindings, progress);
        added
    }

    /// `fi_ep_bind`, but for which operations complete with an entry.
    fn bind_to(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        let mut stage = this.stage();
        match &mut *stage {
            Stage::New(new) => {
                new.bindings.bind(other, flags, this.is_strict())?;
                if new.is_wanted {
                    Self::enable_in(this, &mut stage, Haste::Patient)?;
                }
            }
            Stage::Enabled(bindings, progress) => {
                *bindings = Self::rebind(this, bindings, progress, other, flags)?;
            }
            Stage::Closed => return Err(Errno::EOPBADSTATE),
        }
        Ok(())
    }

    /// Implements fi_ep_bind(3) for an enabled endpoint.
    fn rebind(
        this: &Handle<Self>,
        before: &Bindings<E::SharedReceive>,
        progress: &Arc<dyn Progress>,
        other: AnyFid<'_>,
        flags: u64,
    ) -> Result<Bindings<E::SharedReceive>> {
        this.to_move()?;
        let mut after = before.clone();
        after.bind(other, flags, this.is_strict())?;
        after.share_transmits();
        if after.takes_receives_elsewhere(before) {
            if !E::SHARES_LATE {
                return Err(bound_too_late());
            }
            after.share_deferred();
        }
        let is_connected = this.opened.is_connected;
        E::rebind(this, &after)?;
        if let Some(peer) = this.collectives() {
            peer.bind(&after)?;
        }
        let beyond = after.beyond(before);
        let added = beyond.add_source(progress, is_connected);
        if let Err(error) = added.and_then(|()| this.opened.begin_with_reads_of(&beyond)) {
            E::rebind(this, before)?;
            return Err(error);
        }
        before
            .queue_replaced_in(&after)
            .remove_source(progress, is_connected);
        Ok(after)
    }

    /// Handles a receive that the endpoint refuses before it is enabled: it is queued until
    /// fi_enable(3).
    #[cold]
    #[inline(never)]
    fn receive_early(&self, receive: &mut Receive) -> Result {
        let endpoint = &self.opened.endpoint;
        match &mut *self.stage() {
            Stage::New(new) => new.receives.post(receive, endpoint.receive_limit()),
            // Another thread may have enabled it in the meantime.
            Stage::Enabled(..) => endpoint.receive(receive),
            Stage::Closed => Err(Errno::EOPBADSTATE),
        }
    }

    /// Opens the peer for the collective operations of the endpoint, if it has any.
    fn open_peer(
        &self,
        ep: *mut fid_ep,
        bindings: &mut Bindings<E::SharedReceive>,
    ) -> Result<Option<Arc<Collectives>>> {
        let Some(offload) = &self.opened.offload else {
            return Ok(None);
        };
        bindings.transfers = Some(Arc::default());
        let domain = offload.domain.as_ptr().cast();
        // SAFETY: the endpoint is open, and keeps its domain so. It drops the peer when it is closed.
        let peer = unsafe {
            let (info, version) = (&offload.info, offload.api_version);
            Collectives::open(ep, domain, info, version, bindings)
        };
        peer.map(|peer| Some(Arc::new(peer)))
    }

    /// Returns the peer for the endpoint's collective operations.
    pub(in crate::ffi) fn collectives(&self) -> Option<Arc<Collectives>> {
        self.opened.collectives().clone()
    }

    /// The directions in which it has operations, as `fi_ep_bind` has flags for them.
    fn directions(&self) -> u64 {
        let sides = [Side::Transmit, Side::Receive];
        let sides = sides.into_iter().filter(|side| match &self.context {
            Some(context) => context.side == *side,
            None => true,
        });
        sides.fold(0, |all, side| all | side.directions())
    }

    /// The address of the endpoint, or of the scalable endpoint that it is a context of.
    pub(super) fn own_name(&self) -> Result<Vec<u8>> {
        match &self.context {
            Some(context) => context.name(),
            None => self.opened.endpoint.name(),
        }
    }

    /// Returns the flags of operations in a direction.
    fn operation_flags(&self, direction: u64) -> &OperationFlags {
        match direction {
            FI_RECV => &self.rx,
            _ => &self.tx,
        }
    }
}

/// The process in which data calls are not looked at, for these capabilities or flags of an object.
fn fast_path(process: Process, flags: u64) -> Process {
    match flags & (FI_TRIGGER | FI_HMEM) {
        0 => process,
        _ => Process::NONE,
    }
}

impl<E: Endpoint> Opened<E> {
    fn collectives(&self) -> MutexGuard<'_, Option<Arc<Collectives>>> {
        let peer = self.collectives.lock();
        peer.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Endpoint> std::ops::Deref for EndpointObject<E> {
    type Target = E;

    #[inline(always)]
    fn deref(&self) -> &E {
        &self.opened.endpoint
    }
}

impl<E: Endpoint> Class for EndpointObject<E> {
    type Header = fid_ep;

    fn class(&self) -> usize {
        self.context.as_ref().map_or(FI_CLASS_EP, Context::class)
    }

    fn header(&self, fid: fid) -> fid_ep {
        Calls::header(self, fid, self.limits.caps)
    }

    fn close(this: &Handle<Self>) -> Result {
        if this.is_alias {
            return Ok(());
        }
        this.forget_work();
        if let Some(context) = &this.context {
            return context.close();
        }
        E::close(this)?;
        let stage = std::mem::replace(&mut *this.stage(), Stage::Closed);
        if let Stage::Enabled(bindings, progress) = stage {
            bindings.remove_source(&progress, this.opened.is_connected);
            if let Some(eq) = &bindings.eq {
                eq.forget(this.fid());
            }
        }
        // The peer owns buffers of receives, which have ended.
        this.opened.collectives().take();
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        match &this.context {
            Some(context) => context.bind(other, flags)?,
            None => Self::bind_to(this, other, flags)?,
        }
        if flags & FI_SELECTIVE_COMPLETION != 0 {
            if flags & FI_TRANSMIT != 0 {
                this.tx.select();
            }
            if flags & FI_RECV != 0 {
                this.rx.select();
            }
        }
        Ok(())
    }

    unsafe fn set_ops(this: &Handle<Self>, name: &std::ffi::CStr, ops: *mut c_void) -> Result {
        // SAFETY: the caller guarantees that it is the table of this name.
        unsafe { Calls::set_ops(this, name, ops) }
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_ENABLE => Self::enable(this).map(|()| 0),
            // SAFETY: fi_control(3): the argument of FI_ALIAS is a `struct fi_alias`.
            FI_ALIAS => unsafe {
                control::alias(arg, |flags| Self::alias(this, flags, this.context()))
            },
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let get = |direction| this.operation_flags(direction).default();
                let set = |direction, asked| {
                    this.limits.check_flags(direction, asked)?;
                    if asked & FI_TRIGGER != 0 && this.fast_path != Process::NONE {
                        return Err(Errno::EINVAL);
                    }
                    this.operation_flags(direction).set_default(asked);
                    Ok(())
                };
                // SAFETY: fi_control(3): the argument is a `uint64_t`.
                unsafe { control::operation_flags(command, arg, get, set) }
            }
            FI_GET_FD => {
                if arg.is_null() {
                    return Err(Errno::EINVAL);
                }
                let fd = this.opened.endpoint.descriptor()?;
                // SAFETY: fi_tcp(7): the argument is a place for an `int`.
                unsafe { arg.cast::<c_int>().write(fd) };
                Ok(0)
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl<E: Endpoint> Options for EndpointObject<E> {
    fn option(&self, name: c_int) -> Result<OptionValue> {
        self.opened.endpoint.option(name)
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        self.opened.endpoint.set_option(name, value)
    }
}

impl<E: Endpoint> Receiver for EndpointObject<E> {
    #[inline(always)]
    fn receive_fast(&self, receive: &mut Receive) -> bool {
        self.fast_path.is_noted() && self.opened.endpoint.receive_fast(receive)
    }

    #[inline(always)]
    fn receive(&self, receive: &mut Receive) -> Result {
        let posted = match self.fast_path() {
            Some(endpoint) => endpoint.receive(receive),
            None => {
                self.to_move()?;
                // SAFETY: one is kept: by the endpoint, or by what follows if it refuses.
                self.post_watchfully(Request::Receive(unsafe { receive.duplicate() }))
            }
        };
        match posted {
            Err(Errno::EOPBADSTATE) => self.receive_early(receive),
            posted => posted,
        }
    }

    #[inline(always)]
    fn flags(&self) -> &OperationFlags {
        &self.rx
    }

    fn caps(&self) -> u64 {
        self.caps
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        let endpoint = self.to_move()?;
        if let Stage::New(new) = &mut *self.stage() {
            return new.receives.cancel(context, &new.bindings);
        }
        if self.cancel_triggered(context) {
            return Ok(());
        }
        if let Some(peer) = self.collectives() {
            peer.cancel(context);
        }
        let is_on = |side| self.context.as_ref().is_none_or(|of| of.is_on(side));
        let received = match is_on(Side::Receive) {
            true => endpoint.cancel(context),
            false => Err(Errno::ENOENT),
        };
        match received {
            Err(Errno::ENOENT) if is_on(Side::Transmit) => endpoint.take_back(context),
            received => received,
        }
    }

    fn room(&self) -> (Result<usize>, Result<usize>) {
        let endpoint = &self.opened.endpoint;
        (endpoint.transmit_room(), endpoint.receive_room())
    }
}
