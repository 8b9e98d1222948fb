//! Establishing a connection: request, answer, and the way back.

use super::*;
use crate::device::{ConnectionParam, XrcTarget};

impl Manager {
    /// Requests a connection of XRC with `peer`, with connection data, from the host of `own`.
    pub fn connect_xrc(
        &self,
        parts: EndParts,
        xrc: XrcEnd,
        own: Option<&SocketAddress>,
        peer: &SocketAddress,
        data: &[u8],
    ) -> Result<EndKey> {
        self.state.lock().cross(parts, xrc, own, peer, data)
    }

    /// Accepts a peer's request of XRC. A request without an answer is rejected.
    pub fn accept_xrc(
        &self,
        parts: EndParts,
        xrc: XrcEnd,
        incomer: Incomer,
        data: &[u8],
    ) -> std::result::Result<EndKey, (Errno, Option<Incomer>)> {
        let Some(asked) = incomer.asked else {
            return Err((Errno::EINVAL, Some(incomer)));
        };
        if !incomer.id.is_on(parts.config.context) {
            return Err((Errno::ENODEV, Some(incomer)));
        }
        let mut state = self.state.lock();
        let outcome = state.cross_back(parts, xrc, incomer.id, asked, data);
        outcome.map_err(|error| (error, None))
    }
}

impl State {
    /// Handles a request of a connection of XRC at a listener.
    pub(in crate::manager) fn asked_for(
        &mut self,
        listener: EndKey,
        mut id: Id,
        message: &[u8],
        is_datagram: bool,
    ) {
        let (asked, data) = match Asked::of(message, is_datagram) {
            Ok((asked, data)) if !asked.hello.is_reciprocal => (asked, data),
            // RDMA CM rejects it.
            _ => {
                log::info!(target: crate::LOG.ep_ctrl, "a request that is none of XRC");
                return;
            }
        };
        if is_datagram && self.answer_again(&mut id, &asked) {
            return;
        }
        if let Some(End::Listener(listener)) = self.ends.get(listener)
            && listener.has_room()
        {
            let peer = id.peer_address();
            let peer = peer.map(|address| address.encode()).unwrap_or_default();
            let incomer = Incomer {
                id,
                asked: Some(asked),
            };
            let Listener {
                reporter, describe, ..
            } = &**listener;
            reporter.request_with(incomer, &peer, data, describe);
        }
    }

    /// Sends the request, or waits for the connection that establishes the initiator.
    pub(super) fn ask(&mut self, key: EndKey, crossing: &mut Crossing) -> Result {
        let way = crossing.way()?;
        let known = self.initiators.find(way);
        let is_datagram = match known {
            Some((_, known)) if known.target.is_none() => {
                known.waiting.push_back(key);
                crossing.stage = Stage::Waiting;
                return Ok(());
            }
            Some((pair, _)) => {
                crossing.initiator = Some(pair);
                true
            }
            None => {
                let pair = crossing.new_initiator()?;
                self.initiators.connecting(way, &pair);
                crossing.initiator = Some(pair);
                false
            }
        };
        let space = match is_datagram {
            true => PortSpace::Udp,
            false => PortSpace::Tcp,
        };
        let mut part = self.part(key, Role::Asking, space)?;
        let resolving = part
            .id
            .resolve(crossing.own.as_ref(), &crossing.peer, RESOLVING_MS);
        crossing.asking = Some(part);
        crossing.stage = Stage::Resolving;
        resolving
    }

    /// Repeats the request with another initiator: the target of this one is gone, with all
    /// connections for which the peer had it.
    pub(super) fn ask_anew(&mut self, key: EndKey, crossing: &mut Crossing) -> Result {
        crossing.has_retried = true;
        if let Some(part) = crossing.asking.take() {
            self.ends.remove(part.key);
        }
        if let Some(pair) = crossing.initiator.take() {
            self.initiators.forget(crossing.way()?, &pair);
        }
        self.ask(key, crossing)
    }

    /// Creates an identifier.
    pub(super) fn part(&mut self, of: EndKey, role: Role, space: PortSpace) -> Result<NamedId> {
        let channel = &self.channel;
        let mut made = None;
        let key = self.ends.try_insert_with_key(|key| {
            made = Some(Id::new(channel, space, number(key))?);
            Ok::<_, Errno>(End::Part(of, role))
        })?;
        Ok(NamedId {
            key,
            id: made.ok_or(Errno::EINVAL)?,
            is_datagram: space == PortSpace::Udp,
        })
    }

    pub(super) fn route(&mut self, key: EndKey, crossing: &mut Crossing) -> Result {
        let part = crossing.asking.as_mut().ok_or(Errno::EINVAL)?;
        if !part.id.is_on(crossing.parts.config.context) {
            log::warn!(
                target: crate::LOG.ep_ctrl,
                "the peer is reached by {:?}, and the domain is of {:?}",
                part.id.context(),
                crossing.parts.config.context
            );
            return Err(Errno::ENODEV);
        }
        crossing.stage = Stage::Routing;
        part.id.resolve_route(RESOLVING_MS)?;
        let own = part.id.local_address().ok_or(Errno::EADDRNOTAVAIL)?;
        if crossing.is_first && crossing.listeners.is_empty() {
            self.open_doors(key, crossing, &own)?;
        }
        Ok(())
    }

    /// Listens for the request of the way back: at one port, for connections and for datagrams.
    pub(super) fn open_doors(
        &mut self,
        key: EndKey,
        crossing: &mut Crossing,
        own: &SocketAddress,
    ) -> Result {
        /// The port that is free for connections may be in use for datagrams.
        const TRIES: usize = 16;
        let mut outcome = Err(Errno::EADDRINUSE);
        for _ in 0..TRIES {
            let mut port = 0;
            outcome = [PortSpace::Tcp, PortSpace::Udp]
                .into_iter()
                .try_for_each(|space| {
                    let is_datagram = space == PortSpace::Udp;
                    let mut part = self.part(key, Role::Listener { is_datagram }, space)?;
                    let opened = part.id.bind(&with_port(own, port)).and_then(|()| {
                        port = port_of(part.id.local_address());
                        part.id.listen(1)
                    });
                    crossing.listeners.push(part);
                    opened
                });
            if outcome.is_ok() {
                crossing.hello.port = port;
                return Ok(());
            }
            for part in crossing.listeners.drain(..) {
                self.ends.remove(part.key);
            }
        }
        outcome
    }

    /// Returns the peer's target of a shared initiator, or 0.
    pub(super) fn target_of(&mut self, crossing: &Crossing) -> u32 {
        let way = crossing.way().ok();
        let known = way.and_then(|way| self.initiators.find(way));
        match (known, &crossing.initiator) {
            (Some((pair, known)), Some(own)) if Arc::ptr_eq(&pair, own) => {
                known.target.unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Handles the peer's acceptance.
    pub(super) fn answered(
        &mut self,
        key: EndKey,
        crossing: &mut Crossing,
        event: &Event,
    ) -> Result {
        let (hello, data) = Hello::of(&event.data)?;
        if hello.tag != crossing.hello.tag || hello.is_reciprocal == crossing.is_first {
            return Err(Errno::EPROTO);
        }
        let pair = crossing.initiator.clone().ok_or(Errno::EINVAL)?;
        let part = crossing.asking.as_mut().ok_or(Errno::EINVAL)?;
        if !part.is_datagram {
            is_number(event.pair)?;
            part.id.ready(&*pair, &crossing.parts.config.terms)?;
            part.id.establish()?;
            if let Some((known_pair, known)) = self.initiators.find(crossing.way()?)
                && Arc::ptr_eq(&known_pair, &pair)
            {
                known.target = Some(event.pair);
                let waiting = std::mem::take(&mut known.waiting);
                self.initiators.ready.extend(waiting);
            }
        }
        crossing.parts.pair.lead(pair, hello.queue)?;
        if !crossing.is_first {
            self.connected(crossing);
            return Ok(());
        }
        crossing.data = data.to_vec();
        crossing.stage = Stage::Answered;
        match crossing.early.take() {
            None => Ok(()),
            Some((id, asked)) => self.go_back(key, crossing, id, asked),
        }
    }

    /// Handles a request for the way back, which may be forged.
    pub(super) fn asked_back(
        &mut self,
        key: EndKey,
        crossing: &mut Crossing,
        mut id: Id,
        message: &[u8],
        is_datagram: bool,
    ) -> Result {
        let known = Asked::of(message, is_datagram).ok().filter(|(asked, _)| {
            let peer = id.peer_address().and_then(|peer| ip_of(&peer).ok());
            asked.hello.is_reciprocal
                && asked.hello.tag == crossing.hello.tag
                && peer == ip_of(&crossing.peer).ok()
        });
        // RDMA CM rejects requests without an answer.
        let Some((asked, _)) = known else {
            log::info!(target: crate::LOG.ep_ctrl, "a way back that nobody asked for");
            return Ok(());
        };
        match crossing.stage {
            Stage::Asking => {
                crossing.early = Some((id, asked));
                Ok(())
            }
            Stage::Answered => self.go_back(key, crossing, id, asked),
            _ => {
                if let Some(caller) = caller_of(&id, &asked) {
                    crossing.answer_again(&mut id, caller);
                }
                Ok(())
            }
        }
    }

    /// Accepts the way back.
    pub(super) fn go_back(
        &mut self,
        key: EndKey,
        crossing: &mut Crossing,
        id: Id,
        asked: Asked,
    ) -> Result {
        let target = match crossing.target_for(&id, &asked) {
            // The peer does not know that all connections for which it had the target are closed,
            // and requests another one when RDMA CM rejects this.
            Err(error) if asked.is_datagram => {
                log::info!(target: crate::LOG.ep_ctrl, "a target that is gone: {error}");
                return Ok(());
            }
            target => target?,
        };
        self.grant(key, crossing, id, asked, target, &[])?;
        if asked.is_datagram {
            self.connected(crossing);
        }
        Ok(())
    }

    /// Accepts a request, with a target for the peer's initiator.
    pub(super) fn grant(
        &mut self,
        key: EndKey,
        crossing: &mut Crossing,
        mut id: Id,
        asked: Asked,
        target: XrcTarget,
        data: &[u8],
    ) -> Result {
        let answer = Hello {
            target: 0,
            queue: crossing.xrc.receives,
            ..asked.hello
        };
        let message = answer.with(data);
        let param = ConnectionParam {
            data: &message,
            pair: target.number(),
            is_shared: true,
        };
        if asked.is_datagram {
            id.accept(&param)?;
            if let Some(caller) = caller_of(&id, &asked) {
                self.initiators.answered.insert(caller, key);
                crossing.answer = Some(Answer {
                    to: caller,
                    data: message,
                });
            }
        } else {
            let part = self.ends.insert(End::Part(key, Role::Asked));
            let channel = &self.channel;
            let accepted = id
                .move_to(channel, number(part))
                .and_then(|()| id.accept(&param));
            crossing.asked = Some(NamedId {
                key: part,
                id,
                is_datagram: false,
            });
            accepted?;
        }
        crossing.target = Some(target);
        crossing.stage = Stage::Accepting;
        Ok(())
    }
}
