//! What a provider implements to offer endpoints (fi_endpoint(3), fi_cm(3)).

use std::ffi::{c_int, c_void};

use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::eq::Eq;
use crate::errno::{Errno, Result};
use crate::ffi::ep::{EndpointObject, SharedReceiveObject};
use crate::ffi::{AnyFid, Handle, Use};
use crate::request::{Atomic, Receive, RemoteAccess, Transmit};

/// An object bound to an endpoint with `fi_ep_bind`; it stays open as long as
/// this value lives.
pub enum Bound<S: SharedReceive> {
    /// `FI_CLASS_CQ`
    Cq(Use<Cq>),
    /// `FI_CLASS_EQ`
    Eq(Use<Eq>),
    /// `FI_CLASS_AV`
    Av(Use<Av>),
    /// `FI_CLASS_CNTR`
    Cntr(Use<Cntr>),
    /// `FI_CLASS_SRX_CTX`
    SharedReceive(Use<SharedReceiveObject<S>>),
    /// An object that is not of this library.
    Foreign(AnyFid),
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

/// An active endpoint.
pub trait Endpoint: Send + Sync + Sized + 'static {
    /// The provider's shared receive context.
    type SharedReceive: SharedReceive;

    /// `fi_ep_bind`, with the flags of the call.
    fn bind(
        this: &Handle<EndpointObject<Self>>,
        bound: Bound<Self::SharedReceive>,
        flags: u64,
    ) -> Result;

    /// `fi_enable`. Called on every `FI_ENABLE`; the second one is the
    /// endpoint's to judge.
    fn enable(this: &Handle<EndpointObject<Self>>) -> Result;

    /// `fi_close`, once no alias is left. Operations in flight end without
    /// completions.
    fn close(this: &Handle<EndpointObject<Self>>) -> Result;

    /// A message. `-FI_EAGAIN` when it should be tried again later.
    fn transmit(&self, message: &Transmit) -> Result;

    /// A receive buffer, or a look at what arrived unexpected.
    fn receive(&self, receive: &Receive) -> Result;

    /// A remote memory access.
    fn access(&self, _access: RemoteAccess) -> Result {
        Err(Errno::ENOSYS)
    }

    /// An atomic operation.
    fn atomic(&self, _atomic: Atomic) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_cancel`: `-FI_ENOENT` where no such receive waits.
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

    /// `fi_connect` with connection data.
    fn connect(&self, _address: &[u8], _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_accept` with connection data.
    fn accept(&self, _data: &[u8]) -> Result {
        Err(Errno::ENOSYS)
    }

    /// `fi_shutdown`
    fn shutdown(&self, _flags: u64) -> Result {
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

    /// The largest count of elements of one atomic operation
    /// (`fi_atomicvalid` and its relatives); `-FI_EOPNOTSUPP` where the
    /// combination is not supported.
    fn atomic_count(&self, _query: AtomicQuery) -> Result<usize> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `fi_tx_attr::op_flags` and `fi_rx_attr::op_flags` of the endpoint.
    fn default_flags(&self) -> (u64, u64);
}

/// Which combination `fi_atomicvalid`, `fi_fetch_atomicvalid` or
/// `fi_compare_atomicvalid` asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicQuery {
    /// `enum fi_datatype`
    pub datatype: fabric_abi::fi_datatype,
    /// `enum fi_op`
    pub op: fabric_abi::fi_op,
    /// 0, `FI_FETCH_ATOMIC` or `FI_COMPARE_ATOMIC`, with `FI_TAGGED` for
    /// tagged atomics.
    pub flags: u64,
}

/// A receive context that several endpoints take their receives from
/// (`fi_srx_context`).
pub trait SharedReceive: Send + Sync + Sized + 'static {
    /// A receive buffer.
    fn receive(&self, receive: &Receive) -> Result;

    /// `fi_cancel`
    fn cancel(&self, context: *mut c_void) -> Result;

    /// `fi_ep_bind` of a CQ or counter to the context.
    fn bind(this: &Handle<SharedReceiveObject<Self>>, bound: Bound<Self>, flags: u64) -> Result;

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

    /// `fi_rx_attr::op_flags` of the context.
    fn default_flags(&self) -> u64;
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

    fn bind(this: &Handle<SharedReceiveObject<Self>>, _: Bound<Self>, _: u64) -> Result {
        match ***this {}
    }

    fn default_flags(&self) -> u64 {
        match *self {}
    }
}

/// A listener for connection requests (`fi_passive_ep`).
pub trait PassiveEndpoint: Send + Sync + Sized + 'static {
    /// Its event queue; a second one is `-FI_EINVAL`.
    fn bind(&self, eq: Use<Eq>, flags: u64) -> Result;

    /// `fi_listen`. Connection requests arrive at the event queue; `this`
    /// gives the `fid` that events report.
    fn listen(this: &Handle<crate::ffi::pep::PassiveObject<Self>>) -> Result;

    /// `fi_reject`: the request that `handle` names, with connection data.
    fn reject(&self, handle: AnyFid, data: &[u8]) -> Result;

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
