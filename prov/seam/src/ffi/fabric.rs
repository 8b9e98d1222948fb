//! fi_fabric(3): fabrics, from which all other objects are opened.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use fabric_abi::*;

use super::domain::{DomainObject, PeerDomain};
use super::object::{Class, Handle, Use};
use super::pep::PassiveObject;
use super::{deliver, eq, wait};
use crate::domain::Fabric;
use prov_base::errno::{Errno, Result};
use prov_layer::marshal::info;
use prov_objects::attr::Offers;

/// The C object of a fabric.
pub struct FabricObject<F: Fabric> {
    fabric: F,
    api_version: u32,
    offers: Arc<Offers>,
}

impl<F: Fabric> FabricObject<F> {
    /// Delivers a new fabric to the application (`fi_provider::fabric`).
    ///
    /// # Safety
    /// `place` is null or may be written.
    pub unsafe fn open(
        fabric: Result<F>,
        api_version: u32,
        place: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int {
        let made = fabric.map(|fabric| {
            let object = FabricObject {
                offers: Arc::new(fabric.offers()),
                fabric,
                api_version,
            };
            Handle::new(object, context, Vec::new())
        });
        // SAFETY: the caller guarantees that `place` is null or writable.
        unsafe { deliver(place, made) }
    }

    /// Returns the interface version that the application asked for.
    pub fn api_version(&self) -> u32 {
        self.api_version
    }
}

impl<F: Fabric> std::ops::Deref for FabricObject<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fabric
    }
}

impl<F: Fabric> Class for FabricObject<F> {
    type Header = fid_fabric;

    fn class(&self) -> usize {
        FI_CLASS_FABRIC
    }

    fn header(&self, fid: fid) -> fid_fabric {
        fid_fabric {
            fid,
            ops: ptr::from_ref(Table::<F>::FABRIC).cast_mut(),
            api_version: self.api_version,
        }
    }
}

struct Table<F>(std::marker::PhantomData<F>);

impl<F: Fabric> Table<F> {
    const FABRIC: &'static fi_ops_fabric = &fi_ops_fabric {
        size: size_of::<fi_ops_fabric>(),
        domain: Some(domain::<F>),
        passive_ep: Some(passive_ep::<F>),
        eq_open: Some(eq::eq_open::<FabricObject<F>>),
        wait_open: Some(wait::wait_open::<FabricObject<F>>),
        trywait: Some(wait::trywait),
        domain2: Some(domain2::<F>),
    };
}

unsafe extern "C" fn domain<F: Fabric>(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are those of this function, for which the application keeps the same
    // contract.
    unsafe { domain2::<F>(fabric, info, domain, 0, context) }
}

unsafe extern "C" fn domain2<F: Fabric>(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags & !FI_PEER != 0 {
        return Errno::EBADFLAGS.to_c();
    }
    // SAFETY: this function is only in the tables of fabrics of `F`; the application passes an open
    // one, a valid `fi_info` and a writable location for the result.
    unsafe {
        let fabric = Handle::<FabricObject<F>>::from_c(fabric);
        let made = info::info(info, fabric.api_version).and_then(|info| {
            let (domain, context) = match flags & FI_PEER {
                0 => {
                    let info = fabric.for_domain(info.clone());
                    fabric
                        .offers
                        .admit("fi_domain", fabric.api_version, &info)?;
                    (F::domain(&fabric, &info)?, context)
                }
                _ => {
                    let owner = PeerDomain::import(context)?;
                    (F::peer_domain(&fabric, &info, owner)?, ptr::null_mut())
                }
            };
            let offers = fabric.offers.clone();
            let object = DomainObject::new(domain, &info, fabric.api_version, offers);
            Ok(Handle::new(object, context, vec![Use::of(&fabric).any()]))
        });
        deliver(domain, made)
    }
}

unsafe extern "C" fn passive_ep<F: Fabric>(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    pep: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    if pep.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: this function is only in the tables of fabrics of `F`; the application passes an open
    // one, a valid `fi_info` and a writable location for the result.
    unsafe {
        let fabric = Handle::<FabricObject<F>>::from_c(fabric);
        let made = info::info(info, fabric.api_version).and_then(|info| {
            // Only connected endpoints can listen.
            if info.ep.ep_type != FI_EP_MSG {
                return Err(Errno::EINVAL);
            }
            let (offers, version) = (&fabric.offers, fabric.api_version);
            offers.admit("fi_passive_ep", version, &info)?;
            let pep = PassiveObject(F::passive_endpoint(&fabric, &info)?);
            let pep = Handle::new(pep, context, vec![Use::of(&fabric).any()]);
            PassiveObject::open(&pep);
            Ok(pep)
        });
        deliver(pep, made)
    }
}
