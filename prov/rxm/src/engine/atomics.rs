//! Atomic operations (fi_atomic(3)), initiator and target.

use prov_base::atomic_ops::{Datatype, Form};
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::peers::{Bytes as Payload, Copies, Deferred, Destination};
use prov_message::{AtomicRequest, Op, Reaching as _, Refusal};
use prov_util::request::{Atomic, AtomicKind, RemoteIov, RemotePiece};

use super::Core;
use super::keys::{EpKey, LinkKey, from_peer, to_peer};
use super::link::{Fault, Pending, copy};
use crate::params::ATOMICS;
use crate::wire::packet::{Elements, Head, Kind, Operation, result_head};
use crate::wire::part::{LIST, write_parts};

impl Core {
    pub(super) fn post_atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        let below = self.below.as_ref().ok_or(Errno::EOPBADSTATE)?;
        below.setting.sizes.check_atomic(atomic)?;
        if !ATOMICS.has(atomic.datatype, atomic.op, 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        if atomic.immediate().is_some() {
            // The packet has no field for it.
            return Err(Errno::EINVAL);
        }
        match self.reach(ep, atomic.peer)? {
            Destination::Open(key) => {
                self.post_on(key, |core| core.start_atomic(key, atomic, None))
            }
            Destination::Waits(peer) => {
                self.defer(peer, Op::of_atomic(ep, atomic), || Deferred::atomic(atomic))
            }
        }
    }

    /// Starts an atomic operation.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if there is no room.
    pub(super) fn start_atomic(
        &mut self,
        key: LinkKey,
        atomic: &mut Atomic,
        copies: Option<Copies<'_>>,
    ) -> Result {
        let link = self.links.get_mut(key).ok_or(Errno::EAGAIN)?;
        let far_id = link.far_id;
        let size = Datatype::from_number(atomic.datatype).map_or(1, Datatype::size) as u64;
        let ticket = self.endpoints.begin(Op::of_atomic(link.ep, atomic))?;
        let operation = match &atomic.kind {
            AtomicKind::Base => Operation::Atomic,
            AtomicKind::Fetch { .. } => Operation::FetchAtomic,
            AtomicKind::Compare { .. } => Operation::CompareAtomic,
        };
        let result = atomic.kind.take_result().unwrap_or(AppIov::EMPTY);
        let pending = Pending::Atomic { ticket, result };
        let Some(link) = self.links.get_mut(key) else {
            return Err(Errno::EAGAIN);
        };
        let name = link.pending.insert(pending);
        bounded!(link.pending, OPERATIONS);
        let elements = Elements {
            datatype: atomic.datatype as u8,
            op: atomic.op as u8,
            parts: atomic.remote.pieces().len() as u8,
        };
        // The protocol counts memory in elements.
        let mut parts = RemoteIov::default();
        for piece in atomic.remote.pieces() {
            parts.push(RemotePiece {
                len: piece.len / size,
                ..*piece
            });
        }
        let operand = Payload::of(&atomic.operand, copies.map(|copies| copies.payload));
        let compare = Payload::of(atomic.kind.compare(), copies.map(|copies| copies.compared));
        let mut behind = std::mem::take(&mut self.gathered);
        behind.clear();
        behind.resize(LIST + operand.len() + compare.len(), 0);
        let (list, operands) = behind.split_at_mut(LIST);
        write_parts(parts.pieces(), list);
        let (first, second) = operands.split_at_mut(operand.len());
        copy(&operand, first);
        copy(&compare, second);
        let head = Head {
            operation,
            len: behind.len() as u64,
            tag: elements.word(),
            ..Head::note(Kind::Atomic, far_id, to_peer(name))
        };
        let sent = self.send_packet(key, &head, &behind);
        self.gathered = behind;
        let Err(error) = sent else {
            self.expects_answer(key);
            return Ok(());
        };
        let link = self.links.get_mut(key);
        if let Some(Pending::Atomic { ticket, result }) =
            link.and_then(|link| link.pending.remove(name))
        {
            // The request may be posted again.
            atomic.kind.give_result(result);
            self.endpoints.settle(ticket);
        }
        Err(error)
    }

    /// Performs a peer's atomic operation, whose operands are in `self.operands`.
    pub(super) fn atomic_requested(
        &mut self,
        key: LinkKey,
        message: u64,
        operation: Operation,
        elements: Elements,
        memory: &RemoteIov,
    ) -> std::result::Result<(), Fault> {
        let form = match operation {
            Operation::FetchAtomic => Form::Fetch,
            Operation::CompareAtomic => Form::Compare,
            _ => Form::Base,
        };
        let datatype = Datatype::from_number(elements.datatype.into());
        let size = datatype.ok_or(Fault::Protocol("datatype"))?.size() as u64;
        let mut list = RemoteIov::default();
        for piece in memory.pieces() {
            let len = piece.len.checked_mul(size);
            list.push(RemotePiece {
                len: len.ok_or(Fault::Protocol("elements"))?,
                ..*piece
            });
        }
        if list.len() > self.params.buffer_size as u64 {
            return Err(Fault::Protocol("elements"));
        }
        let Some(link) = self.links.get(key) else {
            return Ok(());
        };
        let (ep, src, far_id) = (link.ep, link.src, link.far_id);
        let mut result = std::mem::take(&mut self.result);
        let request = AtomicRequest {
            form,
            op: elements.op.into(),
            datatype: elements.datatype.into(),
            operands: &self.operands,
            data: None,
        };
        let outcome = match self.endpoints.get_mut(ep) {
            Some(state) => {
                let (_, visitor) = state.visited(src);
                self.target
                    .atomic(&visitor, list.pieces(), &request, &mut result)
            }
            None => return Ok(()),
        };
        let status = match outcome {
            Ok(()) => 0,
            Err(Refusal::Malformed(what)) => return Err(Fault::Protocol(what)),
            Err(refusal) => {
                result.clear();
                refusal.error().to_c()
            }
        };
        let mut behind = std::mem::take(&mut self.gathered);
        behind.clear();
        behind.extend_from_slice(&result_head(status, result.len()));
        behind.extend_from_slice(&result);
        self.result = result;
        let head = Head {
            operation,
            len: behind.len() as u64,
            tag: Elements {
                parts: 0,
                ..elements
            }
            .word(),
            ..Head::note(Kind::AtomicResult, far_id, message)
        };
        self.answer(key, &head, &behind);
        self.gathered = behind;
        Ok(())
    }

    /// Handles the response to an atomic operation; its result is in `self.operands`.
    pub(super) fn atomic_done(
        &mut self,
        key: LinkKey,
        message: u64,
        status: i32,
    ) -> std::result::Result<(), Fault> {
        let Some(link) = self.links.get_mut(key) else {
            return Ok(());
        };
        let name = from_peer(message);
        if !matches!(link.pending.get(name), Some(Pending::Atomic { .. })) {
            return Err(Fault::Protocol("name of a result"));
        }
        let Some(Pending::Atomic { ticket, result }) = link.pending.remove(name) else {
            return Ok(());
        };
        let outcome = if status != 0 {
            Err(Errno::new(status))
        } else if self.operands.len() != result.len() {
            Err(Errno::EIO)
        } else {
            result.write_at(0, &self.operands);
            Ok(())
        };
        self.endpoints.finish_read(ticket, result, outcome);
        self.note_what_is_awaited(key);
        Ok(())
    }
}
