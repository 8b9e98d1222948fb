//! Operations that wait for their connection.

use prov_message::{Context, Ticket};
use prov_util::buffer::AppIov;
use prov_util::desc::Descs;
use prov_util::request::{Access, RemoteAccess, RemoteIov, Tag, Transmit};

/// An operation as it was posted, with a copy of what is not the library's to
/// keep.
pub struct Request {
    /// Counts the operation.
    pub ticket: Ticket,
    kind: Kind,
    data: u64,
    flags: u64,
    context: Context,
    copy: Option<Vec<u8>>,
}

enum Kind {
    Transmit {
        tag: Tag,
        buffers: AppIov,
    },
    Access {
        access: Access,
        local: AppIov,
        remote: RemoteIov,
    },
}

/// An operation that has waited long enough.
pub enum Replay {
    /// A message.
    Transmit(Transmit),
    /// A read or a write.
    Access(RemoteAccess),
}

impl Request {
    /// A message that waits.
    pub fn transmit(ticket: Ticket, message: &Transmit, copy: Option<Vec<u8>>) -> Self {
        Request {
            ticket,
            kind: Kind::Transmit {
                tag: message.tag,
                buffers: message.buffers,
            },
            data: message.data,
            flags: message.flags,
            context: Context::of(message.context),
            copy,
        }
    }

    /// A read or a write that waits.
    pub fn access(ticket: Ticket, access: &RemoteAccess, copy: Option<Vec<u8>>) -> Self {
        Request {
            ticket,
            kind: Kind::Access {
                access: access.access,
                local: access.local,
                remote: access.remote,
            },
            data: access.data,
            flags: access.flags,
            context: Context::of(access.context),
            copy,
        }
    }

    /// The operation again, its bytes if they were copied, and what counts it.
    pub fn replay(self) -> (Replay, Option<Vec<u8>>, Ticket) {
        let (data, flags, context) = (self.data, self.flags, self.context.pointer());
        let peer = fabric_abi::FI_ADDR_UNSPEC;
        let replay = match self.kind {
            Kind::Transmit { tag, buffers } => Replay::Transmit(Transmit {
                tag,
                buffers,
                desc: Descs::NONE,
                peer,
                data,
                flags,
                context,
            }),
            Kind::Access {
                access,
                local,
                remote,
            } => Replay::Access(RemoteAccess {
                access,
                local,
                desc: Descs::NONE,
                remote,
                peer,
                data,
                flags,
                context,
            }),
        };
        (replay, self.copy, self.ticket)
    }
}

/// The bytes of a message.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// The application's.
    App(&'a AppIov),
    /// A copy of ours.
    Own(&'a [u8]),
}

impl<'a> Bytes<'a> {
    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Bytes::App(memory) => memory.len(),
            Bytes::Own(bytes) => bytes.len(),
        }
    }

    /// The copy, where there is one.
    pub fn of(copy: &'a Option<Vec<u8>>, memory: &'a AppIov) -> Self {
        match copy {
            Some(bytes) => Bytes::Own(bytes),
            None => Bytes::App(memory),
        }
    }
}
