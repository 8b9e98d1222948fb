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

use crate::device::{Device, Local};
use crate::lane::{Posted, Shared};

/// A shared receive context.
pub struct SharedReceive<D: Device> {
    shared: Arc<Shared<D>>,
    progress: Arc<Nothing>,
}

impl<D: Device> SharedReceive<D> {
    /// Creates a context with these receives.
    pub fn new(shared: Arc<Shared<D>>) -> Self {
        SharedReceive {
            shared,
            progress: Arc::new(Nothing),
        }
    }

    /// Returns the receives.
    pub fn shared(&self) -> &Arc<Shared<D>> {
        &self.shared
    }
}

impl<D: Device> endpoint::SharedReceive for SharedReceive<D> {
    fn receive(&self, receive: &mut Receive) -> Result {
        let entry = Posted::of(receive);
        let mut local = D::Local::empty();
        local.fill(&mut receive.buffers, &receive.desc)?;
        let posted = self.shared.post(&mut local, entry);
        posted.inspect_err(|_| local.give_back(&mut receive.buffers))
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
