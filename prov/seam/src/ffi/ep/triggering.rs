//! Operations of an endpoint that begin when a counter reaches a threshold (fi_trigger(3)): those with `FI_TRIGGER`, and
//! deferred work.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_abi::*;

use super::super::object::{AnyFid, Downcast, Handle};
use super::posting::{one_message, transmit};
use super::{EndpointObject, Opened, Stage};
use crate::collective::Collective;
use crate::endpoint::{Bindings, Endpoint, Side};
use crate::object::Use;
use crate::transfers::Quiet;
use crate::trigger::{Operation, Triggers};
use prov_base::errno::{Errno, Result};
use prov_objects::cntr::{Cntr, Reached, WorkName};
use prov_objects::cq::{Completion, Cq, ErrorCompletion};
use prov_objects::progress::Progress;
use prov_objects::request::{Access, Atomic, AtomicKind, Receive, RemoteAccess, Tag, Transmit};

/// Any request of an endpoint.
#[expect(
    clippy::large_enum_variant,
    reason = "it is passed on once, or boxed as a whole"
)]
pub(in crate::ffi) enum Request {
    Transmit(Transmit),
    Receive(Receive),
    Access(RemoteAccess),
    Atomic(Atomic),
    Collective(Collective),
}

impl Request {
    /// Returns the same request once more.
    ///
    /// # Safety
    /// That of [`AppIov::duplicate`](prov_base::buffer::AppIov::duplicate).
    unsafe fn duplicate(&self) -> Self {
        // SAFETY: the caller keeps the contract.
        unsafe {
            match self {
                Request::Transmit(it) => Request::Transmit(it.duplicate()),
                Request::Receive(it) => Request::Receive(it.duplicate()),
                Request::Access(it) => Request::Access(it.duplicate()),
                Request::Atomic(it) => Request::Atomic(it.duplicate()),
                Request::Collective(it) => Request::Collective(it.duplicate()),
            }
        }
    }

    pub(super) fn flags(&mut self) -> &mut u64 {
        match self {
            Request::Transmit(transmit) => &mut transmit.flags,
            Request::Receive(receive) => &mut receive.flags,
            Request::Access(access) => &mut access.flags,
            Request::Atomic(atomic) => &mut atomic.flags,
            Request::Collective(collective) => &mut collective.flags,
        }
    }

    /// The side of an endpoint that posts it.
    fn side(&self) -> Side {
        match self {
            Request::Receive(_) => Side::Receive,
            Request::Transmit(_)
            | Request::Access(_)
            | Request::Atomic(_)
            | Request::Collective(_) => Side::Transmit,
        }
    }

    fn context(&mut self) -> &mut *mut c_void {
        match self {
            Request::Transmit(transmit) => &mut transmit.context,
            Request::Receive(receive) => &mut receive.context,
            Request::Access(access) => &mut access.context,
            Request::Atomic(atomic) => &mut atomic.context,
            Request::Collective(collective) => &mut collective.context,
        }
    }

    /// Flags of the completion.
    pub(super) fn completion_flags(&self) -> u64 {
        match self {
            Request::Transmit(transmit) => match transmit.tag {
                Tag::None => FI_MSG | FI_SEND,
                Tag::Value(_) => FI_TAGGED | FI_SEND,
            },
            Request::Receive(receive) => receive.select.completion_flags(),
            Request::Access(access) => match access.access {
                Access::Read => FI_RMA | FI_READ,
                Access::Write => FI_RMA | FI_WRITE,
            },
            Request::Atomic(atomic) => match atomic.kind {
                AtomicKind::Base => FI_ATOMIC | FI_WRITE,
                AtomicKind::Fetch { .. } | AtomicKind::Compare { .. } => FI_ATOMIC | FI_READ,
            },
            Request::Collective(_) => FI_COLLECTIVE,
        }
    }
}

/// Where an operation reports.
pub(super) enum Reporting {
    /// To the endpoint's queues and counters.
    Endpoint,
    /// To a counter, if to anything (fi_trigger(3), deferred work).
    Counter(Option<Handle<Cntr>>),
}

/// An operation that waits for its counter.
struct Posting<E: Endpoint> {
    opened: Arc<Opened<E>>,
    request: Request,
    reporting: Reporting,
}

// SAFETY: what the pointers in the request refer to is the application's, which lends it until the
// operation completes, whichever thread posts it.
unsafe impl<E: Endpoint> Send for Posting<E> {}
// SAFETY: as above; the value does not change.
unsafe impl<E: Endpoint> Sync for Posting<E> {}

impl<E: Endpoint> Operation for Posting<E> {
    fn begin(&self) -> Result {
        // SAFETY: one is kept: by the endpoint, or here, to be posted again, if it refuses.
        let request = unsafe { self.request.duplicate() };
        match &self.reporting {
            Reporting::Endpoint => self.opened.post(request),
            Reporting::Counter(counter) => self.opened.post_quietly(request, counter),
        }
    }

    fn fail(&self, error: Errno) {
        self.opened.fail(&self.request, &self.reporting, error);
    }
}

impl<E: Endpoint> Opened<E> {
    fn post(&self, mut request: Request) -> Result {
        match &mut request {
            Request::Transmit(message) => match transmit(&self.endpoint, message) {
                0 => Ok(()),
                error => Err(Errno::new(error as i32)),
            },
            Request::Receive(receive) => self.endpoint.receive(receive),
            Request::Access(access) => self.endpoint.access(access),
            Request::Atomic(atomic) => self.endpoint.atomic(atomic),
            Request::Collective(collective) => self.endpoint.collective(collective),
        }
    }

    /// Posts a request whose end only a counter tells of, and a queue where that is asked for.
    fn post_quietly(&self, mut request: Request, counter: &Option<Handle<Cntr>>) -> Result {
        let transfers = self.with_bindings(|bindings| bindings.transfers.clone())?;
        let transfers = transfers.ok_or(Errno::ENOSYS)?;
        let quiet = self.quiet(&mut request, counter)?;
        *request.flags() = *request.flags() & !FI_COMPLETION | FI_PEER_TRANSFER;
        let context = transfers.expect(quiet);
        *request.context() = context;
        let posted = self.post(request);
        if posted.is_err() {
            transfers.take_back(context);
        }
        posted
    }

    fn quiet(&self, request: &mut Request, counter: &Option<Handle<Cntr>>) -> Result<Quiet> {
        Ok(Quiet {
            context: request.context().expose_provenance().into(),
            flags: request.completion_flags(),
            wants_completion: *request.flags() & FI_COMPLETION != 0,
            cq: self.with_bindings(|bindings| cq_of(bindings, request))?,
            counter: counter.clone(),
            is_multi: *request.flags() & FI_MULTI_RECV != 0,
        })
    }

    /// Reports a request that was accepted and cannot be posted.
    fn fail(&self, request: &Request, reporting: &Reporting, error: Errno) {
        // SAFETY: it is not posted.
        let mut request = unsafe { request.duplicate() };
        let completion = Completion::new(*request.context(), request.completion_flags());
        let entry = ErrorCompletion::new(completion, error);
        let counter = match reporting {
            Reporting::Counter(counter) => counter.clone(),
            Reporting::Endpoint => {
                let own = self.with_bindings(|bindings| counter_of(bindings, &request));
                own.ok().flatten().map(|cntr| cntr.handle().clone())
            }
        };
        if let Ok(quiet) = self.quiet(&mut request, &counter) {
            quiet.fail(entry);
        }
    }

    fn with_bindings<R>(&self, ask: impl FnOnce(&Bindings<E::SharedReceive>) -> R) -> Result<R> {
        let stage = self.stage.lock();
        let stage = stage.unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*stage {
            Stage::Enabled(bindings, _) => Ok(ask(bindings)),
            Stage::New(_) | Stage::Closed => Err(Errno::EOPBADSTATE),
        }
    }

    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Has reads of what the endpoint is bound to begin what is due, from the first work on.
    fn is_triggered(&self) -> Result {
        if self.is_triggered.load(Ordering::Acquire) {
            return Ok(());
        }
        self.with_bindings(|bindings| {
            // Queues that are bound later see this with the lock of the stage.
            self.is_triggered.store(true, Ordering::Release);
            let begun = self.begin_with_reads_of(bindings);
            self.is_triggered.store(begun.is_ok(), Ordering::Release);
            begun
        })?
    }

    /// Has reads of the queues that are bound begin what is due, where the endpoint has had work.
    pub(super) fn begin_with_reads_of(&self, bound: &Bindings<E::SharedReceive>) -> Result {
        if !self.is_triggered.load(Ordering::Acquire) {
            return Ok(());
        }
        for cq in bound.tx_cq.iter().chain(&bound.rx_cq) {
            let triggers: Arc<dyn Progress> = self.triggers.clone();
            cq.add_source(triggers)?;
        }
        Ok(())
    }
}

fn cq_of<S: crate::endpoint::SharedReceive>(
    bindings: &Bindings<S>,
    request: &Request,
) -> Option<Use<Cq>> {
    match request {
        Request::Receive(_) => bindings.rx_cq.clone(),
        _ => bindings.tx_cq.clone(),
    }
}

fn counter_of<S: crate::endpoint::SharedReceive>(
    bindings: &Bindings<S>,
    request: &Request,
) -> Option<Use<Cntr>> {
    let counters = &bindings.counters;
    let counter = match request {
        Request::Transmit(_) => &counters.send,
        Request::Receive(_) => &counters.recv,
        Request::Access(access) if access.access == Access::Read => &counters.read,
        Request::Atomic(atomic) if !matches!(atomic.kind, AtomicKind::Base) => &counters.read,
        Request::Access(_) | Request::Atomic(_) | Request::Collective(_) => &counters.write,
    };
    counter.clone()
}

impl<E: Endpoint> EndpointObject<E> {
    /// A data call of an endpoint that may have triggered operations or memory of devices, or of one that this process
    /// has inherited.
    #[cold]
    #[inline(never)]
    pub(in crate::ffi) fn post_watchfully(&self, mut request: Request) -> Result {
        self.to_move()?;
        if let Some(hmem) = &self.opened.hmem {
            request.resolve(hmem)?;
        }
        if *request.flags() & FI_TRIGGER == 0 {
            let _staged = match &self.opened.hmem {
                Some(_) => request.stage(self.inject_size)?,
                None => None,
            };
            return self.opened.post(request);
        }
        *request.flags() &= !FI_TRIGGER;
        if *request.flags() & FI_INJECT != 0 {
            return Err(Errno::EINVAL);
        }
        let context = *request.context();
        // SAFETY: the context is that of a triggered operation.
        let (cntr, threshold) = unsafe { threshold(context)? };
        let opened = &self.opened;
        opened.is_triggered().map_err(|_| Errno::EINVAL)?;
        let triggers = &opened.triggers;
        if cntr.has_reached(threshold, Reached::BySuccesses) && !triggers.is_busy() {
            return opened.post(request);
        }
        triggers.watch(&cntr, None)?;
        let name = WorkName {
            is_deferred: false,
            address: context.addr(),
            endpoint: self.name_for_work(),
        };
        let posting = Posting {
            opened: opened.clone(),
            request,
            reporting: Reporting::Endpoint,
        };
        let reached = Reached::BySuccesses;
        triggers.queue(&cntr, threshold, reached, name, Box::new(posting))
    }

    /// Whether its domain is that of this work.
    pub(in crate::ffi) fn shares(&self, triggers: &Arc<Triggers>) -> bool {
        Arc::ptr_eq(&self.opened.triggers, triggers)
    }

    /// The number that names the endpoint in the list of works: its address, and for a context of
    /// a scalable endpoint its side.
    pub(in crate::ffi) fn name_for_work(&self) -> usize {
        // The address is aligned.
        let side = match self.side() {
            None => 0,
            Some(Side::Transmit) => 1,
            Some(Side::Receive) => 2,
        };
        self.opened.address() | side
    }

    /// What deferred work does that posts a request to this endpoint, and begins it where it is due already.
    ///
    /// # Errors
    /// `-FI_EINVAL` for flags that deferred work cannot have and for a context of the other direction, and those of
    /// posting.
    pub(in crate::ffi) fn deferred(
        &self,
        mut request: Request,
        counter: Option<Handle<Cntr>>,
        is_due: bool,
    ) -> Result<Option<Box<dyn Operation>>> {
        let opened = &self.opened;
        if *request.flags() & FI_INJECT != 0 || self.side() == Some(request.side().other()) {
            return Err(Errno::EINVAL);
        }
        *request.flags() &= !FI_TRIGGER;
        if let Some(hmem) = &opened.hmem {
            request.resolve(hmem)?;
        }
        if let Request::Receive(receive) = &mut request {
            if !opened.is_directed {
                receive.peer = FI_ADDR_UNSPEC;
            }
            receive.flags |= one_message(receive, self.caps);
        }
        opened.is_triggered()?;
        if is_due {
            // SAFETY: one is kept: by the endpoint, or here if it refuses.
            match opened.post_quietly(unsafe { request.duplicate() }, &counter) {
                Err(Errno::EAGAIN) => {}
                posted => return posted.map(|()| None),
            }
        }
        Ok(Some(Box::new(Posting {
            opened: opened.clone(),
            request,
            reporting: Reporting::Counter(counter),
        })))
    }

    /// `fi_cancel` of an operation that waits for its counter; whether it did.
    pub(super) fn cancel_triggered(&self, context: *mut c_void) -> bool {
        let endpoint = self.name_for_work();
        self.opened.is_triggered.load(Ordering::Relaxed)
            && self.opened.triggers.cancel_operation(|name| {
                !name.is_deferred && name.endpoint == endpoint && name.address == context.addr()
            }) != 0
    }

    /// The endpoint, or the context, is being closed: its work ends without a word.
    pub(super) fn forget_work(&self) {
        let endpoint = self.name_for_work();
        self.opened
            .triggers
            .cancel(None, |name| name.endpoint == endpoint);
    }
}

/// The counter that a triggered operation waits for, and the value.
///
/// # Safety
/// `context` is as fi_trigger(3) asks: null or a `struct fi_triggered_context`, whose counter is open.
pub(super) unsafe fn threshold(context: *mut c_void) -> Result<(Handle<Cntr>, u64)> {
    // SAFETY: the caller vouches for the context.
    unsafe {
        let context = context.cast::<fi_triggered_context>().as_ref();
        let context = context.ok_or(Errno::EINVAL)?;
        if context.event_type != FI_TRIGGER_THRESHOLD {
            return Err(Errno::EINVAL);
        }
        let wanted = context.trigger.threshold;
        Ok((counter(wanted.cntr)?, wanted.threshold as u64))
    }
}

/// The counter at a pointer.
///
/// # Safety
/// `cntr` is null or an open object.
pub(in crate::ffi) unsafe fn counter(cntr: *mut fid_cntr) -> Result<Handle<Cntr>> {
    // SAFETY: the caller vouches for the object.
    unsafe { AnyFid::new(cntr.cast()) }.and_then(AnyFid::expect::<Cntr>)
}
