//! Why connections end.

use crate::local::neighbour::OutOfTurn;
use prov_base::errno::Errno;
use prov_message::Refusal;

use crate::wire::WireError;

/// The reason why a connection ends.
#[derive(Debug)]
pub enum Fault {
    /// The peer broke the protocol.
    Protocol(WireError),
    /// The peer named memory that it may not access.
    Memory { error: Errno, addr: u64, len: u64 },
    /// The socket has an error, or has ended.
    Io(Errno),
    /// This side ends the connection, for this reason.
    Here(Errno, &'static str),
    /// The peer rejected the request, with this connection data.
    Refused(Vec<u8>),
    /// The other side is not an RDM endpoint.
    Foreign,
    /// There is no such context of the peer's scalable endpoint.
    NoContext,
    /// The peer did not prove the key of this side, for this reason.
    Unproven(&'static str),
    /// The connection has ended already.
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

/// Whether to continue processing received data.
pub type LinkResult = Result<(), Fault>;
