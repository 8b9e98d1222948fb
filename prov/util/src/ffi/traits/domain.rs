//! What a provider implements to offer fabrics and domains (fi_fabric(3),
//! fi_domain(3)).

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use crate::atomic_ops::Offered;
use crate::attr::{Info, Offers};
use crate::av::format::Format;
use crate::endpoint::{Endpoint, PassiveEndpoint, SharedReceive};
use crate::errno::{Errno, Result};
use crate::ffi::Handle;
use crate::ffi::domain::{DomainObject, PeerDomain};
use crate::ffi::ep::TransferOwner;
use crate::ffi::fabric::FabricObject;
use crate::ffi::srx::ImportedSrx;
use crate::mr::MrTable;
use crate::progress::Progress;
use crate::sync::LockKind;

/// A provider's fabric.
pub trait Fabric: Send + Sync + Sized + 'static {
    /// Its domains.
    type Domain: Domain;
    /// Its passive endpoints, or [`crate::endpoint::NoPassiveEndpoint`].
    type PassiveEndpoint: PassiveEndpoint;

    /// What fi_getinfo(3) offers, which is all that can be opened.
    fn offers(&self) -> Offers;

    /// What of the attributes in `info` a domain depends on: the rest is not looked at when
    /// one is opened.
    fn for_domain(&self, info: Info) -> Info {
        info
    }

    /// `fi_domain`. The seam keeps the fabric open as long as the domain is.
    fn domain(this: &Handle<FabricObject<Self>>, info: &Info) -> Result<Self::Domain>;

    /// `fi_domain2` under `FI_PEER`: a domain that works for `owner`, the main
    /// provider's, which stays open as long.
    fn peer_domain(
        _this: &Handle<FabricObject<Self>>,
        _info: &Info,
        _owner: PeerDomain,
    ) -> Result<Self::Domain> {
        Err(Errno::EINVAL)
    }

    /// `fi_passive_ep`
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

    /// Where the domain's objects log, such as `tcp::domain`.
    const LOG_TARGET: &'static str;

    /// `fi_endpoint`. The seam keeps the domain open as long as the endpoint
    /// is.
    fn endpoint(this: &Handle<DomainObject<Self>>, info: &Info) -> Result<Self::Endpoint>;

    /// `fi_endpoint` with `FI_PEER_TRANSFER` in the mode: an endpoint that
    /// transfers over the one of `owner`, which stays open as long. It hears of
    /// them with [`Endpoint::transfer_done`].
    fn transfer_endpoint(
        _this: &Handle<DomainObject<Self>>,
        _info: &Info,
        _owner: TransferOwner,
    ) -> Result<Self::Endpoint> {
        Err(Errno::EINVAL)
    }

    /// `fi_srx_context`, with `fi_rx_attr::size`.
    fn shared_receive(
        _this: &Handle<DomainObject<Self>>,
        _size: usize,
    ) -> Result<Self::SharedReceive> {
        Err(Errno::ENOSYS)
    }

    /// Whether threads may meet at the domain's completion queues: those of the
    /// application, by its threading level, and those of the provider, if they
    /// report to queues.
    fn lock(&self) -> LockKind {
        LockKind::Real
    }

    /// `fi_srx_context` under `FI_PEER`: the receives are with `owner`, and
    /// nothing can be posted to the result. What comes from `owner` is gone when
    /// the result is closed.
    fn peer_receive(
        _this: &Handle<DomainObject<Self>>,
        _owner: ImportedSrx,
    ) -> Result<Self::SharedReceive> {
        Err(Errno::EINVAL)
    }

    /// Its memory registrations: the software's, those of its device, or both
    /// ([`crate::mr::Registrar`]).
    fn memory(&self) -> &Arc<MrTable>;

    /// What moves the domain's transfers on. Counters drive it from the time
    /// they are opened, and who sleeps for one that a region has bound wakes for it.
    /// None where threads with different counters must not meet in it.
    fn progress(&self) -> Option<Arc<dyn Progress>> {
        None
    }

    /// The format that `fi_info::addr_format` means to this provider, for its
    /// address vectors; `None` where it has none.
    fn address_format(&self, addr_format: u32) -> Option<Format> {
        Format::of(addr_format)
    }

    /// What there is of atomic operations.
    fn atomics(&self) -> Offered {
        Offered::NONE
    }

    /// The text for a `prov_errno` in error entries of its completion queues,
    /// where that is no error number (`fi_cq_strerror`).
    fn error_text(_prov_errno: c_int) -> Option<&'static CStr> {
        None
    }

    /// `fi_close`, with nothing left open in the domain.
    fn close(&self) -> Result {
        Ok(())
    }
}
