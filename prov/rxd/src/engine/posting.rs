//! Operations that the application posts: messages, remote accesses and atomic operations.

use prov_base::buffer::{Ahead, AppIov};
use prov_base::errno::{Errno, Result};
use prov_base::lately::nanoseconds;
use prov_message::{Context, Op, Ticket};
use prov_util::request::{Access, Atomic, RemoteAccess, Transmit};

use super::Core;
use super::copied::Copied;
use super::link::{EpKey, LinkKey, OpKey};
use crate::offer;
use crate::protocol::{Form, MAX_OPERATIONS, Request};

/// An operation that its peer has not acknowledged.
pub struct Operation {
    pub ticket: Ticket,
    pub link: LinkKey,
    /// What the peer gets of it.
    pub payload: Payload,
    /// Where its result goes.
    pub result: AppIov,
    /// For a payload that a device reads.
    pub device: Option<Box<FromDevice>>,
}

/// Bytes of a device on their way into datagrams.
#[derive(Default)]
pub struct FromDevice(pub Ahead);

/// The bytes that a peer gets of an operation.
pub enum Payload {
    /// In the application's memory, which it leaves alone until the operation is complete.
    App(AppIov),
    /// Copied: the application may reuse its memory.
    Copied(Copied),
}

impl Payload {
    #[inline]
    fn of(memory: &mut AppIov, is_copied: bool) -> Self {
        match is_copied {
            false => Payload::App(memory.take()),
            true => Payload::Copied(Copied::of_both(memory, &AppIov::EMPTY)),
        }
    }
}

impl Core {
    pub(super) fn post_message(&mut self, ep: EpKey, message: &mut Transmit) -> Result {
        let core = &self.below.as_ref().ok_or(Errno::EOPBADSTATE)?.setting.core;
        offer::sizes(core).check_message(message)?;
        let key = self.link_to(ep, message.peer)?;
        let request = Request::Message {
            tag: message.tag.value(),
            data: message.immediate(),
            len: message.buffers.len(),
        };
        let op = Op::of_transmit(ep, message);
        let is_copied = message.is_inject();
        let payload = Payload::of(&mut message.buffers, is_copied);
        self.submit(key, op, payload, AppIov::EMPTY, &request)
    }

    pub(super) fn post_access(&mut self, ep: EpKey, access: &mut RemoteAccess) -> Result {
        let core = &self.below.as_ref().ok_or(Errno::EOPBADSTATE)?.setting.core;
        offer::sizes(core).check_access(access)?;
        let key = self.link_to(ep, access.peer)?;
        let remote = access.remote;
        let op = Op::of_access(ep, access);
        match access.access {
            Access::Read => {
                let (payload, request) = (Payload::App(AppIov::EMPTY), Request::Read { remote });
                self.submit(key, op, payload, access.local.take(), &request)
            }
            Access::Write => {
                let data = access.immediate();
                let is_copied = access.is_inject();
                let payload = Payload::of(&mut access.local, is_copied);
                let request = Request::Write { data, remote };
                self.submit(key, op, payload, AppIov::EMPTY, &request)
            }
        }
    }

    pub(super) fn post_atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        let core = &self.below.as_ref().ok_or(Errno::EOPBADSTATE)?.setting.core;
        offer::sizes(core).check_atomic(atomic)?;
        let form = atomic.kind.form();
        let compare = atomic.kind.compare();
        let len = atomic.operand.len() + compare.len();
        if form == Form::Compare && len > offer::atomic(core) {
            return Err(Errno::EMSGSIZE);
        }
        let key = self.link_to(ep, atomic.peer)?;
        let request = Request::Atomic {
            form,
            op: atomic.op,
            datatype: atomic.datatype,
            data: atomic.immediate(),
            len,
            remote: atomic.remote,
        };
        let op = Op::of_atomic(ep, atomic);
        let is_copied = atomic.is_inject();
        let payload = match form {
            Form::Compare => {
                Payload::Copied(Copied::of_both(&atomic.operand, atomic.kind.compare()))
            }
            _ => Payload::of(&mut atomic.operand, is_copied),
        };
        let result = atomic.kind.take_result().unwrap_or(AppIov::EMPTY);
        self.submit(key, op, payload, result, &request)
    }

    /// Returns the link to a peer.
    ///
    /// # Errors
    /// `-FI_EINVAL` if there is no such address, `-FI_EOPBADSTATE` in a forked child.
    #[inline]
    fn link_to(&mut self, ep: EpKey, peer: u64) -> Result<LinkKey> {
        if !self.process.is_noted() {
            return Err(Errno::EOPBADSTATE);
        }
        let state = self.endpoints.get(ep).ok_or(Errno::EOPBADSTATE)?;
        match state.own.peers.open_link(peer) {
            Some(key) if self.links.contains_key(key) => Ok(key),
            _ => self.reach_slowly(ep, peer),
        }
    }

    /// Begins an operation and sends what may be sent of it.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if too many operations to this peer are outstanding, or to all peers
    /// ([`crate::protocol::MAX_OPERATIONS`]).
    #[inline]
    fn submit(
        &mut self,
        link: LinkKey,
        op: Op,
        payload: Payload,
        result: AppIov,
        request: &Request,
    ) -> Result {
        let to = self.links.get_mut(link).ok_or(Errno::EAGAIN)?;
        let ticket = self.endpoints.begin_to_peer(op, to.outstanding)?;
        to.outstanding += 1;
        let peer = to.id;
        let key = self.operations.insert(Operation {
            ticket,
            link,
            payload,
            result,
            device: None,
        });
        debug_assert!(self.operations.len() <= MAX_OPERATIONS + 1);
        let now = nanoseconds();
        let outcome = self.with_protocol(|protocol, core| {
            let submitted = protocol.submit(now, peer, key, request);
            if submitted.is_ok() {
                core.is_stalled |= !protocol.transmit(now, core);
            }
            submitted
        });
        let error = match outcome {
            Some(Ok(())) => return Ok(()),
            Some(Err(rejected)) => rejected.into(),
            None => Errno::EOPBADSTATE,
        };
        if let Some(operation) = self.take_operation(key) {
            self.endpoints.settle(operation.ticket);
        }
        Err(error)
    }

    /// Takes an operation off those that are outstanding.
    #[inline]
    pub(super) fn take_operation(&mut self, op: OpKey) -> Option<Operation> {
        let operation = self.operations.remove(op)?;
        if let Some(link) = self.links.get_mut(operation.link) {
            link.outstanding -= 1;
        }
        Some(operation)
    }

    /// Removes an operation with this context of which nothing was sent, for fi_cancel(3).
    pub(super) fn take_back_unsent(&mut self, ep: EpKey, context: Context) -> Option<Ticket> {
        let protocol = self.protocol.as_mut()?;
        let links = &self.links;
        let mut mine = self.operations.iter().filter(|(_, operation)| {
            let op = operation.ticket.op();
            op.ep == ep && op.can_be_cancelled_by(context)
        });
        let (key, _) = mine.find(|(key, operation)| {
            let link = links.get(operation.link);
            link.is_some_and(|link| protocol.cancel(link.id, *key))
        })?;
        Some(self.take_operation(key)?.ticket)
    }
}
