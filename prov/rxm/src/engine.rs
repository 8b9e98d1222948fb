//! The progress engine: the connections of an endpoint over the provider below, driven by calls
//! that read its queues.

pub mod accesses;
mod arrival;
mod atomics;
pub mod below;
pub mod buffered;
mod connecting;
mod ending;
pub mod endpoint;
mod keys;
mod link;
mod progress;
mod queued;
pub mod removal;
mod rendezvous;
mod rma;
mod sending;
mod strangers;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_message::lane::Pause;
use prov_message::sources::ByPeers;
use prov_message::strangers::Strangers;
use prov_message::{
    Context, EpKey, Idling, Limits, Linked as _, NoErrand, Reaching as _, RmaTarget, Sided as _,
    Signals, StrangersLimits, Ticket, Unreported, Wakeups,
};
use prov_util::below::Batch;
use prov_util::endpoint::Side;
use prov_util::mr::MrTable;
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};
use slotmap::SlotMap;

use self::below::{Below, QueueSide};
use self::buffered::Buffered;
use self::keys::{Due, Ids, LinkKey, Names, Source};
use self::link::{Action, Endpoints, Link, Rxm};
use crate::params::Params;

/// See the [module](self) description. It contains one endpoint.
pub struct Core {
    params: Arc<Params>,
    signals: Arc<Signals>,
    endpoints: Endpoints,
    // Declared first, so that connections are closed before what they are bound to.
    links: SlotMap<LinkKey, Link>,
    /// Links by the numbers that peers put into packets.
    ids: Ids,
    /// Links by the identifiers of their endpoints in events.
    names: Names,
    /// The objects of the provider below, once the endpoint is enabled.
    below: Option<Below>,
    /// The messages that the application reads in place, if it does.
    buffered: Option<Box<Buffered>>,
    /// Links with queued output, for which there was no room.
    busy: Vec<LinkKey>,
    /// Number of links that are not open.
    connecting: usize,
    /// The links that strangers have established.
    strangers: Strangers<LinkKey>,
    /// The domain's registered memory, for atomic operations.
    target: RmaTarget,
    batch: Batch,
    poller: Wakeups<Source, Due>,
    /// Number of progress calls until the clock is read to decide whether events are due.
    until_clock: u32,
    /// The time when events were last read.
    looked_at_events: Instant,
    /// Number of progress calls without a completion since the last one with some.
    idle_turns: u32,
    /// Remote writes with immediate data, by length and data, that will be reported when the
    /// application has read completions. Their number is limited to the room in its queue plus one
    /// batch: that many are read, so that messages behind the first of them arrive, including
    /// peers' responses to operations of this side.
    unreported: Unreported,
    /// A peer's operands, and their result.
    operands: Vec<u8>,
    result: Vec<u8>,
    /// Scratch buffer for the part after the header of a packet with an atomic operation or its
    /// result.
    gathered: Vec<u8>,
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
            links: SlotMap::with_key(),
            ids: Ids::default(),
            names: Names::default(),
            below: None,
            buffered: None,
            busy: Vec::new(),
            connecting: 0,
            strangers: strangers::strangers(),
            target: RmaTarget::new(memory),
            batch: Batch::default(),
            poller: Wakeups::new()?,
            until_clock: 0,
            looked_at_events: Instant::now(),
            idle_turns: 0,
            unreported: Unreported::default(),
            operands: Vec::new(),
            result: Vec::new(),
            gathered: Vec::new(),
        })
    }

    /// Returns what is needed for an action on a link; `None` if it has ended.
    fn at_link(&mut self, key: LinkKey) -> Option<(&mut Endpoints, &mut Link, &mut Below)> {
        let link = self.links.get_mut(key)?;
        Some((&mut self.endpoints, link, self.below.as_mut()?))
    }

    /// Starts the endpoint: it listens for peers, and can connect to them.
    ///
    /// # Errors
    /// Those of the system, `-FI_EBUSY` for a second endpoint.
    pub fn start(
        &mut self,
        ep: EpKey,
        mut below: Below,
        buffered: Option<Box<Buffered>>,
    ) -> Result {
        if self.below.is_some() {
            return Err(Errno::EBUSY);
        }
        if below.setting.has_sleepers {
            for side in [QueueSide::In, QueueSide::Out] {
                let fd = below.queue(side).wait_fd()?;
                self.poller.watch_listener(fd, Source::Completions)?;
            }
            self.poller
                .watch_listener(below.wiring.eq.wait_fd()?, Source::Events)?;
        } else {
            self.signals.has_to_be_polled();
        }
        below.listen(ep, &self.signals)?;
        self.below = Some(below);
        self.buffered = buffered;
        Ok(())
    }
}

impl prov_message::Core for Core {
    type Transport = Rxm;
    type Errand = NoErrand;
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

    #[inline(always)]
    fn receive_fast(&mut self, ep: EpKey, receive: &mut Receive) -> bool {
        self.buffered.is_none() && self.post_fast_of(ep, receive)
    }

    #[inline(always)]
    fn receive(&mut self, ep: EpKey, receive: &mut Receive) -> Result {
        match self.buffered {
            None => self.post_receive_of(ep, receive),
            Some(_) => self.take_buffered(ep, receive),
        }
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

    fn prepare_wait(&mut self, sleeper: prov_message::Sleeper) -> bool {
        self.may_sleep(sleeper)
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

    fn close_side(&mut self, ep: EpKey, side: Side) {
        // What is complete already is no reason for ending a link.
        self.take_in_all();
        if side == Side::Receive
            && let Some(below) = &self.below
            && let Some(accesses) = &below.setting.accesses
        {
            accesses.end();
        }
        self.end_side(ep, side);
    }

    fn send_last(&mut self, ep: EpKey) -> Option<Pause> {
        self.connect_for_last(ep).or_else(|| self.flush_last(ep))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        prov_message::Core::close_all(self);
    }
}
