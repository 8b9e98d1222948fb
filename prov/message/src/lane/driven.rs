//! How the progress thread enters a lane: to send what the application has left, and to drive it.

use std::os::fd::OwnedFd;

use prov_base::errno::{Errno, Result};
use prov_util::drive::{Driven, Sleeper};

use super::{Core, Errand as _, LOOK, Lane, settle};

impl<C: Core> Driven for Lane<C> {
    fn end_burst(&self) -> bool {
        let Some(mut core) = self.core.lock_as_helper() else {
            return false;
        };
        let has_left = core.end_burst();
        let serves_requests = core.serves_requests();
        drop(core);
        if serves_requests
            && self.signals.is_left()
            && let Some(seat) = self.signals.seat()
        {
            seat.take_care();
        }
        has_left
    }

    fn drive(&self) -> bool {
        let Some(mut core) = self.core.lock_as_helper() else {
            return true;
        };
        core.follow_removals();
        let may_sleep = core.prepare_wait(Sleeper::Helper) && !settle(&mut *core);
        let Some(mut errand) = core.next_errand() else {
            return may_sleep;
        };
        drop(core);
        errand.run();
        // The errand's borrowed memory is returned only by `errand_done`, so entering must succeed.
        let mut core = loop {
            match self.core.lock_as_helper() {
                Some(core) => break core,
                None => std::thread::sleep(LOOK),
            }
        };
        core.errand_done(errand);
        false
    }

    fn share_wait_fd(&self) -> Result<Option<OwnedFd>> {
        let core = self.core.lock_as_helper().ok_or(Errno::EAGAIN)?;
        let shared = core.poller().map(|fd| fd.try_clone_to_owned());
        Ok(shared.transpose()?)
    }

    fn calls(&self) -> u64 {
        self.signals.drives()
    }

    fn is_polled(&self) -> bool {
        self.signals.is_polled()
    }

    fn is_read_by_sleepers(&self) -> bool {
        self.signals.is_read_by_sleepers()
    }

    fn has_sleeper(&self) -> bool {
        if !self.signals.is_slept_at() {
            return false;
        }
        let Some(core) = self.core.lock_as_helper() else {
            return false;
        };
        self.signals.is_left_to_sleeper();
        drop(core);
        // A thread that has woken meanwhile may have found the lane locked, and nothing to serve.
        self.signals.is_slept_at()
    }
}
