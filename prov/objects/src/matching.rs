//! Tag matching: which posted receive gets which message (fi_msg(3), fi_tagged(3), fi_endpoint(3)).
//!
//! A [`ReceiveContext`] belongs to an endpoint or to a shared receive context and holds two
//! [`ReceiveQueue`]s, one for untagged and one for tagged messages. A queue is a pure data
//! structure: it performs no I/O, reports no completions and takes no lock; its owner has one. It
//! is told what is posted and what arrives, and returns the match:
//!
//! - [`ReceiveQueue::post`] returns the oldest unexpected message that the receive accepts, or
//!   queues the receive;
//! - [`ReceiveQueue::arrive`] returns the oldest receive that accepts the message; if there is
//!   none, the provider may add the message to the unexpected ones ([`ReceiveQueue::keep`]) with
//!   the data that it needs to deliver it later (the payload, or the connection that is held back).
//!
//! Tags and sources are hashed with a secret key, so that a lookup among ten thousand posted
//! receives or unexpected messages costs no more than among one, whatever tags a peer chooses.

pub mod arena;
mod hash;
mod multi;
mod posted;
mod queue;
mod unexpected;

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod model_tests;

pub use posted::{MOST_POSTED, posted_cost};
pub use queue::{Cancelled, ReceiveQueue, Single};
pub use unexpected::HEIR;

use prov_base::buffer::AppIov;

/// An unknown source, or a receive that accepts any source (`FI_ADDR_UNSPEC`, `FI_ADDR_NOTAVAIL`).
pub const ANY_SOURCE: u64 = fabric_abi::FI_ADDR_UNSPEC;

/// The operations of a receive buffer.
pub trait ReceiveBuffer {
    /// Returns the size in bytes.
    fn len(&self) -> usize;

    /// Returns whether the size is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first `len` bytes, which the buffer has, and keeps those after them.
    fn split_to(&mut self, len: usize) -> Self;

    /// Takes the place of `other`, of which nothing is left.
    fn assign(&mut self, other: &mut Self);

    /// Returns the buffer, and leaves an empty one in its place.
    fn take(&mut self) -> Self;
}

impl ReceiveBuffer for AppIov {
    fn len(&self) -> usize {
        self.len()
    }

    fn split_to(&mut self, len: usize) -> Self {
        self.split_to(len)
    }

    #[inline(always)]
    fn assign(&mut self, other: &mut Self) {
        self.assign(other);
    }

    #[inline(always)]
    fn take(&mut self) -> Self {
        self.take()
    }
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct Receive<B> {
    /// The application's context pointer as an integer: it is compared and returned, never
    /// dereferenced.
    pub context: usize,
    /// The destination buffer.
    pub buf: B,
    /// The peer to receive from, or [`ANY_SOURCE`].
    pub src: u64,
    /// The tag to receive; 0 for plain messages.
    pub tag: u64,
    /// The bits of `tag` that are not compared.
    pub ignore: u64,
    /// Operation flags, returned with the match. With `FI_MULTI_RECV` the buffer accepts many
    /// messages.
    pub flags: u64,
}

/// A receive that has matched a message. It is removed from the queue, and the provider has to
/// complete it.
#[derive(Clone, Debug)]
pub struct Matched<B> {
    /// See [`Receive::context`].
    pub context: usize,
    /// The destination of this message; for a multi-receive buffer, the part for this message. If
    /// it is shorter than the message, the receive completes with `-FI_ETRUNC`.
    pub buf: B,
    /// See [`Receive::flags`].
    pub flags: u64,
    /// Set for a multi-receive buffer; to be passed to [`ReceiveQueue::finish_multi`] when the
    /// message has been received.
    pub multi: Option<MultiId>,
}

/// An unexpected message: it has not matched a receive.
#[derive(Clone, Debug)]
pub struct Message<U> {
    /// The sender, or [`ANY_SOURCE`] if the address vector does not know it.
    pub src: u64,
    /// The tag; 0 for untagged messages.
    pub tag: u64,
    /// Length of the message in bytes.
    pub len: usize,
    /// Immediate data, for `FI_REMOTE_CQ_DATA`.
    pub data: u64,
    /// Completion flags of the message.
    pub flags: u64,
    /// The provider's data for delivering it.
    pub payload: U,
}

/// The messages that a receive or a peek accepts.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// See [`Receive::src`].
    pub src: u64,
    /// See [`Receive::tag`].
    pub tag: u64,
    /// See [`Receive::ignore`].
    pub ignore: u64,
}

impl Filter {
    /// Accepts any message.
    pub const ANY: Filter = Filter {
        src: ANY_SOURCE,
        tag: 0,
        ignore: u64::MAX,
    };
}

/// The id of a multi-receive buffer, until the last message in it has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MultiId(arena::Key);

/// The id of a message in a queue, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub arena::Key);

impl MessageId {
    /// The id as an integer, for interfaces that accept only that.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The id with this integer value.
    pub fn from_bits(bits: u64) -> Self {
        MessageId(arena::Key::from_bits(bits))
    }
}

/// The receive queues of one endpoint or shared receive context.
#[derive(Debug)]
pub struct ReceiveContext<B, U> {
    /// Untagged messages (fi_msg(3)).
    pub msg: ReceiveQueue<B, U>,
    /// Tagged messages (fi_tagged(3)).
    pub tagged: ReceiveQueue<B, U>,
}

impl<B: ReceiveBuffer, U> ReceiveContext<B, U> {
    /// Creates empty queues; `min_multi_recv` as in [`ReceiveContext::set_min_multi_recv`].
    pub fn new(min_multi_recv: usize) -> Self {
        ReceiveContext {
            msg: ReceiveQueue::untagged(min_multi_recv),
            tagged: ReceiveQueue::tagged(min_multi_recv),
        }
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV` for buffers that are posted later: a buffer with fewer free
    /// bytes accepts no more messages.
    pub fn set_min_multi_recv(&mut self, bytes: usize) {
        self.msg.set_min_multi_recv(bytes);
        self.tagged.set_min_multi_recv(bytes);
    }

    /// Removes the oldest receive posted with `context` from its queue (fi_cancel(3)), untagged
    /// ones first. See [`ReceiveQueue::cancel`].
    pub fn cancel(&mut self, context: usize) -> Option<Cancelled<B>> {
        self.msg
            .cancel(context)
            .or_else(|| self.tagged.cancel(context))
    }

    /// Returns whether messages are still arriving in multi-receive buffers that accept no more: of
    /// the last one [`ReceiveQueue::finish_multi`] is to be called.
    pub fn finishes_multi(&self) -> bool {
        self.msg.finishes_multi() || self.tagged.finishes_multi()
    }

    /// Returns the number of posted receives in both queues.
    pub fn posted_len(&self) -> usize {
        self.msg.posted_len() + self.tagged.posted_len()
    }
}

#[inline]
fn tags_match(a: u64, b: u64, ignore: u64) -> bool {
    (a ^ b) & !ignore == 0
}
