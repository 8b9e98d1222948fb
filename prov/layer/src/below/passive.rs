//! Passive endpoints of the provider below (fi_passive_ep(3)).

use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::*;

use super::events::{Asking, Eq};
use super::{Fabric, Made, Object, done, name_of, set_name_of};
use crate::marshal::info;
use prov_base::errno::{Errno, Result};
use prov_objects::attr::Info;

/// A passive endpoint of the provider below; closed when it is dropped.
pub struct PassiveEndpoint {
    object: Object<fid_pep>,
    _eq: Arc<Eq>,
    _fabric: Arc<Fabric>,
}

impl PassiveEndpoint {
    /// Opens an endpoint that does not listen yet.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(fabric: &Arc<Fabric>, entry: &Info, eq: &Arc<Eq>) -> Result<Self> {
        let entry = Made(info::to_c(std::slice::from_ref(entry))?);
        let mut pep = null_mut();
        // SAFETY: the fabric is open, and the entry has all of its attributes.
        let object = unsafe {
            let open = (*(*fabric.as_c()).ops).passive_ep.ok_or(Errno::ENOSYS)?;
            let status = open(fabric.as_c(), entry.0, &mut pep, null_mut());
            Object::opened(status, pep)?
        };
        object.bind(eq.fid(), 0)?;
        Ok(PassiveEndpoint {
            object,
            _eq: eq.clone(),
            _fabric: fabric.clone(),
        })
    }

    /// Begins to listen: events report connection requests.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn listen(&self) -> Result {
        // SAFETY: the endpoint is open until it is dropped.
        let status = unsafe {
            let listen = (*(*self.object.as_ptr()).cm).listen;
            listen.ok_or(Errno::ENOSYS)?(self.object.as_ptr())
        };
        done(status)
    }

    /// Rejects a connection request, with connection data.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn reject(&self, asking: Asking, data: &[u8]) -> Result {
        // SAFETY: the endpoint is open, the handle is that of one of its requests, and the data is
        // valid during the call.
        let status = unsafe {
            let reject = (*(*self.object.as_ptr()).cm).reject;
            reject.ok_or(Errno::ENOSYS)?(
                self.object.as_ptr(),
                asking.handle(),
                data.as_ptr().cast(),
                data.len(),
            )
        };
        done(status)
    }

    /// Returns its own address.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn address(&self) -> Result<Vec<u8>> {
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { name_of((*self.object.as_ptr()).cm, self.object.fid()) }
    }

    /// Sets its address.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn set_address(&self, address: &[u8]) -> Result {
        // SAFETY: the endpoint is open, and the table is its own.
        unsafe { set_name_of((*self.object.as_ptr()).cm, self.object.fid(), address) }
    }

    /// Returns the largest connection data in bytes (`FI_OPT_CM_DATA_SIZE`).
    ///
    /// # Errors
    /// What the provider returns.
    pub fn data_limit(&self) -> Result<usize> {
        let mut limit = 0_usize;
        let mut len = size_of::<usize>();
        // SAFETY: the endpoint is open, and `limit` has the option's type and the length `len`.
        let status = unsafe {
            let getopt = (*(*self.object.as_ptr()).ops).getopt;
            getopt.ok_or(Errno::ENOSYS)?(
                self.object.fid(),
                FI_OPT_ENDPOINT,
                FI_OPT_CM_DATA_SIZE,
                (&raw mut limit).cast(),
                &mut len,
            )
        };
        done(status)?;
        Ok(limit)
    }
}
