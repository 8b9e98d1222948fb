//! What is not the same for all functions: objects in structures that calls and events point to,
//! the end of objects, and functions with arrays of objects.

use std::ffi::{c_int, c_void};

use fabric_abi::*;
use prov_base::uncancelled::Uncancelled;

use super::call::Call;
use super::operation::Operation;
use super::slot::slot;
use super::value::{Shown, Value};
use super::{Core, Kind, Ordering, Wrapped, below, refresh, registry};

/// Replaces the objects in what a call's arguments point to, before the call. These structures are
/// the provider's until the operation has ended, so that they keep the objects below.
///
/// # Safety
/// The call is one that the application is in.
#[inline(always)]
pub(super) unsafe fn prepare(call: &Call<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        if call.operation().is_transfer() {
            let flags = call.flags().unwrap_or_else(|| call.default_flags());
            if flags & FI_TRIGGER != 0 {
                lower_trigger(call);
            }
        } else if call.operation() == Operation::FidControl {
            lower_work(call);
        } else if call.operation() == Operation::PollPollAdd {
            hand_down_context(call);
        }
    }
}

/// Gives the object below the context that a poll set is to report, which the application may have
/// changed since it opened the object.
///
/// # Safety
/// That of [`prepare`].
unsafe fn hand_down_context(call: &Call<'_>) {
    let Some(Value::Pointer(object)) = call.value(0) else {
        return;
    };
    let object = object.cast::<fid>().cast_mut();
    // SAFETY: the first argument is an object.
    unsafe {
        let lowered = below(object);
        if lowered != object {
            (*lowered).context = (*object).context;
        }
    }
}

/// Replaces the counter in the context of a triggered operation (fi_trigger(3)).
///
/// # Safety
/// That of [`prepare`]; the operation is a triggered one.
#[cold]
unsafe fn lower_trigger(call: &Call<'_>) {
    let Some(context) = call.context() else {
        return;
    };
    let context = std::ptr::with_exposed_provenance_mut::<fi_triggered_context>(context);
    // SAFETY: the context of a triggered operation has this structure.
    unsafe {
        if !context.is_null() && (*context).event_type == FI_TRIGGER_THRESHOLD {
            lower(&raw mut (*context).trigger.threshold.cntr);
        }
    }
}

/// Replaces an object in a structure.
///
/// # Safety
/// The place holds null or an object.
unsafe fn lower<T>(place: *mut *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        let object = place.read();
        let lowered = below(object.cast()).cast::<T>();
        if lowered != object {
            place.write(lowered);
        }
    }
}

/// Replaces the objects in deferred work (fi_trigger(3)).
///
/// # Safety
/// That of [`prepare`].
unsafe fn lower_work(call: &Call<'_>) {
    let (Some(Value::Signed(command)), Some(Value::Pointer(work))) = (call.value(0), call.value(1))
    else {
        return;
    };
    let queues = command == i64::from(FI_QUEUE_WORK);
    let names = [FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK].map(i64::from);
    if call.kind() != Kind::Domain || work.is_null() || !names.contains(&command) {
        return;
    }
    let work = work.cast::<fi_deferred_work>().cast_mut();
    // SAFETY: the argument of these commands is such work, whose operation is the structure that its
    // type says.
    unsafe {
        lower(&raw mut (*work).triggering_cntr);
        if !queues {
            return;
        }
        lower(&raw mut (*work).completion_cntr);
        match (*work).op_type {
            FI_OP_CNTR_SET | FI_OP_CNTR_ADD => {
                let op = (*work).op.cntr;
                if !op.is_null() {
                    lower(&raw mut (*op).cntr);
                }
            }
            FI_OP_RECV | FI_OP_SEND | FI_OP_TRECV | FI_OP_TSEND | FI_OP_READ | FI_OP_WRITE
            | FI_OP_ATOMIC | FI_OP_FETCH_ATOMIC | FI_OP_COMPARE_ATOMIC => {
                // All of these structures begin with the endpoint.
                let op = (*work).op.msg;
                if !op.is_null() {
                    lower(&raw mut (*op).ep);
                }
            }
            _ => {}
        }
    }
}

/// Finishes a call that returned `result`: notes what the wrapper has to know about the object, and
/// replaces objects in what the call has answered.
///
/// # Safety
/// The call is one that the application is in, on `object`, and the call below has returned.
#[inline(always)]
pub(super) unsafe fn settle(call: &Call<'_>, object: *mut fid, result: i64) {
    use Operation::*;
    // SAFETY: the caller's promise.
    unsafe {
        match call.operation() {
            DomainCqOpen => note_format(call, result),
            DomainEndpoint | DomainEndpoint2 | DomainScalableEp | EpTxCtx | EpRxCtx => {
                note_flags(call, object, result);
            }
            FidBind if result == 0 => refresh(object),
            FidControl if result >= 0 => settle_control(call, object),
            EqRead | EqSread if result > 0 => lift_event(call, result as usize),
            EqReaderr if result > 0 => lift_error(call),
            _ => {}
        }
    }
}

/// # Safety
/// That of [`settle`].
unsafe fn opened<'a>(call: &Call<'_>, result: i64) -> Option<&'a Core> {
    let object = call.opened(result)?;
    // SAFETY: the object has just been opened through the layer, which has wrapped it.
    Some(unsafe { Wrapped::of(std::ptr::with_exposed_provenance(object)) })
}

/// # Safety
/// That of [`settle`].
unsafe fn note_format(call: &Call<'_>, result: i64) {
    // SAFETY: the caller's promise; a queue without attributes has the default format.
    unsafe {
        let Some(queue) = opened(call, result) else {
            return;
        };
        let format = match call.value(0) {
            Some(Value::Structure(attr, _)) if !attr.is_null() => {
                (*attr.cast::<fi_cq_attr>()).format
            }
            _ => FI_CQ_FORMAT_UNSPEC,
        };
        let format = match format {
            FI_CQ_FORMAT_UNSPEC => FI_CQ_FORMAT_CONTEXT,
            format => format,
        };
        queue.format.store(format, Ordering::Relaxed);
    }
}

/// # Safety
/// That of [`settle`].
unsafe fn note_flags(call: &Call<'_>, object: *mut fid, result: i64) {
    // SAFETY: the caller's promise; attributes are null or as the interface asks.
    unsafe {
        let Some(endpoint) = opened(call, result) else {
            return;
        };
        let parent = Wrapped::of(object);
        let (mut transmit, mut receive) = (parent.default_flags(false), parent.default_flags(true));
        for value in (0..2).filter_map(|place| call.value(place)) {
            let Value::Structure(attr, type_) = value else {
                continue;
            };
            if attr.is_null() {
                continue;
            }
            match type_ {
                FI_TYPE_INFO => {
                    let info = attr.cast::<fi_info>();
                    let (tx, rx) = ((*info).tx_attr, (*info).rx_attr);
                    transmit = tx.as_ref().map_or(0, |attr| attr.op_flags);
                    receive = rx.as_ref().map_or(0, |attr| attr.op_flags);
                }
                FI_TYPE_TX_ATTR => transmit = (*attr.cast::<fi_tx_attr>()).op_flags,
                FI_TYPE_RX_ATTR => receive = (*attr.cast::<fi_rx_attr>()).op_flags,
                _ => {}
            }
        }
        endpoint.transmit_flags.store(transmit, Ordering::Relaxed);
        endpoint.receive_flags.store(receive, Ordering::Relaxed);
    }
}

/// # Safety
/// That of [`settle`]; the call has succeeded.
unsafe fn settle_control(call: &Call<'_>, object: *mut fid) {
    // SAFETY: the caller's promise; the arguments are those of the command.
    unsafe {
        refresh(object);
        let (Some(Value::Signed(command)), Some(Value::Pointer(argument))) =
            (call.value(0), call.value(1))
        else {
            return;
        };
        let core = Wrapped::of(object);
        if core.kind != Kind::Endpoint || argument.is_null() {
            return;
        }
        match c_int::try_from(command).unwrap_or_default() {
            FI_ALIAS => {
                let place = (*argument.cast::<fi_alias>()).fid;
                if place.is_null() || (*place).is_null() {
                    return;
                }
                *place = Wrapped::wrap(*place, core.kind, &core.layer);
                let alias = Wrapped::of(*place);
                let flags = (*argument.cast::<fi_alias>()).flags;
                set_flags(core, alias, flags);
            }
            FI_SETOPSFLAG => set_flags(core, core, argument.cast::<u64>().read()),
            _ => {}
        }
    }
}

/// Notes the operation flags of an endpoint, whose direction is in the flags. Those of the other
/// direction are those of `like`.
fn set_flags(like: &Core, endpoint: &Core, flags: u64) {
    let of = |direction: u64, now: u64| match flags & direction {
        0 => now,
        _ => flags & !(FI_TRANSMIT | FI_RECV),
    };
    let transmit = of(FI_TRANSMIT, like.default_flags(false));
    let receive = of(FI_RECV, like.default_flags(true));
    endpoint.transmit_flags.store(transmit, Ordering::Relaxed);
    endpoint.receive_flags.store(receive, Ordering::Relaxed);
}

/// Replaces the object in an event that the interface defines by the one over it. All of these
/// events begin with the object.
///
/// # Safety
/// That of [`settle`]; the event has `len` bytes.
unsafe fn lift_event(call: &Call<'_>, len: usize) {
    let (Some(Value::Pointer(event)), Some(Value::Pointer(buf))) = (call.value(0), call.value(1))
    else {
        return;
    };
    if event.is_null() || buf.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { lift_bytes(event.cast::<u32>().read(), buf.cast_mut(), len) };
}

/// Replaces the object in an event, given by its number and its bytes.
///
/// # Safety
/// The event has `len` bytes.
pub(super) unsafe fn lift_bytes(event: u32, buf: *mut c_void, len: usize) {
    if !(FI_CONNREQ..=FI_JOIN_COMPLETE).contains(&event) || len < size_of::<fid_t>() {
        return;
    }
    // SAFETY: the caller's promise; a buffer may have any alignment.
    unsafe {
        let over = lift(buf.cast());
        match event {
            FI_CONNREQ if len >= size_of::<fi_eq_cm_entry>() => {
                let info = buf.byte_add(std::mem::offset_of!(fi_eq_cm_entry, info));
                lift_info(info.cast::<*mut fi_info>().read_unaligned());
            }
            FI_MR_COMPLETE | FI_JOIN_COMPLETE => {
                if let Some(over) = over {
                    refresh(over);
                }
            }
            _ => {}
        }
    }
}

/// # Safety
/// That of [`settle`]; the call has stored an entry.
unsafe fn lift_error(call: &Call<'_>) {
    if let Some(Value::Pointer(entry)) = call.value(0)
        && !entry.is_null()
    {
        // SAFETY: the caller's promise; the entry begins with the object.
        unsafe { lift(entry.cast_mut().cast()) };
    }
}

/// Replaces an object by the one over it, and returns that.
///
/// # Safety
/// The place holds a pointer, in any alignment.
unsafe fn lift(place: *mut *mut fid) -> Option<*mut fid> {
    // SAFETY: the caller's promise.
    unsafe {
        let over = registry::over(place.read_unaligned().addr())?;
        let over = std::ptr::with_exposed_provenance_mut(over);
        place.write_unaligned(over);
        Some(over)
    }
}

/// Replaces the fabric and the domain in the description of a connection request.
///
/// # Safety
/// `info` is null or as a provider made it.
unsafe fn lift_info(info: *mut fi_info) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(info) = info.as_ref() else { return };
        if let Some(fabric) = info.fabric_attr.as_mut() {
            lift((&raw mut fabric.fabric).cast());
        }
        if let Some(domain) = info.domain_attr.as_mut() {
            lift((&raw mut domain.domain).cast());
        }
    }
}

/// fi_close(3): ends the wrapped object with the one below.
pub(super) mod ops {
    use super::*;
    use prov_base::errno::Errno;

    const OPS: usize = std::mem::offset_of!(fid, ops);

    pub(in super::super) unsafe extern "C" fn close(object: *mut fid) -> c_int {
        let _uncancelled = Uncancelled::begin();
        // SAFETY: the application has this function from a wrapped object, which it uses no more if
        // the call succeeds.
        unsafe {
            let core = Wrapped::of(object);
            let call = Call::new(Operation::FidClose, object.addr(), core, &[]);
            let Some(before) = core.enter(&call) else {
                return Errno::EINVAL.to_c();
            };
            let function = slot!(core.below, OPS, fi_ops, close);
            let result = function.map_or(-libc::ENOSYS, |close| close(core.below));
            core.leave(&call, before, result.into());
            if result == 0 {
                Wrapped::end(object.cast());
            }
            result
        }
    }
}

/// fi_eq_open(3): the context may name the owner of the queue; fi_trywait(3): an array of objects.
pub(super) mod ops_fabric {
    use super::super::argument::Argument;
    use super::super::owner::PeerContext;
    use super::*;

    const OPS: usize = std::mem::offset_of!(fid_fabric, ops);

    pub(in super::super) unsafe extern "C" fn eq_open(
        fabric: *mut fid_fabric,
        attr: *mut fi_eq_attr,
        eq: *mut *mut fid_eq,
        context: *mut c_void,
    ) -> c_int {
        let _uncancelled = Uncancelled::begin();
        let object = fabric.cast::<fid>();
        // SAFETY: the application has this function from a wrapped object, and its arguments are as
        // the interface asks.
        unsafe {
            let core = Wrapped::of(object);
            let values = [attr.value(), eq.value(), context.value()];
            let call = Call::new(Operation::FabricEqOpen, object.addr(), core, &values);
            let Some(before) = core.enter(&call) else {
                return -libc::ENOSYS;
            };
            let is_shared = attr.as_ref().is_some_and(|attr| attr.flags & FI_PEER != 0);
            let mut shared = match is_shared {
                true => PeerContext::of(context),
                false => None,
            };
            let lowered = shared.as_mut().map_or(context, PeerContext::as_c);
            let mut room = None;
            let result = match slot!(core.below, OPS, fi_ops_fabric, eq_open) {
                Some(eq_open) => {
                    let attr = attr.lowered(&mut room);
                    eq_open(core.below.cast(), attr, eq, lowered)
                }
                None => -libc::ENOSYS,
            };
            attr.finish(&room, core, result == 0);
            eq.finish(&(), core, result == 0);
            if let (Some(opened), Some(owner)) = (
                opened(&call, result.into()),
                shared.and_then(PeerContext::into_owner),
            ) {
                let _ = opened.owner.set(owner);
            }
            core.leave(&call, before, result.into());
            result
        }
    }

    /// Objects of an array that are passed to the provider at once.
    const CHUNK: usize = 32;

    pub(in super::super) unsafe extern "C" fn trywait(
        fabric: *mut fid_fabric,
        fids: *mut *mut fid,
        count: c_int,
    ) -> c_int {
        let _uncancelled = Uncancelled::begin();
        let object = fabric.cast::<fid>();
        // SAFETY: the application has this function from a wrapped object, and its array has so many
        // objects.
        unsafe {
            let core = Wrapped::of(object);
            let values = [fids.value(), count.value()];
            let call = Call::new(Operation::FabricTrywait, object.addr(), core, &values);
            let Some(before) = core.enter(&call) else {
                return -libc::ENOSYS;
            };
            let result = match slot!(core.below, OPS, fi_ops_fabric, trywait) {
                Some(trywait) => try_each(core.below, fids, count, trywait),
                None => -libc::ENOSYS,
            };
            core.leave(&call, before, result.into());
            result
        }
    }

    type Trywait = unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int;

    /// # Safety
    /// The function is the fabric's, and the array has so many objects.
    unsafe fn try_each(
        fabric: *mut fid,
        fids: *mut *mut fid,
        count: c_int,
        trywait: Trywait,
    ) -> c_int {
        let total = match usize::try_from(count) {
            Ok(total) if total > 0 && !fids.is_null() => total,
            // SAFETY: the provider says what such an array means.
            _ => return unsafe { trywait(fabric.cast(), fids, count) },
        };
        let mut lowered = [std::ptr::null_mut(); CHUNK];
        let mut done = 0;
        while done < total {
            let part = (total - done).min(CHUNK);
            for (at, place) in lowered.iter_mut().enumerate().take(part) {
                // SAFETY: the array has so many objects.
                *place = unsafe { below(fids.add(done + at).read()) };
            }
            // SAFETY: the function is the fabric's.
            let result = unsafe { trywait(fabric.cast(), lowered.as_mut_ptr(), part as c_int) };
            if result != 0 {
                return result;
            }
            done += part;
        }
        0
    }
}

/// fi_join(3): the address of a collective group names a set.
pub(super) mod ops_cm {
    use super::super::argument::Argument;
    use super::*;

    const CM: usize = std::mem::offset_of!(fid_ep, cm);

    pub(in super::super) unsafe extern "C" fn join(
        ep: *mut fid_ep,
        addr: *const c_void,
        flags: u64,
        mc: *mut *mut fid_mc,
        context: *mut c_void,
    ) -> c_int {
        let _uncancelled = Uncancelled::begin();
        let object = ep.cast::<fid>();
        // SAFETY: the application has this function from a wrapped object, and its arguments are as
        // the interface asks: with FI_COLLECTIVE the address is that of a group.
        unsafe {
            let core = Wrapped::of(object);
            let values = [addr.value(), flags.value(), mc.value(), context.value()];
            let call = Call::new(Operation::CmJoin, object.addr(), core, &values);
            let Some(before) = core.enter(&call) else {
                return -libc::ENOSYS;
            };
            let mut group;
            let mut lowered = addr;
            if flags & FI_COLLECTIVE != 0 && !addr.is_null() {
                group = *addr.cast::<fi_collective_addr>();
                group.set = group.set.lowered(&mut ());
                lowered = (&raw const group).cast();
            }
            let result = match slot!(core.below, CM, fi_ops_cm, join) {
                Some(join) => join(core.below.cast(), lowered, flags, mc, context),
                None => -libc::ENOSYS,
            };
            mc.finish(&(), core, result == 0);
            core.leave(&call, before, result.into());
            result
        }
    }
}
