//! Connection events (fi_cm(3)).

use std::sync::Arc;

use fabric_abi::{FI_CONNECTED, FI_CONNREQ, FI_SHUTDOWN, fi_info};
use parking_lot::Mutex;

use crate::object::{FidRef, Use};
use prov_base::errno::{Errno, Result};
use prov_layer::marshal::info;
use prov_objects::attr::Info;
use prov_objects::eq::{Eq, Event, EventBody, EventError, EventInfo};

/// Reports the connection events of an endpoint, or the connection requests for a passive one.
/// Clones report to the same queue.
#[derive(Clone)]
pub struct ConnectionEvents {
    /// The endpoint.
    endpoint: FidRef,
    eq: Arc<Mutex<Use<Eq>>>,
}

impl ConnectionEvents {
    /// Creates the reporter for this endpoint and queue.
    pub fn new(endpoint: FidRef, eq: Use<Eq>) -> Self {
        ConnectionEvents {
            endpoint,
            eq: Arc::new(Mutex::new(eq)),
        }
    }

    /// Redirects all clones to another queue.
    pub fn redirect(&self, eq: Use<Eq>) {
        let before = std::mem::replace(&mut *self.eq.lock(), eq);
        drop(before);
    }

    fn eq(&self) -> Use<Eq> {
        self.eq.lock().clone()
    }

    /// Reports `FI_CONNECTED`, with the peer's connection data.
    pub fn connected(&self, data: &[u8]) {
        self.write(FI_CONNECTED, None, data);
    }

    /// Reports `FI_SHUTDOWN`.
    pub fn shut_down(&self) {
        self.write(FI_SHUTDOWN, None, &[]);
    }

    /// Reports that the connection failed; `data` came with the refusal.
    pub fn failed(&self, error: Errno, data: &[u8]) {
        let fid = self.endpoint.as_ptr();
        let written = self.eq().write_error(EventError {
            err_data: data.into(),
            ..EventError::new(fid, self.endpoint.context(), error)
        });
        self.written(written);
    }

    /// Reports `FI_CONNREQ`: a peer asks for a connection, which an endpoint with these attributes
    /// can accept. `unread` is called if the application never reads the event.
    ///
    /// # Errors
    /// `-FI_ENOMEM`; `unread` is not called.
    pub fn requested(
        &self,
        offered: &Info,
        data: &[u8],
        unread: impl FnOnce() + Send + 'static,
    ) -> Result {
        let mut info = event_info(offered)?;
        info.if_unread(unread);
        self.write(FI_CONNREQ, Some(info), data);
        Ok(())
    }

    fn write(&self, kind: u32, info: Option<EventInfo>, data: &[u8]) {
        let written = self.eq().write(Event {
            kind,
            body: EventBody::Connection {
                fid: self.endpoint.as_ptr(),
                info,
                data: data.to_vec(),
            },
        });
        self.written(written);
    }

    fn written(&self, outcome: Result) {
        if let Err(error) = outcome {
            log::warn!(target: prov_base::logging::UTIL.eq, "an event is lost: {error}");
        }
    }
}

/// Returns these attributes as a connection request has them.
///
/// # Errors
/// `-FI_ENOMEM`
fn event_info(info: &Info) -> Result<EventInfo> {
    let list = info::to_c(std::slice::from_ref(info))?;
    // SAFETY: the list was just made by `info::to_c` and has no other owner; `free` frees such
    // lists.
    Ok(unsafe { EventInfo::new(list, free) })
}

unsafe extern "C" fn free(list: *mut fi_info) {
    // SAFETY: the list was made by `info::to_c`, and its owner does not use it any more.
    unsafe { info::free(list) }
}
