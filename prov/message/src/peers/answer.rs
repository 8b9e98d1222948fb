//! What the peers answer: what the provider is to do.

use std::collections::VecDeque;
use std::time::Instant;

use prov_util::errno::Errno;

use super::PeerKey;
#[cfg(doc)]
use super::Peers;

/// Where an operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination<L> {
    /// Out, on this link.
    Open(L),
    /// Nowhere yet: it has to wait for a link to this peer.
    Waits(PeerKey),
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// Nothing: the link is being made, or will be.
    Wait,
    /// An attempt to make a link to this peer, which counts as under way.
    Start(PeerKey),
}

/// Where an attempt goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<A> {
    /// The peer's address.
    pub addr: A,
    /// The source of its messages.
    pub source: u64,
    /// When it is too late.
    pub deadline: Instant,
}

/// A request that cannot wait, and why.
#[derive(Debug)]
pub struct Declined<W> {
    /// The reason.
    pub error: Errno,
    /// The request.
    pub request: W,
}

/// What an open link brings with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened<L> {
    /// The source of the peer's messages.
    pub source: u64,
    /// The peer's own request, which met ours and can be answered now.
    pub crossing: Option<L>,
    /// The link that this one takes the place of, and that is to be closed.
    pub displaced: Option<L>,
}

/// What the end of a link, or of an attempt to make one, leads to.
#[derive(Debug)]
#[must_use]
pub enum Ended<A, W> {
    /// Nothing.
    Quietly,
    /// Another attempt: [`Peers::due`] wants to be called at this time.
    Again(Instant),
    /// The end of what depended on an open link.
    Lost {
        /// Receives that only messages of this source could fill end for the
        /// link's error (fi_getinfo(3), `FI_DIRECTED_RECV`).
        source: Option<u64>,
        /// As in [`Ended::Again`]: something waits for another link.
        again: Option<Instant>,
    },
    /// The end of all attempts.
    GivenUp(GivenUp<A, W>),
}

/// A peer that could not be reached.
#[derive(Debug)]
pub struct GivenUp<A, W> {
    /// Its address.
    pub addr: A,
    /// Why the last attempt failed.
    pub error: Errno,
    /// What has waited, in order, and fails with this error.
    pub failed: VecDeque<W>,
    /// Receives that only messages of this source could fill end for it, too.
    pub source: Option<u64>,
}
