//! Deferred work (fi_trigger(3)): `FI_QUEUE_WORK`, `FI_CANCEL_WORK` and `FI_FLUSH_WORK` of a domain.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use fabric_abi::*;

use super::atomic::{self, Elements, Kind};
use super::call::{Call, Local};
use super::ep::{EndpointObject, Request, SharedReceiveObject, counter};
use super::object::{AnyFid, Downcast};
use super::rma;
use crate::endpoint::Endpoint;
use crate::trigger::{Count, Operation, Triggers};
use prov_base::errno::{Errno, Result};
use prov_objects::cntr::{Reached, WorkName};
use prov_objects::progress::Progress;
use prov_objects::request::{Access, Receive, Select, Tag, Transmit};

/// What the work of a domain needs of it.
pub(super) struct WorkContext<'a> {
    pub triggers: &'a Arc<Triggers>,
    /// What moves the domain's transfers on.
    pub progress: Option<Arc<dyn Progress>>,
}

/// A command of fi_control(3) about deferred work; `None` for another one.
///
/// # Safety
/// `work` is as fi_trigger(3) asks: null, or deferred work whose pointers are valid, and stays so until it is done.
pub(super) unsafe fn control<E: Endpoint>(
    context: &WorkContext<'_>,
    command: c_int,
    work: *mut c_void,
) -> Option<Result<c_int>> {
    let work = work.cast::<fi_deferred_work>();
    // SAFETY: the caller vouches for the work.
    let done = unsafe {
        match command {
            FI_QUEUE_WORK => queue::<E>(context, work),
            FI_CANCEL_WORK => cancel(context.triggers, work),
            FI_FLUSH_WORK => flush(context.triggers, work),
            _ => return None,
        }
    };
    Some(done.map(|()| 0))
}

/// # Safety
/// That of [`control`].
unsafe fn queue<E: Endpoint>(context: &WorkContext<'_>, work: *mut fi_deferred_work) -> Result {
    // SAFETY: the caller vouches for the work.
    let (address, work, cntr, completion) = unsafe {
        let address = work.addr();
        let work = work.as_ref().ok_or(Errno::EINVAL)?;
        let completion = match work.completion_cntr.is_null() {
            true => None,
            false => Some(counter(work.completion_cntr)?),
        };
        (address, work, counter(work.triggering_cntr)?, completion)
    };
    let triggers = context.triggers;
    for cntr in [Some(&cntr), completion.as_ref()].into_iter().flatten() {
        triggers.watch(cntr, context.progress.clone())?;
    }
    let is_due = cntr.has_reached(work.threshold, Reached::ByEither) && !triggers.is_busy();
    // SAFETY: the caller vouches for the work.
    let (endpoint, operation) = unsafe {
        match work.op_type {
            FI_OP_CNTR_SET | FI_OP_CNTR_ADD => {
                if completion.is_some() {
                    return Err(Errno::EINVAL);
                }
                (0, Some(count(work)?))
            }
            _ => {
                let (ep, request) = request(work)?;
                let ep = AnyFid::new(ep.cast())?;
                match ep.downcast::<SharedReceiveObject<E::SharedReceive>>() {
                    None => {
                        let ep = ep.expect::<EndpointObject<E>>()?;
                        if !ep.shares(triggers) {
                            return Err(Errno::EINVAL);
                        }
                        let operation = ep.deferred(request, completion, is_due)?;
                        (ep.name_for_work(), operation)
                    }
                    Some(shared) => {
                        let deferred = SharedReceiveObject::deferred;
                        let operation = deferred(&shared, request, completion, is_due, triggers)?;
                        (shared.name_for_work(), operation)
                    }
                }
            }
        }
    };
    let Some(operation) = operation else {
        return Ok(());
    };
    let name = WorkName {
        is_deferred: true,
        address,
        endpoint,
    };
    triggers.queue(&cntr, work.threshold, Reached::ByEither, name, operation)
}

/// `-FI_ENOENT` for work that has begun, and for such as was never queued.
///
/// # Safety
/// That of [`control`].
unsafe fn cancel(triggers: &Triggers, work: *mut fi_deferred_work) -> Result {
    if work.is_null() {
        return Err(Errno::EINVAL);
    }
    let address = work.addr();
    match triggers.cancel(None, |name| name.is_deferred && name.address == address) {
        0 => Err(Errno::ENOENT),
        _ => Ok(()),
    }
}

/// All work, or that which waits for the counter that `work` names.
///
/// # Safety
/// That of [`control`].
unsafe fn flush(triggers: &Triggers, work: *mut fi_deferred_work) -> Result {
    // SAFETY: the caller vouches for the work.
    let cntr = unsafe {
        match work.as_ref() {
            Some(work) if !work.triggering_cntr.is_null() => Some(counter(work.triggering_cntr)?),
            _ => None,
        }
    };
    triggers.cancel(cntr.as_ref(), |name| name.is_deferred);
    Ok(())
}

/// # Safety
/// That of [`control`].
unsafe fn count(work: &fi_deferred_work) -> Result<Box<dyn Operation>> {
    // SAFETY: the caller vouches for the work.
    let (cntr, value) = unsafe {
        let op = work.op.cntr.as_ref().ok_or(Errno::EINVAL)?;
        (counter(op.cntr)?, op.value)
    };
    Ok(Box::new(Count {
        cntr,
        value,
        is_new: work.op_type == FI_OP_CNTR_SET,
    }))
}

/// The endpoint, and what is to be posted to it.
///
/// # Safety
/// That of [`control`].
unsafe fn request(work: &fi_deferred_work) -> Result<(*mut fid_ep, Request)> {
    // SAFETY: the caller vouches for the work: the member of the union is that of the kind of operation, null or valid.
    unsafe {
        match work.op_type {
            FI_OP_RECV | FI_OP_SEND => {
                let op = work.op.msg.as_ref().ok_or(Errno::EINVAL)?;
                let msg = &op.msg;
                let local = Local::vector(msg.msg_iov, msg.desc, msg.iov_count)?;
                let call = Call::message(msg.addr, op.flags, msg.data, msg.context);
                let request = match work.op_type {
                    FI_OP_RECV => receive(local, Select::Untagged, &call, op.flags),
                    _ => transmit(local, Tag::None, &call, op.flags),
                };
                Ok((op.ep, request))
            }
            FI_OP_TRECV | FI_OP_TSEND => {
                let op = work.op.tagged.as_ref().ok_or(Errno::EINVAL)?;
                let msg = &op.msg;
                let local = Local::vector(msg.msg_iov, msg.desc, msg.iov_count)?;
                let call = Call::message(msg.addr, op.flags, msg.data, msg.context);
                let (tag, ignore) = (msg.tag, msg.ignore);
                let request = match work.op_type {
                    FI_OP_TRECV => receive(local, Select::Tagged { tag, ignore }, &call, op.flags),
                    _ => transmit(local, Tag::Value(tag), &call, op.flags),
                };
                Ok((op.ep, request))
            }
            FI_OP_READ | FI_OP_WRITE => {
                let op = work.op.rma.as_ref().ok_or(Errno::EINVAL)?;
                let access = match work.op_type {
                    FI_OP_READ => Access::Read,
                    _ => Access::Write,
                };
                let memory = rma::memory(access, &op.msg)?;
                let call = Call::message(op.msg.addr, op.flags, op.msg.data, op.msg.context);
                let request = rma::request(access, memory, &call, op.flags);
                Ok((op.ep, Request::Access(request)))
            }
            FI_OP_ATOMIC => {
                let op = work.op.atomic.as_ref().ok_or(Errno::EINVAL)?;
                let atomic = atomic::request_of(&op.msg, Kind::Base, op.flags)?;
                Ok((op.ep, Request::Atomic(atomic)))
            }
            FI_OP_FETCH_ATOMIC => {
                let op = work.op.fetch_atomic.as_ref().ok_or(Errno::EINVAL)?;
                let kind = Kind::Fetch(results(&op.fetch));
                let atomic = atomic::request_of(&op.msg, kind, op.flags)?;
                Ok((op.ep, Request::Atomic(atomic)))
            }
            FI_OP_COMPARE_ATOMIC => {
                let op = work.op.compare_atomic.as_ref().ok_or(Errno::EINVAL)?;
                let compare = &op.compare;
                let compare = Elements::Many(compare.msg_iov, compare.iov_count, compare.desc);
                let kind = Kind::Compare(compare, results(&op.fetch));
                let atomic = atomic::request_of(&op.msg, kind, op.flags)?;
                Ok((op.ep, Request::Atomic(atomic)))
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

fn results(fetch: &fi_msg_fetch) -> Elements {
    Elements::Many(fetch.msg_iov, fetch.iov_count, fetch.desc)
}

fn receive(local: Local, select: Select, call: &Call, flags: u64) -> Request {
    Request::Receive(Receive {
        select,
        buffers: local.buffers,
        desc: local.desc,
        peer: call.peer,
        flags,
        context: call.context,
    })
}

fn transmit(local: Local, tag: Tag, call: &Call, flags: u64) -> Request {
    Request::Transmit(Transmit {
        tag,
        buffers: local.buffers,
        desc: local.desc,
        peer: call.peer,
        data: call.data(),
        flags,
        context: call.context,
    })
}
