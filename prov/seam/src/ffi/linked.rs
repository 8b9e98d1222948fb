//! Linked providers (fi_peer(3)): endpoints of other providers that match their messages with an
//! [`OwnedQueue`] of this side and report to it.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use fabric_abi::*;

use super::cq::{CompletionTarget, SharedCq};
use super::object::Handle;
use super::srx::{ARRIVED, OwnedQueue, SharedQueue};
use crate::endpoint::OptionValue;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_layer::below::{Addresses, Domain, LinkedEndpoint, Owners};
use prov_objects::attr::Info;
use prov_objects::cq::{Completion, ErrorCompletion};
use prov_objects::request::{Atomic, RemoteAccess, Transmit};

/// What a linked endpoint reports. Called from any thread that drives the endpoint or posts to it.
pub trait LinkOwner: Send + Sync + 'static {
    /// An operation has succeeded.
    fn completed(&self, completion: &Completion);

    /// An operation has failed.
    fn failed(&self, error: ErrorCompletion);

    /// A peer has accessed memory, in this way (`FI_REMOTE_READ`, `FI_REMOTE_WRITE`).
    fn accessed(&self, kind: u64);

    /// A peer is gone ([`peer_ends`](prov_objects::peer_ends)). With `transfers` only receives of other
    /// providers end. Called with locks of the provider held: it calls no provider.
    fn peer_ended(&self, peer: fi_addr_t, transfers: bool, error: Errno);
}

/// An endpoint of another provider that is linked to this side; closed when it is dropped.
pub struct Link {
    ep: LinkedEndpoint,
    // Declared after the endpoint, which uses them as long as it is open.
    owners: OnceLock<(Handle<SharedCq<LinkCompletions>>, Handle<SharedQueue>)>,
    /// The argument of [`ended`], likewise.
    listener: OnceLock<Box<Arc<dyn LinkOwner>>>,
    /// The number of times that it is driven yet until it counts as idle.
    busy: Arc<AtomicU32>,
}

impl Link {
    /// Opens an endpoint of the domain.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(domain: &Arc<Domain>, entry: &Info) -> Result<Self> {
        Ok(Link {
            ep: LinkedEndpoint::open(domain, entry)?,
            owners: OnceLock::new(),
            listener: OnceLock::new(),
            busy: Arc::default(),
        })
    }

    /// Enables the endpoint: its messages match the receives of `queue`, and its operations
    /// complete at `owner`, which also learns of the kinds of access in `counted` (`FI_REMOTE_*`).
    /// With `sleeps`, it has a descriptor to sleep on, if the provider has that.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn enable(
        &self,
        domain: &Arc<Domain>,
        queue: &Arc<OwnedQueue>,
        owner: &Arc<dyn LinkOwner>,
        counted: u64,
        sleeps: bool,
    ) -> Result {
        let cq = SharedCq::owned_by(LinkCompletions(owner.clone(), self.busy.clone()));
        let srx = queue.share_noting(&self.busy);
        let (cq, srx) = self.owners.get_or_init(|| (cq, srx));
        let mut counters = Vec::new();
        for kind in [FI_REMOTE_READ, FI_REMOTE_WRITE] {
            if counted & kind != 0 {
                let owner = owner.clone();
                counters.push((kind, domain.counter(move || owner.accessed(kind))?));
            }
        }
        // SAFETY: the objects are kept until the endpoint is closed.
        unsafe {
            self.ep.enable(Owners {
                cq: cq.as_c(),
                srx: srx.as_c(),
                counters: &counters,
                sleeps,
            })?;
        }
        let listener = self.listener.get_or_init(|| Box::new(owner.clone()));
        let argument = (&raw const **listener).cast_mut().cast();
        // SAFETY: the argument is kept until the endpoint is closed.
        if let Err(error) = unsafe { self.ep.listen(argument, ended) } {
            log::info!(
                target: UTIL.ep_ctrl,
                "a linked provider does not tell of peers that are gone: {error}"
            );
        }
        Ok(())
    }

    /// Tells the provider that a receive was posted that only messages of this peer can match, by
    /// its number in the address vector; with `transfers` one of another provider, so that the peer
    /// is contacted. The caller has entered the queue.
    pub fn awaits(&self, peer: fi_addr_t, transfers: bool) {
        self.ep.awaits(peer, transfers);
    }

    /// Returns its own address.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn address(&self) -> Result<Vec<u8>> {
        self.ep.address()
    }

    /// Returns its address vector.
    pub fn addresses(&self) -> &Addresses {
        self.ep.addresses()
    }

    /// Lets the provider make progress. The caller has entered the queue.
    #[inline]
    pub fn drive(&self) {
        let busy = self.busy.load(Ordering::Relaxed);
        self.busy.store(busy.saturating_sub(1), Ordering::Relaxed);
        self.ep.drive();
    }

    /// Returns whether it was used lately: it has had messages or completions, or operations were
    /// posted to it.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn is_used(&self) {
        self.busy.store(ARRIVED, Ordering::Relaxed);
    }

    /// Returns the descriptor that polls readable when the provider has work, if it has one.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ep.wait_fd()
    }

    /// Returns whether a thread may sleep on [`Link::wait_fd`].
    pub fn may_sleep(&self) -> bool {
        self.ep.may_sleep()
    }

    /// Sets an option (fi_setopt(3)).
    ///
    /// # Errors
    /// What the provider returns.
    pub fn set_option(&self, name: c_int, value: OptionValue) -> Result {
        match value {
            OptionValue::Size(value) => self.ep.set_option(name, value),
            OptionValue::Int(value) => self.ep.set_option(name, value),
            OptionValue::Bool(value) => self.ep.set_option(name, value),
        }
    }

    /// Ends an operation with a context of this address of which nothing has left, if there is one
    /// (fi_cancel(3)).
    pub fn cancel(&self, context: usize) {
        self.ep.cancel(context);
    }

    /// Sends a message to a number of the address vector, with this context and these flags.
    ///
    /// # Errors
    /// What the provider returns.
    #[inline]
    pub fn transmit(
        &self,
        message: &Transmit,
        to: fi_addr_t,
        context: *mut c_void,
        flags: u64,
    ) -> Result {
        self.is_used();
        self.ep.transmit(message, to, context, flags)
    }

    /// Reads or writes memory of a peer, likewise.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn access(
        &self,
        access: &RemoteAccess,
        to: fi_addr_t,
        context: *mut c_void,
        flags: u64,
    ) -> Result {
        self.is_used();
        self.ep.access(access, to, context, flags)
    }

    /// Performs an atomic operation on memory of a peer, likewise.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn atomic(
        &self,
        atomic: &Atomic,
        to: fi_addr_t,
        context: *mut c_void,
        flags: u64,
    ) -> Result {
        self.is_used();
        self.ep.atomic(atomic, to, context, flags)
    }
}

unsafe extern "C" fn ended(argument: *mut c_void, peer: fi_addr_t, flags: u64, error: c_int) {
    // SAFETY: the provider passes the argument of `Link::enable`, which is kept until its endpoint is
    // closed.
    let owner = unsafe { &*argument.cast::<Arc<dyn LinkOwner>>() };
    owner.peer_ended(peer, flags & FI_PEER_TRANSFER != 0, Errno::new(error));
}

/// Where the completions of a linked endpoint go, and what is set when it completes operations.
struct LinkCompletions(Arc<dyn LinkOwner>, Arc<AtomicU32>);

impl CompletionTarget for LinkCompletions {
    fn completed(&self, completion: &Completion) {
        self.1.store(ARRIVED, Ordering::Relaxed);
        self.0.completed(completion);
    }

    fn failed(&self, error: ErrorCompletion) {
        self.0.failed(error);
    }
}
