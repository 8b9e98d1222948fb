//! An endpoint whose collective operations are those of another provider (fi_peer(3)): that
//! provider's endpoint transfers over this one, and reports to its queues.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::*;

use super::super::cntr::SharedCntr;
use super::super::cq::SharedCq;
use super::super::object::{AnyFid, Downcast, Handle, Use};
use super::TransferPeer;
use crate::endpoint::{Bindings, SharedReceive};
use crate::transfers::{Ended, Transfers};
use prov_base::errno::{Errno, Result};
use prov_layer::below::{self, OFFLOAD, PeerObject, PeerSide};
use prov_layer::marshal::info;
use prov_objects::attr::{FabricAttr, Info};
use prov_objects::drive::Signals;
use prov_objects::eq::Eq;
use prov_objects::progress::{Progress, QueueName};

/// Name of the provider of collective operations.
const PROVIDER: &str = "off_coll";

/// The peer's objects, in the order in which they are closed.
pub(in crate::ffi) struct Collectives {
    peer: TransferPeer,
    bound: Mutex<Bound>,
    side: PeerSide,
}

/// The peer's objects that its endpoint is bound to, each with the owner's object, in the order of
/// binding. All of them stay until the end.
#[derive(Default)]
struct Bound {
    cqs: Vec<(PeerObject<fid_cq>, Handle<SharedCq>)>,
    cntrs: Vec<(PeerObject<fid_cntr>, Handle<SharedCntr>)>,
    eqs: Vec<(PeerObject<fid_eq>, Use<Eq>)>,
    /// The addresses of the owner's queues and counter that are bound at present.
    current: [usize; 3],
}

impl Collectives {
    /// Opens the peer's objects, for an endpoint with these bindings.
    ///
    /// # Errors
    /// `-FI_ENOSYS` if there is no such provider, and those of the provider.
    ///
    /// # Safety
    /// `ep` and `domain` are open, and stay so as long as the result.
    pub unsafe fn open<S: SharedReceive>(
        ep: *mut fid_ep,
        domain: *mut fid_domain,
        info: &Info,
        api_version: u32,
        bindings: &Bindings<S>,
    ) -> Result<Self> {
        let hints = Info {
            caps: FI_COLLECTIVE,
            fabric: FabricAttr {
                prov_name: Some(PROVIDER.to_owned()),
                ..FabricAttr::default()
            },
            ..Info::default()
        };
        let found = below::getinfo(api_version, None, None, OFFLOAD, &hints);
        let entry = found.map_err(|_| Errno::ENOSYS)?;
        let mut entry = entry.into_iter().next().ok_or(Errno::ENOSYS)?;
        // The peer looks at the flags of calls where the owner does.
        entry.caps |= info.caps & (FI_TRIGGER | FI_HMEM);
        // SAFETY: the caller guarantees that the endpoint and its domain are open; the info is
        // freed after the peer has read it.
        let this = unsafe {
            let (side, entry) = PeerSide::open(&entry, domain)?;
            let owner_info = info::to_c(std::slice::from_ref(info))?;
            let peer = TransferPeer::open(side.domain(), entry.as_c(), ep, owner_info);
            info::free(owner_info);
            Collectives {
                peer: peer?,
                bound: Mutex::default(),
                side,
            }
        };
        // Groups and sets are this library's objects, so the peer must be, too.
        // SAFETY: the peer's endpoint is open.
        let own = unsafe { AnyFid::new(this.peer.as_c().cast()) };
        own.and_then(AnyFid::keep_open).map_err(|_| Errno::ENOSYS)?;
        this.bind(bindings)?;
        this.peer.enable()?;
        Ok(this)
    }

    /// Binds the peer's endpoint to the objects that the owner is bound to, as far as it is not.
    /// Every operation is reported, even if the owner's queue was bound with
    /// `FI_SELECTIVE_COMPLETION`: the C library reports them, and programs wait for that.
    ///
    /// # Errors
    /// What the peer returns.
    pub fn bind<S: SharedReceive>(&self, to: &Bindings<S>) -> Result {
        let mut bound = self.bound();
        let [cq, cntr, eq] = &mut bound.current;
        let is_new = |before: &mut usize, now: usize| std::mem::replace(before, now) != now;
        let new_cq = to.tx_cq.as_ref();
        let new_cq = new_cq.filter(|it| is_new(cq, it.handle().as_c().addr()));
        let new_cntr = to.counters.write.as_ref();
        let new_cntr = new_cntr.filter(|it| is_new(cntr, it.handle().as_c().addr()));
        let new_eq = to.eq.as_ref();
        let new_eq = new_eq.filter(|it| is_new(eq, it.handle().as_c().addr()));
        // SAFETY: the owner's objects stay open as long as the shared objects that are stored with
        // the peer's.
        unsafe {
            if let Some(cq) = new_cq {
                let shared = SharedCq::of(cq.handle());
                let part = self.side.cq(shared.as_c())?;
                self.peer.bind(part.fid(), FI_TRANSMIT | FI_RECV)?;
                bound.cqs.push((part, shared));
                bounded!(bound.cqs, OBJECTS);
            }
            if let Some(cntr) = new_cntr {
                let shared = SharedCntr::of(cntr.handle());
                let part = self.side.cntr(shared.as_c())?;
                self.peer.bind(part.fid(), FI_WRITE)?;
                bound.cntrs.push((part, shared));
                bounded!(bound.cntrs, OBJECTS);
            }
            if let Some(eq) = new_eq {
                let part = self.side.eq(eq.handle().as_c())?;
                self.peer.bind(part.fid(), 0)?;
                bound.eqs.push((part, eq.clone()));
                bounded!(bound.eqs, OBJECTS);
            }
        }
        Ok(())
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the peer post what it could not post before.
    fn drive(&self) {
        if let Some((cq, _)) = self.bound().cqs.last() {
            cq.drive();
        }
    }

    /// Takes back an operation that waits for its counter (fi_trigger(3)).
    pub fn cancel(&self, context: *mut c_void) {
        let ep = self.ep();
        // SAFETY: the peer's endpoint is open, and a table has as many functions as it says.
        unsafe {
            let cancel = (*ep).ops.as_ref().and_then(|table| table.cancel);
            if let Some(cancel) = cancel {
                cancel(ep.cast(), context);
            }
        }
    }

    /// Returns the peer's endpoint.
    pub fn ep(&self) -> *mut fid_ep {
        self.peer.as_c()
    }
}

/// The progress engine of an endpoint with collective operations: the endpoint's own engine, and
/// the peer, which is informed of the outcome of its transfers.
pub(in crate::ffi) struct WithPeer {
    pub inner: Arc<dyn Progress>,
    pub transfers: Arc<Transfers>,
    pub peer: Arc<Collectives>,
}

impl WithPeer {
    /// Informs the peer of ended transfers. Returns whether there were any.
    fn tell(&self) -> bool {
        let had_some = !self.transfers.is_empty();
        while let Some(ended) = self.transfers.next() {
            let told = match &ended {
                Ended::Done(completion) => self.peer.peer.complete(completion),
                Ended::Failed(error) => self.peer.peer.fail(error),
            };
            if let Err(error) = told {
                log::warn!(
                    target: prov_base::logging::UTIL.ep_data,
                    "the provider of collective operations does not take a completion: {error}"
                );
            }
        }
        had_some
    }

    fn drive_peer(&self) {
        self.tell();
        // An operation that the peer could not post before may have room.
        self.peer.drive();
    }
}

impl Progress for WithPeer {
    fn is_driven(&self) -> bool {
        true
    }

    fn progress(&self) {
        self.inner.progress();
        self.drive_peer();
    }

    fn signals(&self) -> Arc<Signals> {
        self.inner.signals()
    }

    fn for_events(&self) -> Option<Arc<dyn Progress>> {
        self.inner.for_events()
    }

    fn for_completions(&self, queue: QueueName) -> Option<Arc<dyn Progress>> {
        self.inner.for_completions(queue)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.inner.wait_fd()
    }

    fn prepare_wait(&self) -> bool {
        self.drive_peer();
        let may_sleep = self.inner.prepare_wait();
        // The engine may have ended transfers while it prepared.
        !self.tell() && may_sleep
    }

    fn sleeps(&self) {
        self.inner.sleeps();
    }
}
