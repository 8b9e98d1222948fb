//! Receives of a shared context that are posted when a counter reaches a threshold
//! (fi_trigger(3)): those with `FI_TRIGGER`, and deferred work. Whichever endpoint takes the message
//! of a deferred receive looks it up among those of its shared context.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::*;

use super::super::super::object::Handle;
use super::super::fast_path;
use super::super::posting::one_message;
use super::super::triggering::{Reporting, Request, threshold};
use super::SharedReceiveObject;
use crate::endpoint::SharedReceive;
use crate::transfers::{Quiet, Transfers};
use crate::trigger::{Operation, Triggers};
use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_objects::cntr::{Cntr, Reached, WorkName};
use prov_objects::request::Receive;

/// What a context needs for receives that wait.
pub(super) struct Deferring<S: SharedReceive> {
    /// The work of the domain.
    triggers: Arc<Triggers>,
    /// Deferred receives that are posted.
    transfers: Arc<Transfers>,
    /// Whether receives may be for one sender alone.
    is_directed: bool,
    /// The object, which what waits keeps; `None` once it is closed.
    this: Mutex<Option<Handle<SharedReceiveObject<S>>>>,
}

impl<S: SharedReceive> Deferring<S> {
    fn this(&self) -> Option<Handle<SharedReceiveObject<S>>> {
        let this = self.this.lock().unwrap_or_else(PoisonError::into_inner);
        this.clone()
    }
}

/// A receive that waits for its counter.
struct Posting<S: SharedReceive> {
    shared: Handle<SharedReceiveObject<S>>,
    receive: Receive,
    reporting: Reporting,
}

// SAFETY: what the pointers in the request refer to is the application's, which lends it until the
// operation completes, whichever thread posts it.
unsafe impl<S: SharedReceive> Send for Posting<S> {}
// SAFETY: as above; the value does not change.
unsafe impl<S: SharedReceive> Sync for Posting<S> {}

impl<S: SharedReceive> Operation for Posting<S> {
    fn begin(&self) -> Result {
        // SAFETY: one is kept: by the endpoint, or here, to be posted again, if it refuses.
        let mut receive = unsafe { self.receive.duplicate() };
        match &self.reporting {
            Reporting::Endpoint => self.shared.context.receive(&mut receive),
            Reporting::Counter(counter) => self.shared.post_quietly(receive, counter),
        }
    }

    fn fail(&self, error: Errno) {
        let counts = matches!(self.reporting, Reporting::Endpoint);
        self.shared.context.refuse(&self.receive, error, counts);
        if let Reporting::Counter(Some(counter)) = &self.reporting {
            counter.count_error();
        }
    }
}

impl<S: SharedReceive> SharedReceiveObject<S> {
    /// The object of a provider with triggered operations, in a domain with these capabilities. It
    /// is to be [introduced](SharedReceiveObject::introduce) to itself.
    ///
    /// # Errors
    /// Those of [`SharedReceive::expects`].
    pub(in crate::ffi) fn deferring(
        self,
        caps: u64,
        is_directed: bool,
        triggers: &Arc<Triggers>,
    ) -> Result<Self> {
        let transfers = Arc::default();
        self.context.expects(&transfers)?;
        Ok(SharedReceiveObject {
            fast_path: match self.hmem {
                Some(_) => Process::NONE,
                None => fast_path(self.process, caps | self.caps),
            },
            deferring: Some(Deferring {
                triggers: triggers.clone(),
                transfers,
                is_directed,
                this: Mutex::default(),
            }),
            ..self
        })
    }

    /// Lets the object queue work that keeps it.
    pub(in crate::ffi) fn introduce(this: &Handle<Self>) {
        if let Some(deferring) = &this.deferring {
            let mut known = deferring
                .this
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *known = Some(this.clone());
        }
    }

    /// The deferred receives, which the endpoints that use the context report.
    pub(in crate::ffi) fn transfers(&self) -> Option<&Arc<Transfers>> {
        self.deferring
            .as_ref()
            .map(|deferring| &deferring.transfers)
    }

    /// A receive of a context that may have triggered ones, or of one that this process has
    /// inherited.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_watchfully(&self, receive: &mut Receive) -> Result {
        let context = self.to_move()?;
        if let Some(hmem) = &self.hmem {
            hmem.resolve(&mut receive.buffers, &receive.desc)?;
        }
        let Some(deferring) = &self.deferring else {
            return context.receive(receive);
        };
        if receive.flags & FI_TRIGGER == 0 {
            return context.receive(receive);
        }
        receive.flags &= !FI_TRIGGER;
        // SAFETY: the context is that of a triggered operation.
        let (cntr, threshold) = unsafe { threshold(receive.context)? };
        let triggers = &deferring.triggers;
        if cntr.has_reached(threshold, Reached::BySuccesses) && !triggers.is_busy() {
            return context.receive(receive);
        }
        triggers.watch(&cntr, None)?;
        let shared = deferring.this().ok_or(Errno::EOPBADSTATE)?;
        let name = WorkName {
            is_deferred: false,
            address: receive.context.addr(),
            endpoint: shared.name_for_work(),
        };
        let posting = Posting {
            shared,
            receive: Receive {
                buffers: receive.buffers.take(),
                ..*receive
            },
            reporting: Reporting::Endpoint,
        };
        let reached = Reached::BySuccesses;
        triggers.queue(&cntr, threshold, reached, name, Box::new(posting))
    }

    /// What deferred work does that posts a request to this context, and begins it where it is due
    /// already. Its name in the list of works is that of the context.
    ///
    /// # Errors
    /// `-FI_EINVAL` for what is no receive, for flags that deferred work cannot have, and for a
    /// context of another domain; and those of posting.
    pub(in crate::ffi) fn deferred(
        this: &Handle<Self>,
        mut request: Request,
        counter: Option<Handle<Cntr>>,
        is_due: bool,
        triggers: &Arc<Triggers>,
    ) -> Result<Option<Box<dyn Operation>>> {
        let deferring = this.deferring.as_ref().ok_or(Errno::EINVAL)?;
        if !Arc::ptr_eq(&deferring.triggers, triggers) || *request.flags() & FI_INJECT != 0 {
            return Err(Errno::EINVAL);
        }
        *request.flags() &= !FI_TRIGGER;
        let Request::Receive(mut receive) = request else {
            return Err(Errno::EINVAL);
        };
        if let Some(hmem) = &this.hmem {
            hmem.resolve(&mut receive.buffers, &receive.desc)?;
        }
        if !deferring.is_directed {
            receive.peer = FI_ADDR_UNSPEC;
        }
        receive.flags |= one_message(&receive, this.caps);
        if is_due {
            // SAFETY: one is kept: by the endpoint, or here if it refuses.
            match this.post_quietly(unsafe { receive.duplicate() }, &counter) {
                Err(Errno::EAGAIN) => {}
                posted => return posted.map(|()| None),
            }
        }
        Ok(Some(Box::new(Posting {
            shared: this.clone(),
            receive,
            reporting: Reporting::Counter(counter),
        })))
    }

    /// Posts a receive whose end only a counter tells of, and a queue where that is asked for.
    fn post_quietly(&self, mut receive: Receive, counter: &Option<Handle<Cntr>>) -> Result {
        let transfers = self.transfers().ok_or(Errno::ENOSYS)?;
        let quiet = Quiet {
            context: receive.context.expose_provenance().into(),
            flags: receive.select.completion_flags(),
            wants_completion: receive.flags & FI_COMPLETION != 0,
            cq: None,
            counter: counter.clone(),
            is_multi: receive.flags & FI_MULTI_RECV != 0,
        };
        let context = transfers.expect(quiet);
        receive.flags = receive.flags & !FI_COMPLETION | FI_PEER_TRANSFER;
        receive.context = context;
        let posted = self.context.receive(&mut receive);
        if posted.is_err() {
            transfers.take_back(context);
        }
        posted
    }

    /// `fi_cancel` of a receive that waits for its counter; whether it did.
    pub(super) fn cancel_triggered(&self, context: *mut c_void) -> bool {
        let Some(deferring) = &self.deferring else {
            return false;
        };
        deferring.this().is_some_and(|this| {
            let endpoint = this.name_for_work();
            deferring.triggers.cancel_operation(|name| {
                !name.is_deferred && name.endpoint == endpoint && name.address == context.addr()
            }) != 0
        })
    }

    /// The context is being closed: its work ends without being reported.
    pub(super) fn forget_work(&self) {
        let Some(deferring) = &self.deferring else {
            return;
        };
        let known = deferring.this.lock();
        let this = known.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(this) = this {
            let endpoint = this.name_for_work();
            let triggers = &deferring.triggers;
            triggers.cancel(None, |name| name.endpoint == endpoint);
            deferring.transfers.forget(true);
        }
    }
}

impl<S: SharedReceive> Handle<SharedReceiveObject<S>> {
    /// The number that names the context in the list of works.
    pub(in crate::ffi) fn name_for_work(&self) -> usize {
        self.as_c().addr()
    }
}
