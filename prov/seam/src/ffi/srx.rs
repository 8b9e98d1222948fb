//! Receive queues that providers share (fi_peer(3)): one provider owns the posted receives and the
//! order of messages; others match and queue their messages with it.
//!
//! - *Importer*: [`ImportedSrx`] is the owner's `fid_peer_srx` from the context of
//!   fi_srx_context(3) with `FI_PEER`. A provider puts a [`ForeignQueue`] over it and implements
//!   [`StartReceives`].
//! - *Owner*: an [`OwnedQueue`] has the receives, and a [`SharedQueue`] for each peer.
//! - If both are of this library, a message that arrives whole takes a short way, on which the owner
//!   matches it, has it copied and reports it in one call ([`ForeignQueue::take_whole`]). The importer
//!   knows such an owner by its table of functions.
//!
//! # Locks
//!
//! The lock order is: the owner's lock, the importer's, the queues that are written (CQ, counter).
//! fi_peer(3) requires the owner to lock before it calls anything that may lead to a callback. It
//! follows:
//!
//! - The owner holds its lock ([`OwnedQueue::enter`]) while it drives a peer (`fi_cq_read` with a
//!   count of 0, `fi_cntr_read`), posts, peeks and cancels. It does not hold it while it sends
//!   through a peer or inserts addresses with one.
//! - The importer may hold its lock when it matches, queues and frees entries and writes
//!   completions of receives. It does so only while it is driven or started: not from its own
//!   thread, and not when it is called to send.
//! - [`StartReceives`] is called while no lock of the importer is held, and takes it. It is never
//!   called during a match.
//! - An importer reports new sources ([`NewSources::tell`]) without its lock, when addresses are
//!   inserted; the owner then takes its own.
//! - A queue calls neither peers nor the provider that owns it while it holds the lock of its
//!   state.

mod entry;
mod foreign;
mod imported;
mod owned;
#[cfg(test)]
mod tests;

pub use foreign::ForeignQueue;
pub use imported::{
    Arrival, Discarded, ImportedSrx, NewSources, Received, StartReceives, Started, Unexpected,
};
pub(crate) use imported::{Queued, Ticket};
pub use owned::{
    ARRIVED, OwnedQueue, QueueOwner, Section, Seen, SharedQueue, WholeMessage, WholeReceive,
};
