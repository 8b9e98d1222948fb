//! What peers do to this process's memory (fi_rma(3), fi_atomic(3)), and where
//! messages go.
//!
//! A peer names memory by a list of keys and addresses. [`Target::resolve`] says
//! what that is, and whether the peer may touch it. Then the provider moves the
//! bytes, at once or as they come, and says so when it is done
//! ([`Target::was_written`], [`Target::was_read`]). [`Target::atomic`] does
//! everything, and so does [`own`] for peers in this process. None of it
//! allocates, but an atomic operation may lengthen the buffer that it is given
//! for its result.
//!
//! Registered memory can be closed at any time. Whoever touches it holds the
//! region open for that moment, and what was closed is left alone.

pub mod own;

use fabric_abi::{FI_ATOMIC, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use prov_util::atomic_ops::{Datatype, Form, Op};
use prov_util::buffer::{AppIov, Iov};
use prov_util::errno::{Errno, Result};
use prov_util::mr::{Accessor, Grants, Job, MrTable};
use prov_util::request::RemotePiece;

use crate::endpoints::inbox::{Placing, Then, Transport};
use crate::endpoints::{Endpoint, Endpoints};
use crate::operation::EpKey;
use crate::reports::Reports;

/// The registered memory of a domain, for the peers of one lane or endpoint.
pub struct Target {
    /// Finds the regions; the memory of a [`Place`] is reached through it.
    pub memory: Accessor,
    /// Room for the operands and the results of [`own`] operations.
    operands: Vec<u8>,
    old: Vec<u8>,
}

/// Who accesses memory, and where the application hears of it.
#[derive(Clone, Copy)]
pub struct Visitor<'a> {
    /// To whom the peer belongs.
    pub job: Job,
    /// Of the endpoint that the access came to.
    pub reports: &'a Reports,
    /// The peer, or [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE) while the
    /// address vector does not know it. Looked at for immediate data only.
    pub src: u64,
}

impl<T: Transport> Endpoint<T> {
    /// The provider's part, and the peer `src` as visitor of the endpoint's
    /// memory.
    #[inline]
    pub fn visited(&mut self, src: u64) -> (&mut T::Endpoint, Visitor<'_>) {
        let visitor = Visitor {
            job: self.job,
            reports: &self.reports,
            src,
        };
        (&mut self.own, visitor)
    }
}

impl<T: Transport> Endpoints<T> {
    /// Bytes are in their place, or `outcome` says why not, and the application hears
    /// of it: of what the peer `src` of an endpoint has written, too. Returns what
    /// the peer is to be told.
    pub fn placed(
        &mut self,
        registered: &mut Option<Target>,
        ep: EpKey,
        src: u64,
        placing: Placing<T>,
        outcome: Result,
    ) -> T::Ack {
        if placing.persists
            && outcome.is_ok()
            && let (Place::Registered(grants), Some(target)) = (&placing.place, &mut *registered)
        {
            grants.write_back(&mut target.memory);
        }
        match placing.then {
            Then::Receive(receipt) => self.received(&receipt, &placing.place.memory(), outcome),
            Then::Read(ticket) => {
                self.finish(ticket, outcome);
                T::Ack::default()
            }
            Then::RemoteWrite { data, ack } => {
                if outcome.is_ok()
                    && let Place::Registered(grants) = &placing.place
                    && let (Some(target), Some(endpoint)) = (registered, self.get_mut(ep))
                {
                    target.was_written(&endpoint.visited(src).1, grants, FI_RMA, data);
                }
                ack
            }
        }
    }
}

/// Why a peer does not get what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It names memory that it may not access so, or that is not there.
    Memory {
        /// `-FI_ENOKEY`, `-FI_EACCES`
        error: Errno,
        /// The part of its list.
        piece: RemotePiece,
    },
    /// The request makes no sense: this library's peers make none of that kind.
    Malformed(&'static str),
}

impl Refusal {
    /// As an operation's outcome.
    pub fn error(&self) -> Errno {
        match self {
            Refusal::Memory { error, .. } => *error,
            Refusal::Malformed(_) => Errno::EINVAL,
        }
    }
}

/// A peer's atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRequest<'a> {
    /// Whether it has a result, or compares.
    pub form: Form,
    /// `enum fi_op`, as the peer sent it.
    pub op: u32,
    /// `enum fi_datatype`, as the peer sent it.
    pub datatype: u32,
    /// The operands, where the operation has some, and then what the memory is
    /// compared with, where it is.
    pub operands: &'a [u8],
    /// Immediate data.
    pub data: Option<u64>,
}

impl Target {
    /// The memory that is registered in this table.
    pub fn new(table: &MrTable) -> Self {
        Target {
            memory: table.accessor(),
            operands: Vec::new(),
            old: Vec::new(),
        }
    }

    /// The memory that a peer names, if it may access it so (`FI_REMOTE_READ`,
    /// `FI_REMOTE_WRITE`): that is up to the keys, the ranges and the access of the regions,
    /// whatever the capabilities of the endpoint.
    ///
    /// An operation of no bytes is judged at its keys as well. Without a valid one
    /// it has nothing to do, so it succeeds, as on RDMA devices, which do not look
    /// at the key then; but the grants have no parts, and nothing is reported of
    /// it. With immediate `data` it is refused, or the data would be lost without
    /// an error.
    #[inline]
    pub fn resolve(
        &mut self,
        visitor: &Visitor<'_>,
        access: u64,
        list: &[RemotePiece],
        data: Option<u64>,
    ) -> std::result::Result<Grants, Refusal> {
        let granted = self.granted(visitor, access, list);
        match granted {
            Err(_) if data.is_none() && list.iter().all(|piece| piece.len == 0) => {
                Ok(Grants::default())
            }
            // There is no key at all.
            Ok(grants) if data.is_some() && grants.parts().is_empty() => Err(Refusal::Memory {
                error: Errno::ENOKEY,
                piece: RemotePiece::default(),
            }),
            granted => granted,
        }
    }

    #[inline]
    fn granted(
        &mut self,
        visitor: &Visitor<'_>,
        access: u64,
        list: &[RemotePiece],
    ) -> std::result::Result<Grants, Refusal> {
        let mut grants = Grants::default();
        for &piece in list {
            let RemotePiece { addr, len, key } = piece;
            let refuse = |error| Refusal::Memory { error, piece };
            let grant = self.memory.resolve(key, addr, len, access, visitor.job);
            if !grants.push(grant.map_err(refuse)?) {
                return Err(refuse(Errno::EACCES));
            }
        }
        Ok(grants)
    }

    /// A peer's atomic operation. `result` is filled with what the memory held
    /// before, or emptied where the peer does not ask for it.
    pub fn atomic(
        &mut self,
        visitor: &Visitor<'_>,
        list: &[RemotePiece],
        request: &AtomicRequest<'_>,
        result: &mut Vec<u8>,
    ) -> std::result::Result<(), Refusal> {
        result.clear();
        let op = Op::from_number(request.op);
        let op = op.ok_or(Refusal::Malformed("atomic operation"))?;
        let datatype = Datatype::from_number(request.datatype);
        let datatype = datatype.ok_or(Refusal::Malformed("datatype"))?;
        if !op.has_form(request.form) {
            return Err(Refusal::Malformed("form of an atomic operation"));
        }
        let access = match (op.writes(), request.form) {
            (true, Form::Base) => FI_REMOTE_WRITE,
            (true, _) => FI_REMOTE_READ | FI_REMOTE_WRITE,
            (false, _) => FI_REMOTE_READ,
        };
        let grants = self.resolve(visitor, access, list, request.data)?;
        let operand_len = if op.takes_operand() { grants.len() } else { 0 };
        let split = request.operands.split_at_checked(operand_len);
        let (operand, compare) = split.ok_or(Refusal::Malformed("operands"))?;
        let compare_len = match request.form {
            Form::Compare => grants.len(),
            _ => 0,
        };
        if compare.len() != compare_len {
            return Err(Refusal::Malformed("operands"));
        }
        if request.form != Form::Base {
            result.resize(grants.len(), 0);
        }
        if grants.parts().is_empty() {
            return Ok(());
        }
        grants
            .apply(&mut self.memory, op, datatype, operand, compare, result)
            .map_err(|_| Refusal::Malformed("elements"))?;
        if op.writes() {
            self.was_written(visitor, &grants, FI_ATOMIC, request.data);
        } else {
            grants.complete(&mut self.memory);
            let reports = visitor.reports;
            reports.remote_read_with(FI_ATOMIC, grants.len(), request.data, visitor.src);
        }
        Ok(())
    }

    /// A peer has written to memory, with an operation of `kind` (`FI_RMA`,
    /// `FI_ATOMIC`) and perhaps immediate data.
    #[inline]
    pub fn was_written(
        &mut self,
        visitor: &Visitor<'_>,
        grants: &Grants,
        kind: u64,
        data: Option<u64>,
    ) {
        if grants.parts().is_empty() {
            return;
        }
        grants.complete(&mut self.memory);
        let len = grants.len();
        visitor.reports.remote_write(kind, len, data, visitor.src);
    }

    /// A peer has written to memory by itself ([`prov_util::mr::publish`]). Regions that
    /// were closed since count nothing; but immediate data is reported, since the peer knows
    /// that its operation has succeeded.
    pub fn has_been_written(
        &mut self,
        visitor: &Visitor<'_>,
        list: &[RemotePiece],
        data: Option<u64>,
    ) {
        match self.granted(visitor, FI_REMOTE_WRITE, list) {
            Ok(grants) => self.was_written(visitor, &grants, FI_RMA, data),
            Err(_) => {
                let lens = list.iter().map(|piece| piece.len);
                let len = lens.fold(0, u64::saturating_add);
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                visitor.reports.remote_write(FI_RMA, len, data, visitor.src);
            }
        }
    }

    /// A peer has read memory by itself.
    pub fn has_been_read(&mut self, visitor: &Visitor<'_>, list: &[RemotePiece]) {
        match self.granted(visitor, FI_REMOTE_READ, list) {
            Ok(grants) => self.was_read(visitor, &grants),
            Err(_) => visitor.reports.remote_read(),
        }
    }

    /// A peer has read memory.
    #[inline]
    pub fn was_read(&mut self, visitor: &Visitor<'_>, grants: &Grants) {
        if grants.parts().is_empty() {
            return;
        }
        grants.complete(&mut self.memory);
        visitor.reports.remote_read();
    }
}

/// Where a message goes to: memory of an operation, or memory that the
/// application registered for peers.
pub enum Place {
    /// Of an operation in flight.
    App(AppIov),
    /// Registered, one after another.
    Registered(Grants),
}

impl Place {
    /// Copies bytes to their place `at` the offset, as far as there is room.
    #[inline]
    pub fn write_at(&self, registered: &mut Option<Target>, at: usize, bytes: &[u8]) {
        match self {
            Place::App(memory) => {
                memory.write_at(at, bytes);
            }
            Place::Registered(grants) => {
                if let Some(target) = registered {
                    grants.write_at(&mut target.memory, at, bytes);
                }
            }
        }
    }

    /// The application's memory, as far as it is an operation's.
    pub fn memory(&self) -> AppIov {
        match self {
            Place::App(memory) => *memory,
            Place::Registered(_) => AppIov::EMPTY,
        }
    }

    /// Calls `work` with the memory from the offset on, up to `len` bytes and to
    /// the end of its part; not if that is closed. Returns how many bytes the
    /// memory has, or would have.
    pub fn part(
        &self,
        registered: &mut Option<Target>,
        at: usize,
        len: usize,
        work: impl FnOnce(&Iov<'_>),
    ) -> usize {
        match self {
            Place::App(memory) => {
                let part = memory.slice(at, len);
                work(&part);
                part.len()
            }
            Place::Registered(grants) => match registered {
                Some(target) => grants.part(&mut target.memory, at, len, work).0,
                None => 0,
            },
        }
    }
}
