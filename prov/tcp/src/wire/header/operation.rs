//! The operations that headers announce.

use super::super::handshake::Features;

/// What a header announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// A plain message. With [`super::Header::is_ack`], the acknowledgement of the
    /// oldest message that asked for one.
    Msg = 0,
    /// A tagged message.
    Tagged = 1,
    /// Asks for the bytes of remote buffers.
    ReadRequest = 2,
    /// Those bytes, in the order of the requests.
    ReadResponse = 3,
    /// Bytes for remote buffers.
    Write = 4,
    /// A tagged message that waits for [`Op::Cts`]; named by `op_data`.
    TaggedRts = 5,
    /// Asks for the message that `op_data` names.
    Cts = 6,
    /// The message that `op_data` names.
    Data = 7,
    /// Acknowledges the message that `id` names.
    NamedAck = 0x40,
    /// A plain or tagged message that waits for [`Op::WideCts`].
    WideRts = 0x41,
    /// Asks for the message that `id` names, or with `op_data` 1 says that
    /// nobody wants it any more.
    WideCts = 0x42,
    /// The message that `id` names.
    WideData = 0x43,
    /// `op_data` 1: from now on announce every message; 0: no longer.
    Throttle = 0x44,
    /// An atomic operation; `word` says which.
    AtomicRequest = 0x45,
    /// Old values for the request that `id` names.
    AtomicResponse = 0x46,
    /// Towards reading one another's memory; `op_data` is an
    /// [`Acquaintance`](crate::wire::direct::Acquaintance).
    Acquaint = 0x47,
    /// Says where the bytes are that [`Op::ReadRequest`] asked for: in the order
    /// of the requests, as [`Op::ReadResponse`].
    DirectRead = 0x48,
    /// Says where the bytes for remote buffers are. The peer acknowledges when
    /// it has them, and names `id`.
    DirectWrite = 0x49,
}

/// Which fields an operation has beyond the base, in the order of the wire.
pub struct Layout {
    /// Immediate data, where the flag says so.
    pub data: bool,
    pub tag: bool,
    pub size: bool,
    pub id: bool,
    pub word: bool,
    pub rma: bool,
    pub payload: bool,
    /// What the peer has to be able to do.
    pub needs: Option<Features>,
}

impl Op {
    /// The operation that this code stands for.
    pub fn from_code(code: u8) -> Option<Op> {
        Some(match code {
            0 => Op::Msg,
            1 => Op::Tagged,
            2 => Op::ReadRequest,
            3 => Op::ReadResponse,
            4 => Op::Write,
            5 => Op::TaggedRts,
            6 => Op::Cts,
            7 => Op::Data,
            0x40 => Op::NamedAck,
            0x41 => Op::WideRts,
            0x42 => Op::WideCts,
            0x43 => Op::WideData,
            0x44 => Op::Throttle,
            0x45 => Op::AtomicRequest,
            0x46 => Op::AtomicResponse,
            0x47 => Op::Acquaint,
            0x48 => Op::DirectRead,
            0x49 => Op::DirectWrite,
            _ => return None,
        })
    }

    /// See [`Layout`].
    #[inline]
    pub const fn layout(self) -> Layout {
        const NONE: Layout = Layout {
            data: false,
            tag: false,
            size: false,
            id: false,
            word: false,
            rma: false,
            payload: false,
            needs: None,
        };
        match self {
            Op::Msg => Layout {
                data: true,
                payload: true,
                ..NONE
            },
            Op::Tagged => Layout {
                data: true,
                tag: true,
                payload: true,
                ..NONE
            },
            Op::ReadRequest => Layout { rma: true, ..NONE },
            Op::ReadResponse | Op::Data => Layout {
                payload: true,
                ..NONE
            },
            Op::Write => Layout {
                data: true,
                rma: true,
                payload: true,
                ..NONE
            },
            Op::TaggedRts => Layout {
                data: true,
                tag: true,
                size: true,
                ..NONE
            },
            Op::Cts => NONE,
            Op::NamedAck => Layout {
                id: true,
                needs: Some(Features::NAMED_ACKS),
                ..NONE
            },
            Op::WideRts => Layout {
                data: true,
                tag: true,
                size: true,
                id: true,
                needs: Some(Features::RENDEZVOUS),
                ..NONE
            },
            Op::WideCts => Layout {
                id: true,
                needs: Some(Features::RENDEZVOUS),
                ..NONE
            },
            Op::WideData => Layout {
                id: true,
                payload: true,
                needs: Some(Features::RENDEZVOUS),
                ..NONE
            },
            Op::Throttle => Layout {
                needs: Some(Features::RENDEZVOUS),
                ..NONE
            },
            Op::AtomicRequest => Layout {
                data: true,
                id: true,
                word: true,
                rma: true,
                payload: true,
                needs: Some(Features::ATOMICS),
                ..NONE
            },
            Op::AtomicResponse => Layout {
                id: true,
                payload: true,
                needs: Some(Features::ATOMICS),
                ..NONE
            },
            Op::Acquaint => Layout {
                id: true,
                word: true,
                needs: Some(Features::DIRECT),
                ..NONE
            },
            Op::DirectRead => Layout {
                payload: true,
                needs: Some(Features::DIRECT),
                ..NONE
            },
            Op::DirectWrite => Layout {
                data: true,
                id: true,
                rma: true,
                payload: true,
                needs: Some(Features::DIRECT),
                ..NONE
            },
        }
    }
}
