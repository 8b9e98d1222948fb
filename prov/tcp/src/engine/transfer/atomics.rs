//! Both sides of atomic operations (fi_atomic(3)), an extension of the C library's protocol.

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};
use prov_message::peers::Lent;
use prov_message::{AtomicRequest, Op};
use prov_util::request::Atomic;

use crate::engine::Core;
use crate::engine::link::fault::{Fault, LinkResult};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::Placing;
use crate::engine::link::outstanding::Named;
use crate::engine::link::post::Post;
use crate::params::ATOMIC_LIMIT;
use crate::wire::WireError;
use crate::wire::atomic::AtomicWord;
use crate::wire::handshake::Features;
use crate::wire::header::refusal::Refused;
use crate::wire::header::{self, Header};

impl Core {
    /// Posts an atomic operation; `-FI_EOPNOTSUPP` for a peer whose protocol does not have them.
    pub(crate) fn post_atomic(&mut self, ep: EpKey, atomic: &mut Atomic) -> Result {
        self.params.sizes().check_atomic(atomic)?;
        self.check_fence(ep, atomic.flags)?;
        let key = self.negotiated(ep, atomic.peer, Features::ATOMICS, "atomic operations")?;
        self.check_room(key)?;
        let conn = self.conns.get_mut(key).ok_or(Errno::ENOTCONN)?;
        let remote = atomic.remote.pieces();
        let mut header = Header::new(header::Op::AtomicRequest);
        header.rma_count = remote.len() as u8;
        header.word = AtomicWord {
            form: atomic.kind.form(),
            op: atomic.op as u8,
            datatype: atomic.datatype as u8,
        }
        .pack();
        let ticket = self.endpoints.count(Op::of_atomic(ep, atomic));
        let ticket = ticket.ok_or(Errno::EOPBADSTATE)?;
        let result = atomic.kind.take_result().unwrap_or(AppIov::EMPTY);
        header.id = conn.name_op(Named::Atomic { ticket, result });
        conn.has_asked();
        header.carry(atomic.immediate());
        let mut gathered = std::mem::take(&mut self.gathered);
        let payload = match atomic.kind.compare().is_empty() {
            true => Lent::App(&mut atomic.operand),
            false => {
                gathered.clear();
                atomic.operand.append_to(&mut gathered);
                atomic.kind.compare().append_to(&mut gathered);
                Lent::Own(&gathered)
            }
        };
        header.payload = payload.len();
        self.post(
            key,
            Post {
                header,
                rma: remote,
                payload,
                copy: true,
                op: None,
            },
        );
        self.gathered = gathered;
        self.expects_answer(key);
        Ok(())
    }

    /// Executes a peer's atomic operation, which has been received completely.
    pub(crate) fn atomic_requested(
        &mut self,
        key: ConnKey,
        header: &Header,
        operands: &[u8],
    ) -> LinkResult {
        let word = AtomicWord::unpack(header.word)?;
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let list = *conn.stream.rma();
        if list.len() > ATOMIC_LIMIT as u64 {
            return Err(Fault::Protocol(WireError::Size(list.len())));
        }
        let data = header.immediate();
        if data.is_some() {
            self.look_for_source(key);
        }
        let conn = self.conns.get(key).ok_or(Fault::Gone)?;
        let (target, visitor) = conn.visited(&mut self.target, &mut self.endpoints)?;
        let mut result = std::mem::take(&mut self.gathered);
        let request = AtomicRequest {
            form: word.form,
            op: word.op.into(),
            datatype: word.datatype.into(),
            operands,
            data,
        };
        let outcome = target.atomic(&visitor, list.pieces(), &request, &mut result);
        if let Err(refusal) = outcome {
            self.gathered = result;
            return self.refuse_access(key, Refused::Named(header.id), refusal);
        }
        let mut answer = Header::new(header::Op::AtomicResponse);
        answer.id = header.id;
        answer.payload = result.len();
        self.post(key, Post::own(answer, &[], &result));
        self.gathered = result;
        Ok(())
    }

    /// Begins the answer to an atomic operation.
    pub(crate) fn atomic_answered(
        &mut self,
        key: ConnKey,
        header: &Header,
        bytes: &mut &[u8],
    ) -> LinkResult {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let is_awaited = |waits: &Named| match waits {
            Named::Atomic { result, .. } => result.len() == header.payload,
            Named::Ack(_) | Named::Announced { .. } | Named::Offered { .. } => false,
        };
        let Some(Named::Atomic { ticket, result }) = conn.take_named(header.id, is_awaited) else {
            return Err(Fault::Protocol(WireError::Field("atomic response")));
        };
        let placing = Placing::read(result, ticket);
        self.place(key, placing, header.payload, bytes)
    }
}
