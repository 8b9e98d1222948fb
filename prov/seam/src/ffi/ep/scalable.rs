//! Scalable endpoints (fi_endpoint(3), SCALABLE ENDPOINTS): one address, and contexts that
//! transmit and receive, each with queues and counters of its own.
//!
//! The contexts of an index are the two sides of one endpoint of the provider, a *pair*, which
//! has a transport of its own: threads with contexts of their own meet nowhere.

#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;

use super::super::names::give_name;
use super::super::object::{AnyFid, AnyUse, Class, Downcast, Handle, Use, without_calls};
use super::super::options::{Options, getopt, setopt};
use super::super::{deliver, missing, status};
use super::contexts::{Context, Opening, shared_side};
use super::operations::{Limits, OperationFlags, split_direction};
use super::pairs::{Pairs, of_pair};
use super::{EndpointObject, Surroundings, control, fast_path};
use crate::endpoint::{Endpoint, OptionValue, Side};
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_layer::marshal::info;
use prov_objects::attr::{Info, Offers};
use prov_objects::av::Av;
use prov_objects::cntr::Cntr;
use prov_objects::cq::Cq;
use prov_objects::eq::Eq;

/// A scalable endpoint as C sees it, or an alias of one.
pub struct ScalableObject<E: Endpoint> {
    pairs: Arc<Pairs<E>>,
    /// An alias keeps the object it was made from open and closes nothing.
    is_alias: bool,
    /// The default flags of contexts that are opened without attributes.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
}

/// How many pairs a scalable endpoint with these attributes has: `-FI_EINVAL`, with the
/// reason in the log, for what is no scalable endpoint.
pub(in crate::ffi) fn pairs_of(info: &Info, target: &'static str) -> Result<usize> {
    let reason = if info.ep.ep_type == FI_EP_MSG {
        "scalable endpoints are not connected (FI_EP_MSG)"
    } else if info.caps & FI_COLLECTIVE != 0 {
        "scalable endpoints have no collective operations (FI_COLLECTIVE)"
    } else {
        return Ok(info.ep.transmit_contexts().max(info.ep.receive_contexts()));
    };
    log::warn!(target: target, "fi_scalable_ep: {reason}");
    Err(Errno::EINVAL)
}

impl<E: Endpoint> ScalableObject<E> {
    /// The object of a new scalable endpoint with these attributes, whose pairs are
    /// `endpoints`.
    pub(in crate::ffi) fn open(
        endpoints: Vec<E>,
        info: Info,
        context: *mut c_void,
        limits: Limits,
        offers: Arc<Offers>,
        domain: AnyUse,
        surroundings: impl Fn() -> Surroundings,
    ) -> Handle<Self> {
        let pair = |(index, endpoint)| {
            let domain = domain.clone();
            let triggers = surroundings();
            let info = of_pair(&info, index);
            EndpointObject::open(endpoint, &info, context, limits, domain, None, triggers)
        };
        let pairs = endpoints.into_iter().enumerate().map(pair).collect();
        let object = ScalableObject {
            tx_flags: info.tx.op_flags.into(),
            rx_flags: info.rx.op_flags.into(),
            pairs: Arc::new(Pairs::new(pairs, info, limits, offers)),
            is_alias: false,
        };
        Handle::new(object, context, vec![domain])
    }

    fn flags(&self, direction: u64) -> &AtomicU64 {
        match direction {
            FI_RECV => &self.rx_flags,
            _ => &self.tx_flags,
        }
    }

    fn alias(this: &Handle<Self>, flags: u64) -> Result<Handle<Self>> {
        let (direction, flags) = split_direction(flags)?;
        this.pairs.limits.check_flags(direction, flags)?;
        let alias = ScalableObject {
            pairs: this.pairs.clone(),
            is_alias: true,
            tx_flags: this.tx_flags.load(Ordering::Relaxed).into(),
            rx_flags: this.rx_flags.load(Ordering::Relaxed).into(),
        };
        alias.flags(direction).store(flags, Ordering::Relaxed);
        let parents = vec![Use::of(this).any()];
        Ok(Handle::new(alias, this.context(), parents))
    }

    /// `fi_tx_context` and `fi_rx_context`. `-FI_EBUSY` where the context is open already.
    fn open_context(
        this: &Handle<Self>,
        side: Side,
        index: c_int,
        opening: &Opening,
        context: *mut c_void,
    ) -> Result<Handle<EndpointObject<E>>> {
        let pairs = &this.pairs;
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let pair = pairs.pair(index)?;
        let mut state = pairs.state();
        let place = state.side(side).get_mut(index).ok_or(Errno::EINVAL)?;
        if place.is_some() {
            return Err(Errno::EBUSY);
        }
        let process = Process::current();
        let object = EndpointObject {
            opened: pair.opened.clone(),
            is_alias: false,
            context: Some(Context {
                side,
                index,
                of: pairs.clone(),
            }),
            caps: opening.caps,
            limits: pairs.limits,
            process,
            fast_path: fast_path(process, pairs.info.caps),
            inject_size: opening.inject_size,
            tx: OperationFlags::new(opening.op_flags),
            rx: OperationFlags::new(opening.op_flags),
        };
        let handle = Handle::new(object, context, vec![Use::of(this).any()]);
        *place = Some(handle.clone());
        Ok(handle)
    }
}

impl<E: Endpoint> Class for ScalableObject<E> {
    type Header = fid_ep;

    fn class(&self) -> usize {
        FI_CLASS_SEP
    }

    fn header(&self, fid: fid) -> fid_ep {
        fid_ep {
            cm: Table::<E>::CM.cast_mut(),
            ..without_calls(fid, Table::<E>::EP)
        }
    }

    /// Contexts that are open keep it open: `-FI_EBUSY`.
    fn close(this: &Handle<Self>) -> Result {
        if this.is_alias {
            return Ok(());
        }
        this.pairs.all.iter().try_for_each(Handle::close)?;
        let mut state = this.pairs.state();
        let bound = (state.av.take(), state.eq.take());
        drop(state);
        drop(bound);
        Ok(())
    }

    /// `fi_scalable_ep_bind`: the address vector of all contexts, or the shared context of those
    /// of one direction. A queue or a counter is bound to those that are open, and to the shared
    /// ones, which need not be opened.
    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        if other.downcast::<Cq>().is_some() || other.downcast::<Cntr>().is_some() {
            let open = this.pairs.open();
            let mut bound = open.iter();
            bound.try_for_each(|context| {
                let is_meant = context.directions() & flags != 0;
                match is_meant {
                    true => EndpointObject::bind(context, other, flags),
                    false => Ok(()),
                }
            })?;
            return match Context::unopened_shared(&this.pairs) {
                Some(context) => context.bind(other, flags & Side::Receive.directions()),
                None => Ok(()),
            };
        }
        if let Some(side) = shared_side::<E>(other) {
            return this.pairs.share(side, other);
        }
        if E::IS_STRICT && flags != 0 {
            return Err(Errno::EBADFLAGS);
        }
        let mut state = this.pairs.state();
        match other.downcast::<Av>() {
            Some(_) if state.av.is_some() => return Err(Errno::EINVAL),
            Some(av) => state.av = Some(Use::of(&av)),
            None => state.eq = Some(Use::of(&other.expect::<Eq>()?)),
        }
        Ok(())
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        match command {
            FI_ENABLE => {
                let open = this.pairs.open();
                open.iter().try_for_each(EndpointObject::enable)?;
                if let Some(context) = Context::unopened_shared(&this.pairs) {
                    context.enable(this.pairs.info.caps)?;
                }
                Ok(0)
            }
            // SAFETY: fi_control(3): the argument of FI_ALIAS is a `struct fi_alias`.
            FI_ALIAS => unsafe { control::alias(arg, |flags| Self::alias(this, flags)) },
            FI_GETOPSFLAG | FI_SETOPSFLAG => {
                let get = |direction| this.flags(direction).load(Ordering::Relaxed);
                let set = |direction, asked| {
                    this.pairs.limits.check_flags(direction, asked)?;
                    this.flags(direction).store(asked, Ordering::Relaxed);
                    Ok(())
                };
                // SAFETY: fi_control(3): the argument is a `uint64_t`.
                unsafe { control::operation_flags(command, arg, get, set) }
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// Options are those of all pairs.
impl<E: Endpoint> Options for ScalableObject<E> {
    fn option(&self, name: c_int) -> Result<OptionValue> {
        self.pairs.pair(0)?.option(name)
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        let mut pairs = self.pairs.all.iter();
        pairs.try_for_each(|pair| pair.opened.endpoint.set_option(name, value))
    }
}

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const EP: *const fi_ops_ep = &fi_ops_ep {
        cancel: Some(cancel),
        getopt: Some(getopt::<ScalableObject<E>>),
        setopt: Some(setopt::<ScalableObject<E>>),
        tx_ctx: Some(tx_ctx::<E>),
        rx_ctx: Some(rx_ctx::<E>),
        ..missing::EP
    };

    const CM: *const fi_ops_cm = &fi_ops_cm {
        getname: Some(getname::<E>),
        ..missing::CM
    };
}

unsafe extern "C" fn tx_ctx<E: Endpoint>(
    sep: *mut fid_ep,
    index: c_int,
    attr: *mut fi_tx_attr,
    tx_ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the table belongs to scalable endpoints of `E`; `attr` is null or valid.
    unsafe {
        let sep = Handle::<ScalableObject<E>>::from_c(sep);
        let inherited = sep.tx_flags.load(Ordering::Relaxed);
        let mut opening = Opening::of(&sep.pairs.info, inherited);
        let made = match attr.as_mut() {
            None => Ok(()),
            Some(attr) => sep.pairs.transmits_as(&info::tx_attr(attr)).map(|tx| {
                info::fill_tx(attr, &tx);
                opening.inject_size = tx.inject_size;
                opening.op_flags = tx.op_flags;
            }),
        };
        let open =
            |()| ScalableObject::open_context(&sep, Side::Transmit, index, &opening, context);
        deliver(tx_ep, made.and_then(open))
    }
}

unsafe extern "C" fn rx_ctx<E: Endpoint>(
    sep: *mut fid_ep,
    index: c_int,
    attr: *mut fi_rx_attr,
    rx_ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as in `tx_ctx`.
    unsafe {
        let sep = Handle::<ScalableObject<E>>::from_c(sep);
        let inherited = sep.rx_flags.load(Ordering::Relaxed);
        let mut opening = Opening::of(&sep.pairs.info, inherited);
        let made = match attr.as_mut() {
            None => Ok(()),
            Some(attr) => sep.pairs.receives_as(&info::rx_attr(attr)).map(|rx| {
                info::fill_rx(attr, &rx);
                opening.op_flags = rx.op_flags;
            }),
        };
        let open = |()| ScalableObject::open_context(&sep, Side::Receive, index, &opening, context);
        deliver(rx_ep, made.and_then(open))
    }
}

/// Operations belong to contexts.
unsafe extern "C" fn cancel(_: fid_t, _: *mut c_void) -> isize {
    Errno::EINVAL.to_c() as isize
}

unsafe extern "C" fn getname<E: Endpoint>(fid: fid_t, name: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: as in `tx_ctx`, with room for `*len` bytes.
    status(unsafe {
        let sep = Handle::<ScalableObject<E>>::borrow(fid.cast());
        give_name(sep.pairs.name(), name, len)
    })
}
