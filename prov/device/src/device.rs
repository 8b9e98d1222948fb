//! The device as a lane uses it: queue pairs, completion queues and shared receive queues.
//!
//! A provider's objects own those of the device, and may be used by several threads.

use std::ffi::CStr;
use std::fmt::Debug;
use std::os::fd::RawFd;

use prov_base::buffer::AppIov;
use prov_base::errno::Result;
use prov_base::logging::Targets;
use prov_util::desc::Descs;

use crate::failure::Failure;

/// A kind of device.
pub trait Device: Sized + 'static {
    /// An entry of its completion queues.
    type Completion: Completion;
    /// Its completion queues.
    type Queue: CompletionQueue<Self::Completion>;
    /// Its queue pairs.
    type Pair: QueuePair<Self>;
    /// Receive queues that several queue pairs share.
    type Shared: SharedQueue<Self>;
    /// The local memory of a request, with what the device knows it by.
    type Local: Local;
    /// The destination of a datagram; `()` for a device without datagrams.
    type Destination;

    /// Where the provider logs.
    const LOG: Targets;
    /// The failure of a request whose device is gone.
    const FLUSHED: Failure;

    /// Returns the text for a status (fi_cq_strerror(3)).
    fn error_text(status: i32) -> Option<&'static CStr>;
}

/// The completion of a work request.
pub trait Completion: Clone + Default + Debug + Send {
    /// The id of the request.
    fn id(&self) -> u64;

    /// The number of the queue pair.
    fn pair(&self) -> u32;

    /// Returns the failure of a send request; `None` if it succeeded.
    fn failure(&self) -> Option<Failure>;

    /// Returns the failure of a receive request; `None` if it succeeded.
    fn receive_failure(&self) -> Option<Failure>;

    /// The length in bytes of the message that a receive request has received.
    fn received(&self) -> usize;

    /// Whether the receive request was consumed by a write with immediate data.
    fn is_write(&self) -> bool;

    /// The immediate data of a message or write.
    fn immediate(&self) -> Option<u32>;
}

/// A completion queue, with a descriptor to wait for completions.
pub trait CompletionQueue<C>: Send + Sync + 'static {
    /// Removes completions from the queue, as many as there are and `into` has space for.
    fn poll<'a>(&self, into: &'a mut [C]) -> Result<&'a [C]>;

    /// Returns the number of completions that the queue can hold.
    fn size(&self) -> usize;

    /// Enlarges the queue to at least `size` completions.
    fn resize(&self, size: usize) -> Result;

    /// Makes the next completion signal [`CompletionQueue::descriptor`].
    fn arm(&self) -> Result;

    /// Ends the signals of earlier completions.
    fn silence(&self);

    /// Returns the descriptor that is readable if a completion was added since
    /// [`CompletionQueue::arm`], or if another descriptor that it watches is.
    fn descriptor(&self) -> RawFd;

    /// Whether the device is gone, so that the queue will not signal again.
    fn is_gone(&self) -> bool;

    /// Stops watching the descriptors of a device that is gone.
    fn part(&self);

    /// Whether this process created the queue. A forked child does not use it.
    fn is_own(&self) -> bool;
}

/// A queue pair.
pub trait QueuePair<D: Device>: Send + Sync + 'static {
    /// Posts to the send queue. `-FI_EAGAIN` if it is full. Requests complete in order, and the
    /// completion of one implies those of the earlier ones.
    fn post_send(&self, request: SendRequest<'_, D>) -> Result;

    /// Posts to the receive queue, likewise.
    fn post_receive(&self, request: ReceiveRequest<'_, D>) -> Result;

    /// Returns its number on the device.
    fn number(&self) -> u32;

    /// Notes that a request has failed, and the queue pair with it.
    fn note_failure(&self) {}
}

/// A receive queue that several queue pairs share.
pub trait SharedQueue<D: Device>: Send + Sync + 'static {
    /// Posts a request. `-FI_EAGAIN` if the queue is full.
    fn post(&self, request: ReceiveRequest<'_, D>) -> Result;

    /// Returns the number for peers, of 24 bits, if it has one: all its requests complete at one
    /// completion queue then, and not at those of the queue pairs.
    fn number(&self) -> Option<u32> {
        None
    }
}

/// The local memory of a request: application memory that lasts as long as the operation.
pub trait Local: Send + Sized + 'static {
    /// Returns no memory.
    fn empty() -> Self;

    /// Adds application memory, with the descriptors of its regions.
    ///
    /// # Errors
    /// `-FI_EMSGSIZE` for a segment that is too long for a request, `-FI_EINVAL` for too many.
    fn fill(&mut self, memory: &mut AppIov, descs: &Descs) -> Result<Keys>;

    /// Returns the memory of a request that is not posted, if [`Local::fill`] has taken it.
    fn give_back(&mut self, _memory: &mut AppIov) {}
}

/// The properties of local memory that follow from its keys.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Whether a request with this memory need not be inline: there is a key for each segment.
    pub are_complete: bool,
    /// Whether the processor may read the memory itself, to send it inline.
    pub is_readable: bool,
}

impl Keys {
    /// The properties of no memory.
    pub const NONE: Keys = Keys {
        are_complete: true,
        is_readable: true,
    };

    /// Combines the properties of two parts.
    #[inline(always)]
    pub fn and(self, other: Keys) -> Keys {
        Keys {
            are_complete: self.are_complete && other.are_complete,
            is_readable: self.is_readable && other.is_readable,
        }
    }
}

/// The operation of a request.
pub enum Verb<'a, D: Device> {
    /// A message to the connected peer.
    Send,
    /// A datagram.
    SendTo {
        /// The destination.
        handle: &'a D::Destination,
        /// The queue pair at the destination.
        pair: u32,
        /// The key with which the receiver must have been opened.
        key: u32,
    },
    /// A one-sided operation on the peer's memory.
    Remote(Remote),
}

/// A one-sided operation on memory of the connected peer.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// The address there.
    pub address: u64,
    /// The key of the region there.
    pub key: u32,
    /// The operation.
    pub kind: RemoteKind,
}

/// What a one-sided operation does with the peer's memory.
#[derive(Clone, Copy, Debug)]
pub enum RemoteKind {
    /// A write.
    Write,
    /// A read.
    Read,
    /// Adds to 8 bytes there; returns the old value.
    FetchAdd {
        /// The number to add.
        add: u64,
    },
    /// Replaces 8 bytes there if they have the expected value; returns the old value.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
}

impl RemoteKind {
    /// Whether the request has its operands, rather than memory of the application.
    #[inline(always)]
    pub fn is_atomic(self) -> bool {
        matches!(
            self,
            RemoteKind::FetchAdd { .. } | RemoteKind::CompareSwap { .. }
        )
    }
}

impl<D: Device> Clone for Verb<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for Verb<'_, D> {}

/// A request for the send queue.
pub struct SendRequest<'a, D: Device> {
    /// Returned with the completion.
    pub id: u64,
    /// The operation.
    pub verb: Verb<'a, D>,
    /// The local memory, which a device may take.
    pub local: &'a mut D::Local,
    /// Immediate data of a message or write.
    pub immediate: Option<u32>,
    /// Whether there is a completion in case of success.
    pub is_signalled: bool,
    /// Whether the memory is read while the request is posted.
    pub is_inline: bool,
}

/// A request for a receive queue.
pub struct ReceiveRequest<'a, D: Device> {
    /// Returned with the completion.
    pub id: u64,
    /// The local memory, which a device may take.
    pub local: &'a mut D::Local,
}
