//! Connections that wait until the application has read completions: an operation of the peer has
//! to be reported, no receive has reserved an entry for it, and the completion queue is full.

use crate::engine::Core;
use crate::engine::link::detours::Detour;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::ready::Why;
use crate::wire::header::{Header, Op};

impl Core {
    /// Whether an operation has to be reported without a receive for it, and the application has to
    /// read completions first.
    #[inline]
    pub(crate) fn lacks_room(&self, key: ConnKey, header: &Header) -> bool {
        let is_remote = matches!(header.op, Op::Write | Op::AtomicRequest | Op::Accessed);
        if !is_remote || header.immediate().is_none() {
            return false;
        }
        let ep = self.owner_of(key).and_then(|ep| self.endpoints.get(ep));
        ep.is_some_and(|ep| !ep.reports.has_room_unasked())
    }

    /// Holds a connection back until the application has read completions.
    #[cold]
    pub(crate) fn report_later(&mut self, key: ConnKey, header: Header) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.detours.set(Detour::Unreported, true);
            conn.local.copies.waiting = Some(header);
            self.is_due(key, Why::Unreported);
        }
    }

    /// Resumes connections that were held back for that reason, while there is room: up to the
    /// first one for which there is none, so that the cost of a call does not grow with their
    /// number. Those after it, which may have other queues, get their turns in later calls.
    #[cold]
    pub(crate) fn resume_unreported(&mut self) {
        for _ in 0..self.ready.of(Why::Unreported).len() {
            if !self.resume_next_unreported() {
                break;
            }
        }
    }

    /// [`Core::resume_unreported`] with each of them, before a thread sleeps.
    #[cold]
    pub(crate) fn resume_all_unreported(&mut self) {
        for _ in 0..self.ready.of(Why::Unreported).len() {
            self.resume_next_unreported();
        }
    }

    /// Resumes the next one; returns `false` if there is no room.
    fn resume_next_unreported(&mut self) -> bool {
        let Some(key) = self.next_due(Why::Unreported) else {
            return true;
        };
        // It may have ended in the meantime.
        let conn = self.conns.get(key);
        let Some(header) = conn.and_then(|conn| conn.local.copies.waiting) else {
            return true;
        };
        if self.lacks_room(key, &header) {
            self.is_due(key, Why::Unreported);
            return false;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return true;
        };
        conn.detours.set(Detour::Unreported, false);
        if conn.local.copies.must_wait(&header) {
            conn.detours.set(Detour::BehindCopies, true);
            // The end of the copies resumes the connection.
            return true;
        }
        conn.local.copies.waiting = None;
        let backlog = std::mem::take(&mut conn.backlog);
        let mut bytes = &backlog[..];
        match self.begin(key, &header, &mut bytes) {
            Ok(()) => {
                self.take_in(key, bytes);
                self.read_later(key);
            }
            Err(fault) => self.break_with(key, fault),
        }
        true
    }
}
