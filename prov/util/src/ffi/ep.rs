//! Active endpoints: objects, aliases and control. What is bound to them is in
//! `binding`, shared receive contexts are in `shared`, and what both have in
//! common, such as options, in `receiver`. The data calls are in `msg`, `tagged`,
//! `rma` and `atomic`.

mod binding;
mod operations;
mod receiver;
mod shared;
pub(super) mod transfer;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

pub use operations::Limits;
pub(in crate::ffi) use operations::OperationFlags;
pub(in crate::ffi) use receiver::Receiver;
pub use shared::SharedReceiveObject;
pub use transfer::{TransferOwner, TransferPeer};

use self::operations::split_direction;
use self::receiver::Tables;
use super::object::{AnyFid, AnyUse, Class, Handle, Use};
use super::{atomic, cm, missing, msg, rma, tagged};
use crate::atomic_ops::Offered;
use crate::attr::Info;
use crate::endpoint::{Bindings, Endpoint, OptionValue};
use crate::errno::{Errno, Result};
use crate::process::Process;
use crate::progress::Progress;
use crate::request::Receive;

/// An endpoint as C sees it: the provider's endpoint, or one of the aliases of
/// it, with the flags of operations posted through this object.
pub struct EndpointObject<E: Endpoint> {
    opened: Arc<Opened<E>>,
    /// An alias keeps the object it was made from open and closes nothing.
    is_alias: bool,
    /// Those that it was opened with.
    caps: u64,
    limits: Limits,
    /// A child of fork(2) moves no data through what it inherited.
    process: Process,
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
    /// Whether it is connected, which its event queue tells of.
    is_connected: bool,
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
                is_connected: info.ep.ep_type == FI_EP_MSG,
                stage: Mutex::new(Stage::New(Bindings::default())),
            }),
            is_alias: false,
            caps: info.caps,
            limits,
            process: Process::current(),
            inject_size: info.tx.inject_size,
            tx: OperationFlags::new(info.tx.op_flags),
            rx: OperationFlags::new(info.rx.op_flags),
        };
        Handle::new(object, context, vec![domain])
    }

    /// The endpoint, to connect it or to move data: `-FI_EOPBADSTATE` in a child of
    /// the process that opened it.
    #[inline(always)]
    pub(super) fn to_move(&self) -> Result<&E> {
        match self.process.is_noted() {
            true => Ok(&self.opened.endpoint),
            false => Err(Errno::EOPBADSTATE),
        }
    }

    /// What there is of atomic operations.
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
            caps: this.caps,
            limits: this.limits,
            process: this.process,
            inject_size: this.inject_size,
            tx: OperationFlags::alias(&this.tx, tx),
            rx: OperationFlags::alias(&this.rx, rx),
        };
        Ok(Handle::new(alias, context, vec![Use::of(this).any()]))
    }

    /// `fi_enable`, and what connecting does first (fi_cm(3)). Once enabled, an
    /// endpoint stays so.
    pub(super) fn enable(this: &Handle<Self>) -> Result {
        this.to_move()?;
        let mut stage = this.stage();
        let bindings = match &mut *stage {
            Stage::New(bindings) => bindings,
            Stage::Enabled(..) => return Ok(()),
            Stage::Closed => return Err(Errno::EOPBADSTATE),
        };
        bindings.check(this.caps, this.opened.shares_receives)?;
        let progress = E::enable(this, bindings)?;
        let bindings = std::mem::take(bindings);
        let added = bindings.add_source(&progress, this.opened.is_connected);
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
            msg: msg::table::<E>(self.limits.caps).cast_mut(),
            rma: rma::table::<E>(self.limits.caps).cast_mut(),
            tagged: tagged::table::<E>(self.limits.caps).cast_mut(),
            atomic: atomic::table::<E>(self.limits.caps).cast_mut(),
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
            bindings.remove_source(&progress, this.opened.is_connected, this.fid());
        }
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
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

impl<E: Endpoint> Receiver for EndpointObject<E> {
    #[inline(always)]
    fn receive_at_once(&self, receive: &Receive) -> bool {
        self.process.is_noted() && self.opened.endpoint.receive_at_once(receive)
    }

    #[inline(always)]
    fn receive(&self, receive: &Receive) -> Result {
        self.to_move()?.receive(receive)
    }

    #[inline(always)]
    fn flags(&self) -> &OperationFlags {
        &self.rx
    }

    fn caps(&self) -> u64 {
        self.caps
    }

    fn cancel(&self, context: *mut c_void) -> Result {
        self.to_move()?.cancel(context)
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
