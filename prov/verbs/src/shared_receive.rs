//! `fi_srx_context`: receives that connected endpoints share.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_util::cntr::Cntr;
use prov_util::cq::Cq;
use prov_util::endpoint;
use prov_util::ffi::Use;
use prov_util::progress::Progress;
use prov_util::request::Receive;

use crate::device::Gather;
use crate::lane::Shared;

/// A shared receive context.
pub struct SharedReceive {
    shared: Arc<Shared>,
    progress: Arc<Nothing>,
}

impl SharedReceive {
    /// Creates a context with these receives.
    pub fn new(shared: Arc<Shared>) -> Self {
        SharedReceive {
            shared,
            progress: Arc::new(Nothing),
        }
    }

    /// Returns the receives.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl endpoint::SharedReceive for SharedReceive {
    fn receive(&self, receive: &mut Receive) -> Result {
        let mut local = Gather::empty();
        local.fill(&receive.buffers, &receive.desc)?;
        self.shared.post(
            local,
            receive.context,
            receive.buffers.address(),
            receive.wants_completion(),
        )
    }

    fn cancel(&self, _: *mut c_void) -> Result {
        Err(Errno::ENOSYS)
    }

    /// Receives complete at the queue of the endpoint that got the message.
    fn bind(&self, _: Option<Use<Cq>>, _: Option<Use<Cntr>>) -> Result {
        Ok(())
    }

    fn progress(&self) -> Arc<dyn Progress> {
        self.progress.clone()
    }
}

/// Progress of a context without endpoints: none.
struct Nothing;

impl Progress for Nothing {
    fn is_driven(&self) -> bool {
        false
    }

    fn progress(&self) {}

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn prepare_wait(&self) -> bool {
        true
    }
}
