//! fi_domain(3): domains, and the objects that are opened in them.

mod peer;

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::*;

pub use peer::{PeerDomain, PeerRegion};

use super::av::{AvDomain, AvTraits, av_open};
use super::cntr::{CntrDomain, cntr_open};
use super::cq::{CqDomain, CqTraits, cq_open};
use super::ep::scalable::{self, ScalableObject};
use super::ep::{EndpointObject, Limits, Offload, SharedReceiveObject, Surroundings, transfer};
use super::mr::{MrDomain, MrOps};
use super::object::{AnyFid, Class, Downcast, Handle, Use};
use super::poll::poll_open;
use super::srx::ImportedSrx;
use super::stx::SharedTransmitObject;
use super::work::{self, WorkContext};
use super::{collective, deliver, missing, mr, status};
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::trigger::Triggers;
use prov_base::atomic_ops;
use prov_base::errno::{Errno, Result};
use prov_base::sync::LockKind;
use prov_layer::marshal::info;
use prov_objects::attr::{Info, Offers};
use prov_objects::eq::Eq;
use prov_objects::hmem::Functions;
use prov_objects::mr::MrTable;
use prov_objects::progress::Progress;

/// The name of the functions that copy memory of devices, instead of a driver (fi_domain(3)).
const FI_SET_OPS_HMEM_OVERRIDE: &CStr = c"hmem_override_ops";

/// The C object of a domain.
pub struct DomainObject<D: Domain> {
    domain: D,
    name: String,
    caps: u64,
    threading: u32,
    av_type: u32,
    addr_format: u32,
    api_version: u32,
    offers: Arc<Offers>,
    /// Size of authorization keys, if the domain takes them from its address vectors.
    auth_key_size: Option<usize>,
    /// The queue for events of the domain (fi_domain_bind(3)).
    eq: Mutex<Option<Use<Eq>>>,
    /// Operations that wait for counters.
    triggers: Arc<Triggers>,
}

impl<D: Domain> DomainObject<D> {
    pub(super) fn new(domain: D, info: &Info, api_version: u32, offers: Arc<Offers>) -> Self {
        let triggers = Triggers::new(domain.lock() == LockKind::Real);
        DomainObject {
            domain,
            name: info.domain.name.clone().unwrap_or_default(),
            caps: info.caps,
            threading: info.domain.threading,
            av_type: info.domain.av_type,
            addr_format: info.addr_format,
            api_version,
            offers,
            auth_key_size: None,
            eq: Mutex::new(None),
            triggers,
        }
    }

    /// Returns `fi_domain_attr::threading`.
    pub fn threading(&self) -> u32 {
        self.threading
    }

    /// Returns `fi_info::addr_format`.
    pub fn addr_format(&self) -> u32 {
        self.addr_format
    }

    /// Returns the interface version that the application asked for.
    pub fn api_version(&self) -> u32 {
        self.api_version
    }

    /// Returns the event queue of the domain.
    pub fn eq(&self) -> Option<Use<Eq>> {
        self.eq
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<D: Domain> std::ops::Deref for DomainObject<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.domain
    }
}

impl<D: Domain> MrDomain for DomainObject<D> {
    fn mr_table(&self) -> &Arc<MrTable> {
        self.domain.memory()
    }

    fn api_version(&self) -> u32 {
        self.api_version
    }

    fn mr_eq(&self) -> Option<Use<Eq>> {
        self.eq()
    }

    fn access_progress(&self) -> Option<Arc<dyn Progress>> {
        self.domain.progress()
    }
}

impl<D: Domain> AvDomain for DomainObject<D> {
    fn av_traits(&self) -> AvTraits<'_> {
        AvTraits {
            name: &self.name,
            format: self.domain.address_format(self.addr_format),
            av_type: self.av_type,
            user_ids: self.caps & FI_AV_USER_ID != 0,
            api_version: self.api_version,
            auth_key_size: self.auth_key_size,
            is_strict: <D::Endpoint as Endpoint>::IS_STRICT,
            target: D::LOG_TARGET,
        }
    }
}

impl<D: Domain> CntrDomain for DomainObject<D> {
    fn cntr_progress(&self) -> Option<Arc<dyn Progress>> {
        self.domain.progress()
    }
}

impl<D: Domain> CqDomain for DomainObject<D> {
    fn cq_traits(&self) -> CqTraits {
        CqTraits {
            lock: self.domain.lock(),
            with_sources: self.caps & FI_SOURCE != 0,
            api_version: self.api_version,
            error_text: D::error_text,
            target: D::LOG_TARGET,
        }
    }
}

impl<D: Domain> Class for DomainObject<D> {
    type Header = fid_domain;

    fn class(&self) -> usize {
        FI_CLASS_DOMAIN
    }

    fn header(&self, fid: fid) -> fid_domain {
        fid_domain {
            fid,
            ops: ptr::from_ref(Table::<D>::DOMAIN).cast_mut(),
            mr: ptr::from_ref(MrOps::<Self>::TABLE).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        this.domain.close()?;
        this.triggers.end();
        *this.eq.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    fn bind(this: &Handle<Self>, other: AnyFid<'_>, flags: u64) -> Result {
        if flags & !FI_REG_MR != 0 {
            return Err(Errno::EBADFLAGS);
        }
        let eq = Use::of(&other.expect::<Eq>()?);
        *this.eq.lock().unwrap_or_else(PoisonError::into_inner) = Some(eq);
        Ok(())
    }

    unsafe fn set_ops(this: &Handle<Self>, name: &CStr, ops: *mut c_void) -> Result {
        if name != FI_SET_OPS_HMEM_OVERRIDE {
            return Err(Errno::ENOSYS);
        }
        // SAFETY: the caller guarantees that it is the table of this name, whose functions are the
        // application's as long as the domain is open (fi_domain(3)).
        let functions = unsafe { Functions::read(ops.cast())? };
        let hmem = this.domain.memory().hmem().ok_or(Errno::EOPNOTSUPP)?;
        this.domain.set_functions(functions)?;
        hmem.set_functions(functions);
        Ok(())
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        // SAFETY: the caller guarantees that `arg` is as the command demands.
        unsafe {
            if let Some(place) = this.work_context()
                && let Some(done) = work::control::<D::Endpoint>(&place, command, arg)
            {
                return done;
            }
            mr::control(this.domain.memory(), command, arg).unwrap_or(Err(Errno::ENOSYS))
        }
    }
}

impl<D: Domain> DomainObject<D> {
    /// What the domain has for its endpoints.
    fn surroundings(&self) -> Surroundings {
        Surroundings {
            triggers: self.triggers.clone(),
            hmem: self.domain.memory().hmem().cloned(),
        }
    }

    /// Where deferred work waits; `None` where there are no triggered operations.
    fn work_context(&self) -> Option<WorkContext<'_>> {
        (self.offers.caps() & FI_TRIGGER != 0).then(|| WorkContext {
            triggers: &self.triggers,
            progress: self.domain.progress(),
        })
    }
}

struct Table<D>(std::marker::PhantomData<D>);

impl<D: Domain> Table<D> {
    const DOMAIN: &'static fi_ops_domain = &fi_ops_domain {
        size: size_of::<fi_ops_domain>(),
        av_open: Some(av_open::<DomainObject<D>>),
        cq_open: Some(cq_open::<DomainObject<D>>),
        endpoint: Some(endpoint::<D>),
        scalable_ep: Some(scalable_ep::<D>),
        cntr_open: Some(cntr_open::<DomainObject<D>>),
        poll_open: Some(poll_open::<DomainObject<D>>),
        stx_ctx: Some(stx_ctx::<D>),
        srx_ctx: Some(srx_ctx::<D>),
        query_atomic: Some(query_atomic::<D>),
        query_collective: Some(query_collective::<D>),
        endpoint2: Some(endpoint2::<D>),
        xpu_ctx: missing::slot(),
    };
}

unsafe extern "C" fn endpoint<D: Domain>(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of this function, for which the application keeps the same
    // contract.
    unsafe { endpoint2::<D>(domain, info, ep, 0, context) }
}

unsafe extern "C" fn endpoint2<D: Domain>(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return Errno::ENOSYS.to_c();
    }
    // SAFETY: this function is only in the tables of domains of `D`; the application passes an open
    // one, a valid `fi_info` and a writable location for the result.
    unsafe {
        let domain = Handle::<DomainObject<D>>::from_c(domain);
        let made = info::info(info, domain.api_version).and_then(|info| {
            let parent = Use::of(&domain).any();
            let limits = Limits::of(&domain.offers, &info, domain.atomics())
                .with_queues(domain.needs_queues());
            if info.mode & FI_PEER_TRANSFER != 0 {
                let open = |owner| D::transfer_endpoint(&domain, &info, owner);
                let endpoint = transfer::import(context, domain.api_version, open)?;
                return Ok(EndpointObject::open(
                    endpoint,
                    &info,
                    ptr::null_mut(),
                    limits,
                    parent,
                    None,
                    domain.surroundings(),
                ));
            }
            let version = domain.api_version;
            domain.offers.admit("fi_endpoint", version, &info)?;
            let endpoint = D::endpoint(&domain, &info)?;
            let offload = (info.caps & FI_COLLECTIVE != 0).then(|| Offload {
                info: info.clone(),
                domain: domain.named(),
                api_version: version,
            });
            let surroundings = domain.surroundings();
            Ok(EndpointObject::open(
                endpoint,
                &info,
                context,
                limits,
                parent,
                offload,
                surroundings,
            ))
        });
        deliver(ep, made)
    }
}

unsafe extern "C" fn scalable_ep<D: Domain>(
    domain: *mut fid_domain,
    info: *mut fi_info,
    sep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: this function is only in the tables of domains of `D`; the application passes an open
    // one, a valid `fi_info` and a writable location for the result.
    unsafe {
        let domain = Handle::<DomainObject<D>>::from_c(domain);
        let made = info::info(info, domain.api_version).and_then(|info| {
            let pairs = scalable::pairs_of(&info, D::LOG_TARGET)?;
            let offers = &domain.offers;
            offers.admit("fi_scalable_ep", domain.api_version, &info)?;
            let limits =
                Limits::of(offers, &info, domain.atomics()).with_queues(domain.needs_queues());
            let endpoints = D::scalable_endpoint(&domain, &info, pairs)?;
            let parent = Use::of(&domain).any();
            let offers = offers.clone();
            Ok(ScalableObject::open(
                endpoints,
                info,
                context,
                limits,
                offers,
                parent,
                || domain.surroundings(),
            ))
        });
        deliver(sep, made)
    }
}

unsafe extern "C" fn stx_ctx<D: Domain>(
    domain: *mut fid_domain,
    attr: *mut fi_tx_attr,
    stx: *mut *mut fid_stx,
    context: *mut c_void,
) -> c_int {
    // SAFETY: this function is only in the tables of domains of `D`; the application passes an open
    // one, attributes that are null or valid, and a writable location for the result.
    unsafe {
        let domain = Handle::<DomainObject<D>>::from_c(domain);
        let attr = attr.as_ref().map(info::tx_attr).unwrap_or_default();
        let made = D::shared_transmit(&domain, attr.size).map(|size| {
            let domain = vec![Use::of(&domain).any()];
            Handle::new(SharedTransmitObject::new(size), context, domain)
        });
        deliver(stx, made)
    }
}

unsafe extern "C" fn srx_ctx<D: Domain>(
    domain: *mut fid_domain,
    attr: *mut fi_rx_attr,
    srx: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: this function is only in the tables of domains of `D`; the application passes an open
    // one, attributes that are null or valid, and a writable location for the result.
    unsafe {
        let domain = Handle::<DomainObject<D>>::from_c(domain);
        let attr = attr.as_ref().map(info::rx_attr).unwrap_or_default();
        let parent = Use::of(&domain).any();
        let made = if attr.op_flags & FI_PEER != 0 {
            let has_devices = domain.domain.memory().hmem().is_some();
            ImportedSrx::import(context)
                .map(|owner| owner.with_devices(has_devices))
                .and_then(|owner| {
                    let made = D::peer_receive(&domain, owner);
                    made.inspect(|_| owner.answer())
                })
                .map(SharedReceiveObject::of_peer)
                .map(|object| Handle::new(object, ptr::null_mut(), vec![parent]))
        } else {
            // Attributes that exceed the domain's are logged, and the context is opened with what
            // the domain supports.
            let _ = domain.offers.admit_receive(&attr);
            let size = attr.size.min(domain.offers.largest_rx_size());
            let offered = domain.offers.caps();
            let caps = match attr.caps {
                0 => domain.caps,
                caps => caps,
            };
            let is_directed = caps & FI_DIRECTED_RECV != 0;
            D::shared_receive(&domain, size, is_directed)
                .and_then(|shared| {
                    let object = SharedReceiveObject::new(shared, &attr, offered)
                        .with_devices(domain.domain.memory().hmem().cloned());
                    match offered & FI_TRIGGER {
                        0 => Ok(object),
                        _ => object.deferring(domain.caps, is_directed, &domain.triggers),
                    }
                })
                .map(|object| Handle::new(object, context, vec![parent]))
                .inspect(SharedReceiveObject::introduce)
        };
        deliver(srx, made)
    }
}

unsafe extern "C" fn query_collective<D: Domain>(
    domain: *mut fid_domain,
    operation: fi_collective_op,
    attr: *mut fi_collective_attr,
    _flags: u64,
) -> c_int {
    // SAFETY: this function is only in the tables of domains of `D`; the application passes an open
    // one, and attributes that are null or valid.
    unsafe {
        let domain = Handle::<DomainObject<D>>::borrow(domain);
        collective::query(domain.caps & FI_COLLECTIVE != 0, operation, attr)
    }
}

unsafe extern "C" fn query_atomic<D: Domain>(
    domain: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    // SAFETY: this function is only in the tables of domains of `D`; the application passes an open
    // one, and null or a writable location for the result.
    status(unsafe {
        let domain = Handle::<DomainObject<D>>::from_c(domain);
        let offered = domain.atomics();
        atomic_ops::query(datatype, op, flags, &offered).and_then(|found| {
            let attr = attr.as_mut().ok_or(Errno::EINVAL)?;
            attr.count = found.count;
            attr.size = found.size;
            Ok(())
        })
    })
}
