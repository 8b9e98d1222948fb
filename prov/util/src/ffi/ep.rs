//! Active endpoints and shared receive contexts: objects, aliases, binding,
//! control and options. The data calls are in `msg`, `tagged`, `rma` and
//! `atomic`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;

use super::object::{AnyFid, AnyUse, Class, Handle, Use};
use super::{atomic, cm, count, missing, msg, options, posted, rma, status, tagged};
use crate::attr::{self, Info};
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::endpoint::{Bound, Endpoint, OptionValue, SharedReceive};
use crate::eq::Eq;
use crate::errno::{Errno, Result};
use crate::request::Receive;

/// An endpoint as C sees it: the provider's endpoint, or one of the aliases of
/// it, with the flags of operations posted through this object.
pub struct EndpointObject<E: Endpoint> {
    endpoint: Arc<E>,
    /// An alias keeps the object it was made from open and closes nothing.
    is_alias: bool,
    caps: Caps,
    /// Flags of transmits.
    pub(super) tx: OperationFlags,
    /// Flags of receives.
    pub(super) rx: OperationFlags,
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
    /// For calls without a flags argument: the default flags, and
    /// `FI_COMPLETION` where every operation is reported.
    plain: AtomicU64,
    /// For calls with a flags argument: `FI_COMPLETION` where every operation
    /// is reported, else nothing.
    msg: AtomicU64,
}

impl OperationFlags {
    fn new(default: u64) -> Self {
        OperationFlags {
            plain: AtomicU64::new(default | FI_COMPLETION),
            msg: AtomicU64::new(FI_COMPLETION),
        }
    }

    /// The same, but reported as `of` is.
    fn alias(of: &Self, default: u64) -> Self {
        let completion = of.msg.load(Ordering::Relaxed);
        OperationFlags {
            plain: AtomicU64::new(default | completion),
            msg: AtomicU64::new(completion),
        }
    }

    /// Only operations with `FI_COMPLETION` are reported from now on; plain
    /// calls when `default` holds it.
    fn select(&self, default: u64) {
        self.plain.store(default, Ordering::Relaxed);
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
    pub fn open(endpoint: E, info: &Info, context: *mut c_void, domain: AnyUse) -> Handle<Self> {
        let (tx, rx) = endpoint.default_flags();
        let object = EndpointObject {
            endpoint: Arc::new(endpoint),
            is_alias: false,
            caps: Caps {
                tx: info.tx_caps(),
                rx: info.rx_caps(),
            },
            tx: OperationFlags::new(tx),
            rx: OperationFlags::new(rx),
        };
        Handle::new(object, context, vec![domain])
    }

    /// The endpoint, shared by its aliases.
    pub fn endpoint(&self) -> &Arc<E> {
        &self.endpoint
    }

    fn alias(this: &Handle<Self>, flags: u64, context: *mut c_void) -> Result<Handle<Self>> {
        if flags & FI_TRANSMIT != 0 && flags & FI_RECV != 0 {
            return Err(Errno::EINVAL);
        }
        let (tx, rx) = (this.tx.default(), this.rx.default());
        let operation_flags = flags & !(FI_TRANSMIT | FI_RECV);
        let (tx, rx) = match flags & (FI_TRANSMIT | FI_RECV) {
            FI_RECV => (tx, operation_flags),
            _ => (operation_flags, rx),
        };
        let alias = EndpointObject {
            endpoint: this.endpoint.clone(),
            is_alias: true,
            caps: this.caps,
            tx: OperationFlags::alias(&this.tx, tx),
            rx: OperationFlags::alias(&this.rx, rx),
        };
        Ok(Handle::new(alias, context, vec![Use::of(this).any()]))
    }

    /// `FI_GETOPSFLAG` and `FI_SETOPSFLAG`: the direction is in the flags.
    fn operation_flags(&self, flags: u64) -> Result<&OperationFlags> {
        match flags & (FI_TRANSMIT | FI_RECV) {
            FI_TRANSMIT => Ok(&self.tx),
            FI_RECV => Ok(&self.rx),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl<E: Endpoint> std::ops::Deref for EndpointObject<E> {
    type Target = E;

    #[inline(always)]
    fn deref(&self) -> &E {
        &self.endpoint
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
        E::close(this)
    }

    fn bind(this: &Handle<Self>, other: AnyFid, flags: u64) -> Result {
        let bound = resolve(other);
        if let Bound::Cq(_) = bound
            && flags & FI_SELECTIVE_COMPLETION != 0
        {
            let (tx, rx) = this.endpoint.default_flags();
            if flags & FI_TRANSMIT != 0 {
                this.tx.select(tx);
            }
            if flags & FI_RECV != 0 {
                this.rx.select(rx);
            }
        }
        E::bind(this, bound, flags)
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_ENABLE => E::enable(this).map(|()| 0),
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
                let ours = this.operation_flags(*flags)?;
                if command == FI_SETOPSFLAG {
                    ours.set_default(*flags & !(FI_TRANSMIT | FI_RECV));
                } else {
                    *flags = ours.default();
                }
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
}

impl<S: SharedReceive> SharedReceiveObject<S> {
    /// The object of a new context with these capabilities, for
    /// [`Handle::new`].
    pub fn new(context: S, caps: u64) -> Self {
        let rx = OperationFlags::new(context.default_flags());
        let caps = Caps {
            tx: 0,
            rx: attr::context_caps(caps),
        };
        SharedReceiveObject { context, caps, rx }
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
        S::close(this)
    }

    fn bind(this: &Handle<Self>, other: AnyFid, flags: u64) -> Result {
        let bound = resolve(other);
        if let Bound::Cq(_) = bound
            && flags & FI_SELECTIVE_COMPLETION != 0
        {
            this.rx.select(this.context.default_flags());
        }
        S::bind(this, bound, flags)
    }

    unsafe fn control(_: &Handle<Self>, command: c_int, _: *mut c_void) -> Result<c_int> {
        match command {
            // A shared context is ready as soon as it is open.
            FI_ENABLE => Ok(0),
            _ => Err(Errno::ENOSYS),
        }
    }
}

fn resolve<S: SharedReceive>(other: AnyFid) -> Bound<S> {
    if let Some(cq) = other.downcast::<Cq>() {
        Bound::Cq(Use::of(&cq))
    } else if let Some(cntr) = other.downcast::<Cntr>() {
        Bound::Cntr(Use::of(&cntr))
    } else if let Some(av) = other.downcast::<Av>() {
        Bound::Av(Use::of(&av))
    } else if let Some(eq) = other.downcast::<Eq>() {
        Bound::Eq(Use::of(&eq))
    } else if let Some(context) = other.downcast::<SharedReceiveObject<S>>() {
        Bound::SharedReceive(Use::of(&context))
    } else {
        Bound::Foreign(other)
    }
}

/// What posts receives: an endpoint or a shared receive context.
pub(super) trait Receiver: Class<Header = fid_ep> {
    fn receive(&self, receive: &Receive) -> Result;
    fn flags(&self) -> &OperationFlags;
    fn cancel(&self, context: *mut c_void) -> Result;
    fn option(&self, name: c_int) -> Result<OptionValue>;
    fn set_option(&self, name: c_int, value: OptionValue) -> Result;
    fn room(&self) -> (Result<usize>, Result<usize>);
}

impl<E: Endpoint> Receiver for EndpointObject<E> {
    #[inline(always)]
    fn receive(&self, receive: &Receive) -> Result {
        self.endpoint.receive(receive)
    }

    #[inline(always)]
    fn flags(&self) -> &OperationFlags {
        &self.rx
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.endpoint.cancel(context)
    }

    fn option(&self, name: c_int) -> Result<OptionValue> {
        self.endpoint.option(name)
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        self.endpoint.set_option(name, value)
    }

    fn room(&self) -> (Result<usize>, Result<usize>) {
        (self.endpoint.transmit_room(), self.endpoint.receive_room())
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
        tx_ctx: Some(missing::tx_ctx),
        rx_ctx: Some(missing::rx_ctx),
        rx_size_left: Some(rx_size_left::<R>),
        tx_size_left: Some(tx_size_left::<R>),
        export_xpu: Some(missing::export_xpu),
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
