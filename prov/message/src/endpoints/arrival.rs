//! A message that arrives, and the receive that it has matched.

use prov_base::buffer::AppIov;
use prov_util::matching::Matched;

use crate::endpoints::transport::Transport;
use crate::operation::{Context, EpKey};
use crate::receipt::{Buffer, InboxKey, Receipt};

/// The header of a message that begins, or of an announcement.
#[derive(Clone, Copy)]
pub struct Arrival<T: Transport> {
    /// The link on which it arrives.
    pub link: T::Link,
    /// The endpoint to which it is addressed.
    pub ep: EpKey,
    /// The sender's number in the address vector, or
    /// [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE) if the address vector does not know it.
    pub src: u64,
    pub tagged: bool,
    pub tag: u64,
    /// Length of the message in bytes.
    pub len: usize,
    /// Immediate data.
    pub data: Option<u64>,
    pub ack: T::Ack,
    /// Whether the sender supports announcing its messages (rendezvous).
    pub announces: bool,
}

/// The posted receive that matched an arriving message.
pub struct Expected<A> {
    /// The destination buffer. If it is shorter than the message, the receive completes with
    /// `-FI_ETRUNC`.
    pub memory: AppIov,
    /// To be passed to [`Endpoints::received`](super::Endpoints::received) when the payload has arrived.
    pub receipt: Receipt<A>,
}

impl<A: Copy> Expected<A> {
    /// The receive in an inbox that has matched a message.
    #[inline(always)]
    pub(super) fn of<T: Transport<Ack = A>>(
        arrival: &Arrival<T>,
        inbox: InboxKey,
        matched: Matched<AppIov>,
    ) -> Self {
        Expected {
            memory: matched.buf,
            receipt: Receipt {
                inbox,
                ep: arrival.ep,
                tagged: arrival.tagged,
                context: Context(matched.context),
                flags: matched.flags,
                buffer: Buffer::of(matched.multi),
                src: arrival.src,
                tag: arrival.tag,
                data: arrival.data,
                len: arrival.len,
                ack: arrival.ack,
            },
        }
    }
}
