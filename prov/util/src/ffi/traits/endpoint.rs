//! What a provider implements to offer endpoints (fi_endpoint(3), fi_cm(3)).

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::Arc;

use fabric_abi::{
    FI_ADDR_UNSPEC, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fi_addr_t,
};

use crate::attr::Opaque;
use crate::av::Av;
use crate::cntr::Cntr;
use crate::collective::{Collective, Join};
use crate::cq::{Completion, Cq, ErrorCompletion};
use crate::eq::Eq;
use crate::errno::{Errno, Result};
use crate::ffi::ep::{EndpointObject, SharedReceiveObject};
use crate::ffi::{Handle, Use};
use crate::progress::Progress;
use crate::request::{Atomic, Receive, RemoteAccess, Transmit};
use crate::transfers::Transfers;
use crate::wait::{Attachment, Waitable};

/// What the application has bound to an endpoint (`fi_ep_bind`). Each object
/// stays open as long as this value lives.
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
    /// Where receives are taken from instead of the endpoint.
    pub shared: Option<Use<SharedReceiveObject<S>>>,
    /// Where it is noted how the transfers of a peer end; none where no peer makes any.
    pub transfers: Option<Arc<Transfers>>,
}

/// The counters of an endpoint: a place for each kind of operation.
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
    /// Whether threads may sleep until one of them changes.
    pub fn can_sleep(&self) -> bool {
        self.iter().any(|cntr| cntr.can_sleep())
    }

    /// Whether operations of the endpoint's own are counted, of any kind but receives.
    pub fn count_transmits(&self) -> bool {
        self.send.is_some() || self.read.is_some() || self.write.is_some()
    }

    /// The places, with the flags of `fi_ep_bind` that mean them.
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

    /// Which accesses of peers are counted (`FI_REMOTE_READ`, `FI_REMOTE_WRITE`).
    pub fn remote(&self) -> u64 {
        let flag = |flag, place: &Option<_>| if place.is_some() { flag } else { 0 };
        flag(FI_REMOTE_READ, &self.remote_read) | flag(FI_REMOTE_WRITE, &self.remote_write)
    }

    /// Those that there are; one that counts several kinds as often.
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
            transfers: self.transfers.clone(),
        }
    }
}

impl<S: SharedReceive> Bindings<S> {
    /// Whether any of the queues and counters is in a wait set, at which any thread
    /// may wait.
    pub fn are_in_set(&self) -> bool {
        let queues = self.tx_cq.iter().chain(&self.rx_cq);
        queues.map(|cq| cq.attachment()).any(Attachment::is_in_set)
            || self
                .counters
                .iter()
                .any(|cntr| cntr.attachment().is_in_set())
    }
}

/// An endpoint option's value, as `fi_setopt` and `fi_getopt` pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A `size_t`.
    Size(usize),
    /// An `int`.
    Int(c_int),
    /// A `bool`.
    Bool(bool),
}

/// An endpoint's place in a collective group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its rank.
    pub rank: usize,
    /// Members of the group.
    pub members: usize,
    /// The rank that was asked for; 0 where none was.
    pub root: usize,
}

/// An active endpoint.
pub trait Endpoint: Send + Sync + Sized + 'static {
    /// The provider's shared receive context.
    type SharedReceive: SharedReceive;

    /// Whether event queues that are bound stay open, and flags are refused of calls that
    /// take none: `fi_ep_bind` of queues for events and of address vectors,
    /// `fi_av_remove`.
    const IS_STRICT: bool = true;

    /// `fi_enable`, once. Returns what moves the endpoint's transfers on, which the
    /// seam has driven from the reads of what is bound.
    fn enable(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result<Arc<dyn Progress>>;

    /// `fi_ep_bind` of an enabled endpoint: a counter, a completion queue for a
    /// direction that had none, or another event queue. What completes from now on is
    /// reported to these. An error leaves everything as it was.
    fn rebind(
        this: &Handle<EndpointObject<Self>>,
        bindings: &Bindings<Self::SharedReceive>,
    ) -> Result;

    /// Receives that may wait at once (`fi_rx_attr::size`): as many are taken before
    /// `fi_enable`.
    fn receive_size(&self) -> usize;

    /// `fi_close`, once no alias is left. Operations in flight end without
    /// completions.
    fn close(this: &Handle<EndpointObject<Self>>) -> Result;

    /// A message. `-FI_EAGAIN` when it should be tried again later.
    fn transmit(&self, message: &Transmit) -> Result;

    /// A receive buffer, where that takes a few instructions; `false`, and nothing
    /// has happened, where it is for [`Endpoint::receive`].
    #[inline(always)]
    fn receive_at_once(&self, _receive: &Receive) -> bool {
        false
    }

    /// A receive buffer, or a look at what arrived unexpected. `-FI_EOPBADSTATE` until
    /// it is enabled.
    fn receive(&self, receive: &Receive) -> Result;

    /// A remote memory access.
    fn access(&self, _access: &RemoteAccess) -> Result {
        Err(Errno::ENOSYS)
    }

    /// An atomic operation.
    fn atomic(&self, _atomic: &Atomic) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_cancel`, once it is enabled: `-FI_ENOENT` where no such receive waits, which
    /// the application is not told (fi_endpoint(3): cancellation may find nothing to
    /// cancel).
    fn cancel(&self, context: *mut c_void) -> Result;

    /// The endpoint's own address, in the domain's address format.
    fn name(&self) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// `fi_setname`
    fn set_name(&self, _name: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// The connected peer's address.
    fn peer_name(&self) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// `fi_connect` with connection data; what is too long is cut.
    fn connect(&self, _address: &[u8], _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_accept` with connection data, likewise.
    fn accept(&self, _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `FI_GET_FD`: the socket or the like that the endpoint transfers over.
    /// It stays the endpoint's.
    fn descriptor(&self) -> Result<RawFd> {
        Err(Errno::ENOSYS)
    }

    /// `fi_shutdown`
    fn shutdown(&self) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_getopt` at level `FI_OPT_ENDPOINT`; `-FI_ENOPROTOOPT` for an option
    /// it does not have.
    fn option(&self, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// `fi_setopt`; the value has the option's type.
    fn set_option(&self, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }

    /// Transmit operations that may still be posted.
    fn transmit_room(&self) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Receives that may still be posted.
    fn receive_room(&self) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// The endpoint's place in a group, and the rank of `root` in it, of an endpoint that does collective operations:
    /// see [`Endpoint::collective`]; `-FI_EINVAL` for no group of it or no member.
    fn group(&self, _group: fi_addr_t, _root: Option<fi_addr_t>) -> Result<Standing> {
        Err(Errno::ENOSYS)
    }

    /// A collective operation, of an endpoint that transfers over another provider's.
    fn collective(&self, _collective: &Collective) -> Result {
        Err(Errno::ENOSYS)
    }

    /// An address for a group that is about to be joined.
    fn new_group(&self) -> fi_addr_t {
        FI_ADDR_UNSPEC
    }

    /// `fi_join_collective`: an event tells when all members have joined.
    fn join(&self, _group: fi_addr_t, _join: Join) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_close` of a group.
    fn leave(&self, _group: fi_addr_t) -> Result {
        Err(Errno::ENOSYS)
    }

    /// A transfer over the main provider's endpoint has completed
    /// (`fi_ops_transfer_peer::complete`): of an endpoint that makes some, see
    /// [`Domain::transfer_endpoint`](crate::domain::Domain::transfer_endpoint).
    fn transfer_done(&self, _completion: &Completion) -> Result {
        Err(Errno::ENOSYS)
    }

    /// As [`Endpoint::transfer_done`], of one that has failed
    /// (`fi_ops_transfer_peer::comperr`).
    fn transfer_failed(&self, _error: ErrorCompletion) -> Result {
        Err(Errno::ENOSYS)
    }
}

/// A receive context that several endpoints take their receives from
/// (`fi_srx_context`).
pub trait SharedReceive: Send + Sync + Sized + 'static {
    /// As [`Endpoint::receive_at_once`].
    #[inline(always)]
    fn receive_at_once(&self, _receive: &Receive) -> bool {
        false
    }

    /// A receive buffer.
    fn receive(&self, receive: &Receive) -> Result;

    /// `fi_cancel`
    fn cancel(&self, context: *mut c_void) -> Result;

    /// Where receives complete that no endpoint has taken from now on: a CQ and a
    /// counter.
    fn bind(&self, cq: Option<Use<Cq>>, cntr: Option<Use<Cntr>>) -> Result;

    /// What moves the context's transfers on.
    fn progress(&self) -> Arc<dyn Progress>;

    /// `fi_close`
    fn close(_this: &Handle<SharedReceiveObject<Self>>) -> Result {
        Ok(())
    }

    /// As [`Endpoint::option`].
    fn option(&self, _name: c_int) -> Result<OptionValue> {
        Err(Errno::ENOPROTOOPT)
    }

    /// As [`Endpoint::set_option`].
    fn set_option(&self, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }
}

/// For providers without shared receive contexts.
pub enum NoSharedReceive {}

impl SharedReceive for NoSharedReceive {
    fn receive(&self, _: &Receive) -> Result {
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
    /// Its event queue from now on.
    fn bind(&self, eq: Use<Eq>) -> Result;

    /// `fi_listen`. Connection requests arrive at the event queue; `this`
    /// gives the `fid` that events report.
    fn listen(this: &Handle<crate::ffi::pep::PassiveObject<Self>>) -> Result;

    /// `fi_reject`: the request that `handle` names, with connection data; what
    /// is too long is cut. The handle may be that of a request which has been
    /// answered, so it is compared, and not followed.
    fn reject(&self, handle: Opaque, data: &[u8]) -> Result;

    /// Its own address.
    fn name(&self) -> Result<Vec<u8>>;

    /// `fi_setname`
    fn set_name(&self, name: &[u8]) -> Result;

    /// `fi_control` `FI_BACKLOG`
    fn set_backlog(&self, backlog: c_int) -> Result;

    /// Bytes of connection data a request or answer takes
    /// (`FI_OPT_CM_DATA_SIZE`).
    fn connection_data_limit(&self) -> usize;

    /// `fi_close`
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
