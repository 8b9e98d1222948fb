//! Receive matching: which posted receive gets which message
//! (fi_msg(3), fi_tagged(3), fi_endpoint(3)).
//!
//! A [`ReceiveContext`] belongs to an endpoint or to a shared receive context
//! and holds two [`ReceiveQueue`]s, one for plain and one for tagged messages.
//! A queue is plain data: it does no I/O, reports no completions and takes no
//! lock, its owner has one. It is told what is posted and what arrives, and
//! answers who matches whom:
//!
//! - [`ReceiveQueue::post`] hands back the oldest unexpected message that the
//!   receive accepts, or queues the receive;
//! - [`ReceiveQueue::arrive`] hands back the oldest receive that accepts the
//!   message; if there is none, the provider may put the message into the queue
//!   of unexpected ones ([`ReceiveQueue::keep`]) with whatever it needs to
//!   deliver it later (its bytes, or the connection that holds it back).
//!
//! Tags and sources are hashed, with a key that peers do not know, so that ten
//! thousand waiting receives or messages cost no more per lookup than one does,
//! whatever their tags.

pub(crate) mod arena;
mod hash;
mod multi;
mod posted;
mod queue;
mod unexpected;

#[cfg(test)]
mod model_tests;

pub use queue::{Cancelled, ReceiveQueue, Single};
pub use unexpected::HEIR;

use crate::buffer::AppIov;

/// A source that is not known, or a receive that takes any
/// (`FI_ADDR_UNSPEC`, `FI_ADDR_NOTAVAIL`).
pub const ANY_SOURCE: u64 = fabric_abi::FI_ADDR_UNSPEC;

/// What a receive buffer must be able to do.
pub trait ReceiveBuffer {
    /// Bytes of room.
    fn len(&self) -> usize;

    /// Whether there is no room at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of `len` bytes at `offset`, both within the buffer.
    fn slice(&self, offset: usize, len: usize) -> Self;

    /// Becomes a copy of `other`.
    #[inline]
    fn assign(&mut self, other: &Self)
    where
        Self: Copy,
    {
        *self = *other;
    }
}

impl ReceiveBuffer for AppIov {
    fn len(&self) -> usize {
        self.len()
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        self.slice(offset, len)
    }

    #[inline(always)]
    fn assign(&mut self, other: &Self) {
        self.assign(other);
    }
}

/// A receive as the application posts it.
#[derive(Clone, Debug)]
pub struct Receive<B> {
    /// The application's context pointer, as a number: it is only compared and
    /// handed back.
    pub context: usize,
    /// Where the message goes.
    pub buf: B,
    /// The peer to receive from, or [`ANY_SOURCE`].
    pub src: u64,
    /// The tag to receive; 0 for plain messages.
    pub tag: u64,
    /// The bits of `tag` that do not count.
    pub ignore: u64,
    /// Operation flags, handed back at the match. `FI_MULTI_RECV` among them
    /// makes the buffer take many messages.
    pub flags: u64,
}

/// A receive that has got its message. It is off the queue, and the provider's
/// to complete.
#[derive(Clone, Debug)]
pub struct Matched<B> {
    /// See [`Receive::context`].
    pub context: usize,
    /// Where this message goes. If it is shorter than the message, the receive
    /// completes with `-FI_ETRUNC`. Of a multi-receive buffer, this is the part
    /// for this message.
    pub buf: B,
    /// See [`Receive::flags`].
    pub flags: u64,
    /// Set for a multi-receive buffer; to be handed to
    /// [`ReceiveQueue::finish_multi`] when the message has been received.
    pub multi: Option<MultiId>,
}

/// A message that no receive has taken yet.
#[derive(Clone, Debug)]
pub struct Message<U> {
    /// The sender, or [`ANY_SOURCE`] while the address vector does not know it.
    pub src: u64,
    /// The tag; 0 for plain messages.
    pub tag: u64,
    /// Bytes in the message.
    pub len: usize,
    /// Immediate data, for `FI_REMOTE_CQ_DATA`.
    pub data: u64,
    /// Completion flags that the message brings with it.
    pub flags: u64,
    /// What the provider needs to deliver it.
    pub payload: U,
}

/// Which messages a receive or a peek accepts.
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
    /// Any message at all.
    pub const ANY: Filter = Filter {
        src: ANY_SOURCE,
        tag: 0,
        ignore: u64::MAX,
    };
}

/// Names a multi-receive buffer until the last message in it has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MultiId(arena::Key);

/// Names a message kept in a queue until it is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(crate) arena::Key);

impl MessageId {
    /// The id as a number, for a place that takes nothing else.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The id of which `bits` is the number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        MessageId(arena::Key::from_bits(bits))
    }
}

/// The receive queues of one endpoint or shared receive context.
#[derive(Debug)]
pub struct ReceiveContext<B, U> {
    /// Plain messages (fi_msg(3)).
    pub msg: ReceiveQueue<B, U>,
    /// Tagged messages (fi_tagged(3)).
    pub tagged: ReceiveQueue<B, U>,
}

impl<B: ReceiveBuffer, U> ReceiveContext<B, U> {
    /// Empty queues; `min_multi_recv` as in [`ReceiveContext::set_min_multi_recv`].
    pub fn new(min_multi_recv: usize) -> Self {
        ReceiveContext {
            msg: ReceiveQueue::untagged(min_multi_recv),
            tagged: ReceiveQueue::tagged(min_multi_recv),
        }
    }

    /// Sets `FI_OPT_MIN_MULTI_RECV`, in bytes, for buffers posted from now on:
    /// a buffer with less room left takes no more messages.
    pub fn set_min_multi_recv(&mut self, bytes: usize) {
        self.msg.set_min_multi_recv(bytes);
        self.tagged.set_min_multi_recv(bytes);
    }

    /// Takes the oldest receive posted with `context` off its queue
    /// (`fi_cancel`), plain ones first. See [`ReceiveQueue::cancel`].
    pub fn cancel(&mut self, context: usize) -> Option<Cancelled<B>> {
        self.msg
            .cancel(context)
            .or_else(|| self.tagged.cancel(context))
    }

    /// Receives that wait in both queues.
    pub fn posted_len(&self) -> usize {
        self.msg.posted_len() + self.tagged.posted_len()
    }
}

#[inline]
fn tags_match(a: u64, b: u64, ignore: u64) -> bool {
    (a ^ b) & !ignore == 0
}
