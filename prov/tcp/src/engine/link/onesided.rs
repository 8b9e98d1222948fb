//! What the processes at the two ends of a connection access of one another's registered
//! memory by themselves ([`prov_local::onesided`]).

use prov_local::onesided::table::Watching;
use prov_local::onesided::window::Window;

use crate::engine::link::connection::Connection;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::messages::Then;

/// See the [module](self) description.
#[derive(Default)]
pub struct OneSided {
    /// What of the peer's memory this process may access.
    pub regions: Regions,
    /// The peer may access this process's memory.
    pub watching: Option<Watching>,
    /// Whether the peer may have yet to act upon an access that it was asked for.
    has_asked: bool,
    /// Up to where the peer has acted upon all messages, or has those left that tell it of
    /// accesses; `None` until it is known to have acted upon all.
    settled: Option<Position>,
}

/// How far messages have been posted.
#[derive(Clone, Copy)]
struct Position {
    /// Slots of the memory that is shared; known while nothing is queued.
    slots: u64,
    /// Bytes that were queued, of all times.
    queued: u64,
}

/// The regions of the peer.
#[derive(Default)]
pub enum Regions {
    /// The peer has not said where they stand.
    #[default]
    Unknown,
    /// In the peer's file of this number.
    Offered(u64),
    /// They can be looked at.
    Open(Box<Window>),
    /// They cannot.
    Closed,
}

impl Connection {
    /// The message posted last asks the peer for an access.
    pub fn has_asked(&mut self) {
        self.onesided.has_asked = true;
    }

    fn posted(&self) -> Position {
        let shortcut = self.shortcut.as_ref();
        Position {
            slots: shortcut.map_or(0, |shortcut| shortcut.filled()),
            queued: self.outbox.end_of_next(0),
        }
    }

    /// Whether nothing was posted since the peer had acted upon everything but what tells it
    /// of accesses.
    pub fn is_as_settled(&self) -> bool {
        let Some(settled) = self.onesided.settled else {
            return false;
        };
        let posted = self.posted();
        match self.outbox.is_idle() {
            true => posted.slots == settled.slots,
            // What is queued leaves in order, and nothing leaves before it.
            false => posted.queued == settled.queued,
        }
    }

    /// Whether this process's own access would be in order now: the peer has acted upon all
    /// accesses that it was asked for, and with `behind_messages` upon all messages.
    pub fn may_access(&mut self, behind_messages: bool) -> bool {
        if (behind_messages || self.onesided.has_asked) && !self.is_as_settled() {
            let shortcut = self.shortcut.as_ref();
            if !self.outbox.is_idle() || !shortcut.is_some_and(|shortcut| shortcut.is_settled()) {
                return false;
            }
            self.onesided.settled = Some(self.posted());
            self.onesided.has_asked = false;
        }
        !self.awaits_reads() && !self.is_cut_off
    }

    /// Whether bytes of reads are still to come to their places.
    fn awaits_reads(&self) -> bool {
        let is_read = match &self.incoming {
            Incoming::Place(placing) => matches!(placing.then, Then::Read(_)),
            _ => false,
        };
        is_read || !self.reads.is_empty() || !self.copies.transfers.is_empty()
    }

    /// What was posted since [`Connection::is_as_settled`] said yes tells the peer of an
    /// access, for which no access waits.
    pub fn has_told(&mut self) {
        self.onesided.settled = Some(self.posted());
    }

    /// Says to the peer that this process has acted upon all that has come, if that is so.
    pub fn settle(&self) {
        if let Some(shortcut) = &self.shortcut
            && shortcut.is_in()
            && !self.is_paused()
            && self.stream.is_between_messages()
            && self.backlog.is_empty()
            && self.copies.transfers.is_empty()
        {
            shortcut.settle();
        }
    }
}
