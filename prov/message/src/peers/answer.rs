//! The answers of [`Peers`]: what the provider has to do.

use std::collections::VecDeque;
use std::time::Instant;

use prov_base::errno::Errno;

use super::PeerKey;
#[cfg(doc)]
use super::Peers;
use crate::receipt::Dependent;

/// The destination of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination<L> {
    /// It is sent on this link.
    Open(L),
    /// It has to wait for a link to this peer.
    Waits(PeerKey),
}

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum ConnectStep {
    /// Nothing: the link is being established, or will be.
    Wait,
    /// Begin an attempt to establish a link to this peer; it counts as under way.
    Start(PeerKey),
}

/// The target of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct ConnectTarget<A> {
    /// The peer's address.
    pub addr: A,
    /// The source of its messages.
    pub source: u64,
    /// The time at which all attempts are given up.
    pub deadline: Instant,
}

/// A request that cannot wait, with the reason.
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
    /// The peer's own request, which crossed ours and can be answered now.
    pub crossing: Option<L>,
    /// The link that this one replaces, and that is to be closed.
    pub displaced: Option<L>,
}

/// The consequence of the end of a link, or of an attempt to establish one.
#[derive(Debug)]
#[must_use]
pub enum Ended<A, W> {
    /// Nothing.
    Quietly,
    /// Another attempt: [`Peers::due`] is to be called at this time.
    Again(Instant),
    /// The end of everything that depended on an open link.
    Lost {
        /// Receives that only messages of this source can match end with the link's error
        /// (fi_getinfo(3), `FI_DIRECTED_RECV`).
        source: Option<u64>,
        /// Which of them.
        receives: Dependent,
        /// As in [`Ended::Again`]: requests wait for another link.
        again: Option<Instant>,
    },
    /// All attempts have ended.
    GivenUp(GivenUp<A, W>),
}

/// A peer that could not be reached.
#[derive(Debug)]
pub struct GivenUp<A, W> {
    /// The peer's address.
    pub addr: A,
    /// The error of the last attempt.
    pub error: Errno,
    /// The requests that have waited, in order; they fail with this error.
    pub failed: VecDeque<W>,
    /// Receives that only messages of this source can match end with the error, too.
    pub source: Option<u64>,
    /// Which of them.
    pub receives: Dependent,
}
