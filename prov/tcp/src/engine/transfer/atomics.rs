//! Atomic operations (fi_atomic(3)), on both sides. An extension: the C
//! library's protocol has none.

use fabric_abi::{FI_ATOMIC, FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_message::peers::Bytes;
use prov_message::{Op, Place};
use prov_util::atomic_ops::{self, Datatype};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::request::{Atomic, AtomicKind};

use crate::engine::Core;
use crate::engine::link::connection::Named;
use crate::engine::link::fault::{Fault, Step};
use crate::engine::link::incoming::{Collecting, Incoming};
use crate::engine::link::keys::{ConnKey, EpKey};
use crate::engine::link::messages::{Ack, Placing, Then};
use crate::engine::link::post::Post;
use crate::engine::transfer::rma::remote_list;
use crate::engine::transfer::sending::copy_of;
use crate::wire::WireError;
use crate::wire::atomic::{AtomicKind as WireKind, AtomicWord};
use crate::wire::handshake::Features;
use crate::wire::header::{self, Header};

/// Most bytes of operands of one operation.
pub const MAX_BYTES: usize = 64 * 1024;

impl Core {
    /// Posts an atomic operation; `-FI_EOPNOTSUPP` towards a peer whose
    /// protocol has none.
    pub(crate) fn post_atomic(&mut self, ep: EpKey, atomic: &Atomic) -> Result {
        check_lengths(atomic)?;
        let key = self.negotiated(ep, atomic.peer, Features::ATOMICS, "atomic operations")?;
        self.check_room(key)?;
        let operand = Bytes::App(&atomic.operand);
        let conn = self.conns.get_mut(key).ok_or(Errno::ENOTCONN)?;
        let remote = remote_list(&atomic.remote);
        let (kind, compare, result) = match atomic.kind {
            AtomicKind::Base => (WireKind::Base, AppIov::EMPTY, AppIov::EMPTY),
            AtomicKind::Fetch { result, .. } => (WireKind::Fetch, AppIov::EMPTY, result),
            AtomicKind::Compare {
                compare, result, ..
            } => (WireKind::Compare, compare, result),
        };
        let mut header = Header::new(header::Op::AtomicRequest);
        header.rma_count = remote.len() as u8;
        header.word = AtomicWord {
            kind,
            op: atomic.op as u8,
            datatype: atomic.datatype as u8,
        }
        .pack();
        let ticket = self.endpoints.count(Op::of_atomic(ep, atomic));
        let ticket = ticket.ok_or(Errno::EOPBADSTATE)?;
        header.id = conn.name_op(Named::Atomic { ticket, result });
        if let Some(data) = atomic.immediate() {
            header.flags |= header::REMOTE_CQ_DATA;
            header.data = data;
        }
        let payload = if compare.is_empty() {
            None
        } else {
            let mut bytes = copy_of(&atomic.operand);
            compare.append_to(&mut bytes);
            Some(bytes)
        };
        let payload = payload.as_deref().map_or(operand, Bytes::Own);
        header.payload = payload.len();
        self.post(
            key,
            Post {
                header,
                rma: &remote,
                payload,
                copy: true,
                op: None,
            },
        );
        Ok(())
    }

    /// A peer's atomic operation has come in full.
    pub(crate) fn atomic_requested(&mut self, key: ConnKey, request: Collecting) -> Step {
        let word = AtomicWord::unpack(request.header.word)?;
        let unknown = || Fault::Protocol(WireError::Field("atomic operation"));
        let datatype = Datatype::from_number(word.datatype.into()).ok_or_else(unknown)?;
        let op = atomic_ops::Op::from_number(word.op.into()).ok_or_else(unknown)?;
        let access = match (op.writes(), word.kind) {
            (true, WireKind::Base) => FI_REMOTE_WRITE,
            (true, _) => FI_REMOTE_READ | FI_REMOTE_WRITE,
            (false, _) => FI_REMOTE_READ,
        };
        let total = request.rma.total().unwrap_or(u64::MAX);
        if total > MAX_BYTES as u64 {
            return Err(Fault::Protocol(WireError::Size(total)));
        }
        let total = total as usize;
        let operands = if op.takes_operand() { total } else { 0 };
        let compares = if word.kind == WireKind::Compare {
            total
        } else {
            0
        };
        if request.bytes.len() != operands + compares {
            return Err(Fault::Protocol(WireError::Payload(
                request.bytes.len() as u64
            )));
        }
        let grants = self.registered(key, &request.rma, FI_ATOMIC, access)?;
        let mut old = if word.kind == WireKind::Base {
            Vec::new()
        } else {
            vec![0; total]
        };
        let (operand, compare) = request.bytes.split_at(operands);
        let accessor = self.memory.as_mut().ok_or(Fault::Gone)?;
        grants
            .apply(accessor, op, datatype, operand, compare, &mut old)
            .map_err(|_| Fault::Protocol(WireError::Field("atomic operation")))?;
        grants.complete(accessor);
        let mut header = Header::new(header::Op::AtomicResponse);
        header.id = request.header.id;
        header.payload = old.len();
        self.post(
            key,
            Post {
                header,
                rma: &[],
                payload: Bytes::Own(&old),
                copy: true,
                op: None,
            },
        );
        let data = request.header.has_data().then_some(request.header.data);
        if op.writes() || data.is_some() {
            self.written_to(key, FI_ATOMIC, data, total, Ack::None);
        } else {
            self.read_from(key);
        }
        Ok(())
    }

    /// The answer to an atomic operation begins.
    pub(crate) fn atomic_answered(&mut self, key: ConnKey, header: &Header) -> Step {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let is_awaited = |waits: &Named| match waits {
            Named::Atomic { result, .. } => result.len() == header.payload,
            Named::Ack(_) | Named::Announced { .. } => false,
        };
        let Some(Named::Atomic { ticket, result }) = conn.take_named(header.id, is_awaited) else {
            return Err(Fault::Protocol(WireError::Field("atomic response")));
        };
        let placing = Placing {
            place: Place::App(result),
            done: 0,
            then: Then::Read(ticket),
        };
        if header.payload == 0 {
            return self.placed(key, placing);
        }
        conn.incoming = Incoming::Place(Box::new(placing));
        Ok(())
    }
}

/// All buffers of an operation have to be as long as the remote memory.
fn check_lengths(atomic: &Atomic) -> Result {
    let total = atomic.remote.len();
    let fits = |memory: &AppIov| memory.len() as u64 == total;
    let operand = atomic.operand.is_empty() || fits(&atomic.operand);
    let rest = match &atomic.kind {
        AtomicKind::Base => true,
        AtomicKind::Fetch { result, .. } => fits(result),
        AtomicKind::Compare {
            compare, result, ..
        } => fits(compare) && fits(result),
    };
    if !operand || !rest {
        Err(Errno::EINVAL)
    } else if total > MAX_BYTES as u64 {
        Err(Errno::EMSGSIZE)
    } else {
        Ok(())
    }
}
