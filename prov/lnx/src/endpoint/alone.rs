//! Automatic progress: the domain's thread drives the linked endpoints while the application does not.

use std::os::fd::{AsFd, OwnedFd};

use prov_base::errno::{Errno, Result};
use prov_util::drive::Driven;

use super::{LOG, Shared};
use crate::resources::Resources;
use crate::watched::Watched;

impl Driven for Shared {
    /// What the application has left unsent is with the linked providers, which have threads of
    /// their own for it.
    fn end_burst(&self) -> bool {
        false
    }

    fn drive(&self) -> bool {
        let section = self.queue.enter();
        self.drive_all();
        self.follow_ends(&section);
        // Without a descriptor the thread comes back after a pause.
        self.watched.get().is_none() || self.may_sleep()
    }

    fn share_wait_fd(&self) -> Result<Option<OwnedFd>> {
        let shared = self.watched.get().map(Watched::as_fd);
        Ok(shared.map(|fd| fd.try_clone_to_owned()).transpose()?)
    }

    fn calls(&self) -> u64 {
        self.turns.load(std::sync::atomic::Ordering::Relaxed).into()
    }
}

impl Shared {
    /// Has the domain's thread drive the endpoint, if the application has asked for that.
    pub(super) fn drive_automatically(
        &self,
        domain: &Resources,
        this: std::sync::Weak<Shared>,
    ) -> Result {
        if !domain.is_auto {
            return Ok(());
        }
        let seat = self.seat.get_or_init(|| domain.helper.seat(this));
        match seat.drive_automatically() {
            // A sandbox: as with manual progress.
            Err(error @ (Errno::EPERM | Errno::ENOSYS)) => {
                log::warn!(
                    target: LOG.domain,
                    "no thread of the library makes progress, only the application's calls do: the \
                     system denies what it needs: {error}"
                );
                Ok(())
            }
            driven => driven,
        }
    }
}
