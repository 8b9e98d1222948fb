//! Messages to be sent.

use prov_message::Op;
use prov_message::peers::Lent;

use crate::wire::header::{Header, MAX_HEADER, RmaIov};

/// A message to post: a header and what follows it.
pub struct Post<'a> {
    pub header: Header,
    pub rma: &'a [RmaIov],
    pub payload: Lent<'a>,
    /// Whether the payload must be copied if it cannot be sent immediately.
    pub copy: bool,
    /// Reported when the kernel has accepted everything.
    pub op: Option<Op>,
}

impl<'a> Post<'a> {
    /// A message of the library itself, which no operation waits for.
    #[inline]
    pub fn own(header: Header, rma: &'a [RmaIov], bytes: &'a [u8]) -> Self {
        Post {
            header,
            rma,
            payload: Lent::Own(bytes),
            copy: true,
            op: None,
        }
    }
}

/// Length in bytes, header included, of the longest message that is copied into one buffer, to be
/// sent by one call: for a few KiB a copy takes less time than a list of buffers. The engine has one
/// such buffer.
pub const SCRATCH: usize = 4096 + MAX_HEADER;
/// Length in bytes of the longest payload that is copied rather than referenced.
pub const COPY_LIMIT: usize = SCRATCH - MAX_HEADER;
