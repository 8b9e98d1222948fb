//! The progress engine: one endpoint and its peers over a datagram endpoint of the provider below,
//! driven by calls that read its queues.
//!
//! The protocol's [`Endpoint`] calls the engine back ([`Host`](crate::protocol::Host)). While it
//! does, it is not in [`Core`]: what would need it is done when it has returned (`settle`).

mod absent;
mod accessed;
mod arriving;
pub mod below;
mod copied;
mod doors;
mod hosting;
pub mod link;
mod posting;
mod progress;
mod sessions;
#[cfg(test)]
mod tests;
mod watching;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_message::lane::Pause;
use prov_message::{
    Context, EpKey, Idling, Limits, Linked as _, NoErrand, RmaTarget, Signals, Sleeper,
    StrangersLimits, Ticket, Unreported, Wakeups,
};
use prov_util::mr::MrTable;
use prov_util::request::{Atomic, RemoteAccess, Transmit};
use slotmap::SlotMap;

use self::accessed::Served;
use self::below::{Arrivals, Below};
use self::doors::Doors;
use self::link::{Action, Due, Endpoints, Link, LinkKey, OpKey, Rxd, ServedKey, Source};
use self::posting::Operation;
use self::sessions::{BySessions, PeerTable};
use crate::params::Params;
use crate::protocol::{Endpoint, Failure, Obstacle};

/// See the [module](self) description. It contains one endpoint.
pub struct Core {
    params: Arc<Params>,
    signals: Arc<Signals>,
    endpoints: Endpoints,
    /// The protocol, once the endpoint is enabled, and unless it is calling the engine.
    protocol: Option<Box<Endpoint<Core>>>,
    links: SlotMap<LinkKey, Link>,
    /// What the protocol calls a peer.
    peers: PeerTable,
    /// Operations that peers have not acknowledged.
    operations: SlotMap<OpKey, Operation>,
    /// What peers read.
    served: SlotMap<ServedKey, Served>,
    /// The datagram endpoint below, once the endpoint is enabled.
    below: Option<Below>,
    /// What it receives; taken out while it is handled.
    arrivals: Option<Box<Arrivals>>,
    /// Links whose held back messages have got a destination.
    resumed: Vec<LinkKey>,
    /// Links that have ended, with the reason.
    ended: Vec<(LinkKey, Errno)>,
    /// The domain's registered memory.
    target: Option<RmaTarget>,
    /// Old values of the atomic operation that is performed.
    old_values: Vec<u8>,
    /// Immediate data that waits for room in the application's queue.
    unreported: Unreported,
    poller: Wakeups<Source, Due>,
    /// Number of progress calls without a datagram since the last one with some.
    idle_turns: u32,
    /// Whether datagrams had no room below.
    is_stalled: bool,
    /// Why the datagram that was not sent last was not.
    obstacle: Obstacle,
    /// Whether the library's thread looks after the endpoint if the application makes no calls: since
    /// operations waited for acknowledgements, acknowledgements of this side were delayed or may have been
    /// lost, or a peer waited for messages, until that thread finds none of these.
    is_looked_after: bool,
    /// When the application's calls last handled what has arrived.
    driven_at: u64,
    /// The same for the last of these calls after which a thread went to sleep.
    slept_at: u64,
    /// When to find out next which peers receives wait for ([`watching`]).
    watch_at: u64,
    /// Whether that thread is driving, which reports nothing.
    is_quiet: bool,
    /// Whether that thread has left something to the application's next call.
    has_left_over: bool,
    /// Operations that have ended meanwhile.
    postponed: Vec<(OpKey, std::result::Result<(), Failure>)>,
    /// What tells whether silent peers are gone.
    doors: Doors,
    /// Number of times that the last acknowledgements were sent, before the endpoint is closed.
    last_acks_sent: u32,
    process: Process,
}

impl Core {
    /// Creates a core without an endpoint.
    ///
    /// # Errors
    /// The system's, for the poller.
    pub fn new(params: Arc<Params>, memory: &Arc<MrTable>, signals: Arc<Signals>) -> Result<Self> {
        let limits = Limits {
            unexpected: params.max_unexpected,
            strangers: Some(StrangersLimits::of_process()),
            ..Limits::default()
        };
        Ok(Core {
            params,
            signals,
            endpoints: Endpoints::new(limits),
            protocol: None,
            links: SlotMap::with_key(),
            peers: PeerTable::default(),
            operations: SlotMap::with_key(),
            served: SlotMap::with_key(),
            below: None,
            arrivals: None,
            resumed: Vec::new(),
            ended: Vec::new(),
            target: Some(RmaTarget::new(memory)),
            old_values: Vec::new(),
            unreported: Unreported::default(),
            poller: Wakeups::new()?,
            idle_turns: 0,
            is_stalled: false,
            obstacle: Obstacle::NoRoom,
            is_looked_after: false,
            driven_at: 0,
            slept_at: u64::MAX,
            watch_at: u64::MAX,
            is_quiet: false,
            has_left_over: false,
            postponed: Vec::new(),
            doors: Doors::default(),
            last_acks_sent: 0,
            process: Process::current(),
        })
    }

    /// Calls the protocol, which may call this core back; then does what follows from that. Returns
    /// `None` without an enabled endpoint.
    #[inline(always)]
    fn with_protocol<R>(
        &mut self,
        call: impl FnOnce(&mut Endpoint<Core>, &mut Core) -> R,
    ) -> Option<R> {
        let mut protocol = self.protocol.take()?;
        let result = call(&mut protocol, self);
        self.protocol = Some(protocol);
        if (!self.resumed.is_empty() || !self.ended.is_empty()) && !self.is_quiet {
            self.settle();
        }
        Some(result)
    }
}

impl prov_message::Core for Core {
    type Transport = Rxd;
    type Errand = NoErrand;
    type Sources = BySessions;

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
        self.take_back_unsent(ep, context)
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

    fn prepare_wait(&mut self, sleeper: Sleeper) -> bool {
        self.may_sleep(sleeper)
    }

    fn end_burst(&mut self) -> bool {
        self.send_for_application()
    }

    #[inline(always)]
    fn has_errands(&self) -> bool {
        false
    }

    fn poller(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn close(&mut self, ep: EpKey) {
        self.close_with_links(ep);
    }

    fn send_last(&mut self, _ep: EpKey) -> Option<Pause> {
        self.send_before_closing()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        prov_message::Core::close_all(self);
    }
}
