//! Shared receive contexts. `triggered` has their triggered and deferred receives.

mod triggered;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

use self::triggered::Deferring;
use super::super::object::{AnyFid, Class, Downcast, Handle, Use};
use super::super::options::Options;
use super::operations::OperationFlags;
use super::receiver::{Calls, Receiver};
use crate::endpoint::{OptionValue, SharedReceive};
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_base::process::Process;
use prov_objects::attr::RxAttr;
use prov_objects::cntr::Cntr;
use prov_objects::cq::Cq;
use prov_objects::hmem::Hmem;
use prov_objects::request::Receive;

/// The C object of a shared receive context.
pub struct SharedReceiveObject<S: SharedReceive> {
    context: S,
    /// The capabilities that it was opened with.
    caps: u64,
    /// The capabilities whose calls it has.
    offered: u64,
    rx: OperationFlags,
    /// The process that opened it, as for an endpoint.
    process: Process,
    /// The same, or no process where the flags of each receive are to be looked at (`FI_TRIGGER`).
    fast_path: Process,
    /// Memory of devices, in a domain with `FI_HMEM`.
    hmem: Option<Arc<Hmem>>,
    /// Receives that wait for counters, of a domain with triggered operations.
    deferring: Option<Deferring<S>>,
    bound: Mutex<SharedBindings>,
}

#[derive(Default)]
struct SharedBindings {
    cq: Option<Use<Cq>>,
    cntr: Option<Use<Cntr>>,
}

impl<S: SharedReceive> SharedReceiveObject<S> {
    /// Creates the object of a new context with these attributes. It receives everything that is in
    /// the capabilities `offered`.
    pub fn new(context: S, attr: &RxAttr, offered: u64) -> Self {
        let process = Process::current();
        SharedReceiveObject {
            context,
            caps: attr.caps,
            offered,
            rx: OperationFlags::new(attr.op_flags),
            process,
            fast_path: process,
            hmem: None,
            deferring: None,
            bound: Mutex::default(),
        }
    }

    /// The same, in a domain with memory of devices.
    pub fn with_devices(self, hmem: Option<Arc<Hmem>>) -> Self {
        SharedReceiveObject {
            fast_path: match hmem {
                Some(_) => Process::NONE,
                None => self.fast_path,
            },
            hmem,
            ..self
        }
    }

    /// Returns the context for moving data: `-FI_EOPBADSTATE` in a child of the process that opened
    /// it.
    #[inline(always)]
    fn to_move(&self) -> Result<&S> {
        match self.process.is_noted() {
            true => Ok(&self.context),
            false => Err(Errno::EOPBADSTATE),
        }
    }

    fn bound(&self) -> MutexGuard<'_, SharedBindings> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the object of a context whose receives belong to another provider: none can be
    /// posted here (fi_peer(3)).
    pub(in crate::ffi) fn of_peer(context: S) -> Self {
        Self::new(context, &RxAttr::default(), 0)
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
        Calls::header(self, fid, self.offered)
    }

    fn close(this: &Handle<Self>) -> Result {
        this.forget_work();
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

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        let selects = flags & FI_SELECTIVE_COMPLETION != 0;
        let mut bound = this.bound();
        let progress = this.context.progress();
        // A second queue replaces the first.
        if let Some(cq) = other.downcast::<Cq>() {
            if flags & !FI_SELECTIVE_COMPLETION != FI_RECV {
                return Err(Errno::EBADFLAGS);
            }
            cq.add_source(progress.clone())?;
            if let Some(before) = bound.cq.replace(Use::of(&cq)) {
                before.remove_source(&progress);
            }
            if selects {
                this.rx.select();
            }
        } else if let Some(cntr) = other.downcast::<Cntr>() {
            if flags != FI_RECV {
                return Err(Errno::EBADFLAGS);
            }
            cntr.add_source(progress.clone())?;
            if let Some(before) = bound.cntr.replace(Use::of(&cntr)) {
                before.remove_source(&progress);
            }
        } else {
            return Err(Errno::EINVAL);
        }
        S::bind(&this.context, bound.cq.clone(), bound.cntr.clone())
    }

    unsafe fn control(_: &Handle<Self>, command: c_int, _: *mut c_void) -> Result<c_int> {
        match command {
            // A shared context is ready as soon as it is open.
            FI_ENABLE => Ok(0),
            FI_ALIAS => {
                log::warn!(
                    target: UTIL.ep_ctrl,
                    "fi_ep_alias: a shared receive context has no aliases"
                );
                Err(Errno::ENOSYS)
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl<S: SharedReceive> Options for SharedReceiveObject<S> {
    fn option(&self, name: c_int) -> Result<OptionValue> {
        self.context.option(name)
    }

    fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        self.context.set_option(name, value)
    }
}

impl<S: SharedReceive> Receiver for SharedReceiveObject<S> {
    #[inline(always)]
    fn receive_fast(&self, receive: &mut Receive) -> bool {
        self.fast_path.is_noted() && self.context.receive_fast(receive)
    }

    #[inline(always)]
    fn receive(&self, receive: &mut Receive) -> Result {
        match self.fast_path.is_noted() {
            true => self.context.receive(receive),
            false => self.receive_watchfully(receive),
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
        let shared = self.to_move()?;
        match self.cancel_triggered(context) {
            true => Ok(()),
            false => shared.cancel(context),
        }
    }

    fn room(&self) -> (Result<usize>, Result<usize>) {
        (Err(Errno::ENOSYS), Err(Errno::ENOSYS))
    }
}
