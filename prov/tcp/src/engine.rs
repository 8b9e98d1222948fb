//! The engine: the sockets of a lane, driven by the calls that read its queues.
//!
//! A [`Core`] is the content of a lane: endpoints, their connections and a poller; or, in the lane
//! of a fabric, the listeners of passive endpoints. Operations are posted to it, and it reports to
//! completion queues and event queues, all under the lane's lock.

pub mod ending;
pub mod link;
mod local;
mod setup;
#[cfg(test)]
mod tests;
mod transfer;

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::lately::Lately;
use prov_base::memory_limit::half_of_memory;
use prov_base::poller::Favourite;
use prov_base::socket::zerocopy;
use prov_local::copies::{Copier, Copies as _, Copying};
use prov_local::doorbell::Doorbell;
use prov_local::onesided::table::RegionTable;
use prov_local::rota::{Rota, Rounds};
use prov_message::lane::Pause;
use prov_message::sources::ByPeers;
use prov_message::strangers::Strangers;
use prov_message::{
    Context, EpKey, Idling, Limits, Linked as _, Reaching as _, RmaTarget, Sided as _, Signals,
    Sleeper, StrangersLimits, Ticket, Wakeups,
};
use prov_util::endpoint::Side;
use prov_util::mr::MrTable;
use prov_util::request::{Atomic, RemoteAccess, Transmit};
use slotmap::SlotMap;

use self::link::connection::Connection;
use self::link::detours::Detour;
use self::link::keys::{ConnKey, Due, ListenerKey, Source};
use self::link::listener::Listener;
use self::link::messages::{Action, Endpoints, Tcp};
use self::link::post::{COPY_LIMIT, SCRATCH};
use self::link::ready::{Ready, Why};
use self::setup::subflows::Door;
use self::transfer::progress::Come;
use crate::params::Params;

/// A lane of tcp.
pub type Lane = prov_message::Lane<Core>;

/// See the [module](self) description.
pub struct Core {
    pub params: Arc<Params>,
    pub conns: SlotMap<ConnKey, Connection>,
    pub endpoints: Endpoints,
    pub listeners: SlotMap<ListenerKey, Listener>,
    /// Connections of peers that are in no address vector.
    strangers: Strangers<ConnKey>,
    /// Connections that have not sent their request.
    half_open: Strangers<ConnKey>,
    /// Where it listens for subflows.
    doors: Vec<Door>,
    /// The domain's registered memory; `None` in a fabric's lane.
    target: Option<RmaTarget>,
    /// The table of regions that peers on this host access by themselves, if that is enabled.
    regions: Option<Arc<RegionTable>>,
    poller: Wakeups<Source, Due>,
    /// Number of calls of the poller.
    polls: u64,
    /// Whether a progress call is running: messages that are held for a burst are then sent at its
    /// end.
    is_in_progress: bool,
    favourite: Favourite<ConnKey>,
    /// Connections for which there is something to do.
    ready: Ready,
    /// Payloads of announced messages that stay in peers' memory until they are fetched.
    copier: Copier<Tcp>,
    /// The polling schedule of connections through shared memory.
    rota: Rota<ConnKey>,
    /// What their peers wake the lane by, once there may be one.
    doorbell: Option<Doorbell>,
    signals: Arc<Signals>,
    /// Number of successful reads of the favourite until the poller is called; a read without data
    /// counts for several.
    reads_left: u32,
    /// Number of such reads between two calls of the poller.
    poll_interval: u32,
    /// Buffer for reads from sockets; empty while one is being parsed.
    staging: Vec<u8>,
    /// Buffer for the results of a peer's atomic operation, or other bytes that are assembled to be
    /// copied.
    gathered: Vec<u8>,
    /// Buffer in which a message is assembled that is sent by one call.
    scratch: Box<[u8; SCRATCH]>,
    /// Messages shorter than this may take the fast path; 0 if each message is logged.
    quick_end: usize,
    /// Number of progress calls since the last one that received something.
    idle_calls: u32,
    /// Outbox buffers of connections that have nothing to send.
    spare_buffers: Vec<Vec<u8>>,
    /// When the last system call that found nothing was made.
    vain: Lately,
    /// Whether the last call of the poller returned events.
    had_events: bool,
    /// The threads that have ever prepared to sleep on the poller.
    sleepers: Option<Sleeper>,
    /// Whether connections are checked periodically for hosts that have failed.
    is_watching: bool,
}

/// Largest number of announcements that are kept, of all peers together, one of which may have half of
/// them: some 200 bytes each, so that a flood through a layer above leaves less than 128 MiB.
const ANNOUNCEMENTS: usize = 1 << 19;

impl Core {
    /// Creates an engine without sockets. Peers on this host may access the `regions` of `memory`
    /// by themselves.
    ///
    /// # Errors
    /// Those of creating a poller.
    pub fn new(
        params: Arc<Params>,
        memory: Option<Arc<MrTable>>,
        regions: Option<Arc<RegionTable>>,
        signals: Arc<Signals>,
    ) -> Result<Self> {
        let staging = vec![0; params.prefetch_rbuf_size];
        let quick_end = match params.trace_msg {
            true => 0,
            false => params.max_inject.min(COPY_LIMIT) + 1,
        };
        let endpoints = Endpoints::new(Limits {
            unexpected: params.max_unexpected,
            announcements: ANNOUNCEMENTS,
            unannounced: params.max_unannounced,
            saved: params.max_saved,
            memory: half_of_memory(),
            strangers: Some(StrangersLimits::of_process()),
            ..Limits::default()
        });
        Ok(Core {
            params,
            conns: SlotMap::with_key(),
            endpoints,
            listeners: SlotMap::with_key(),
            strangers: setup::strangers::strangers(),
            half_open: setup::strangers::half_open(),
            doors: Vec::new(),
            copier: Copier::new(memory.as_deref()),
            target: memory.map(|table| RmaTarget::new(&table)),
            regions,
            poller: Wakeups::new()?,
            polls: 0,
            is_in_progress: false,
            favourite: Favourite::default(),
            ready: Ready::default(),
            rota: Rota::default(),
            doorbell: None,
            signals,
            reads_left: 0,
            poll_interval: 1,
            staging,
            gathered: Vec::new(),
            scratch: Box::new([0; SCRATCH]),
            quick_end,
            idle_calls: 0,
            spare_buffers: Vec::new(),
            vain: Lately::default(),
            had_events: false,
            sleepers: None,
            is_watching: false,
        })
    }

    /// Adds a connection and registers its socket.
    #[allow(clippy::indexing_slicing, reason = "the connection was just added")]
    fn add_connection(&mut self, conn: Connection) -> Result<ConnKey> {
        let key = self.conns.insert(conn);
        bounded!(self.conns, PEERS);
        self.conns[key]
            .detours
            .set(Detour::Traced, self.params.trace_msg);
        if self.params.zerocopy_size != usize::MAX {
            let conn = &mut self.conns[key];
            conn.lent.enabled = zerocopy::enable(conn.socket.as_fd());
        }
        let source = Source::Link(key);
        if let Some(deadline) = self.conns[key].setup.deadline {
            self.poller.call_at(deadline.at(), Due::Conn(key));
        }
        if let Err(error) = self.poller.watch(self.conns[key].socket.as_fd(), source) {
            self.conns.remove(key);
            return Err(error);
        }
        self.watch_for_silence();
        Ok(key)
    }

    /// Puts a connection into the ready queue.
    #[inline]
    fn is_due(&mut self, key: ConnKey, why: Why) {
        if let Some(conn) = self.conns.get_mut(key) {
            self.ready.add(key, &mut conn.due, why);
        }
    }

    /// Removes and returns the next connection in the ready queue for this reason.
    #[inline]
    fn next_due(&mut self, why: Why) -> Option<ConnKey> {
        let conns = &mut self.conns;
        self.ready
            .next(why, |key| Some(&mut conns.get_mut(key)?.due))
    }

    /// The descriptor of a connection's socket.
    fn socket(&self, key: ConnKey) -> Option<BorrowedFd<'_>> {
        self.conns.get(key).map(|conn| conn.socket.as_fd())
    }
}

impl prov_message::Core for Core {
    type Transport = Tcp;
    type Errand = Copying<Tcp>;
    type Sources = ByPeers;

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
        self.take_back_waiting(ep, context)
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
        self.is_in_progress = true;
        let has_come = self.do_what_is_ready();
        self.is_in_progress = false;
        self.send_answers();
        match has_come {
            Come::Nothing => self.in_vain(),
            Come::Something => {
                self.signals.brought();
                Idling::No
            }
            Come::NotAsked => Idling::No,
        }
    }

    #[inline(always)]
    fn has_errands(&self) -> bool {
        !self.copier.is_idle()
    }

    fn next_errand(&mut self) -> Option<Copying<Tcp>> {
        self.next_work()
    }

    fn errand_done(&mut self, errand: Copying<Tcp>) {
        self.worked(errand);
    }

    fn end_burst(&mut self) -> bool {
        self.flush_for_application()
    }

    fn gives_way(&mut self) -> bool {
        Rounds::gives_way(self)
    }

    fn serves_requests(&self) -> bool {
        self.ready.has(Why::OnRequest)
    }

    fn prepare_wait(&mut self, sleeper: Sleeper) -> bool {
        self.may_sleep(sleeper)
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
