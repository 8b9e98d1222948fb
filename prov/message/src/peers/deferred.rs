//! Requests that wait: as they were posted, with a copy of the bytes that the application may reuse
//! (`FI_INJECT`).

use std::ffi::c_void;

use fabric_abi::{FI_ADDR_UNSPEC, fi_datatype, fi_op};
use prov_base::buffer::AppIov;
use prov_util::desc::Descs;
use prov_util::request::{Access, Atomic, AtomicKind, RemoteAccess, RemoteIov, Tag, Transmit};

/// A request that waits.
pub struct Deferred {
    kind: Kind,
    /// Descriptors of the local memory.
    desc: Descs,
    data: u64,
    flags: u64,
    /// The application's context pointer, which is returned and never dereferenced.
    context: usize,
    /// For an injected request: the bytes to send, followed by the comparison values.
    copy: Option<Box<[u8]>>,
}

/// The other kinds are boxed: mostly messages wait, and the others are much larger.
enum Kind {
    Transmit { tag: Tag, buffers: AppIov },
    Access(Box<WaitingAccess>),
    Atomic(Box<WaitingAtomic>),
}

struct WaitingAccess {
    access: Access,
    local: AppIov,
    remote: RemoteIov,
}

struct WaitingAtomic {
    kind: AtomicKind,
    datatype: fi_datatype,
    op: fi_op,
    operand: AppIov,
    remote: RemoteIov,
}

/// A request that has finished waiting. The buffers of an injected one give the lengths, but their
/// memory belongs to the application again: the bytes are in [`Replay::payload`] and
/// [`Replay::compared`].
pub struct Replay {
    /// The request, for the peer that it has waited for: its own peer is `FI_ADDR_UNSPEC`.
    pub request: Request,
    copy: Option<Box<[u8]>>,
}

/// The requests that can wait.
#[expect(clippy::large_enum_variant, reason = "it lives as long as a call")]
pub enum Request {
    /// A message.
    Transmit(Transmit),
    /// A read or a write.
    Access(RemoteAccess),
    /// An atomic operation.
    Atomic(Atomic),
}

/// The bytes of a request that has been injected.
#[derive(Clone, Copy)]
pub struct Copies<'a> {
    /// See [`Replay::payload`].
    pub payload: &'a [u8],
    /// See [`Replay::compared`].
    pub compared: &'a [u8],
}

/// The bytes of a request that is being posted.
pub enum Lent<'a> {
    /// The application's memory, which what is posted may take.
    App(&'a mut AppIov),
    /// A copy.
    Own(&'a [u8]),
}

impl<'a> Lent<'a> {
    /// The copy, if there is one, or else the memory.
    #[inline(always)]
    pub fn of(memory: &'a mut AppIov, copy: Option<&'a [u8]>) -> Self {
        match copy {
            Some(copy) => Lent::Own(copy),
            None => Lent::App(memory),
        }
    }

    /// Returns the bytes, to be read.
    #[inline(always)]
    pub fn bytes(&self) -> Bytes<'_> {
        match self {
            Lent::App(memory) => Bytes::App(memory),
            Lent::Own(copy) => Bytes::Own(copy),
        }
    }

    /// Returns their number.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some are in memory of a device.
    pub fn has_device(&self) -> bool {
        matches!(self, Lent::App(memory) if memory.has_device())
    }
}

/// The bytes of a request.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// In the application's memory.
    App(&'a AppIov),
    /// In a copy.
    Own(&'a [u8]),
}

impl Deferred {
    /// A message.
    pub fn transmit(message: &mut Transmit) -> Self {
        let copy = message.is_inject().then(|| copy_of(&[&message.buffers]));
        Self::of_transmit(message, copy)
    }

    fn of_transmit(message: &mut Transmit, copy: Option<Box<[u8]>>) -> Self {
        Deferred {
            kind: Kind::Transmit {
                tag: message.tag,
                buffers: message.buffers.take(),
            },
            desc: message.desc,
            data: message.data,
            flags: message.flags,
            context: message.context.expose_provenance(),
            copy,
        }
    }

    /// A read or a write.
    pub fn access(access: &mut RemoteAccess) -> Self {
        let is_copied = access.is_inject() && access.access == Access::Write;
        Self::of_access(access, is_copied.then(|| copy_of(&[&access.local])))
    }

    fn of_access(access: &mut RemoteAccess, copy: Option<Box<[u8]>>) -> Self {
        Deferred {
            kind: Kind::Access(Box::new(WaitingAccess {
                access: access.access,
                local: access.local.take(),
                remote: access.remote,
            })),
            desc: access.desc,
            data: access.data,
            flags: access.flags,
            context: access.context.expose_provenance(),
            copy,
        }
    }

    /// An atomic operation.
    pub fn atomic(atomic: &mut Atomic) -> Self {
        let compared = compared_by(atomic);
        let copy = atomic
            .is_inject()
            .then(|| copy_of(&[&atomic.operand, compared]));
        Self::of_atomic(atomic, copy)
    }

    fn of_atomic(atomic: &mut Atomic, copy: Option<Box<[u8]>>) -> Self {
        Deferred {
            kind: Kind::Atomic(Box::new(WaitingAtomic {
                kind: atomic.kind.take(),
                datatype: atomic.datatype,
                op: atomic.op,
                operand: atomic.operand.take(),
                remote: atomic.remote,
            })),
            desc: atomic.desc,
            data: atomic.data,
            flags: atomic.flags,
            context: atomic.context.expose_provenance(),
            copy,
        }
    }

    /// Whether the request has been injected, so that the application may take it for complete.
    pub fn is_injected(&self) -> bool {
        self.copy.is_some()
    }

    /// Bytes of a message; `None` for other requests.
    pub fn message_len(&self) -> Option<usize> {
        match &self.kind {
            Kind::Transmit { buffers, .. } => Some(buffers.len()),
            Kind::Access(_) | Kind::Atomic(_) => None,
        }
    }

    /// Returns the request for execution.
    pub fn replay(self) -> Replay {
        let (desc, data, flags) = (self.desc, self.data, self.flags);
        let peer = FI_ADDR_UNSPEC;
        let context: *mut c_void = std::ptr::with_exposed_provenance_mut(self.context);
        let request = match self.kind {
            Kind::Transmit { tag, buffers } => Request::Transmit(Transmit {
                tag,
                buffers,
                desc,
                peer,
                data,
                flags,
                context,
            }),
            Kind::Access(waiting) => Request::Access(RemoteAccess {
                access: waiting.access,
                local: waiting.local,
                remote: waiting.remote,
                desc,
                peer,
                data,
                flags,
                context,
            }),
            Kind::Atomic(waiting) => Request::Atomic(Atomic {
                kind: waiting.kind,
                datatype: waiting.datatype,
                op: waiting.op,
                operand: waiting.operand,
                remote: waiting.remote,
                desc,
                peer,
                data,
                flags,
                context,
            }),
        };
        Replay {
            request,
            copy: self.copy,
        }
    }
}

impl Replay {
    /// Queues the request again.
    pub fn defer(mut self) -> Deferred {
        match &mut self.request {
            Request::Transmit(message) => Deferred::of_transmit(message, self.copy),
            Request::Access(access) => Deferred::of_access(access, self.copy),
            Request::Atomic(atomic) => Deferred::of_atomic(atomic, self.copy),
        }
    }

    /// Returns the bytes that are sent to the peer: a message, what is written, or operands. Empty
    /// for a read.
    #[allow(clippy::indexing_slicing, reason = "the copy is of these buffers")]
    pub fn payload(&self) -> Bytes<'_> {
        let memory = match &self.request {
            Request::Transmit(message) => &message.buffers,
            Request::Access(access) if access.access == Access::Write => &access.local,
            Request::Access(_) => return Bytes::Own(&[]),
            Request::Atomic(atomic) => &atomic.operand,
        };
        match &self.copy {
            Some(copy) => Bytes::Own(&copy[..memory.len()]),
            None => Bytes::App(memory),
        }
    }

    /// Returns the request, and the copies of its payload and of its comparison values if it has been
    /// injected. A request that is refused has its memory nevertheless.
    pub fn parts(&mut self) -> (&mut Request, Option<Copies<'_>>) {
        let middle = self.payload().len();
        let copy = self.copy.as_deref();
        let copies = copy.and_then(|copy| copy.split_at_checked(middle));
        let copies = copies.map(|(payload, compared)| Copies { payload, compared });
        (&mut self.request, copies)
    }

    /// Returns the comparison values of an atomic operation.
    #[allow(clippy::indexing_slicing, reason = "the copy is of these buffers")]
    pub fn compared(&self) -> Bytes<'_> {
        let Request::Atomic(atomic) = &self.request else {
            return Bytes::Own(&[]);
        };
        match &self.copy {
            Some(copy) => Bytes::Own(&copy[atomic.operand.len()..]),
            None => Bytes::App(compared_by(atomic)),
        }
    }
}

impl<'a> Bytes<'a> {
    /// The copy, if there is one, or else the memory.
    #[inline(always)]
    pub fn of(memory: &'a AppIov, copy: Option<&'a [u8]>) -> Self {
        match copy {
            Some(copy) => Bytes::Own(copy),
            None => Bytes::App(memory),
        }
    }

    /// Returns their number.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Bytes::App(memory) => memory.len(),
            Bytes::Own(bytes) => bytes.len(),
        }
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn compared_by(atomic: &Atomic) -> &AppIov {
    match &atomic.kind {
        AtomicKind::Base | AtomicKind::Fetch { .. } => &AppIov::EMPTY,
        AtomicKind::Compare { compare, .. } => compare,
    }
}

fn copy_of(memory: &[&AppIov]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(memory.iter().map(|part| part.len()).sum());
    memory.iter().for_each(|part| part.append_to(&mut bytes));
    bytes.into_boxed_slice()
}
