//! Messages on their way out.

use prov_message::Op;
use prov_message::peers::Bytes;

use crate::wire::header::{Header, MAX_HEADER, RmaIov};

/// What is posted: a header and what follows it.
pub struct Post<'a> {
    pub header: Header,
    pub rma: &'a [RmaIov],
    pub payload: Bytes<'a>,
    /// Whether the payload must be copied if it cannot leave at once.
    pub copy: bool,
    /// Reported when the kernel has taken everything.
    pub op: Option<Op>,
}

impl<'a> Post<'a> {
    /// A message of this library's own, which no operation is waiting for.
    #[inline]
    pub fn own(header: Header, rma: &'a [RmaIov], bytes: &'a [u8]) -> Self {
        Post {
            header,
            rma,
            payload: Bytes::Own(bytes),
            copy: true,
            op: None,
        }
    }
}

/// Longest message, header included, that is copied to leave in one piece.
pub const SCRATCH: usize = 4096 + MAX_HEADER;
/// Payloads up to this size are copied rather than pointed at.
pub const COPY_LIMIT: usize = SCRATCH - MAX_HEADER;
