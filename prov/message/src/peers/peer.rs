//! One peer: its link, what waits for that, and what is known of it.

use std::collections::VecDeque;
use std::time::Instant;

use prov_util::errno::Errno;

use super::UNKNOWN_SOURCE;
use super::attempt::{Attempt, Stage};

/// Another endpoint with which there is a link, or ought to be.
pub(super) struct Peer<L, A, W> {
    pub addr: A,
    /// Its place in the address vector, or [`UNKNOWN_SOURCE`].
    pub source: u64,
    pub link: Link<L>,
    /// What waits for the link, oldest first. Only while there is none, or
    /// while the provider is taking it out.
    pub waiting: VecDeque<W>,
    pub asked: Asked,
    pub standing: Standing,
    pub reach: Reach,
}

/// The link to a peer. At most one is made or open at a time.
pub(super) enum Link<L> {
    /// There is none, and nothing is done about it.
    None,
    /// It is being made.
    Attempted(Box<Attempt<L>>),
    Open(L),
}

/// Whether the application was told to come back with an operation that takes
/// a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    No,
    Yes,
    /// It was, and the link did not come about, at this time for this reason.
    Failed(Instant, Errno),
}

/// What has become of the links there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Nobody has asked for one, or it is open.
    Good,
    /// The last one has ended, or attempts to make one were given up, and the
    /// peer is not back.
    Lost,
    /// As before, and receives wait for this peer's messages only.
    Missed,
}

/// Who can make a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Either side.
    Both,
    /// The peer, which cannot be connected to.
    PeerOnly,
}

impl<L: Copy + Eq, A, W> Peer<L, A, W> {
    /// Without a link.
    pub fn new(addr: A, source: u64) -> Self {
        Peer {
            addr,
            source,
            link: Link::None,
            waiting: VecDeque::new(),
            asked: Asked::No,
            standing: Standing::Good,
            reach: Reach::Both,
        }
    }

    /// Whether there is something to make a link for.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.is_empty() || self.asked == Asked::Yes || self.standing == Standing::Missed
    }

    /// Whether nothing would be missed if this peer were forgotten.
    pub fn is_idle_stranger(&self) -> bool {
        self.source == UNKNOWN_SOURCE && matches!(self.link, Link::None) && self.waiting.is_empty()
    }

    pub fn is_lost(&self) -> bool {
        self.standing != Standing::Good
    }

    /// Its source, if completions can name it.
    pub fn known_source(&self) -> Option<u64> {
        (self.source != UNKNOWN_SOURCE).then_some(self.source)
    }
}

impl<L: Copy + Eq> Link<L> {
    /// The link's name, open or not yet.
    pub fn name(&self) -> Option<L> {
        match self {
            Link::None => None,
            Link::Open(link) => Some(*link),
            Link::Attempted(attempt) => match attempt.stage {
                Stage::UnderWay { link, .. } => link,
                Stage::Pausing(_) => None,
            },
        }
    }

    pub fn is_open(&self, link: L) -> bool {
        matches!(self, Link::Open(open) if *open == link)
    }
}
