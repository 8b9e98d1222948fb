//! The traits of endpoints (fi_endpoint(3), fi_cm(3)).

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::Arc;

use fabric_abi::{
    FI_ADDR_UNSPEC, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fi_addr_t,
};

use crate::collective::{Collective, Join};
use crate::ffi::ends::PeerEnds;
use crate::ffi::ep::{EndpointObject, SharedReceiveObject};
use crate::ffi::stx::SharedTransmit;
use crate::ffi::{Handle, Use};
use crate::transfers::Transfers;
use prov_base::errno::{Errno, Result};
use prov_objects::attr::Opaque;
use prov_objects::av::Av;
use prov_objects::cntr::Cntr;
use prov_objects::cq::{Completion, Cq, ErrorCompletion};
use prov_objects::eq::Eq;
use prov_objects::progress::Progress;
use prov_objects::request::{Atomic, Receive, RemoteAccess, Transmit};
use prov_objects::wait::{Attachment, Waitable};

/// The objects that the application has bound to an endpoint (fi_ep_bind(3)). They stay open as
/// long as this value lives.
pub struct Bindings<S: SharedReceive> {
    /// Completions of transmits.
    pub tx_cq: Option<Use<Cq>>,
    /// Completions of receives.
    pub rx_cq: Option<Use<Cq>>,
    /// Counters by the kind of operation that they count.
    pub counters: Counters,
    /// Events of the connection.
    pub eq: Option<Use<Eq>>,
    /// Addresses of peers.
    pub av: Option<Use<Av>>,
    /// The shared receive context, if receives come from one.
    pub shared: Option<Use<SharedReceiveObject<S>>>,
    /// The shared transmit context.
    pub stx: Option<Arc<SharedTransmit>>,
    /// Records the outcomes of a peer's transfers; `None` if no peer makes any.
    pub transfers: Option<Arc<Transfers>>,
}

/// The counters of an endpoint, one for each kind of operation.
#[derive(Clone, Default)]
pub struct Counters {
    /// `FI_SEND`
    pub send: Option<Use<Cntr>>,
    /// `FI_RECV`
    pub recv: Option<Use<Cntr>>,
    /// `FI_READ`
    pub read: Option<Use<Cntr>>,
    /// `FI_WRITE`
    pub write: Option<Use<Cntr>>,
    /// `FI_REMOTE_READ`
    pub remote_read: Option<Use<Cntr>>,
    /// `FI_REMOTE_WRITE`
    pub remote_write: Option<Use<Cntr>>,
}

impl Counters {
    /// Returns whether threads may sleep until one of them changes.
    pub fn can_sleep(&self) -> bool {
        self.iter().any(|cntr| cntr.can_sleep())
    }

    /// Returns whether any operations other than receives, and other than those of peers, are
    /// counted.
    pub fn count_transmits(&self) -> bool {
        self.send.is_some() || self.read.is_some() || self.write.is_some()
    }

    /// Returns the counters, with their flags of fi_ep_bind(3).
    pub fn places(&mut self) -> [(u64, &mut Option<Use<Cntr>>); 6] {
        [
            (FI_SEND, &mut self.send),
            (FI_RECV, &mut self.recv),
            (FI_READ, &mut self.read),
            (FI_WRITE, &mut self.write),
            (FI_REMOTE_READ, &mut self.remote_read),
            (FI_REMOTE_WRITE, &mut self.remote_write),
        ]
    }

    /// Returns the accesses of peers that are counted (`FI_REMOTE_READ`, `FI_REMOTE_WRITE`).
    pub fn remote(&self) -> u64 {
        let flag = |flag, place: &Option<_>| if place.is_some() { flag } else { 0 };
        flag(FI_REMOTE_READ, &self.remote_read) | flag(FI_REMOTE_WRITE, &self.remote_write)
    }

    /// Iterates over the bound counters; one that counts several kinds occurs several times.
    pub fn iter(&self) -> impl Iterator<Item = &Use<Cntr>> {
        let all = [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ];
        all.into_iter().flatten()
    }
}

impl<S: SharedReceive> Default for Bindings<S> {
    fn default() -> Self {
        Bindings {
            tx_cq: None,
            rx_cq: None,
            counters: Counters::default(),
            eq: None,
            av: None,
            shared: None,
            stx: None,
            transfers: None,
        }
    }
}

impl<S: SharedReceive> Clone for Bindings<S> {
    fn clone(&self) -> Self {
        Bindings {
            tx_cq: self.tx_cq.clone(),
            rx_cq: self.rx_cq.clone(),
            counters: self.counters.clone(),
            eq: self.eq.clone(),
            av: self.av.clone(),
            shared: self.shared.clone(),
            stx: self.stx.clone(),
            transfers: self.transfers.clone(),
        }
    }
}

impl<S: SharedReceive> Bindings<S> {
    /// Returns whether any of the queues and counters is in a wait set, on which any thread may
    /// wait.
    pub fn are_in_set(&self) -> bool {
        let queues = self.tx_cq.iter().chain(&self.rx_cq);
        queues.map(|cq| cq.attachment()).any(Attachment::is_in_set)
            || self
                .counters
                .iter()
                .any(|cntr| cntr.attachment().is_in_set())
    }
}

pub use prov_layer::below::OPT_ONLY_RENDEZVOUS;

/// The value of an endpoint option, as in fi_setopt(3) and fi_getopt(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A `size_t`.
    Size(usize),
    /// An `int`.
    Int(c_int),
    /// A `bool`.
    Bool(bool),
}

/// An endpoint's position in a collective group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its rank.
    pub rank: usize,
    /// Members of the group.
    pub members: usize,
    /// The rank of the requested root; 0 if none was requested.
    pub root: usize,
}

/// A multicast group that an endpoint joins.
#[derive(Clone, Copy, Debug)]
pub struct Multicast<'a> {
    /// Its address, a socket address.
    pub address: &'a [u8],
    /// What it is called as a destination (`fi_mc_addr`): no number of an address vector.
    pub number: fi_addr_t,
    /// Whether the endpoint receives what is sent to it.
    pub receives: bool,
}

/// One of the two sides of an endpoint. A context of a scalable endpoint is one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sends, reads and writes of the endpoint.
    Transmit,
    /// Receives of the endpoint, and its peers' accesses to its memory.
    Receive,
}

impl Side {
    /// The directions of `fi_ep_bind` that belong to it.
    pub fn directions(self) -> u64 {
        match self {
            Side::Transmit => FI_SEND | FI_READ | FI_WRITE,
            Side::Receive => FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Side::Transmit => Side::Receive,
            Side::Receive => Side::Transmit,
        }
    }
}

/// An active endpoint.
pub trait Endpoint: Send + Sync + Sized + 'static {
    /// The provider's shared receive context.
    type SharedReceive: SharedReceive;

    /// Whether bound event queues stay open, and whether flags are refused by calls that define
    /// none: fi_ep_bind(3) of event queues and of address vectors, `fi_av_remove`.
    const IS_STRICT: bool = true;

    /// Whether a shared receive context may be bound to an enabled endpoint.
    const SHARES_LATE: bool = false;

    /// Implements fi_enable(3); called once. Returns the progress engine, which the seam makes
    /// reads of the bound objects drive.
    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result<Arc<dyn Progress>>;

    /// Implements fi_ep_bind(3) for an enabled endpoint: a counter, a completion queue for a
    /// direction that had none, another event queue, or a shared receive context
    /// ([`Endpoint::SHARES_LATE`]). Later completions are reported to these. An error changes
    /// nothing.
    fn rebind(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result;

    /// `fi_close` of a context of a scalable endpoint: the operations of this side end without
    /// being reported, their memory is not accessed after the return, and operations that complete
    /// later are reported to `bindings`. The other side continues.
    fn close_side(
        this: &Handle<EndpointObject<Self>>,
        _side: Side,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result {
        Self::rebind(this, bindings)
    }

    /// Returns the limit of posted receives: as many are accepted before fi_enable(3).
    fn receive_limit(&self) -> usize;

    /// Implements fi_close(3), when no alias is left. Outstanding operations end without
    /// completions.
    fn close(this: &Handle<EndpointObject<Self>>) -> Result;

    /// Posts a message. `-FI_EAGAIN` if it should be retried later.
    fn transmit(&self, message: &mut Transmit) -> Result;

    /// The fast path of [`Endpoint::receive`], for what takes a few instructions. Returns `false`,
    /// without any effect, for all other receives.
    #[inline(always)]
    fn receive_fast(&self, _receive: &mut Receive) -> bool {
        false
    }

    /// Posts a receive, or peeks at unexpected messages. `-FI_EOPBADSTATE` until the endpoint is
    /// enabled.
    fn receive(&self, receive: &mut Receive) -> Result;

    /// Posts a read or a write.
    fn access(&self, _access: &mut RemoteAccess) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Posts an atomic operation.
    fn atomic(&self, _atomic: &mut Atomic) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_cancel(3), when the endpoint is enabled: `-FI_ENOENT` if no such receive is
    /// posted, which is not reported to the application (fi_endpoint(3): there may be nothing to
    /// cancel).
    fn cancel(&self, context: *mut c_void) -> Result;

    /// The same for an operation that the endpoint sends, of which nothing has left: `-FI_ENOENT` if
    /// there is none.
    fn take_back(&self, _context: *mut c_void) -> Result {
        Err(Errno::ENOENT)
    }

    /// Returns the endpoint's own address, in the domain's address format.
    fn name(&self) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Returns the address in another form, for a caller with a buffer of `room` bytes, which is too
    /// small for [`Endpoint::name`].
    fn short_name(&self, _room: usize) -> Option<Vec<u8>> {
        None
    }

    /// Implements fi_setname(3).
    fn set_name(&self, _name: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Returns the connected peer's address.
    fn peer_name(&self) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_connect(3), with connection data, which is truncated if it is too long.
    fn connect(&self, _address: &[u8], _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_accept(3), with connection data, likewise.
    fn accept(&self, _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Returns the descriptor for `FI_GET_FD`, such as the socket of the connection. The endpoint
    /// still owns it.
    fn descriptor(&self) -> Result<RawFd> {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_shutdown(3).
    fn shutdown(&self) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_getopt(3) at level `FI_OPT_ENDPOINT`; `-FI_ENOPROTOOPT` for an option that it
    /// does not have.
    fn option(&self, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// Implements fi_setopt(3); the value has the option's type.
    fn set_option(&self, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }

    /// Tells the owner of the endpoint's receives of peers that are gone, from now on
    /// ([`peer_ends`](prov_objects::peer_ends)).
    fn tell_ends(&self, _ends: PeerEnds) -> Result {
        Err(Errno::ENOSYS)
    }

    /// The owner of the endpoint's receives has posted one that only messages of this peer can match;
    /// with `transfers` for another provider, so that the peer is contacted.
    fn awaits(&self, _peer: fi_addr_t, _transfers: bool) {}

    /// Returns the number of transmit operations that may still be posted.
    fn transmit_room(&self) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Returns the number of receives that may still be posted.
    fn receive_room(&self) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Returns the endpoint's position in a group, and the rank of `root` in it, for an endpoint
    /// with collective operations: see [`Endpoint::collective`]; `-FI_EINVAL` if it is not in the
    /// group.
    fn group(&self, _group: fi_addr_t, _root: Option<fi_addr_t>) -> Result<Standing> {
        Err(Errno::ENOSYS)
    }

    /// Posts a collective operation, on an endpoint that transfers over another provider's.
    fn collective(&self, _collective: &mut Collective) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Returns an address for a group that is about to be joined.
    fn new_group(&self) -> fi_addr_t {
        FI_ADDR_UNSPEC
    }

    /// Implements fi_join_collective(3): an event reports when all members have joined.
    fn join(&self, _group: fi_addr_t, _join: Join) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_close(3) for a group.
    fn leave(&self, _group: fi_addr_t) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Whether there are multicast groups to join.
    const HAS_MULTICAST: bool = false;

    /// `fi_join` of a multicast group: messages with `FI_MULTICAST` for its number go to its
    /// members.
    fn join_multicast(&self, _group: &Multicast<'_>) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_close` of a multicast group, by its number.
    fn leave_multicast(&self, _number: fi_addr_t) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Reports that a transfer over the main provider's endpoint has completed
    /// (`fi_ops_transfer_peer::complete`), to an endpoint that makes such transfers, see
    /// [`Domain::transfer_endpoint`](crate::domain::Domain::transfer_endpoint).
    fn transfer_done(&self, _completion: &Completion) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Like [`Endpoint::transfer_done`], for a transfer that has failed
    /// (`fi_ops_transfer_peer::comperr`).
    fn transfer_failed(&self, _error: ErrorCompletion) -> Result {
        Err(Errno::ENOSYS)
    }
}

/// A receive context that several endpoints share (fi_srx_context(3)).
pub trait SharedReceive: Send + Sync + Sized + 'static {
    /// Like [`Endpoint::receive_fast`].
    #[inline(always)]
    fn receive_fast(&self, _receive: &mut Receive) -> bool {
        false
    }

    /// Posts a receive.
    fn receive(&self, receive: &mut Receive) -> Result;

    /// Reports a receive that was accepted, and that [`SharedReceive::receive`] has refused, to the
    /// queue and, if it `counts`, to the counter for receives.
    fn refuse(&self, _receive: &Receive, _error: Errno, _counts: bool) {}

    /// Sets what learns of the ends of deferred receives that complete without an endpoint.
    fn expects(&self, _transfers: &Arc<Transfers>) -> Result {
        Ok(())
    }

    /// Implements fi_cancel(3).
    fn cancel(&self, context: *mut c_void) -> Result;

    /// Sets the CQ and the counter for receives that complete without an endpoint.
    fn bind(&self, cq: Option<Use<Cq>>, cntr: Option<Use<Cntr>>) -> Result;

    /// Returns the engine that makes progress for the context.
    fn progress(&self) -> Arc<dyn Progress>;

    /// Implements fi_close(3).
    fn close(_this: &Handle<SharedReceiveObject<Self>>) -> Result {
        Ok(())
    }

    /// Like [`Endpoint::option`].
    fn option(&self, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// Like [`Endpoint::set_option`].
    fn set_option(&self, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }
}

/// For providers without shared receive contexts.
pub enum NoSharedReceive {}

impl SharedReceive for NoSharedReceive {
    fn receive(&self, _: &mut Receive) -> Result {
        match *self {}
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        match *self {}
    }

    fn bind(&self, _: Option<Use<Cq>>, _: Option<Use<Cntr>>) -> Result {
        match *self {}
    }

    fn progress(&self) -> Arc<dyn Progress> {
        match *self {}
    }
}

/// A listener for connection requests (`fi_passive_ep`).
pub trait PassiveEndpoint: Send + Sync + Sized + 'static {
    /// Sets its event queue.
    fn bind(&self, eq: Use<Eq>) -> Result;

    /// Implements fi_listen(3). Connection requests arrive at the event queue, with the `fid` of
    /// `this`.
    fn listen(this: &Handle<crate::ffi::pep::PassiveObject<Self>>) -> Result;

    /// Implements fi_reject(3) for the request that `handle` names, with connection data, which is
    /// truncated if it is too long. The handle may be that of an answered request, so it is
    /// compared, and not dereferenced.
    fn reject(&self, handle: Opaque, data: &[u8]) -> Result;

    /// Returns its own address.
    fn name(&self) -> Result<Vec<u8>>;

    /// Implements fi_setname(3).
    fn set_name(&self, name: &[u8]) -> Result;

    /// Implements fi_control(3) `FI_BACKLOG`.
    fn set_backlog(&self, backlog: c_int) -> Result;

    /// Returns the largest connection data of a request or answer in bytes (`FI_OPT_CM_DATA_SIZE`).
    fn connection_data_limit(&self) -> usize;

    /// Implements fi_close(3).
    fn close(_this: &Handle<crate::ffi::pep::PassiveObject<Self>>) -> Result {
        Ok(())
    }
}

/// For providers without passive endpoints.
pub enum NoPassiveEndpoint {}

impl PassiveEndpoint for NoPassiveEndpoint {
    fn bind(&self, _: Use<Eq>) -> Result {
        match *self {}
    }

    fn listen(this: &Handle<crate::ffi::pep::PassiveObject<Self>>) -> Result {
        match this.0 {}
    }

    fn reject(&self, _: Opaque, _: &[u8]) -> Result {
        match *self {}
    }

    fn name(&self) -> Result<Vec<u8>> {
        match *self {}
    }

    fn set_name(&self, _: &[u8]) -> Result {
        match *self {}
    }

    fn set_backlog(&self, _: i32) -> Result {
        match *self {}
    }

    fn connection_data_limit(&self) -> usize {
        match *self {}
    }
}
