//! When each of the two processes of a connection may access registered memory by itself
//! ([`prov_local::onesided`]): the order with what it has posted.

use crate::engine::link::access::Position;
use crate::engine::link::connection::Connection;
use crate::engine::link::incoming::Incoming;
use crate::engine::link::messages::Then;

impl Connection {
    /// Notes that the message posted last requests an access from the peer.
    pub fn has_asked(&mut self) {
        self.local.onesided.has_asked = true;
    }

    fn posted(&self) -> Position {
        let shortcut = self.local.shortcut.as_ref();
        Position {
            slots: shortcut.map_or(0, |shortcut| shortcut.channel().filled()),
            queued: self.outbox.end_of_next(0),
        }
    }

    /// Whether only notifications of accesses were posted since the peer had acted upon everything.
    pub fn is_as_settled(&self) -> bool {
        let Some(settled) = self.local.onesided.settled else {
            return false;
        };
        let posted = self.posted();
        match self.outbox.is_idle() {
            true => posted.slots == settled.slots,
            // What is queued is sent in order, and nothing is sent before it.
            false => posted.queued == settled.queued,
        }
    }

    /// Whether an access by this process itself would be in order now: the peer has acted upon all
    /// access requests, and with `behind_messages` upon all messages.
    pub fn may_access(&mut self, behind_messages: bool) -> bool {
        if (behind_messages || self.local.onesided.has_asked) && !self.is_as_settled() {
            let shortcut = self.local.shortcut.as_ref();
            if !self.outbox.is_idle() || !shortcut.is_some_and(|shortcut| shortcut.is_settled()) {
                return false;
            }
            self.local.onesided.settled = Some(self.posted());
            self.local.onesided.has_asked = false;
        }
        !self.awaits_reads() && !self.is_cut_off()
    }

    /// Whether data of reads is still to arrive.
    fn awaits_reads(&self) -> bool {
        let is_read = match &self.incoming {
            Incoming::Place(placing) => matches!(placing.then, Then::Read(_)),
            _ => false,
        };
        is_read || !self.ops.reads.is_empty()
    }

    /// Notes that the messages posted since [`Connection::is_as_settled`] returned true are
    /// notifications of accesses, which accesses need not wait for.
    pub fn has_told(&mut self) {
        self.local.onesided.settled = Some(self.posted());
    }

    /// Reports to the peer that this process has acted upon everything it received, if that is so.
    pub fn settle(&self) {
        if let Some(shortcut) = &self.local.shortcut
            && shortcut.is_in()
            && !self.is_paused()
            && self.stream.is_between_messages()
            && self.backlog.is_empty()
            && self.local.copies.transfers.is_empty()
        {
            shortcut.channel().receiver.settle();
        }
    }
}
