//! One end of a connection of XRC: its state, and what it asks of the device by itself.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::*;
use crate::device::{ConnectionParam, PairConfig, Pairing, XrcTarget};

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waiting for the initiator, which another connection establishes.
    Waiting,
    Resolving,
    Routing,
    /// The request has been sent.
    Asking,
    /// The peer has answered, and has to request the way back.
    Answered,
    /// The peer's request has been accepted.
    Accepting,
    Connected,
    /// It has ended, or could not be established.
    Ended,
}

/// One end of a connection.
pub(in crate::manager) struct Crossing {
    pub(super) parts: EndParts,
    pub(super) xrc: XrcEnd,
    pub(super) stage: Stage,
    /// Whether this end sent the first request.
    pub(super) is_first: bool,
    pub(super) own: Option<SocketAddress>,
    /// The address for requests.
    pub peer: SocketAddress,
    /// The data for the peer.
    pub(super) hello: Hello,
    /// The connection data of the request; after that, the peer's.
    pub(super) data: Vec<u8>,
    pub(super) asking: Option<NamedId>,
    pub(super) asked: Option<NamedId>,
    /// The listeners for the request of the way back.
    pub(super) listeners: Vec<NamedId>,
    /// A request that arrived there too early.
    pub(super) early: Option<(Id, Asked)>,
    pub(super) initiator: Option<Arc<QueuePair>>,
    /// Whether the request was repeated because the peer did not know an initiator's target any
    /// longer.
    pub(super) has_retried: bool,
    pub(super) target: Option<XrcTarget>,
    /// The answer to a datagram, which may have been lost.
    pub(super) answer: Option<Answer>,
}

/// An identifier of a connection, with the name of its events.
pub(super) struct NamedId {
    pub(super) key: EndKey,
    pub(super) id: Id,
    pub(super) is_datagram: bool,
}

/// The purpose of an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum Role {
    Asking,
    Asked,
    Listener { is_datagram: bool },
}

pub(super) struct Answer {
    pub(super) to: Caller,
    pub(super) data: Vec<u8>,
}

/// The key under which an initiator is shared: the address of the completion queue, and the host.
pub(super) type Way = (usize, IpAddr);

/// The sender of a datagram: its host, port and tag, and whether it is for the way back.
pub(super) type Caller = (IpAddr, u16, u32, bool);

impl Crossing {
    pub(super) fn new(parts: EndParts, xrc: XrcEnd, peer: SocketAddress, is_first: bool) -> Self {
        Crossing {
            hello: Hello {
                is_reciprocal: !is_first,
                port: 0,
                target: 0,
                queue: xrc.receives,
                // It must not be guessed. All ones is invalid.
                tag: RandomState::new().hash_one(()) as u32 >> 1,
            },
            parts,
            xrc,
            stage: Stage::Waiting,
            is_first,
            own: None,
            peer,
            data: Vec::new(),
            asking: None,
            asked: None,
            listeners: Vec::new(),
            early: None,
            initiator: None,
            has_retried: false,
            target: None,
            answer: None,
        }
    }

    pub(super) fn way(&self) -> Result<Way> {
        let queue = Arc::as_ptr(&self.xrc.queue).addr();
        Ok((queue, ip_of(&self.peer)?))
    }

    pub(super) fn new_initiator(&self) -> Result<Arc<QueuePair>> {
        let pair = QueuePair::new(
            &self.xrc.pd,
            &PairConfig {
                pairing: Pairing::Initiator,
                send_queue: &self.xrc.queue,
                receive_queue: &self.xrc.queue,
                shared: None,
                sends: self.xrc.sends,
                receives: 0,
                send_pieces: self.xrc.send_pieces,
                receive_pieces: 0,
                inline: self.xrc.inline,
            },
        )?;
        Ok(Arc::new(pair))
    }

    /// Returns the target for the peer's initiator: a new one, or an existing one.
    pub(super) fn target_for(&self, id: &Id, asked: &Asked) -> Result<XrcTarget> {
        let XrcEnd { domain, pd, .. } = &self.xrc;
        match asked.hello.target {
            0 => {
                let target = XrcTarget::new(pd, domain)?;
                id.ready(&target, &self.parts.config.terms)?;
                Ok(target)
            }
            number => XrcTarget::open(pd, domain, number),
        }
    }

    pub(super) fn send_request(&mut self, target: u32) -> Result {
        let (Some(part), Some(pair)) = (&mut self.asking, &self.initiator) else {
            return Err(Errno::EINVAL);
        };
        // Its target is gone in the meantime.
        if part.is_datagram && target == 0 {
            return Err(Errno::ECONNREFUSED);
        }
        let hello = Hello {
            target,
            ..self.hello
        };
        self.stage = Stage::Asking;
        part.id.connect(&ConnectionParam {
            data: &hello.with(&self.data),
            pair: pair.number(),
            is_shared: true,
        })
    }

    /// Repeats the answer, if there was one; returns whether there was.
    pub(super) fn answer_again(&mut self, id: &mut Id, caller: Caller) -> bool {
        let (Some(answer), Some(target)) = (&self.answer, &self.target) else {
            return false;
        };
        if answer.to != caller {
            return false;
        }
        let accepted = id.accept(&ConnectionParam {
            data: &answer.data,
            pair: target.number(),
            is_shared: true,
        });
        if let Err(error) = accepted {
            log::info!(target: crate::LOG.ep_ctrl, "rdma_accept: {error}");
        }
        true
    }

    /// Returns the reason why an event of its device ends it, if it does.
    pub(super) fn concerned_by(&self, event: DeviceEvent) -> Option<Errno> {
        match event {
            DeviceEvent::Failed => Some(Errno::ENODEV),
            DeviceEvent::PairFailed(number) => {
                let is_initiator = self.parts.pair.is_numbered(number);
                if is_initiator {
                    self.parts.pair.note_failure();
                }
                let is_target = |target: &XrcTarget| target.number() == number;
                let is_own = is_initiator || self.target.as_ref().is_some_and(is_target);
                is_own.then_some(Errno::EIO)
            }
            _ => None,
        }
    }

    /// Returns its own address.
    pub fn local_address(&self) -> Option<SocketAddress> {
        let part = self.asking.as_ref().or(self.asked.as_ref());
        let known = part.and_then(|part| part.id.local_address());
        known.or_else(|| self.own.clone())
    }
}
