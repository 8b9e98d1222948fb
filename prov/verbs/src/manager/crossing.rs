//! Connections of XRC. Each consists of two: one from the own initiator to a target of the peer,
//! which the first side requests, and then one back, which the other side requests. Endpoints that
//! send from one completion queue to one host share an initiator: the first one connects it, and
//! the others only request (by datagrams) to use it. Once both directions are established, RDMA CM
//! is told to forget them, as the provider's peers do: the end of a connection is not reported to
//! the peer.

mod end;
mod initiators;
mod steps;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_device::QueuePair as _;

use super::connection::cause;
use super::hello::Hello;
use super::*;
use crate::device::{CompletionQueue, ProtectionDomain, REJECTED_BY_PEER, XrcDomain};
use end::{Answer, Caller, NamedId, Stage};

pub(super) use end::{Crossing, Role};
pub(super) use initiators::Initiators;

/// The additional objects of an XRC endpoint.
#[derive(Clone)]
pub struct XrcEnd {
    /// The domain of its targets.
    pub domain: Arc<XrcDomain>,
    /// The protection domain of its initiators.
    pub pd: Arc<ProtectionDomain>,
    /// The queue of its send completions.
    pub queue: Arc<CompletionQueue>,
    /// The number of its receive queue.
    pub receives: u32,
    /// The parameters of initiators: requests, segments of each, bytes of inline ones.
    pub sends: usize,
    pub send_pieces: usize,
    pub inline: usize,
}

/// A request of XRC.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub hello: Hello,
    /// Whether it is a datagram: the initiator is connected already.
    pub is_datagram: bool,
}

impl Asked {
    /// Decodes the request in a message.
    pub(super) fn of(message: &[u8], is_datagram: bool) -> Result<(Self, &[u8])> {
        let (hello, data) = Hello::of(message)?;
        // A target is given if and only if the initiator is connected.
        match is_datagram == (hello.target != 0) {
            true => Ok((Asked { hello, is_datagram }, data)),
            false => Err(Errno::EPROTO),
        }
    }
}

/// The reason why a connection could not be established, with the peer's data.
type Failure = (Errno, Vec<u8>);

fn plain(error: Errno) -> Failure {
    (error, Vec::new())
}

fn ip_of(address: &SocketAddress) -> Result<IpAddr> {
    match address {
        SocketAddress::Internet(address) => Ok(address.ip()),
        SocketAddress::Infiniband(_) => Err(Errno::EINVAL),
    }
}

fn with_port(address: &SocketAddress, port: u16) -> SocketAddress {
    match address {
        SocketAddress::Internet(address) => {
            let mut address = *address;
            address.set_port(port);
            SocketAddress::Internet(address)
        }
        other => other.clone(),
    }
}

fn port_of(address: Option<SocketAddress>) -> u16 {
    match address {
        Some(SocketAddress::Internet(address)) => address.port(),
        _ => 0,
    }
}

impl State {
    /// Requests a connection from a peer.
    pub(super) fn cross(
        &mut self,
        parts: EndParts,
        xrc: XrcEnd,
        own: Option<&SocketAddress>,
        peer: &SocketAddress,
        data: &[u8],
    ) -> Result<EndKey> {
        let mut crossing = Crossing::new(parts, xrc, peer.clone(), true);
        crossing.own = own.map(|own| with_port(own, 0));
        crossing.data = data.to_vec();
        let key = self.ends.insert(End::Away);
        crossing.parts.link.belong(&self.lost, key);
        let outcome = self.ask(key, &mut crossing);
        self.keep(key, crossing, outcome)
    }

    /// Accepts the request of a peer.
    pub(super) fn cross_back(
        &mut self,
        parts: EndParts,
        xrc: XrcEnd,
        id: Id,
        asked: Asked,
        data: &[u8],
    ) -> Result<EndKey> {
        let peer = id.peer_address().ok_or(Errno::EINVAL)?;
        let peer = with_port(&peer, asked.hello.port);
        let mut crossing = Crossing::new(parts, xrc, peer, false);
        crossing.own = id.local_address().map(|own| with_port(&own, 0));
        crossing.hello.tag = asked.hello.tag;
        crossing.hello.port = port_of(id.local_address());
        let key = self.ends.insert(End::Away);
        crossing.parts.link.belong(&self.lost, key);
        let outcome = crossing
            .target_for(&id, &asked)
            .and_then(|target| self.grant(key, &mut crossing, id, asked, target, data))
            .and_then(|()| match asked.is_datagram {
                true => self.ask(key, &mut crossing),
                false => Ok(()),
            });
        self.keep(key, crossing, outcome)
    }

    /// Keeps a connection that has begun, and clears one that has not.
    fn keep(&mut self, key: EndKey, mut crossing: Crossing, begun: Result) -> Result<EndKey> {
        if let Err(error) = begun {
            self.clear(&mut crossing);
            self.ends.remove(key);
            self.resume();
            return Err(error);
        }
        self.put_back(key, Box::new(crossing));
        self.resume();
        Ok(key)
    }

    /// Removes a connection while it is being processed.
    fn take_out(&mut self, key: EndKey) -> Option<Box<Crossing>> {
        let end = self.ends.get_mut(key)?;
        match std::mem::replace(end, End::Away) {
            End::Crossing(crossing) => Some(crossing),
            other => {
                *end = other;
                None
            }
        }
    }

    fn put_back(&mut self, key: EndKey, crossing: Box<Crossing>) {
        if let Some(end) = self.ends.get_mut(key) {
            *end = End::Crossing(crossing);
        }
    }

    /// Resumes the connections that need not wait any longer.
    pub(super) fn resume(&mut self) {
        while let Some(key) = self.initiators.ready.pop() {
            let Some(mut crossing) = self.take_out(key) else {
                continue;
            };
            if crossing.stage == Stage::Waiting
                && let Err(error) = self.ask(key, &mut crossing)
            {
                self.fail(&mut crossing, plain(error));
            }
            self.put_back(key, crossing);
        }
    }

    /// Handles an event of an identifier of a connection.
    pub(super) fn part_happened(&mut self, of: EndKey, role: Role, event: Event) {
        let Some(mut crossing) = self.take_out(of) else {
            return;
        };
        if let Err(failure) = self.step(of, &mut crossing, role, event) {
            self.fail(&mut crossing, failure);
        }
        self.put_back(of, crossing);
        self.resume();
    }

    fn step(
        &mut self,
        key: EndKey,
        crossing: &mut Crossing,
        role: Role,
        event: Event,
    ) -> std::result::Result<(), Failure> {
        let is_datagram =
            |part: &Option<NamedId>| part.as_ref().is_some_and(|part| part.is_datagram);
        match (role, crossing.stage, event.kind) {
            (_, Stage::Ended, _) => Ok(()),
            (_, Stage::Connected, EventKind::DeviceRemoved) => {
                self.part_ways(crossing);
                Ok(())
            }
            (_, _, EventKind::DeviceRemoved) => Err(plain(Errno::ENODEV)),
            (Role::Listener { is_datagram }, _, EventKind::Requested) => {
                if let Some(id) = event.incoming {
                    self.asked_back(key, crossing, id, &event.data, is_datagram)
                        .map_err(plain)?;
                }
                Ok(())
            }
            (Role::Listener { .. }, ..) => Ok(()),
            (Role::Asking, Stage::Resolving, EventKind::AddressResolved) => {
                self.route(key, crossing).map_err(plain)
            }
            (Role::Asking, Stage::Routing, EventKind::RouteResolved) => {
                let target = self.target_of(crossing);
                let is_gone = is_datagram(&crossing.asking) && target == 0;
                match is_gone && !crossing.has_retried {
                    true => self.ask_anew(key, crossing).map_err(plain),
                    false => crossing.send_request(target).map_err(plain),
                }
            }
            (Role::Asking, Stage::Asking, EventKind::Answered | EventKind::Established) => {
                self.answered(key, crossing, &event).map_err(plain)
            }
            (Role::Asking, _, EventKind::Rejected) => {
                Err(refused(&event, event.status == REJECTED_BY_PEER))
            }
            // The negative answer to a datagram.
            (Role::Asking, Stage::Asking, EventKind::Failed)
                if event.status >= 0 && is_datagram(&crossing.asking) =>
            {
                let is_told = Hello::of(&event.data).is_ok();
                if !is_told && !crossing.has_retried {
                    return self.ask_anew(key, crossing).map_err(plain);
                }
                Err(refused(&event, event.status == DATAGRAM_REJECTED_BY_PEER))
            }
            // RDMA CM is not needed any longer.
            (
                Role::Asking,
                Stage::Connected | Stage::Accepting,
                EventKind::Disconnected | EventKind::Failed,
            ) => {
                if let Some(mut part) = crossing.asking.take() {
                    let _ = part.id.disconnect();
                    self.ends.remove(part.key);
                }
                Ok(())
            }
            (Role::Asked, Stage::Accepting, EventKind::Established) => match crossing.is_first {
                true => {
                    self.connected(crossing);
                    Ok(())
                }
                false => self.ask(key, crossing).map_err(plain),
            },
            (Role::Asked, Stage::Connected, _) => Ok(()),
            (_, _, EventKind::NotResolved | EventKind::Failed) => Err(plain(cause(event.status))),
            (_, _, EventKind::Disconnected) => Err(plain(Errno::ECONNRESET)),
            _ => Ok(()),
        }
    }

    /// Repeats the answer to a datagram that was answered before; returns whether it was.
    pub(super) fn answer_again(&mut self, id: &mut Id, asked: &Asked) -> bool {
        let caller = caller_of(id, asked);
        let key = caller.and_then(|caller| self.initiators.answered.get(&caller));
        match (key.and_then(|key| self.ends.get_mut(*key)), caller) {
            (Some(End::Crossing(crossing)), Some(caller)) => crossing.answer_again(id, caller),
            _ => false,
        }
    }

    /// Handles that both directions are established.
    fn connected(&mut self, crossing: &mut Crossing) {
        crossing.stage = Stage::Connected;
        if let Some(mut part) = crossing.asked.take() {
            let _ = part.id.disconnect();
            self.ends.remove(part.key);
        }
        if let Some(part) = crossing.asking.take_if(|part| part.is_datagram) {
            self.ends.remove(part.key);
        }
        crossing.parts.link.set_connected(true);
        let data = std::mem::take(&mut crossing.data);
        crossing.parts.events.connected(&data);
    }

    fn fail(&mut self, crossing: &mut Crossing, (error, data): Failure) {
        self.clear(crossing);
        crossing.parts.events.failed(error, &data);
    }

    /// Ends a connection, with an event for the application.
    fn part_ways(&mut self, crossing: &mut Crossing) {
        self.clear(crossing);
        crossing.parts.events.shut_down();
    }

    /// Frees everything that outstanding requests do not need.
    fn clear(&mut self, crossing: &mut Crossing) {
        crossing.stage = Stage::Ended;
        crossing.parts.link.set_connected(false);
        let parts = [crossing.asking.take(), crossing.asked.take()];
        for part in parts
            .into_iter()
            .flatten()
            .chain(crossing.listeners.drain(..))
        {
            self.ends.remove(part.key);
        }
        crossing.early = None;
        if let Some(Answer { to, .. }) = crossing.answer.take() {
            self.initiators.answered.remove(&to);
        }
        // No other connection establishes it.
        if let (Some(pair), Ok(way)) = (crossing.initiator.take(), crossing.way())
            && self.initiators.is_unconnected(way)
        {
            self.initiators.forget(way, &pair);
        }
        crossing.target = None;
    }

    /// Ends a connection, with an event for the application, but not for the peer.
    pub(super) fn uncross(&mut self, key: EndKey) -> Result {
        let Some(mut crossing) = self.take_out(key) else {
            return Err(Errno::ENOTCONN);
        };
        let outcome = match crossing.stage {
            Stage::Connected | Stage::Accepting => {
                self.part_ways(&mut crossing);
                Ok(())
            }
            Stage::Ended => Ok(()),
            _ => Err(Errno::ENOTCONN),
        };
        self.put_back(key, crossing);
        self.resume();
        outcome
    }

    /// Handles the closing of the endpoint.
    pub(super) fn leave(&mut self, mut crossing: Box<Crossing>) {
        self.clear(&mut crossing);
        self.resume();
    }

    /// Handles that a request has failed, and with it the initiator and all connections that share
    /// it.
    pub(super) fn lose_crossing(&mut self, key: EndKey) {
        let Some(End::Crossing(crossing)) = self.ends.get(key) else {
            return;
        };
        let parts = &crossing.parts;
        let initiator = parts.pair.initiator().and_then(|pair| pair.upgrade());
        if let Some(initiator) = initiator {
            let event = DeviceEvent::PairFailed(initiator.number());
            self.device_says_to_crossings(parts.config.context, event);
        }
    }

    /// Handles an event of a device.
    pub(super) fn device_says_to_crossings(&mut self, context: Context, event: DeviceEvent) {
        let keys: Vec<_> = self.ends.keys().collect();
        for key in keys {
            let Some(mut crossing) = self.take_out(key) else {
                continue;
            };
            if crossing.parts.config.context == context
                && let Some(error) = crossing.concerned_by(event)
            {
                match crossing.stage {
                    Stage::Ended => {}
                    Stage::Connected => self.part_ways(&mut crossing),
                    _ => self.fail(&mut crossing, plain(error)),
                }
            }
            self.put_back(key, crossing);
        }
        self.resume();
    }
}

/// `IB_SIDR_REJECT`: the peer itself has rejected a datagram.
const DATAGRAM_REJECTED_BY_PEER: i32 = 2;

fn refused(event: &Event, is_by_peer: bool) -> Failure {
    let data = match (is_by_peer, Hello::of(&event.data)) {
        (true, Ok((_, data))) => data.to_vec(),
        _ => Vec::new(),
    };
    (Errno::ECONNREFUSED, data)
}

/// Returns the sender of a request; `None` if it is not a datagram.
fn caller_of(id: &Id, asked: &Asked) -> Option<Caller> {
    let Hello {
        port,
        tag,
        is_reciprocal,
        ..
    } = asked.hello;
    let peer = ip_of(&id.peer_address()?).ok()?;
    asked
        .is_datagram
        .then_some((peer, port, tag, is_reciprocal))
}
