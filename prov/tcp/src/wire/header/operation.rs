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
    /// A remark ([`crate::local::neighbour`]) towards reading one another's memory
    /// or sharing some; `op_data` is its subject.
    Acquaint = 0x47,
    /// Says where the bytes are that [`Op::ReadRequest`] asked for: in the order
    /// of the requests, as [`Op::ReadResponse`].
    DirectRead = 0x48,
    /// Says where the bytes for remote buffers are. The peer acknowledges when
    /// it has them, and names `id`.
    DirectWrite = 0x49,
    /// A message of `size` bytes, tagged if the flags say so, and where they are.
    /// The peer acknowledges when it has copied them, and names `id`.
    DirectMsg = 0x4a,
    /// Stands in place of an answer: the peer refuses access to the memory that an
    /// operation names. `op_data` says which ([`Refused`](super::refusal::Refused)),
    /// `word` why.
    Refusal = 0x4b,
    /// The sender has written to the remote buffers by itself, or read them, as `op_data`
    /// says ([`HAS_WRITTEN`](super::HAS_WRITTEN), [`HAS_READ`](super::HAS_READ)).
    Accessed = 0x4c,
}

/// What the header of an operation consists of.
#[derive(Clone, Copy)]
pub struct Layout {
    pub fields: Fields,
    /// What the peer has to be able to do.
    pub needs: Features,
}

/// Fields that a header has beyond the base.
#[derive(Clone, Copy)]
pub struct Fields(u8);

impl Fields {
    const NONE: Fields = Fields(0);
    /// Immediate data, where the flag says so.
    pub const DATA: Fields = Fields(1 << 0);
    pub const TAG: Fields = Fields(1 << 1);
    pub const SIZE: Fields = Fields(1 << 2);
    pub const ID: Fields = Fields(1 << 3);
    pub const WORD: Fields = Fields(1 << 4);
    /// Remote buffers.
    pub const RMA: Fields = Fields(1 << 5);
    /// Bytes follow the header.
    pub const PAYLOAD: Fields = Fields(1 << 6);
    /// There is an id where the flag says so.
    pub const NAMEABLE: Fields = Fields(1 << 7);

    /// Whether these are among them.
    #[inline(always)]
    pub const fn has(self, fields: Fields) -> bool {
        self.0 & fields.0 == fields.0
    }

    /// These and those.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, fields: Fields) -> Fields {
        Fields(self.0 | fields.0)
    }

    /// These but not those.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, fields: Fields) -> Fields {
        Fields(self.0 & !fields.0)
    }

    /// How many of them are words of 8 bytes.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the index is a remainder by the size of the table"
    )]
    pub const fn words(self) -> usize {
        const COUNTS: [u8; 32] = {
            let mut counts = [0; 32];
            let mut bits = 0u8;
            while bits < 32 {
                counts[bits as usize] = bits.count_ones() as u8;
                bits += 1;
            }
            counts
        };
        COUNTS[(self.0 % 32) as usize] as usize
    }
}

impl Op {
    /// The operation that this code stands for.
    pub const fn from_code(code: u8) -> Option<Op> {
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
            0x4a => Op::DirectMsg,
            0x4b => Op::Refusal,
            0x4c => Op::Accessed,
            _ => return None,
        })
    }

    /// See [`Layout`].
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "there is a layout for each code that an operation has"
    )]
    pub fn layout(self) -> Layout {
        const CODES: usize = Op::Accessed as usize + 1;
        const {
            let mut code = CODES;
            while code <= u8::MAX as usize {
                assert!(Op::from_code(code as u8).is_none(), "CODES is too small");
                code += 1;
            }
        }
        static LAYOUTS: [Layout; CODES] = {
            let mut layouts = [Layout {
                fields: Fields::NONE,
                needs: Features::NONE,
            }; CODES];
            let mut code = 0;
            while code < CODES {
                if let Some(op) = Op::from_code(code as u8) {
                    layouts[code] = op.laid_out();
                }
                code += 1;
            }
            layouts
        };
        LAYOUTS[self as usize]
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "the loop ends at the length of the list"
    )]
    const fn laid_out(self) -> Layout {
        let (list, needs): (&[Fields], _) = match self {
            Op::Msg => (
                &[Fields::DATA, Fields::PAYLOAD, Fields::NAMEABLE],
                Features::NONE,
            ),
            Op::Tagged => (
                &[Fields::DATA, Fields::TAG, Fields::PAYLOAD, Fields::NAMEABLE],
                Features::NONE,
            ),
            Op::ReadRequest => (&[Fields::RMA], Features::NONE),
            Op::ReadResponse | Op::Data => (&[Fields::PAYLOAD], Features::NONE),
            Op::Write => (
                &[Fields::DATA, Fields::RMA, Fields::PAYLOAD, Fields::NAMEABLE],
                Features::NONE,
            ),
            Op::TaggedRts => (&[Fields::DATA, Fields::TAG, Fields::SIZE], Features::NONE),
            Op::Cts => (&[], Features::NONE),
            Op::NamedAck => (&[Fields::ID], Features::NAMED_ACKS),
            Op::WideRts => (
                &[Fields::DATA, Fields::TAG, Fields::SIZE, Fields::ID],
                Features::RENDEZVOUS,
            ),
            Op::WideCts => (&[Fields::ID], Features::RENDEZVOUS),
            Op::WideData => (&[Fields::ID, Fields::PAYLOAD], Features::RENDEZVOUS),
            Op::Throttle => (&[], Features::RENDEZVOUS),
            Op::AtomicRequest => (
                &[
                    Fields::DATA,
                    Fields::ID,
                    Fields::WORD,
                    Fields::RMA,
                    Fields::PAYLOAD,
                ],
                Features::ATOMICS,
            ),
            Op::AtomicResponse => (&[Fields::ID, Fields::PAYLOAD], Features::ATOMICS),
            Op::Acquaint => (&[Fields::ID, Fields::WORD], Features::NAMED_ACKS),
            Op::DirectRead => (&[Fields::PAYLOAD], Features::DIRECT),
            Op::DirectWrite => (
                &[Fields::DATA, Fields::ID, Fields::RMA, Fields::PAYLOAD],
                Features::DIRECT,
            ),
            Op::DirectMsg => (
                &[
                    Fields::DATA,
                    Fields::TAG,
                    Fields::SIZE,
                    Fields::ID,
                    Fields::PAYLOAD,
                ],
                Features::LOCAL,
            ),
            Op::Refusal => (&[Fields::ID, Fields::WORD], Features::REFUSALS),
            Op::Accessed => (&[Fields::DATA, Fields::RMA], Features::REGIONS),
        };
        let mut fields = Fields::NONE;
        let mut rest: &[Fields] = list;
        while let [field, more @ ..] = rest {
            fields = fields.and(*field);
            rest = more;
        }
        Layout { fields, needs }
    }
}
