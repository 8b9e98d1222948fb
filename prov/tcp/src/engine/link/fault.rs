//! Why connections end.

use crate::local::neighbour::OutOfTurn;
use prov_message::Refusal;
use prov_util::errno::Errno;

use crate::wire::WireError;

/// Why a connection ends.
#[derive(Debug)]
pub enum Fault {
    /// The peer broke the protocol.
    Protocol(WireError),
    /// The peer named memory that it may not access.
    Memory { error: Errno, addr: u64, len: u64 },
    /// The socket has an error, or has ended.
    Io(Errno),
    /// The peer refused, with these connection data.
    Refused(Vec<u8>),
    /// The other side has no endpoint of the RDM type.
    Foreign,
    /// The peer did not prove that it has the key of this side, for this
    /// reason.
    Unproven(&'static str),
    /// It has ended already.
    Gone,
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Memory { error, piece } => Fault::Memory {
                error,
                addr: piece.addr,
                len: piece.len,
            },
            Refusal::Malformed(what) => Fault::Protocol(WireError::Field(what)),
        }
    }
}

impl From<OutOfTurn> for Fault {
    fn from(_: OutOfTurn) -> Self {
        Fault::Protocol(WireError::Field("acquaintance"))
    }
}

/// Whether to go on taking in.
pub type Step = Result<(), Fault>;
