//! The endpoints of a lane with their sockets, and what moves between the two.
//!
//! A message is sent at once, unless another one was sent since the application last read a queue:
//! then it is batched with those that follow, and the batch is sent with one system call when the
//! application reads a queue or has made no call for some time. Datagrams that arrive stay in the
//! socket until a receive is posted.

pub mod port;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use prov_base::errno::Result;
use prov_base::poller::{self, Event, Poller};
use prov_base::socket;
use prov_message::lane::Pause;
use prov_message::sources::Known;
use prov_message::{Action, Context, Endpoints, EpKey, Idling, NoErrand, Signals, Sleeper, Ticket};
use prov_message::{NoLink, Transport};
use prov_util::request::{Receive, Transmit};
use slotmap::{Key, KeyData, SecondaryMap};

use self::port::Port;
use crate::bases::LONGEST;

/// The types of the provider's messages: datagrams belong to no link.
pub enum Messages {}

impl Transport for Messages {
    type Link = NoLink;
    type Ack = ();
    type Name = ();
    type Endpoint = ();

    /// A multi-receive buffer is released when the longest message no longer fits.
    const MIN_MULTI_RECV: usize = LONGEST;
}

/// What a descriptor in the poller belongs to: the timer, or the socket of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Timer,
    Port(EpKey),
}

impl poller::Source for Source {
    const TIMER: Self = Source::Timer;

    fn token(self) -> u64 {
        match self {
            // The number of no key.
            Source::Timer => u64::MAX,
            Source::Port(ep) => ep.data().as_ffi(),
        }
    }

    fn of_token(token: u64) -> Self {
        match token {
            u64::MAX => Source::Timer,
            token => Source::Port(KeyData::from_ffi(token).into()),
        }
    }
}

/// See the [module](self) description.
pub struct Core {
    endpoints: Endpoints<Messages>,
    ports: SecondaryMap<EpKey, Port>,
    /// All of them, in the order in which they were opened.
    keys: Vec<EpKey>,
    /// Ports that may have datagrams, if there are several.
    ready: Vec<EpKey>,
    poller: Poller<Source>,
    events: Vec<Event<Source>>,
    signals: Arc<Signals>,
    /// Whether a datagram is to be sent, or a completion to be reported.
    has_deferred_work: bool,
    /// Whether messages are batched that have not been sent.
    holds: bool,
    /// Whether a thread has gone to sleep at the poller, ever.
    has_sleepers: bool,
    idle_calls: u32,
}

impl Core {
    /// Without endpoints.
    ///
    /// # Errors
    /// Those of [`Poller::new`].
    pub fn new(signals: Arc<Signals>) -> Result<Self> {
        Ok(Core {
            endpoints: Endpoints::default(),
            ports: SecondaryMap::new(),
            keys: Vec::new(),
            ready: Vec::new(),
            poller: Poller::new()?,
            events: Vec::new(),
            signals,
            has_deferred_work: false,
            holds: false,
            has_sleepers: false,
            idle_calls: 0,
        })
    }

    /// Gives an endpoint its port.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn add_port(&mut self, ep: EpKey, port: Port) -> Result {
        self.keys.push(ep);
        self.ports.insert(ep, port);
        // A single socket is asked, and no poller.
        if self.keys.len() > 1 || self.has_sleepers {
            self.watch_all()?;
        }
        self.ready.push(ep);
        Ok(())
    }

    /// An endpoint's port, once it is enabled.
    pub fn port(&mut self, ep: EpKey) -> Option<&mut Port> {
        self.ports.get_mut(ep)
    }

    /// Registers all sockets with the poller.
    fn watch_all(&mut self) -> Result {
        for (ep, port) in &mut self.ports {
            if !port.is_watched {
                self.poller
                    .watch_reading(port.socket.as_fd(), Source::Port(ep))?;
                port.is_watched = true;
            }
        }
        Ok(())
    }

    /// Polls, and marks the ports that have datagrams. Returns whether there was any event.
    fn ask_poller(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.poller.poll(&mut events);
        let any = !events.is_empty();
        for event in events.drain(..) {
            if let Source::Port(ep) = event.source
                && let Some(port) = self.ports.get_mut(ep)
                && event.readable
            {
                port.is_drained = false;
                if !self.ready.contains(&ep) {
                    self.ready.push(ep);
                }
            }
        }
        self.events = events;
        any
    }

    /// Receives datagrams from all ports. Returns whether a receive has completed.
    #[inline(always)]
    fn take_in(&mut self) -> bool {
        match self.keys.as_slice() {
            &[alone] => self.take_in_at(alone),
            _ => self.take_in_ready(),
        }
    }

    /// [`Core::take_in`] for several sockets, or none.
    #[inline(never)]
    fn take_in_ready(&mut self) -> bool {
        self.ask_poller();
        let mut any = false;
        let ready = std::mem::take(&mut self.ready);
        for ep in ready {
            any |= self.take_in_at(ep);
            if self.ports.get(ep).is_some_and(|port| !port.is_drained) {
                self.ready.push(ep);
            }
        }
        any
    }

    /// Sends the datagrams that wait and reports completions, which earlier calls have postponed.
    #[cold]
    #[inline(never)]
    fn do_deferred_work(&mut self) {
        self.has_deferred_work = false;
        for at in 0..self.keys.len() {
            if let Some(&ep) = self.keys.get(at) {
                self.report_left(ep);
                self.flush(ep);
            }
        }
    }
}

impl prov_message::Core for Core {
    type Transport = Messages;
    type Errand = NoErrand;
    type Sources = Known;

    fn signals(&self) -> Option<&Signals> {
        Some(&self.signals)
    }

    fn endpoints(&mut self) -> &mut Endpoints<Messages> {
        &mut self.endpoints
    }

    #[inline]
    fn transmit(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        self.post_message(ep, message)
    }

    fn take_back(&mut self, ep: EpKey, context: Context) -> Option<Ticket> {
        self.take_back_unsent(ep, context)
    }

    #[inline(always)]
    fn receive(&mut self, ep: EpKey, receive: &mut Receive) -> Result {
        receiving::forget_looks(receive);
        self.post_receive_of(ep, receive)
    }

    #[inline(always)]
    fn posts_fast(&self) -> bool {
        !self.has_sleepers
    }

    /// A datagram that arrived before the receive was posted causes no event that would wake a thread.
    fn receive_posted(&mut self) {
        if self.has_sleepers {
            self.take_in_for_sleepers();
        }
    }

    /// Messages that wait are in their sockets.
    fn act(&mut self, _: Action<Messages>) {}

    #[inline(always)]
    fn progress(&mut self) -> Idling {
        if self.has_deferred_work {
            self.do_deferred_work();
        }
        if self.take_in() {
            self.signals.brought();
            self.idle_calls = 0;
            return Idling::No;
        }
        self.idle_calls = self.idle_calls.wrapping_add(1);
        self.signals.in_vain(self.idle_calls)
    }

    fn prepare_wait(&mut self, _: Sleeper) -> bool {
        if self.has_deferred_work {
            self.do_deferred_work();
        }
        self.has_sleepers = true;
        if self.watch_all().is_err() || self.take_in() {
            return false;
        }
        self.watch_for_room();
        !self.ask_poller()
    }

    fn end_burst(&mut self) -> bool {
        self.flush_for_application()
    }

    fn has_errands(&self) -> bool {
        false
    }

    fn poller(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.as_fd())
    }

    fn close(&mut self, ep: EpKey) {
        if let Some(port) = self.ports.remove(ep) {
            self.poller.forget(port.socket.as_fd());
            port.abandon();
        }
        self.keys.retain(|key| *key != ep);
        self.ready.retain(|key| *key != ep);
        self.settle_signals();
        self.endpoints.close(ep);
    }

    fn send_last(&mut self, ep: EpKey) -> Option<Pause> {
        // What a child of fork(2) has of it is a copy.
        if !self.poller.is_own() {
            return None;
        }
        self.report_left(ep);
        self.flush(ep);
        let port = self.ports.get(ep).filter(|port| !port.outbox.is_empty())?;
        let waits_for = port.socket.clone();
        Some(Box::new(move |time| {
            socket::udp::wait_writable(&*waits_for, time);
        }))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        prov_message::Core::close_all(self);
    }
}
