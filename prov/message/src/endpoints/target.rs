//! The target side of one-sided operations (fi_rma(3), fi_atomic(3)), and the destinations of
//! messages.
//!
//! A peer names memory by a list of keys and addresses. [`RmaTarget::resolve`] checks whether the peer
//! may access it. Then the provider moves the bytes, in one step or as they arrive, and reports the
//! end ([`RmaTarget::was_written`], [`RmaTarget::was_read`]). [`RmaTarget::atomic`] performs a whole atomic
//! operation, and [`own`] does so for peers in the same process. None of this allocates, except
//! that an atomic operation may grow the buffer for its result.
//!
//! Registered memory can be closed at any time. Each access holds the region open for its duration,
//! and a closed region is not touched.

pub mod own;

use fabric_abi::{FI_ATOMIC, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA};
use prov_base::atomic_ops::{Datatype, Form, Op};
use prov_base::buffer::{AppIov, Iov};
use prov_base::device_memory::has_failures;
use prov_base::errno::Errno;
use prov_util::mr::{Accessor, Grants, Job, MrTable};
use prov_util::request::RemotePiece;

use crate::endpoints::Endpoint;
use crate::endpoints::transport::Transport;
use crate::reports::Reports;

/// The registered memory of a domain, as the peers of one lane or endpoint access it.
pub struct RmaTarget {
    /// Finds the regions; the memory of a [`PayloadBuffer`] is reached through it.
    pub memory: Accessor,
    /// Scratch buffers for the operands and the results of [`own`] operations.
    operands: Vec<u8>,
    old: Vec<u8>,
}

/// The peer that accesses memory, and the queues that report it.
#[derive(Clone, Copy)]
pub struct Visitor<'a> {
    /// The job that the peer belongs to.
    pub job: Job,
    /// Completion queues and counters of the endpoint that is accessed.
    pub reports: &'a Reports,
    /// The peer's number, or [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE) if the address vector
    /// does not know it. Used for immediate data only.
    pub src: u64,
}

impl<T: Transport> Endpoint<T> {
    /// Returns the provider's data, and the peer `src` as the visitor of the endpoint's memory.
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

/// The reason why a peer's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It names memory that it may not access in this way, or that does not exist.
    Memory {
        /// `-FI_EACCES`, or `-FI_EIO` if its device has not copied.
        error: Errno,
        /// The element of its list that is refused.
        piece: RemotePiece,
    },
    /// The request is malformed: this library's peers never send it.
    Malformed(&'static str),
}

impl Refusal {
    /// The error as an operation's outcome.
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
    /// Whether it fetches the old value, or compares.
    pub form: Form,
    /// `enum fi_op`, as the peer sent it.
    pub op: u32,
    /// `enum fi_datatype`, as the peer sent it.
    pub datatype: u32,
    /// The operands, if the operation has some, followed by the comparison values, if it compares.
    pub operands: &'a [u8],
    /// Immediate data.
    pub data: Option<u64>,
}

impl RmaTarget {
    /// Creates the target for the memory that is registered in this table.
    pub fn new(table: &MrTable) -> Self {
        RmaTarget {
            memory: table.accessor(),
            operands: Vec::new(),
            old: Vec::new(),
        }
    }

    /// Returns the memory that a peer names, if it may access it in this way (`FI_REMOTE_READ`,
    /// `FI_REMOTE_WRITE`). Keys, ranges and access rights of the regions decide that; the
    /// capabilities of the endpoint do not.
    ///
    /// An operation of no bytes has its keys checked as well. Without a valid key it succeeds
    /// without any effect, as on RDMA devices, which do not check the key of such an operation; its
    /// grants are empty, and nothing is reported. With immediate `data` it is refused, because the
    /// data would otherwise be lost without an error.
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
            // The list is empty, so there is no key.
            Ok(grants) if data.is_some() && grants.parts().is_empty() => Err(Refusal::Memory {
                error: Errno::EACCES,
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

    /// Performs a peer's atomic operation. `result` is filled with the old values, or emptied if
    /// the peer does not ask for them.
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
        if has_failures() {
            let piece = list.first().copied().unwrap_or_default();
            let failed = grants.take_failure(&mut self.memory);
            failed.map_err(|error| Refusal::Memory { error, piece })?;
        }
        if request.form == Form::Base {
            self.was_written(visitor, &grants, FI_ATOMIC, request.data);
        } else {
            // A fetching operation is a read of its target (fi_endpoint(3), FI_REMOTE_READ),
            // whatever it writes. The counters of regions count both.
            grants.complete(&mut self.memory);
            let reports = visitor.reports;
            reports.remote_read_with(FI_ATOMIC, grants.len(), request.data, visitor.src);
        }
        Ok(())
    }

    /// Reports that a peer has written to memory, with an operation of `kind` (`FI_RMA`,
    /// `FI_ATOMIC`) and possibly immediate data.
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

    /// Reports that a peer has written to memory by itself ([`prov_util::mr::publish`]). Regions
    /// that were closed since then do not count it; immediate data is reported nevertheless, since
    /// the peer has seen its operation succeed.
    pub fn has_been_written(
        &mut self,
        visitor: &Visitor<'_>,
        list: &[RemotePiece],
        data: Option<u64>,
    ) {
        match self.granted(visitor, FI_REMOTE_WRITE, list) {
            Ok(grants) => self.was_written(visitor, &grants, FI_RMA, data),
            Err(_) => {
                let len = total(list);
                visitor.reports.remote_write(FI_RMA, len, data, visitor.src);
            }
        }
    }

    /// Reports that a peer has read memory by itself.
    pub fn has_been_read(&mut self, visitor: &Visitor<'_>, list: &[RemotePiece]) {
        match self.granted(visitor, FI_REMOTE_READ, list) {
            Ok(grants) => self.was_read(visitor, &grants),
            Err(_) => visitor.reports.remote_read(total(list)),
        }
    }

    /// Reports that a peer has read memory.
    #[inline]
    pub fn was_read(&mut self, visitor: &Visitor<'_>, grants: &Grants) {
        if grants.parts().is_empty() {
            return;
        }
        grants.complete(&mut self.memory);
        visitor.reports.remote_read(grants.len());
    }
}

/// Returns the bytes of a list.
fn total(list: &[RemotePiece]) -> usize {
    let lens = list.iter().map(|piece| piece.len);
    let len = lens.fold(0, u64::saturating_add);
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// The destination of a message: a buffer of an operation, or memory that the application has
/// registered for peers.
pub enum PayloadBuffer {
    /// The buffer of an outstanding operation.
    App(AppIov),
    /// Registered memory; the parts follow one another.
    Registered(Grants),
}

impl PayloadBuffer {
    /// Copies bytes to the offset `at` of the destination, as far as they fit.
    #[inline]
    pub fn write_at(&self, registered: &mut Option<RmaTarget>, at: usize, bytes: &[u8]) {
        match self {
            PayloadBuffer::App(memory) => {
                memory.write_at(at, bytes);
            }
            PayloadBuffer::Registered(grants) => {
                if let Some(target) = registered {
                    grants.write_at(&mut target.memory, at, bytes);
                }
            }
        }
    }

    /// The application's buffer; empty for registered memory.
    pub fn into_memory(self) -> AppIov {
        match self {
            PayloadBuffer::App(memory) => memory,
            PayloadBuffer::Registered(_) => AppIov::EMPTY,
        }
    }

    /// Calls `work` with up to `len` bytes of memory from the offset on, up to the end of its part;
    /// does not call it if that part's region is closed. Returns the number of bytes that the part
    /// has or would have.
    pub fn part(
        &self,
        registered: &mut Option<RmaTarget>,
        at: usize,
        len: usize,
        work: impl FnOnce(&Iov<'_>),
    ) -> usize {
        match self {
            PayloadBuffer::App(memory) => {
                let part = memory.slice(at, len);
                work(&part);
                part.len()
            }
            PayloadBuffer::Registered(grants) => match registered {
                Some(target) => grants.part(&mut target.memory, at, len, work).0,
                None => 0,
            },
        }
    }
}
