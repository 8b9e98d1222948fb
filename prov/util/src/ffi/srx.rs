//! Receive queues that providers share (fi_peer(3)): one provider owns the
//! posted receives and the order of messages, others look up and queue theirs
//! with it.
//!
//! - *Importer*: [`ImportedSrx`] is the owner's `fid_peer_srx` as the context of
//!   `fi_srx_context` under `FI_PEER` names it. A provider puts a
//!   [`ForeignQueue`] over it and implements
//!   [`StartReceives`].
//! - *Owner*: an [`OwnedQueue`] has the receives, and a [`SharedQueue`] for each
//!   peer.
//!
//! # Locks
//!
//! The order is: the owner's lock, the importer's, the queues that are written
//! to (CQ, counter). fi_peer(3) has the owner lock before it calls anything
//! that may lead to a call back, and this is what follows from it:
//!
//! - The owner holds its lock ([`OwnedQueue::enter`]) while it drives a peer
//!   (`fi_cq_read` with a count of 0, `fi_cntr_read`), posts, peeks and cancels.
//!   It does not while it sends through a peer or inserts addresses with one.
//! - The importer may hold its lock when it looks up, queues and frees entries
//!   and writes completions of receives, and does these things only while it is
//!   driven or started: not from a thread of its own, not when it is called to
//!   send.
//! - [`StartReceives`] is called with no lock of the importer held, and takes
//!   it. It is never called from within a look-up.
//! - An importer tells new sources ([`NewSources::tell`]) without its lock, when
//!   addresses are inserted; the owner then takes its own.
//! - A queue calls neither peers nor the provider that owns it while it holds
//!   the lock of its state.

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
pub use owned::{OwnedQueue, QueueOwner, Section, Seen, SharedQueue};
