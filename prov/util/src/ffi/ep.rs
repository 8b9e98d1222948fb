//! Active endpoints and shared receive contexts: objects, aliases, binding,
//! control and options. The data calls are in `msg`, `tagged`, `rma` and
//! `atomic`.

pub(super) mod transfer;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

pub use transfer::{TransferOwner, TransferPeer};

use super::object::{AnyFid, AnyUse, Class, Handle, Use};
use super::{atomic, cm, count, missing, msg, options, posted, rma, status, tagged};
use crate::attr::{self, Info, Offers};
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::domain::AtomicFilter;
use crate::endpoint::{Bindings, Endpoint, OptionValue, SharedReceive};
use crate::eq::Eq;
use crate::errno::{Errno, Result};
use crate::progress::Progress;
use crate::request::Receive;

/// An endpoint as C sees it: the provider's endpoint, or one of the aliases of
/// it, with the flags of operations posted through this object.
pub struct EndpointObject<E: Endpoint> {
    opened: Arc<Opened<E>>,
    /// An alias keeps the object it was made from open and closes nothing.
    is_alias: bool,
    caps: Caps,
    limits: Limits,
    /// Bytes that an inject call takes.
    pub(super) inject_size: usize,
    /// Flags of transmits.
    pub(super) tx: OperationFlags,
    /// Flags of receives.
    pub(super) rx: OperationFlags,
}

/// What an endpoint and its aliases share.
struct Opened<E: Endpoint> {
    endpoint: E,
    /// Whether receives are to come from a shared context
    /// (`FI_SHARED_CONTEXT`).
    shares_receives: bool,
    stage: Mutex<Stage<E>>,
}

/// How far an endpoint has come.
enum Stage<E: Endpoint> {
    /// It can be bound.
    New(Bindings<E::SharedReceive>),
    /// It is bound, and driven by reads of what it is bound to.
    Enabled(Bindings<E::SharedReceive>, Arc<dyn Progress>),
    Closed,
}

/// What a provider sets bounds to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest atomic operation, in bytes; 0 where there are none.
    atomic: usize,
    /// The atomic operations that there are.
    atomics: AtomicFilter,
    /// The capabilities that an endpoint can have.
    caps: u64,
    /// The default flags that transmits may have.
    tx_flags: u64,
    /// The default flags that receives may have.
    rx_flags: u64,
}

impl Limits {
    /// Those of an endpoint with these attributes, in a domain with atomic
    /// operations of up to `atomic` bytes.
    pub(super) fn of(offers: &Offers, info: &Info, atomic: usize, atomics: AtomicFilter) -> Self {
        let (tx_flags, rx_flags) = offers.op_flags(info.ep.ep_type);
        Limits {
            atomic,
            atomics,
            caps: offers.caps(),
            tx_flags,
            rx_flags,
        }
    }

    /// `-FI_EINVAL` for `flags` of operations in this direction
    /// (`FI_TRANSMIT`, `FI_RECV`) that mean nothing there.
    fn check_flags(&self, direction: u64, flags: u64) -> Result {
        let known = match direction {
            FI_RECV => self.rx_flags,
            _ => self.tx_flags,
        };
        match flags & !known {
            0 => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The capabilities of an endpoint, which decide on its tables: what is not
/// among them is `-FI_ENOSYS`, at no cost to the rest.
#[derive(Clone, Copy)]
pub(super) struct Caps {
    tx: u64,
    rx: u64,
}

impl Caps {
    /// Whether messages of this kind (`FI_MSG`, `FI_TAGGED`) may be sent.
    pub fn sends(self, kind: u64) -> bool {
        self.tx & (kind | FI_SEND) == kind | FI_SEND
    }

    /// Whether messages of this kind may be received.
    pub fn receives(self, kind: u64) -> bool {
        self.rx & (kind | FI_RECV) == kind | FI_RECV
    }

    /// Whether a receive of tagged messages may take several.
    pub fn takes_several_tagged(self) -> bool {
        self.rx & FI_TAGGED_MULTI_RECV != 0
    }

    /// Whether the remote memory access of this kind (`FI_RMA`, `FI_ATOMIC`)
    /// that brings something back may be posted.
    pub fn reads(self, kind: u64) -> bool {
        self.tx & (kind | FI_READ) == kind | FI_READ
    }

    /// Whether the other kind of access may be posted.
    pub fn writes(self, kind: u64) -> bool {
        self.tx & (kind | FI_WRITE) == kind | FI_WRITE
    }
}

/// The flags that operations of one direction get besides their own.
pub(super) struct OperationFlags {
    /// The default flags that the object was opened with.
    opened_with: u64,
    /// For calls without a flags argument: the default flags, and
    /// `FI_COMPLETION` where every operation is reported.
    plain: AtomicU64,
    /// For calls with a flags argument: `FI_COMPLETION` where every operation
    /// is reported, else nothing.
    msg: AtomicU64,
}

impl OperationFlags {
    /// With these default flags, every operation being reported.
    fn new(default: u64) -> Self {
        OperationFlags {
            opened_with: default,
            plain: AtomicU64::new(default | FI_COMPLETION),
            msg: AtomicU64::new(FI_COMPLETION),
        }
    }

    /// The same, but reported as `of` is.
    fn alias(of: &Self, default: u64) -> Self {
        let completion = of.msg.load(Ordering::Relaxed);
        OperationFlags {
            opened_with: default,
            plain: AtomicU64::new(default | completion),
            msg: AtomicU64::new(completion),
        }
    }

    /// Only operations with `FI_COMPLETION` are reported from now on; plain
    /// calls if the default flags hold it.
    fn select(&self) {
        self.plain.store(self.opened_with, Ordering::Relaxed);
        self.msg.store(0, Ordering::Relaxed);
    }

    fn set_default(&self, default: u64) {
        let completion = self.msg.load(Ordering::Relaxed);
        self.plain.store(default | completion, Ordering::Relaxed);
    }

    fn default(&self) -> u64 {
        self.plain.load(Ordering::Relaxed)
    }

    /// Flags of a call without a flags argument.
    #[inline(always)]
    pub(super) fn plain(&self) -> u64 {
        self.plain.load(Ordering::Relaxed)
    }

    /// Flags of a call that brought `flags`.
    #[inline(always)]
    pub(super) fn with(&self, flags: u64) -> u64 {
        self.msg.load(Ordering::Relaxed) | flags
    }

    /// Flags of an inject call: reported never.
    #[inline(always)]
    pub(super) fn inject(&self) -> u64 {
        (self.plain.load(Ordering::Relaxed) & !FI_COMPLETION) | FI_INJECT
    }
}

impl<E: Endpoint> EndpointObject<E> {
    /// The object of a new endpoint with these attributes.
    pub fn open(
        endpoint: E,
        info: &Info,
        context: *mut c_void,
        limits: Limits,
        domain: AnyUse,
    ) -> Handle<Self> {
        let object = EndpointObject {
            opened: Arc::new(Opened {
                endpoint,
                shares_receives: info.ep.rx_ctx_cnt == FI_SHARED_CONTEXT,
                stage: Mutex::new(Stage::New(Bindings::default())),
            }),
            is_alias: false,
            caps: Caps {
                tx: info.tx_caps() & limits.caps,
                rx: info.rx_caps() & limits.caps,
            },
            limits,
            inject_size: info.tx.inject_size,
            tx: OperationFlags::new(info.tx.op_flags),
            rx: OperationFlags::new(info.rx.op_flags),
        };
        Handle::new(object, context, vec![domain])
    }

    /// The largest atomic operation, in bytes; 0 where there are none.
    pub(super) fn atomic_limit(&self) -> usize {
        self.limits.atomic
    }

    /// Whether there is such an atomic operation.
    pub(super) fn has_atomic(&self, datatype: fi_datatype, op: fi_op, flags: u64) -> bool {
        (self.limits.atomics)(datatype, op, flags)
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
            caps: this.caps,
            limits: this.limits,
            inject_size: this.inject_size,
            tx: OperationFlags::alias(&this.tx, tx),
            rx: OperationFlags::alias(&this.rx, rx),
        };
        Ok(Handle::new(alias, context, vec![Use::of(this).any()]))
    }

    /// `fi_enable`, and what connecting does first (fi_cm(3)). Once enabled, an
    /// endpoint stays so.
    pub(super) fn enable(this: &Handle<Self>) -> Result {
        let mut stage = this.stage();
        let bindings = match &mut *stage {
            Stage::New(bindings) => bindings,
            Stage::Enabled(..) => return Ok(()),
            Stage::Closed => return Err(Errno::EOPBADSTATE),
        };
        bindings.check(this.caps, this.opened.shares_receives)?;
        let progress = E::enable(this, bindings)?;
        let bindings = std::mem::take(bindings);
        let added = bindings.add_source(&progress);
        *stage = Stage::Enabled(bindings, progress);
        added
    }

    /// The flags of operations in a direction.
    fn operation_flags(&self, direction: u64) -> &OperationFlags {
        match direction {
            FI_RECV => &self.rx,
            _ => &self.tx,
        }
    }
}

/// The direction that operation flags are for, `FI_TRANSMIT` or `FI_RECV`, and
/// the flags without it; `-FI_EINVAL` for none and for both.
fn split_direction(flags: u64) -> Result<(u64, u64)> {
    const BOTH: u64 = FI_TRANSMIT | FI_RECV;
    match flags & BOTH {
        direction @ (FI_TRANSMIT | FI_RECV) => Ok((direction, flags & !BOTH)),
        _ => Err(Errno::EINVAL),
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
        FI_CLASS_EP
    }

    fn header(&self, fid: fid) -> fid_ep {
        fid_ep {
            fid,
            ops: Tables::<Self>::EP.cast_mut(),
            cm: cm::active::<E>().cast_mut(),
            msg: msg::table::<E>(self.caps).cast_mut(),
            rma: rma::table::<E>(self.caps).cast_mut(),
            tagged: tagged::table::<E>(self.caps).cast_mut(),
            atomic: atomic::table::<E>(self.caps).cast_mut(),
            collective: (&raw const missing::COLLECTIVE).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        if this.is_alias {
            return Ok(());
        }
        E::close(this)?;
        let stage = std::mem::replace(&mut *this.stage(), Stage::Closed);
        if let Stage::Enabled(bindings, progress) = stage {
            bindings.remove_source(&progress, this.fid());
        }
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid, flags: u64) -> Result {
        let mut stage = this.stage();
        let Stage::New(bindings) = &mut *stage else {
            return Err(Errno::EOPBADSTATE);
        };
        bindings.bind(other, flags)?;
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

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_ENABLE => Self::enable(this).map(|()| 0),
            FI_ALIAS => {
                // SAFETY: fi_control(3): the argument of FI_ALIAS is a
                // `struct fi_alias`, whose `fid` is a place for a pointer.
                unsafe {
                    let request = arg.cast::<fi_alias>().as_ref().ok_or(Errno::EINVAL)?;
                    if request.fid.is_null() {
                        return Err(Errno::EINVAL);
                    }
                    let alias = Self::alias(this, request.flags, this.context())?;
                    request.fid.write(alias.into_c().cast());
                }
                Ok(0)
            }
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                // SAFETY: fi_control(3): the argument is a `uint64_t`.
                let flags = unsafe { arg.cast::<u64>().as_mut() }.ok_or(Errno::EINVAL)?;
                let (direction, asked) = split_direction(*flags)?;
                let ours = this.operation_flags(direction);
                if command == FI_SETOPSFLAG {
                    this.limits.check_flags(direction, asked)?;
                    ours.set_default(asked);
                } else {
                    *flags = ours.default();
                }
                Ok(0)
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

/// A shared receive context as C sees it.
pub struct SharedReceiveObject<S: SharedReceive> {
    context: S,
    caps: Caps,
    rx: OperationFlags,
    bound: Mutex<SharedBindings>,
}

#[derive(Default)]
struct SharedBindings {
    cq: Option<Use<Cq>>,
    cntr: Option<Use<Cntr>>,
}

impl<S: SharedReceive> SharedReceiveObject<S> {
    /// The object of a new context with these capabilities and default flags,
    /// for [`Handle::new`].
    pub fn new(context: S, caps: u64, op_flags: u64) -> Self {
        let caps = Caps {
            tx: 0,
            rx: attr::context_caps(caps),
        };
        Self::with_caps(context, caps, op_flags)
    }

    fn bound(&self) -> MutexGuard<'_, SharedBindings> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of a context whose receives another provider has: none can be
    /// posted here (fi_peer(3)).
    pub(super) fn of_peer(context: S) -> Self {
        Self::with_caps(context, Caps { tx: 0, rx: 0 }, 0)
    }

    fn with_caps(context: S, caps: Caps, op_flags: u64) -> Self {
        SharedReceiveObject {
            context,
            caps,
            rx: OperationFlags::new(op_flags),
            bound: Mutex::default(),
        }
    }
}

impl<S: SharedReceive> std::ops::Deref for SharedReceiveObject<S> {
    type Target = S;

    #[inline(always)]
    fn deref(&self) -> &S {
        &self.context
    }
}

impl<S: SharedReceive> Class for SharedReceiveObject<S> {
    type Header = fid_ep;

    fn class(&self) -> usize {
        FI_CLASS_SRX_CTX
    }

    fn header(&self, fid: fid) -> fid_ep {
        fid_ep {
            fid,
            ops: Tables::<Self>::EP.cast_mut(),
            cm: (&raw const missing::CM).cast_mut(),
            msg: msg::receive_table::<Self>(self.caps.receives(FI_MSG)).cast_mut(),
            rma: (&raw const missing::RMA).cast_mut(),
            tagged: tagged::receive_table::<Self>(self.caps.receives(FI_TAGGED)).cast_mut(),
            atomic: (&raw const missing::ATOMIC).cast_mut(),
            collective: (&raw const missing::COLLECTIVE).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        S::close(this)?;
        let bound = std::mem::take(&mut *this.bound());
        let progress = this.context.progress();
        if let Some(cq) = bound.cq {
            cq.remove_source(&progress);
        }
        if let Some(cntr) = bound.cntr {
            cntr.remove_source(&progress);
        }
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid, flags: u64) -> Result {
        let mut bound = this.bound();
        let progress = this.context.progress();
        if let Some(cq) = other.downcast::<Cq>() {
            check_flags(flags, FI_RECV, FI_SELECTIVE_COMPLETION)?;
            let cq = Use::of(&cq);
            occupy(&mut bound.cq, &cq)?;
            cq.add_source(progress)?;
            if flags & FI_SELECTIVE_COMPLETION != 0 {
                this.rx.select();
            }
        } else if let Some(cntr) = other.downcast::<Cntr>() {
            check_flags(flags, FI_RECV, 0)?;
            let cntr = Use::of(&cntr);
            occupy(&mut bound.cntr, &cntr)?;
            cntr.add_source(progress)?;
        } else {
            return Err(Errno::EINVAL);
        }
        S::bind(&this.context, bound.cq.clone(), bound.cntr.clone())
    }

    unsafe fn control(_: &Handle<Self>, command: c_int, _: *mut c_void) -> Result<c_int> {
        match command {
            // A shared context is ready as soon as it is open.
            FI_ENABLE => Ok(0),
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl<S: SharedReceive> Bindings<S> {
    /// Adds an object of a call to `fi_ep_bind`.
    fn bind(&mut self, other: AnyFid, flags: u64) -> Result {
        if let Some(cq) = other.downcast::<Cq>() {
            check_flags(flags, FI_TRANSMIT | FI_RECV, FI_SELECTIVE_COMPLETION)?;
            let cq = Use::of(&cq);
            let wants = |flag| flags & flag != 0;
            // One queue for each direction (fi_endpoint(3)).
            if wants(FI_TRANSMIT) && self.tx_cq.is_some() || wants(FI_RECV) && self.rx_cq.is_some()
            {
                return Err(Errno::EINVAL);
            }
            if wants(FI_TRANSMIT) {
                self.tx_cq = Some(cq.clone());
            }
            if wants(FI_RECV) {
                self.rx_cq = Some(cq);
            }
            Ok(())
        } else if let Some(cntr) = other.downcast::<Cntr>() {
            let mut places = self.counters.places();
            let all = places.iter().fold(0, |all, (flag, _)| all | flag);
            check_flags(flags, all, 0)?;
            let mut wanted = places.iter().filter(|(flag, _)| flags & flag != 0);
            if wanted.any(|(_, place)| place.is_some()) {
                return Err(Errno::EINVAL);
            }
            for (flag, place) in &mut places {
                if flags & *flag != 0 {
                    **place = Some(Use::of(&cntr));
                }
            }
            Ok(())
        } else {
            check_flags(flags, 0, 0)?;
            if let Some(av) = other.downcast::<Av>() {
                occupy(&mut self.av, &Use::of(&av))
            } else if let Some(eq) = other.downcast::<Eq>() {
                occupy(&mut self.eq, &Use::of(&eq))
            } else {
                let shared = other.expect::<SharedReceiveObject<S>>()?;
                occupy(&mut self.shared, &Use::of(&shared))
            }
        }
    }

    /// `-FI_ENOCQ` unless there is a queue for each direction in which operations
    /// will complete: counters come on top of it. `-FI_EOPBADSTATE` without the
    /// shared context that receives are to come from.
    fn check(&self, caps: Caps, shares_receives: bool) -> Result {
        let sends = caps.tx & (FI_SEND | FI_READ | FI_WRITE) != 0;
        let receives = caps.rx & FI_RECV != 0;
        if sends && self.tx_cq.is_none() || receives && self.rx_cq.is_none() {
            return Err(Errno::ENOCQ);
        }
        if shares_receives && self.shared.is_none() {
            return Err(Errno::EOPBADSTATE);
        }
        Ok(())
    }

    /// Has what is bound drive `progress`.
    fn add_source(&self, progress: &Arc<dyn Progress>) -> Result {
        for cq in self.cqs() {
            cq.add_source(for_completions(progress, cq))?;
        }
        for cntr in self.counters.iter() {
            cntr.add_source(progress.clone())?;
        }
        match &self.eq {
            Some(eq) => eq.add_source(for_events(progress)),
            None => Ok(()),
        }
    }

    /// Takes back [`Bindings::add_source`], and the events about `fid`.
    fn remove_source(&self, progress: &Arc<dyn Progress>, fid: *mut fid) {
        for cq in self.cqs() {
            cq.remove_source(&for_completions(progress, cq));
        }
        for cntr in self.counters.iter() {
            cntr.remove_source(progress);
        }
        if let Some(eq) = &self.eq {
            eq.remove_source(&for_events(progress));
            eq.forget(fid);
        }
    }

    fn cqs(&self) -> impl Iterator<Item = &Use<Cq>> {
        self.tx_cq.iter().chain(&self.rx_cq)
    }
}

/// `-FI_EBADFLAGS` unless `flags` has one of `needed`, if there are any, and
/// besides them none but `allowed`.
fn check_flags(flags: u64, needed: u64, allowed: u64) -> Result {
    if flags & !(needed | allowed) != 0 || needed != 0 && flags & needed == 0 {
        return Err(Errno::EBADFLAGS);
    }
    Ok(())
}

/// Fills a place for one object; `-FI_EINVAL` where there is one already.
fn occupy<T: Class>(place: &mut Option<Use<T>>, object: &Use<T>) -> Result {
    if place.is_some() {
        return Err(Errno::EINVAL);
    }
    *place = Some(object.clone());
    Ok(())
}

fn for_completions(progress: &Arc<dyn Progress>, cq: &Cq) -> Arc<dyn Progress> {
    let own = progress.for_completions(cq);
    own.unwrap_or_else(|| progress.clone())
}

fn for_events(progress: &Arc<dyn Progress>) -> Arc<dyn Progress> {
    progress.for_events().unwrap_or_else(|| progress.clone())
}

/// What posts receives: an endpoint or a shared receive context.
pub(super) trait Receiver: Class<Header = fid_ep> {
    fn receive(&self, receive: &Receive) -> Result;
    fn flags(&self) -> &OperationFlags;
    fn caps(&self) -> Caps;
    fn cancel(&self, context: *mut c_void) -> Result;
    fn option(&self, name: c_int) -> Result<OptionValue>;
    fn set_option(&self, name: c_int, value: OptionValue) -> Result;
    fn room(&self) -> (Result<usize>, Result<usize>);
}

impl<E: Endpoint> Receiver for EndpointObject<E> {
    #[inline(always)]
    fn receive(&self, receive: &Receive) -> Result {
        self.opened.endpoint.receive(receive)
    }

    #[inline(always)]
    fn flags(&self) -> &OperationFlags {
        &self.rx
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.opened.endpoint.cancel(context)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        self.opened.endpoint.option(name)
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        self.opened.endpoint.set_option(name, value)
    }

    fn room(&self) -> (Result<usize>, Result<usize>) {
        let endpoint = &self.opened.endpoint;
        (endpoint.transmit_room(), endpoint.receive_room())
    }
}

impl<S: SharedReceive> Receiver for SharedReceiveObject<S> {
    #[inline(always)]
    fn receive(&self, receive: &Receive) -> Result {
        self.context.receive(receive)
    }

    #[inline(always)]
    fn flags(&self) -> &OperationFlags {
        &self.rx
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.context.cancel(context)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        self.context.option(name)
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        self.context.set_option(name, value)
    }

    fn room(&self) -> (Result<usize>, Result<usize>) {
        (Err(Errno::ENOSYS), Err(Errno::ENOSYS))
    }
}

struct Tables<R>(std::marker::PhantomData<R>);

impl<R: Receiver> Tables<R> {
    const EP: *const fi_ops_ep = &fi_ops_ep {
        size: size_of::<fi_ops_ep>(),
        cancel: Some(cancel::<R>),
        getopt: Some(getopt::<R>),
        setopt: Some(setopt::<R>),
        tx_ctx: missing::slot(),
        rx_ctx: missing::slot(),
        rx_size_left: Some(rx_size_left::<R>),
        tx_size_left: Some(tx_size_left::<R>),
        export_xpu: missing::slot(),
    };
}

unsafe extern "C" fn cancel<R: Receiver>(fid: fid_t, context: *mut c_void) -> isize {
    // SAFETY: the table belongs to objects of `R`.
    posted(unsafe { Handle::<R>::borrow(fid.cast()) }.cancel(context))
}

unsafe extern "C" fn getopt<R: Receiver>(
    fid: fid_t,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: as in `cancel`; `value` has room for `*length` bytes.
    status(unsafe {
        options::get(level, value, length, || {
            Handle::<R>::borrow(fid.cast()).option(name)
        })
    })
}

unsafe extern "C" fn setopt<R: Receiver>(
    fid: fid_t,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: as in `cancel`; `value` points to `length` bytes.
    status(unsafe {
        options::decode(level, name, value, length)
            .and_then(|value| Handle::<R>::borrow(fid.cast()).set_option(name, value))
    })
}

unsafe extern "C" fn rx_size_left<R: Receiver>(ep: *mut fid_ep) -> isize {
    // SAFETY: as in `cancel`.
    count(unsafe { Handle::<R>::borrow(ep) }.room().1)
}

unsafe extern "C" fn tx_size_left<R: Receiver>(ep: *mut fid_ep) -> isize {
    // SAFETY: as in `cancel`.
    count(unsafe { Handle::<R>::borrow(ep) }.room().0)
}
