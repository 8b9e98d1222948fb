//! The data path: the links of a lane, which make progress in the calls that read its queues.

mod ending;
pub mod endpoint;
mod keys;
mod link;
mod messages;
mod posting;
mod progress;
mod setup;
mod socketless;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use prov_base::errno::Result;
use prov_local::copies::{Copier, Copies as _, Copying};
use prov_local::doorbell::Doorbell;
use prov_local::link::Lists;
use prov_local::onesided::table::RegionTable;
use prov_local::rota::{Rota, Rounds};
use prov_message::lane::Pause;
use prov_message::sources::ByPeers;
use prov_message::{
    Context, EpKey, Idling, Limits, Linked as _, Reaching as _, RmaTarget, Sided as _, Signals,
    Sleeper, StrangersLimits, Ticket, Wakeups,
};
use prov_util::endpoint::Side;
use prov_util::mr::MrTable;
use prov_util::request::{Atomic, RemoteAccess, Transmit};
use slotmap::SlotMap;

use self::keys::{Due, LinkKey, Source};
use self::link::Link;
use self::messages::{Action, Endpoints, Shm};
use self::socketless::Socketless;
use crate::params::Params;

/// The service under which names are reserved.
pub const SERVICE: &str = "fi_shm";

/// See the [module](self) description.
pub struct Core {
    params: Arc<Params>,
    signals: Arc<Signals>,
    endpoints: Endpoints,
    links: SlotMap<LinkKey, Link>,
    /// The open links, and the order in which they are polled.
    open: Rota<LinkKey>,
    /// What peers wake the lane by, once there is a link.
    doorbell: Option<Doorbell>,
    lists: Lists<LinkKey>,
    /// Access to the domain's registered memory.
    target: Option<RmaTarget>,
    /// The table of regions that peers access directly.
    regions: Option<Arc<RegionTable>>,
    /// Rendezvous payloads in both directions.
    copier: Copier<Shm>,
    poller: Wakeups<Source, Due>,
    /// Links whose sockets were given back.
    socketless: Socketless,
    /// Number of progress calls since the last one in which a message arrived.
    idle_calls: u32,
}

/// Largest number of announcements of all peers together that are kept.
const ANNOUNCEMENTS: usize = 1 << 21;

impl Core {
    /// Creates the state without endpoints. Peers may access the `regions` of `memory` directly.
    ///
    /// # Errors
    /// Those of creating a poller.
    pub fn new(
        params: Arc<Params>,
        memory: &Arc<MrTable>,
        regions: Option<Arc<RegionTable>>,
        signals: Arc<Signals>,
    ) -> Result<Self> {
        let limits = Limits {
            unexpected: params.max_unexpected,
            announcements: ANNOUNCEMENTS,
            strangers: Some(StrangersLimits::of_process()),
            ..Limits::default()
        };
        Ok(Core {
            params,
            signals,
            endpoints: Endpoints::new(limits),
            links: SlotMap::with_key(),
            open: Rota::default(),
            doorbell: None,
            lists: Lists::default(),
            target: Some(RmaTarget::new(memory)),
            regions,
            copier: Copier::new(Some(memory)),
            poller: Wakeups::new()?,
            socketless: Socketless::default(),
            idle_calls: 0,
        })
    }
}

impl prov_message::Core for Core {
    type Transport = Shm;
    type Errand = Copying<Shm>;
    type Sources = ByPeers;

    #[inline(always)]
    fn signals(&self) -> Option<&Signals> {
        Some(&self.signals)
    }

    #[inline(always)]
    fn endpoints(&mut self) -> &mut Endpoints {
        &mut self.endpoints
    }

    #[inline]
    fn transmit(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        self.post_message(ep, message)
    }

    fn take_back(&mut self, ep: EpKey, context: Context) -> Option<Ticket> {
        self.take_back_waiting(ep, context).or_else(|| {
            let mut mine = self.links.values_mut().filter(|link| link.ep == ep);
            mine.find_map(|link| link.take_back(context))
        })
    }

    fn access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        self.post_access(ep, access)
    }

    fn atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        self.post_atomic(ep, atomic)
    }

    fn act(&mut self, action: Action) {
        self.act_on(action);
    }

    #[inline(always)]
    fn progress(&mut self) -> Idling {
        self.do_what_is_ready()
    }

    fn gives_way(&mut self) -> bool {
        Rounds::gives_way(self)
    }

    fn prepare_wait(&mut self, sleeper: Sleeper) -> bool {
        self.may_sleep(sleeper)
    }

    #[inline(always)]
    fn has_errands(&self) -> bool {
        !self.copier.is_idle()
    }

    fn next_errand(&mut self) -> Option<Copying<Shm>> {
        self.next_work()
    }

    fn errand_done(&mut self, errand: Copying<Shm>) {
        self.worked(errand);
    }

    fn poller(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn close(&mut self, ep: EpKey) {
        self.close_with_links(ep);
    }

    fn close_side(&mut self, ep: EpKey, side: Side) {
        self.end_side(ep, side);
    }

    fn send_last(&mut self, ep: EpKey) -> Option<Pause> {
        self.connect_for_last(ep).or_else(|| self.flush_last(ep))
    }

    fn is_lent(&self, ep: EpKey) -> bool {
        self.copier.is_at_work_for(ep)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        prov_message::Core::close_all(self);
    }
}
