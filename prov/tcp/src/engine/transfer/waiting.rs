//! Messages that were read, and wait: for the end of copies from the peer's memory, or until the
//! application has read completions, since an operation of the peer has to be reported, no receive has
//! reserved an entry for it, and the completion queue is full. Nothing behind them is read.

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::Fault;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::messages::Endpoints;
use crate::engine::link::ready::Why;
use crate::wire::header::{Header, Op};

impl Connection {
    /// Returns why a message has to wait.
    #[inline]
    pub(crate) fn waits_for(&self, header: &Header, endpoints: &Endpoints) -> Option<Detour> {
        if self.local.copies.must_wait(header) {
            return Some(Detour::BehindCopies);
        }
        let is_remote = matches!(header.op, Op::Write | Op::AtomicRequest | Op::Accessed);
        let is_reported = is_remote && header.immediate().is_some();
        let ep = endpoints.get(self.ep().filter(|_| is_reported)?)?;
        (!ep.reports.has_room_unasked()).then_some(Detour::Unreported)
    }
}

impl Core {
    /// Has a message wait.
    #[cold]
    pub(crate) fn begin_later(&mut self, key: ConnKey, header: Header, why: Detour) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.detours.set(why, true);
            conn.local.copies.waiting = Some(header);
            if why == Detour::Unreported {
                self.ready.add(key, &mut conn.due, Why::Unreported);
            }
        }
    }

    /// Begins the message that waits on a connection, unless it has to wait longer, and goes on with
    /// those behind it. Returns `false` if it waits until the application has read completions.
    pub(crate) fn begin_waiting(&mut self, key: ConnKey) -> Result<bool, Fault> {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let Some(header) = conn.local.copies.waiting.take() else {
            return Ok(true);
        };
        conn.detours.set(Detour::BehindCopies, false);
        conn.detours.set(Detour::Unreported, false);
        if let Some(why) = conn.waits_for(&header, &self.endpoints) {
            self.begin_later(key, header, why);
            return Ok(why != Detour::Unreported);
        }
        let backlog = std::mem::take(&mut conn.backlog);
        let mut bytes = &backlog[..];
        self.begin(key, &header, &mut bytes)?;
        self.take_in(key, bytes);
        self.read_later(key);
        Ok(true)
    }

    /// Resumes connections that wait until the application has read completions, while there is room: up
    /// to the first one for which there is none, so that the cost of a call does not grow with their
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
        self.begin_waiting(key).unwrap_or_else(|fault| {
            self.break_with(key, fault);
            true
        })
    }
}
