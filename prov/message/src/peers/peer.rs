//! One peer: its link, the requests that wait for it, and its state.

use std::collections::VecDeque;
use std::time::Instant;

use prov_base::errno::Errno;

use super::UNKNOWN_SOURCE;
use super::attempt::{Attempt, Stage};

/// Another endpoint with which there is, or should be, a link.
pub(super) struct Peer<L, A, W> {
    pub addr: A,
    /// Its number in the address vector, or [`UNKNOWN_SOURCE`].
    pub source: u64,
    pub link: LinkState<L>,
    /// The requests that wait for the link, oldest first. Nonempty only while there is no open
    /// link, or while the provider takes them out.
    pub waiting: VecDeque<W>,
    pub asked: Asked,
    pub standing: Standing,
    pub reach: Reach,
}

/// The link to a peer. At most one is established or open at a time.
pub(super) enum LinkState<L> {
    /// There is none, and none is being established.
    None,
    /// It is being established.
    Attempted(Box<Attempt<L>>),
    Open(L),
}

/// Whether the application was told to post again an operation that needs a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    No,
    Yes,
    /// It was, and the link could not be established: when, and why.
    Failed(Instant, Errno),
}

/// What has become of earlier links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// None was requested, or the link is open.
    Good,
    /// There is no open link yet, and receives are posted that only this peer's messages can match:
    /// its end has to be noticed.
    Expected,
    /// The last one has ended, or the attempts to establish one were given up, and the peer is not
    /// reachable again.
    Lost,
    /// Like `Lost`, and receives are posted that only this peer's messages can match.
    Missed,
}

/// Which side can establish a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Either side.
    Both,
    /// Only the peer, which cannot be connected to.
    PeerOnly,
}

impl<L: Copy + Eq, A, W> Peer<L, A, W> {
    /// Creates a peer without a link.
    pub fn new(addr: A, source: u64) -> Self {
        Peer {
            addr,
            source,
            link: LinkState::None,
            waiting: VecDeque::new(),
            asked: Asked::No,
            standing: Standing::Good,
            reach: Reach::Both,
        }
    }

    /// Returns whether there is a reason to establish a link.
    pub fn is_wanted(&self) -> bool {
        self.is_needed() || matches!(self.standing, Standing::Missed | Standing::Expected)
    }

    /// Returns whether an operation needs the link.
    pub fn is_needed(&self) -> bool {
        !self.waiting.is_empty() || self.asked == Asked::Yes
    }

    /// Returns whether the peer can be forgotten without any loss.
    pub fn is_idle_stranger(&self) -> bool {
        self.source == UNKNOWN_SOURCE
            && matches!(self.link, LinkState::None)
            && self.waiting.is_empty()
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost | Standing::Missed)
    }

    /// Returns its source, if it has one.
    pub fn known_source(&self) -> Option<u64> {
        (self.source != UNKNOWN_SOURCE).then_some(self.source)
    }
}

impl<L: Copy + Eq> LinkState<L> {
    /// Returns the link's key, open or not.
    pub fn name(&self) -> Option<L> {
        match self {
            LinkState::None => None,
            LinkState::Open(link) => Some(*link),
            LinkState::Attempted(attempt) => match attempt.stage {
                Stage::UnderWay { link, .. } => link,
                Stage::Pausing(_) => None,
            },
        }
    }

    pub fn is_open(&self, link: L) -> bool {
        matches!(self, LinkState::Open(open) if *open == link)
    }
}
