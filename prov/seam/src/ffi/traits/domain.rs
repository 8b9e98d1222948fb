//! The traits of fabrics and domains (fi_fabric(3), fi_domain(3)).

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use crate::endpoint::{Endpoint, PassiveEndpoint, SharedReceive};
use crate::ffi::Handle;
use crate::ffi::domain::{DomainObject, PeerDomain};
use crate::ffi::ep::TransferOwner;
use crate::ffi::fabric::FabricObject;
use crate::ffi::srx::ImportedSrx;
use prov_base::atomic_ops::Offered;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_objects::attr::{Info, Offers};
use prov_objects::av::format::Format;
use prov_objects::hmem::Functions;
use prov_objects::mr::MrTable;
use prov_objects::progress::Progress;

/// A provider's fabric.
pub trait Fabric: Send + Sync + Sized + 'static {
    /// Its domains.
    type Domain: Domain;
    /// Its passive endpoints, or [`crate::endpoint::NoPassiveEndpoint`].
    type PassiveEndpoint: PassiveEndpoint;

    /// Returns what fi_getinfo(3) offers; only that can be opened.
    fn offers(&self) -> Offers;

    /// Returns the part of the attributes in `info` that matters for a domain: the rest is ignored
    /// when one is opened.
    fn for_domain(&self, info: Info) -> Info {
        info
    }

    /// Implements fi_domain(3). The seam keeps the fabric open as long as the domain is.
    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Self::Domain>;

    /// Implements fi_domain2(3) with `FI_PEER`: a domain that serves `owner`, the main provider's
    /// domain, which stays open at least as long.
    fn peer_domain(
        _this: &Handle<FabricObject<Self>>,
        _info: &Info,
        _owner: PeerDomain,
    ) -> Result<Self::Domain> {
        Err(Errno::EINVAL)
    }

    /// Implements fi_passive_ep(3).
    fn passive_endpoint(
        _this: &Handle<FabricObject<Self>>,
        _info: &Info,
    ) -> Result<Self::PassiveEndpoint> {
        Err(Errno::ENOSYS)
    }
}

/// A provider's domain.
pub trait Domain: Send + Sync + Sized + 'static {
    /// Its endpoints.
    type Endpoint: Endpoint<SharedReceive = Self::SharedReceive>;
    /// Its shared receive contexts, or [`crate::endpoint::NoSharedReceive`].
    type SharedReceive: SharedReceive;

    /// The log target of the domain's objects, such as `tcp::domain`.
    const LOG_TARGET: &'static str;

    /// Implements fi_endpoint(3). The seam keeps the domain open as long as the endpoint is.
    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<Self::Endpoint>;

    /// Implements fi_endpoint(3) with `FI_PEER_TRANSFER` in the mode: an endpoint that transfers
    /// over that of `owner`, which stays open at least as long. It learns of completions by
    /// [`Endpoint::transfer_done`].
    fn transfer_endpoint(
        _this: &Handle<DomainObject<Self>>,
        _info: &Info,
        _owner: TransferOwner,
    ) -> Result<Self::Endpoint> {
        Err(Errno::EINVAL)
    }

    /// `fi_scalable_ep`: as many endpoints, one for the contexts of each index. Their address
    /// is that of the first; peers reach the others by it and their place in the list
    /// (`fi_rx_addr`). Only the first `rx_ctx_cnt` of them have receives.
    fn scalable_endpoint(
        _this: &Handle<DomainObject<Self>>,
        _info: &Info,
        _pairs: usize,
    ) -> Result<Vec<Self::Endpoint>> {
        Err(Errno::ENOSYS)
    }

    /// Implements fi_srx_context(3), with `fi_rx_attr::size`, and whether receives may be for one
    /// sender alone (`FI_DIRECTED_RECV`).
    fn shared_receive(
        _this: &Handle<DomainObject<Self>>,
        _size: usize,
        _directed: bool,
    ) -> Result<Self::SharedReceive> {
        Err(Errno::ENOSYS)
    }

    /// `fi_stx_context` with `fi_tx_attr::size`, 0 for none: the operations that its endpoints may
    /// have outstanding together.
    fn shared_transmit(_this: &Handle<DomainObject<Self>>, _size: usize) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Returns the kind of lock that the domain's completion queues need: they are used by threads
    /// of the application, according to its threading level, and by those of the provider, if they
    /// write to queues.
    fn lock(&self) -> LockKind {
        LockKind::Real
    }

    /// Implements fi_set_ops(3) with `FI_SET_OPS_HMEM_OVERRIDE`, besides what
    /// [`Hmem`](prov_objects::hmem::Hmem) does with the functions.
    ///
    /// # Errors
    /// Those of a provider below.
    fn set_functions(&self, _functions: Functions) -> Result {
        Ok(())
    }

    /// Implements fi_srx_context(3) with `FI_PEER`: the receives belong to `owner`, and cannot be
    /// posted to the result. Objects from `owner` are invalid after the result is closed.
    fn peer_receive(
        _this: &Handle<DomainObject<Self>>,
        _owner: ImportedSrx,
    ) -> Result<Self::SharedReceive> {
        Err(Errno::EINVAL)
    }

    /// Returns its memory registrations: those of the software, of its device, or both
    /// ([`prov_objects::mr::Registrar`]).
    fn memory(&self) -> &Arc<MrTable>;

    /// Returns the engine that makes progress for the domain. Counters drive it from the time when
    /// they are opened, and it wakes threads that sleep on a counter to which a region is bound.
    /// `None` if threads with different counters must not use it concurrently.
    fn progress(&self) -> Option<Arc<dyn Progress>> {
        None
    }

    /// Returns this provider's meaning of `fi_info::addr_format`, for its address vectors; `None`
    /// if it has none.
    fn address_format(&self, addr_format: u32) -> Option<Format> {
        Format::of(addr_format)
    }

    /// Returns whether an endpoint is enabled only with a queue or a counter for each direction in
    /// which it has operations. Otherwise operations that have none are not reported.
    fn needs_queues(&self) -> bool {
        true
    }

    /// Returns the supported atomic operations.
    fn atomics(&self) -> Offered {
        Offered::NONE
    }

    /// Returns the text of a `prov_errno` in error entries of its completion queues, if that is not
    /// an error number (fi_cq_strerror(3)).
    fn error_text(_prov_errno: c_int) -> Option<&'static CStr> {
        None
    }

    /// Implements fi_close(3); all objects in the domain have been closed.
    fn close(&self) -> Result {
        Ok(())
    }
}
