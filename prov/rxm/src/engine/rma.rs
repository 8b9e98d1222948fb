//! Remote memory access (fi_rma(3)), which is performed by the endpoint below.

use fabric_abi::{FI_DELIVERY_COMPLETE, FI_READ, FI_REMOTE_CQ_DATA, FI_RMA, FI_WRITE};
use prov_base::errno::{Errno, Result};
use prov_message::peers::{Bytes as Payload, Deferred, Destination, UNKNOWN_SOURCE};
use prov_message::{Op, Reaching as _, RemoteData, Reports};
use prov_util::below::{Local, Size, Written};
use prov_util::request::{Access, RemoteAccess};

use super::Core;
use super::below::{Below, What};
use super::keys::{EpKey, LinkKey};
use super::link::{Endpoints, copy};

impl Core {
    pub(super) fn post_access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        let below = self.below.as_ref().ok_or(Errno::EOPBADSTATE)?;
        below.setting.sizes.check_access(access)?;
        match self.reach(ep, access.peer)? {
            Destination::Open(key) => {
                self.post_on(key, |core| core.start_access(key, access, None))
            }
            Destination::Waits(peer) => {
                self.defer(peer, Op::of_access(ep, access), || Deferred::access(access))
            }
        }
    }

    /// Starts a read or a write.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room.
    pub(super) fn start_access(
        &mut self,
        key: LinkKey,
        access: &RemoteAccess,
        copied: Option<&[u8]>,
    ) -> Result {
        let (endpoints, link, below) = self.at_link(key).ok_or(Errno::EAGAIN)?;
        let ticket = endpoints.begin(Op::of_access(link.ep, access))?;
        let mut flags = 0;
        if access.flags & FI_DELIVERY_COMPLETE != 0 {
            flags |= below.until_delivered;
        }
        if access.immediate().is_some() {
            flags |= FI_REMOTE_CQ_DATA;
        }
        let is_write = access.access == Access::Write;
        let bytes = Payload::of(&access.local, copied);
        let is_copied = is_write && (access.is_inject() || copied.is_some());
        let size = if is_copied { Size::Large } else { Size::Small };
        let memory = match is_copied {
            true => Ok((Local::NONE, None)),
            false => {
                let use_of = if is_write { FI_WRITE } else { FI_READ };
                below.local(&access.local, &access.desc, use_of)
            }
        };
        let (local, regions) = match memory {
            Ok(memory) => memory,
            Err(error) => return Err(self.undo((error, What::Op(key, ticket, None)))),
        };
        let remote = access.remote.pieces();
        let fill = |place: &mut [u8]| {
            if is_copied {
                copy(&bytes, place);
            }
        };
        let what = What::Op(key, ticket, regions);
        let posted = below.post(link, size, what, fill, |below, slots, slot| {
            if !is_write {
                return below.read(slots, slot, &access.local, &local, remote, flags);
            }
            let from = match is_copied {
                true => Written::Slot(bytes.len()),
                false => Written::App(&access.local, &local),
            };
            below.write(slots, slot, from, remote, access.data, flags)
        });
        posted.map_err(|unposted| self.undo(unposted))
    }

    /// Handles a peer's write with immediate data. The provider below does not tell which memory
    /// was written.
    pub(super) fn was_written(&mut self, len: usize, data: Option<u64>) {
        let waits = data.is_some_and(|data| {
            let src = UNKNOWN_SOURCE;
            let write = RemoteData { len, data, src };
            let reports = reports_of(&self.endpoints, self.below.as_ref());
            self.unreported.has_to_wait(reports, write)
        });
        if !waits {
            self.report_written(len, data);
        }
    }

    fn report_written(&self, len: usize, data: Option<u64>) {
        let Some(reports) = self.reports() else {
            return;
        };
        let below = self.below.as_ref();
        match below.is_some_and(|below| below.setting.accesses.is_some()) {
            // The provider below has counted it.
            true => reports.remote_data(FI_RMA, len, data, UNKNOWN_SOURCE),
            false => reports.remote_write(FI_RMA, len, data, UNKNOWN_SOURCE),
        }
    }

    /// Reports remote writes that have waited for the application to read completions, as far as
    /// there is room.
    #[cold]
    pub(super) fn report_written_before(&mut self) {
        let reports = || reports_of(&self.endpoints, self.below.as_ref());
        while let Some(write) = self.unreported.next(reports()) {
            self.report_written(write.len, Some(write.data));
        }
        if !self.is_full() {
            self.hear_peers(true);
        }
    }

    /// Returns whether no further operations of peers are read until the application has read
    /// completions: its queue is full, and as many remote writes wait here. The provider below then
    /// holds back the links that bring more.
    pub(super) fn is_full(&self) -> bool {
        self.unreported.is_full(self.reports())
    }

    fn reports(&self) -> Option<&Reports> {
        reports_of(&self.endpoints, self.below.as_ref())
    }
}

/// The reports of the endpoint, unless it is closed.
fn reports_of<'a>(endpoints: &'a Endpoints, below: Option<&Below>) -> Option<&'a Reports> {
    Some(&endpoints.get(below?.ep)?.reports)
}
