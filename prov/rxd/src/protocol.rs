//! The protocol of rxd as a state machine without I/O and without a clock: datagrams, operations
//! and the time go in, datagrams and events come out. docs/rxd-wire.md describes what is on the
//! wire, the algorithms and their constants.
//!
//! # How a provider drives it
//!
//! An [`Endpoint`] is what one RDM endpoint knows of all its peers. The provider around it, its
//! [`Host`], owns the datagram endpoint, the memory of the operations, the matching of messages with
//! receives, and the reports to the application. All calls for an endpoint are serialised by the
//! provider (its lane's lock), and [`Host`]'s methods are called from within calls of the endpoint
//! only, so they must not call the endpoint again: what they cause is done after the call returns.
//!
//! - *A peer* is known by the address that its datagram endpoint has (a [`Name`]: up to 64 bytes,
//!   padded with zeros, as `fi_getname` returns it), and is reached by the provider's handle for that
//!   address (a [`Host::Path`], such as the `fi_addr_t` of the address vector below).
//!   [`Endpoint::peer`] makes a peer of an address when there is the first operation for it. Peers
//!   that begin by themselves are announced by [`Host::resolve`] and [`Host::appeared`].
//! - *An operation* is posted with [`Endpoint::submit`], which only queues it, and followed by
//!   [`Endpoint::transmit`] (at once, or after several), which sends what may be sent. Payload is
//!   never copied into the protocol: a datagram that leaves names the bytes of the operation that it
//!   carries ([`Payload`]), also when it is repeated. So the memory has to stay as it is until
//!   [`Host::done`]; an injected message is therefore copied by the provider.
//! - *Progress* is: [`Endpoint::receive`] for each datagram that has arrived, then
//!   [`Endpoint::transmit`], which also does what is due by the time (acknowledgements,
//!   retransmissions), then sleeping until [`Endpoint::next_timeout`] at the latest. `transmit` is
//!   called in every turn of the progress engine, also when nothing has arrived. If it is called late
//!   nothing breaks, but peers wait.
//! - *Arriving messages and remote accesses* come to the host in the order in which the peer sent
//!   them, with the payload of their first datagram. The rest comes by [`Host::segment`], with the
//!   offset in the message, and [`Host::finished`] is the end. There is at most one such transfer of a
//!   peer at a time, so the host keeps its destination by the peer.
//! - *Flow control*: a message for which there is no room is answered [`Admission::Held`]. Nothing
//!   of that peer is handled until [`Endpoint::resume`], which presents the same message again.
//!
//! - *While the application makes no calls*, the host may call [`Endpoint::acknowledge_all`] and
//!   [`Endpoint::show_life`] from time to time, and [`Endpoint::receive_meanwhile`] for what arrives:
//!   a peer is answered whose acknowledgement was lost, and the application notices nothing of it.
//!
//! A host that is dropped or closed calls [`Endpoint::transmit`] until [`Endpoint::unfinished`] is 0,
//! or as long as it is willing to wait for peers, then [`Endpoint::acknowledge_last`].

mod acknowledging;
#[cfg(debug_assertions)]
mod bounds;
mod congestion;
mod endpoint;
mod handling;
mod host;
mod jobs;
mod peer;
mod receiving;
mod recovery;
mod secret;
mod sending;
mod setup;
mod strangers;
mod twins;
mod watching;
mod wire;

/// Bytes of the longest datagram that the protocol uses, whatever the provider below can send.
pub const MAX_MTU: usize = 4096;

/// Bytes of the shortest longest datagram with which the protocol works: all headers, and some
/// payload.
pub const MIN_MTU: usize = 256;

pub use endpoint::{Config, Endpoint, GIVE_UP, Rejected};
pub use host::{
    Admission, AtomicArrival, Datagram, Failure, Form, Host, MessageArrival, NAME_LEN, Name,
    Obstacle, Payload, PeerId, Request, Time, WriteArrival,
};
pub use jobs::{MAX_FOREIGN, MAX_OPERATIONS};
pub use watching::watch_every;
#[doc(hidden)]
pub use wire::seal;
