//! What the protocol and the provider around it tell each other.

use std::fmt::Debug;

use prov_base::errno::Errno;
use prov_util::request::RemoteIov;

/// The form of an atomic operation.
pub use prov_base::atomic_ops::Form;

/// Nanoseconds of a monotonic clock since any moment.
pub type Time = u64;

/// Bytes of a [`Name`]; part of the wire format.
pub const NAME_LEN: usize = 64;

/// The address of a peer's datagram endpoint, as its own provider names it (`fi_getname`), with
/// zeros behind.
pub type Name = [u8; NAME_LEN];

/// A peer of an [`Endpoint`](super::Endpoint). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl PeerId {
    /// A small number that no other peer has at the same time, for tables of the host.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// An operation to submit. Lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// A message, for a receive.
    Message {
        /// The tag, of a tagged message.
        tag: Option<u64>,
        /// Immediate data.
        data: Option<u64>,
        /// Length of the payload.
        len: usize,
    },
    /// A write to memory of the peer. The total length of `remote` is that of the payload.
    Write {
        /// Immediate data.
        data: Option<u64>,
        /// Destination.
        remote: RemoteIov,
    },
    /// A read from memory of the peer. Its payload comes by [`Host::result`].
    Read {
        /// Source.
        remote: RemoteIov,
    },
    /// An atomic operation on memory of the peer. The payload are the operands, followed by the
    /// values to compare with. The old values come by [`Host::result`].
    Atomic {
        /// Whether it fetches or compares.
        form: Form,
        /// `enum fi_op`
        op: u32,
        /// `enum fi_datatype`
        datatype: u32,
        /// Immediate data.
        data: Option<u64>,
        /// Bytes of the operands and the values to compare with; 0 for `FI_ATOMIC_READ`.
        len: usize,
        /// Target; its total length is that of the result.
        remote: RemoteIov,
    },
}

/// What a datagram carries behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<O, R> {
    /// Nothing.
    None,
    /// Bytes of an operation of this side.
    Op {
        /// The operation, as it was submitted.
        op: O,
        /// The first byte within the operation's payload.
        offset: usize,
        /// Number of bytes; never 0.
        len: usize,
    },
    /// Bytes of the memory that a peer reads, or of the old values of its atomic operation.
    Response {
        /// What [`Host::read`] or [`Host::atomic`] returned.
        response: R,
        /// The first byte within the response.
        offset: usize,
        /// Number of bytes; never 0.
        len: usize,
    },
}

impl<O, R> Payload<O, R> {
    /// Number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match *self {
            Payload::None => 0,
            Payload::Op { len, .. } | Payload::Response { len, .. } => len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A datagram that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a, P, O, R> {
    /// The way to the receiver.
    pub path: P,
    /// Its first bytes.
    pub header: &'a [u8],
    /// What follows the header. Header and payload together have [`Config::mtu`](super::Config::mtu)
    /// bytes at most.
    pub payload: Payload<O, R>,
}

/// A message that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageArrival {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Immediate data.
    pub data: Option<u64>,
    /// Length of the whole message in bytes.
    pub len: usize,
}

/// A peer's write that begins.
#[derive(Clone, Copy, Debug)]
pub struct WriteArrival {
    /// The memory that it names; its total length is that of the payload.
    pub remote: RemoteIov,
    /// Immediate data.
    pub data: Option<u64>,
}

/// A peer's atomic operation, whole.
#[derive(Clone, Copy, Debug)]
pub struct AtomicArrival<'a> {
    /// Whether it fetches or compares.
    pub form: Form,
    /// `enum fi_op`, as the peer sent it: any number.
    pub op: u32,
    /// `enum fi_datatype`, as the peer sent it: any number.
    pub datatype: u32,
    /// Immediate data.
    pub data: Option<u64>,
    /// The memory that it names.
    pub remote: RemoteIov,
    /// The operands, followed by the values to compare with. Their length is not checked.
    pub operands: &'a [u8],
}

/// Whether the host has taken a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The message has a destination.
    Taken,
    /// There is no room for it: see [`Endpoint::resume`](super::Endpoint::resume).
    Held,
}

/// Why an operation has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer has been silent for [`Config::give_up`](super::Config::give_up).
    Silent,
    /// The peer has been closed or restarted since the operation was sent.
    Restarted,
    /// The peer refused it with this error: memory that may not be accessed so.
    Refused(Errno),
    /// [`Endpoint::abandon`](super::Endpoint::abandon) was called, or the connection was ended since the
    /// payload of another operation cannot be read.
    Abandoned,
    /// The host cannot read the payload ([`Obstacle::Unreadable`]).
    Unreadable,
}

/// Why [`Host::transmit`] has not taken a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no room for any.
    #[default]
    NoRoom,
    /// Its bytes are not there yet: others may be sent, and this one is offered again with the next
    /// [`Endpoint::transmit`](super::Endpoint::transmit).
    NotYet,
    /// Its bytes cannot be read. An operation of which nothing was sent fails; a peer's read is refused;
    /// otherwise the connection ends, since the peer has a part of a message that has no rest.
    Unreadable,
}

/// The provider around an [`Endpoint`](super::Endpoint); see the [module](super) for the order of
/// calls. No method may block.
pub trait Host {
    /// Handle of an operation of this side, unique among those that are not done.
    type Op: Copy + PartialEq + Debug;
    /// Handle of what a peer reads from this side.
    type Response: Copy + PartialEq + Debug;
    /// Handle of the address of a datagram endpoint. Two handles of one address are equal.
    type Path: Copy + PartialEq + Debug;

    /// Sends a datagram, or queues it below. Returns `false` if there is no room, without any effect;
    /// then no more are offered until the next [`Endpoint::transmit`](super::Endpoint::transmit).
    /// A datagram that cannot be sent for another reason is lost: `true`.
    fn transmit(&mut self, datagram: &Datagram<'_, Self::Path, Self::Op, Self::Response>) -> bool;

    /// Returns why [`Host::transmit`] has just returned `false`.
    #[cold]
    fn obstacle(&mut self) -> Obstacle {
        Obstacle::NoRoom
    }

    /// The one name of what a peer calls itself, if it could do so in several ways.
    fn canonical(&self, name: &Name) -> Name {
        *name
    }

    /// What this side calls itself towards the peer with this name, if it is not
    /// [`Config::name`](super::Config::name).
    fn own_name(&self, _peer: &Name) -> Option<Name> {
        None
    }

    /// A stranger wants to set up a connection: the path to this name, which nobody vouches for.
    /// `None` refuses it. The number of such peers is limited
    /// ([`Config::max_strangers`](super::Config::max_strangers)).
    fn resolve(&mut self, name: &Name) -> Option<Self::Path>;

    /// Whether the source of a datagram has no path yet: it is no peer's, unless a stranger's first
    /// request is what gives it one.
    fn is_unknown(_from: Self::Path) -> bool {
        false
    }

    /// A path that [`Host::resolve`] returned is not needed any longer: the stranger has not become a
    /// peer.
    fn released(&mut self, _path: Self::Path) {}

    /// Whether the host knows a peer that comes by itself, so that it counts neither towards
    /// [`Config::max_strangers`](super::Config::max_strangers) nor
    /// [`Config::max_guests`](super::Config::max_guests), and is not removed.
    fn is_expected(&mut self, _name: &Name) -> bool {
        false
    }

    /// What the names of all endpoints of one host, or of one network that belongs to somebody, have in
    /// common: each has a share of the places of strangers and guests.
    fn host_of(&self, name: &Name) -> Name {
        *name
    }

    /// Whether a peer of this library with this name, which had answered and has been silent for a second
    /// at least, is known to be gone. Called again and again while it is silent.
    fn is_gone(&mut self, _name: &Name) -> bool {
        false
    }

    /// A stranger has completed the set-up, and there is no room for it. [`Host::disappeared`] follows.
    fn refused(&mut self, _peer: PeerId) {}

    /// The stranger has become a peer.
    fn appeared(&mut self, peer: PeerId, name: &Name, path: Self::Path);

    /// A peer does not exist any longer, and nothing refers to it: one that had come by itself, and had to
    /// give way to another one.
    fn disappeared(&mut self, peer: PeerId, path: Self::Path);

    /// A message begins; `payload` is its first part, and all of it if it is as long as the message:
    /// then there is no [`Host::finished`] for it. After [`Admission::Held`] it is presented again,
    /// with the same arguments.
    fn message(&mut self, peer: PeerId, message: &MessageArrival, payload: &[u8]) -> Admission;

    /// A peer's write begins; as for a message, `payload` may be all of it. An error refuses it: the
    /// rest is not presented.
    ///
    /// # Errors
    /// Is reported to the initiator, where it is of this library. For one of the C library, the write
    /// is not acknowledged, and presented again.
    fn write(&mut self, peer: PeerId, write: &WriteArrival, payload: &[u8]) -> Result<(), Errno>;

    /// A part of the message or of the write that has begun. With `in_order`, all bytes before
    /// `offset` have been presented, and the host takes these. Otherwise earlier bytes are missing;
    /// the host may return `false`, and the bytes are presented again in order.
    fn segment(&mut self, peer: PeerId, offset: usize, bytes: &[u8], in_order: bool) -> bool;

    /// All parts of the message or the write have been presented.
    ///
    /// # Errors
    /// As for [`Host::write`], but that a peer of the C library presents the last part alone again. A
    /// message is not refused.
    fn finished(&mut self, peer: PeerId) -> Result<(), Errno>;

    /// The rest of the message or the write will not come, for this reason; or a message that was
    /// answered [`Admission::Held`] will not be presented again; or a peer that the host waits for
    /// ([`Endpoint::watch`](super::Endpoint::watch)) is given up.
    fn interrupted(&mut self, peer: PeerId, reason: Failure);

    /// A peer reads memory, whose total length is at most `isize::MAX`. The response is held until
    /// [`Host::responded`].
    ///
    /// # Errors
    /// As for [`Host::write`].
    fn read(&mut self, peer: PeerId, remote: &RemoteIov) -> Result<Self::Response, Errno>;

    /// A peer's atomic operation is performed, exactly once. With a form that fetches, the result is
    /// the response with the old values, whose length is the total of `remote`; otherwise the response
    /// is ignored.
    ///
    /// # Errors
    /// As for [`Host::write`]; then nothing was performed.
    fn atomic(
        &mut self,
        peer: PeerId,
        atomic: &AtomicArrival<'_>,
    ) -> Result<Option<Self::Response>, Errno>;

    /// A response is not needed any longer; `delivered` says whether the peer has all of it.
    fn responded(&mut self, peer: PeerId, response: Self::Response, delivered: bool);

    /// A part of the result of a read or an atomic operation. Parts come in any order.
    fn result(&mut self, op: Self::Op, offset: usize, bytes: &[u8]);

    /// An operation is complete: the peer has acknowledged it, or its result is here. Then the protocol
    /// does not refer to it any longer. Operations to one peer are done in the order in which they were
    /// submitted, apart from those with a result.
    fn done(&mut self, op: Self::Op, outcome: Result<(), Failure>);
}
