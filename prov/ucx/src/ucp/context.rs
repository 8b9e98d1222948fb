//! `ucp_context_h`: the transports and devices that a domain uses.

use std::ffi::{CStr, CString};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use parking_lot::Mutex;
use prov_base::errno::{Errno, Result};

use crate::LOG;
use crate::status::result;
use crate::sys::*;

/// The version of UCP's interface whose functions this crate calls: 1.10.
const API: (u32, u32) = (1, 10);

/// What the user has set for UCX.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A file with settings.
    pub file: Option<CString>,
    /// Names and values of settings, such as `TLS`, which apply where the environment has none.
    pub values: Vec<(&'static CStr, CString)>,
    /// The expected number of peers.
    pub peers: Option<usize>,
}

/// A context.
pub struct Context {
    raw: NonNull<ucp_context>,
    pub(super) ucp: Libucp,
    /// Held by who registers memory.
    registering: Mutex<()>,
}

// SAFETY: the context was opened for workers of several threads, and registrations are made by one
// thread at a time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens a context with UCX's configuration.
    ///
    /// # Errors
    /// Those of UCX, such as `-FI_ENODEV` where no transport can be used.
    pub fn open(ucp: Libucp, settings: &Settings) -> Result<Arc<Self>> {
        let calls = ucp.functions();
        let file = settings.file.as_ref().map_or(null(), |file| file.as_ptr());
        let mut config = null_mut();
        // SAFETY: the file's name is null or a C string, and the place for the result is writable.
        let read = unsafe { (calls.ucp_config_read)(null(), file, &raw mut config) };
        if let Err(error) = result(read) {
            // With a null pointer, UCX reads its environment.
            log::warn!(target: LOG.core, "UCX does not read {:?}: {error}", settings.file);
            config = null_mut();
        }
        for (name, value) in settings.values.iter().filter(|_| !config.is_null()) {
            // SAFETY: the configuration was just read, and both are C strings.
            let set = unsafe { (calls.ucp_config_modify)(config, name.as_ptr(), value.as_ptr()) };
            if let Err(error) = result(set) {
                log::warn!(target: LOG.core, "UCX does not take {name:?}={value:?}: {error}");
            }
        }
        let mut params = ucp_params_t {
            field_mask: UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
            features: UCP_FEATURE_TAG | UCP_FEATURE_RMA,
            mt_workers_shared: 1,
            ..ucp_params_t::default()
        };
        if let Some(peers) = settings.peers {
            params.field_mask |= UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
            params.estimated_num_eps = peers;
        }
        let mut raw = null_mut();
        // SAFETY: the parameters have the fields of the mask, the configuration is null or was just
        // read, and the place for the result is writable.
        let opened = unsafe {
            (calls.ucp_init_version)(API.0, API.1, &raw const params, config, &raw mut raw)
        };
        if !config.is_null() {
            // SAFETY: it was read above, and is not used any more.
            unsafe { (calls.ucp_config_release)(config) };
        }
        result(opened).inspect_err(|error| {
            log::warn!(target: LOG.domain, "UCX opens no context: {error}");
        })?;
        Ok(Arc::new(Context {
            raw: NonNull::new(raw).ok_or(Errno::ENODEV)?,
            ucp,
            registering: Mutex::new(()),
        }))
    }

    pub(super) fn raw(&self) -> *mut ucp_context {
        self.raw.as_ptr()
    }

    /// Calls a function that changes what is registered.
    pub(super) fn registering<R>(&self, call: impl FnOnce(&Calls) -> R) -> R {
        let _one = self.registering.lock();
        call(&self.ucp.functions())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let calls = self.ucp.functions();
        // SAFETY: workers and registrations have a reference to the context, so there are none.
        unsafe { (calls.ucp_cleanup)(self.raw()) };
    }
}
