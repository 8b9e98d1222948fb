//! What moves data: the connections of an endpoint, through the provider below,
//! driven from the calls that read its queues.

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
mod rendezvous;
mod rma;
mod sending;
mod strangers;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use prov_message::lane::Pause;
use prov_message::sources::ByPeers;
use prov_message::strangers::Strangers;
use prov_message::{EpKey, Limits, NoErrand, Signals, StrangersLimits, Target, Waiting};
use prov_util::below::Batch;
use prov_util::errno::{Errno, Result};
use prov_util::mr::MrTable;
use prov_util::poller::{Event, Poller};
use prov_util::request::{Atomic, Receive, RemoteAccess, Transmit};
use prov_util::timers::Timers;
use slotmap::SlotMap;

use self::below::{Below, Way};
use self::buffered::Buffered;
use self::keys::{Due, Ids, LinkKey, Names, Source};
use self::link::{Action, Endpoints, Link, Rxm};
use crate::params::Params;

/// See the [module](self) description. There is one endpoint in it.
pub struct Core {
    params: Arc<Params>,
    signals: Arc<Signals>,
    endpoints: Endpoints,
    // Connections close before what they are bound to.
    links: SlotMap<LinkKey, Link>,
    /// Links by the numbers that peers put into packets.
    ids: Ids,
    /// Links by what events call them.
    names: Names,
    /// What there is of the provider below, once the endpoint is enabled.
    below: Option<Below>,
    /// Messages that the application takes in place, where it does.
    buffered: Option<Box<Buffered>>,
    /// Links with something to send for which there was no room.
    busy: Vec<LinkKey>,
    /// Links that are not open yet.
    connecting: usize,
    /// Those that strangers have made.
    strangers: Strangers<LinkKey>,
    /// The domain's registered memory, for atomic operations.
    target: Target,
    batch: Batch,
    poller: Poller<Source>,
    timers: Timers<Due>,
    polled: Vec<Event<Source>>,
    /// Turns until it is time to look whether it is time to look at events.
    until_clock: u32,
    /// When events were last looked at.
    looked_at_events: Instant,
    /// Turns in vain since the last one that brought something.
    idle_turns: u32,
    /// Remote writes with immediate data, by length and data, that are reported when
    /// the application has read completions. No more of them than its queue has room
    /// for, and a batch: as many, so that messages behind the first of them arrive, among
    /// these what peers answer to operations of this side.
    unreported: VecDeque<(usize, u64)>,
    /// A peer's operands, and the result for it.
    operands: Vec<u8>,
    result: Vec<u8>,
    /// What is behind the head of a packet with an atomic operation, or with its
    /// result.
    gathered: Vec<u8>,
}

impl Core {
    /// Without an endpoint.
    ///
    /// # Errors
    /// What the system says to a poller.
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
            target: Target::new(memory),
            batch: Batch::default(),
            poller: Poller::new()?,
            timers: Timers::default(),
            polled: Vec::new(),
            until_clock: 0,
            looked_at_events: Instant::now(),
            idle_turns: 0,
            unreported: VecDeque::new(),
            operands: Vec::new(),
            result: Vec::new(),
            gathered: Vec::new(),
        })
    }

    /// What is needed to do something on a link, `None` if it has ended.
    fn at_link(&mut self, key: LinkKey) -> Option<(&mut Endpoints, &mut Link, &mut Below)> {
        let link = self.links.get_mut(key)?;
        Some((&mut self.endpoints, link, self.below.as_mut()?))
    }

    /// Lets peers connect to the endpoint, and the endpoint to them.
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
            for way in [Way::In, Way::Out] {
                let fd = below.queue(way).wait_fd()?;
                self.poller.watch_listener(fd, Source::Completions)?;
            }
            self.poller
                .watch_listener(below.wiring.eq.wait_fd()?, Source::Events)?;
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
    fn transmit(&mut self, ep: EpKey, message: &Transmit) -> Result {
        self.post_message(ep, message)
    }

    #[inline(always)]
    fn receive_at_once(&mut self, ep: EpKey, receive: &Receive) -> bool {
        self.buffered.is_none() && self.post_at_once_of(ep, receive)
    }

    #[inline(always)]
    fn receive(&mut self, ep: EpKey, receive: &Receive) -> Result {
        match self.buffered {
            None => self.post_receive_of(ep, receive),
            Some(_) => self.take_buffered(ep, receive),
        }
    }

    fn access(&mut self, ep: EpKey, access: &RemoteAccess) -> Result {
        self.post_access(ep, access)
    }

    fn atomic(&mut self, ep: EpKey, atomic: &Atomic) -> Result {
        self.post_atomic(ep, atomic)
    }

    fn act(&mut self, action: Action) {
        self.act_on(action);
    }

    #[inline(always)]
    fn progress(&mut self) -> Waiting {
        self.do_what_is_ready()
    }

    fn prepare_wait(&mut self, _sleeper: prov_message::Sleeper) -> bool {
        self.may_sleep()
    }

    #[inline(always)]
    fn has_errands(&self) -> bool {
        false
    }

    fn poller(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn close(&mut self, ep: EpKey) {
        self.close_endpoint(ep);
    }

    fn send_last(&mut self, ep: EpKey) -> Option<Pause> {
        self.flush_last(ep)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        prov_message::Core::close_all(self);
    }
}
