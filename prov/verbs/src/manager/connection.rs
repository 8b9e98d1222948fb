//! One end of a connection on an RC queue pair, and how far it has come.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_util::eq::ConnectionEvents;

use super::{enabled, message};
use crate::device::{
    ConnectionParam, Context, DeviceEvent, Event, EventKind, Id, QueuePair, REJECTED_BY_IWARP_PEER,
    REJECTED_BY_PEER, Terms,
};
use crate::lane::Seats;
use crate::link::Link;

/// How long an address or a route may take to be found.
pub(super) const RESOLVING_MS: i32 = 2000;

/// One end of a connection.
pub(super) struct Connection {
    pub(super) id: Id,
    stage: Stage,
    pair: Arc<QueuePair>,
    seats: Seats,
    pub(super) link: Arc<Link>,
    events: ConnectionEvents,
    pub(super) config: EndConfig,
    /// The connection data of the request to come.
    data: Vec<u8>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An address is looked for.
    Resolving,
    /// A route is looked for.
    Routing,
    /// The peer has been asked.
    Asking,
    /// The peer's request has been accepted.
    Accepting,
    Connected,
    /// It is over, or did not come about.
    Ended,
}

/// What an end of a connection has.
#[derive(Clone, Copy, Debug)]
pub struct EndConfig {
    /// The device that its queue pair is of.
    pub context: Context,
    /// Whether its receives are shared.
    pub is_shared: bool,
    /// What it brings.
    pub terms: Terms,
}

/// What an endpoint gives to have a connection.
pub struct EndParts {
    /// Its queue pair, which takes receives.
    pub pair: Arc<QueuePair>,
    /// Where its requests are.
    pub seats: Seats,
    /// Who wants to know how far it has come.
    pub link: Arc<Link>,
    /// Whom to tell.
    pub events: ConnectionEvents,
    /// What it has.
    pub config: EndConfig,
}

impl Connection {
    pub(super) fn new(id: Id, stage: Stage, parts: EndParts, data: Vec<u8>) -> Self {
        Connection {
            id,
            stage,
            pair: parts.pair,
            seats: parts.seats,
            link: parts.link,
            events: parts.events,
            config: parts.config,
            data,
        }
    }

    pub(super) fn param<'a>(&self, data: &'a [u8]) -> ConnectionParam<'a> {
        ConnectionParam {
            data,
            pair: self.pair.number(),
            is_shared: self.config.is_shared,
        }
    }

    /// Lets the queue pair send and receive.
    pub(super) fn ready(&self) -> Result {
        self.id.ready(&*self.pair, &self.config.terms)
    }

    pub(super) fn happened(&mut self, event: Event) {
        let outcome = match (self.stage, event.kind) {
            (Stage::Resolving, EventKind::AddressResolved) => self.route(),
            (Stage::Routing, EventKind::RouteResolved) => self.ask(),
            (Stage::Asking, EventKind::Answered) => self.answered(&event.data),
            // iWARP says that alone: the queue pair is ready.
            (Stage::Asking, EventKind::Established) => {
                self.connected(message::of_answer(&event.data));
                Ok(())
            }
            (Stage::Accepting, EventKind::Established) => {
                self.connected(&[]);
                Ok(())
            }
            (Stage::Connected, EventKind::Disconnected | EventKind::DeviceRemoved) => {
                self.disconnected();
                return;
            }
            (Stage::Ended, EventKind::Established) => {
                // It ended before the peer could be told.
                let _ = self.id.disconnect();
                return;
            }
            (Stage::Ended, _) => return,
            (_, EventKind::Rejected) => {
                let data = match event.status {
                    REJECTED_BY_PEER | REJECTED_BY_IWARP_PEER => message::of_answer(&event.data),
                    _ => &[],
                };
                return self.failed(Errno::ECONNREFUSED, data);
            }
            (_, EventKind::NotResolved | EventKind::Failed) => {
                return self.failed(cause(event.status), &[]);
            }
            (_, EventKind::Disconnected) => return self.failed(Errno::ECONNRESET, &[]),
            (_, EventKind::DeviceRemoved) => return self.failed(Errno::ENODEV, &[]),
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            self.failed(error, &[]);
        }
    }

    fn route(&mut self) -> Result {
        if !self.id.is_on(self.config.context) {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "the peer is reached by {:?}, and the domain is of {:?}",
                self.id.context(),
                self.config.context
            );
            return Err(Errno::ENODEV);
        }
        self.stage = Stage::Routing;
        self.id.resolve_route(RESOLVING_MS)
    }

    fn ask(&mut self) -> Result {
        self.stage = Stage::Asking;
        if self.config.context.is_iwarp() {
            self.id.prepare(&*self.pair, &self.config.terms)?;
        }
        let (own, peer) = (self.id.local_address(), self.id.peer_address());
        let data = message::request(own.as_ref(), peer.as_ref(), &self.data);
        let param = self.param(&data);
        self.id.connect(&param)
    }

    fn answered(&mut self, data: &[u8]) -> Result {
        self.ready()?;
        self.id.establish()?;
        self.connected(message::of_answer(data));
        Ok(())
    }

    fn connected(&mut self, data: &[u8]) {
        self.stage = Stage::Connected;
        self.link.set_connected(true);
        self.events.connected(data);
    }

    fn failed(&mut self, error: Errno, data: &[u8]) {
        self.end();
        self.events.failed(error, data);
    }

    /// The peer has ended the connection, or has agreed to its end.
    fn disconnected(&mut self) {
        // Whoever has not begun agrees.
        let _ = self.id.disconnect();
        self.end();
        self.events.shut_down();
    }

    pub(super) fn shut_down(&mut self) -> Result {
        match self.stage {
            Stage::Connected | Stage::Accepting => {
                let outcome = self.id.disconnect();
                self.end();
                self.events.shut_down();
                outcome
            }
            Stage::Ended => Ok(()),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Its device has said something.
    pub(super) fn device_says(&mut self, event: DeviceEvent) {
        let error = match event {
            DeviceEvent::Failed => Errno::ENODEV,
            DeviceEvent::PairFailed(pair) if self.pair.number() == pair => Errno::EIO,
            _ => return,
        };
        match self.stage {
            Stage::Ended => {}
            Stage::Connected => self.disconnected(),
            _ => self.failed(error, &[]),
        }
    }

    /// A request has failed, and the queue pair with it.
    pub(super) fn lost(&mut self) {
        match self.stage {
            Stage::Connected => self.disconnected(),
            Stage::Accepting => {
                let _ = self.id.disconnect();
                self.failed(Errno::EIO, &[]);
            }
            _ => {}
        }
    }

    /// Nothing is sent or received any more, and what is under way is flushed.
    fn end(&mut self) {
        self.stage = Stage::Ended;
        self.link.set_connected(false);
        enabled::end(&self.pair, &self.seats);
    }

    /// The endpoint is closed.
    pub(super) fn leave(&mut self) {
        if matches!(self.stage, Stage::Connected | Stage::Accepting) {
            // If it does not get through, closing the identifier does.
            let _ = self.id.disconnect();
        }
        self.link.set_connected(false);
    }
}

/// Why a connection did not come about.
pub(super) fn cause(status: i32) -> Errno {
    match status {
        status if status < 0 => Errno::new(status),
        _ => Errno::ECONNREFUSED,
    }
}
