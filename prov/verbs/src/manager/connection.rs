//! One end of a connection on an RC queue pair, and its state.

use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_device::QueuePair as _;
use prov_device::link::Link;
use prov_util::eq::ConnectionEvents;

use super::{enabled, message};
use crate::device::{
    ConnectionParam, Context, DeviceEvent, Event, EventKind, Id, QueuePair, REJECTED_BY_IWARP_PEER,
    REJECTED_BY_PEER, Terms,
};
use crate::lane::Seats;

/// Time limit in milliseconds for resolving an address or a route.
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
    /// The connection data of the request.
    data: Vec<u8>,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The address is being resolved.
    Resolving,
    /// The route is being resolved.
    Routing,
    /// The request has been sent.
    Asking,
    /// The peer's request has been accepted.
    Accepting,
    Connected,
    /// It has ended, or could not be established.
    Ended,
}

/// The parameters of an end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct EndConfig {
    /// The device of its queue pair.
    pub context: Context,
    /// Whether its receives are shared.
    pub is_shared: bool,
    /// Its limits.
    pub terms: Terms,
}

/// What an endpoint provides for a connection.
pub struct EndParts {
    /// Its queue pair, which accepts receives.
    pub pair: Arc<QueuePair>,
    /// Its lane members.
    pub seats: Seats,
    /// The shared state of the connection.
    pub link: Arc<Link>,
    /// The source of its events.
    pub events: ConnectionEvents,
    /// Its parameters.
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

    /// Makes the queue pair send and receive.
    pub(super) fn ready(&self) -> Result {
        self.id.ready(&*self.pair, &self.config.terms)
    }

    pub(super) fn happened(&mut self, event: Event) {
        let outcome = match (self.stage, event.kind) {
            (Stage::Resolving, EventKind::AddressResolved) => self.route(),
            (Stage::Routing, EventKind::RouteResolved) => self.ask(),
            (Stage::Asking, EventKind::Answered) => self.answered(&event.data),
            // Only iWARP reports this here: the queue pair is ready.
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
                // It ended before the peer could be informed.
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

    /// Handles that the peer has ended the connection, or has confirmed its end.
    fn disconnected(&mut self) {
        // The side that did not start the end confirms it.
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

    /// Handles an event of its device.
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

    /// Handles that a request has failed, and the queue pair with it.
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

    /// Ends sending and receiving; outstanding requests are flushed.
    fn end(&mut self) {
        self.stage = Stage::Ended;
        self.link.set_connected(false);
        enabled::end(&self.pair, &self.seats);
    }

    /// Handles the closing of the endpoint.
    pub(super) fn leave(&mut self) {
        if matches!(self.stage, Stage::Connected | Stage::Accepting) {
            // If it does not reach the peer, closing the identifier does.
            let _ = self.id.disconnect();
        }
        self.link.set_connected(false);
    }
}

/// Returns the reason why a connection could not be established.
pub(super) fn cause(status: i32) -> Errno {
    match status {
        status if status < 0 => Errno::new(status),
        _ => Errno::ECONNREFUSED,
    }
}
