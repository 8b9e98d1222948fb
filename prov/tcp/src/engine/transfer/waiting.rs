//! Messages that were read, and wait until the application has read completions, since an operation of the
//! peer has to be reported, no receive has reserved an entry for it, and the completion queue is full.
//! Nothing behind them is read.

use crate::engine::Core;
use crate::engine::link::connection::Connection;
use crate::engine::link::detours::Detour;
use crate::engine::link::fault::Fault;
use crate::engine::link::keys::ConnKey;
use crate::engine::link::ready::Why;
use crate::wire::header::{Header, Op};

impl Core {
    /// Whether a message has to wait.
    #[inline]
    pub(crate) fn must_wait(&mut self, key: ConnKey, header: &Header) -> bool {
        let is_remote = matches!(header.op, Op::Write | Op::AtomicRequest);
        is_remote && header.immediate().is_some() && !self.may_report(key)
    }

    #[cold]
    fn may_report(&mut self, key: ConnKey) -> bool {
        let ep = self.conns.get(key).and_then(Connection::ep);
        ep.is_none_or(|ep| self.lists.may_report(key, ep, &self.endpoints))
    }

    /// Has a message wait.
    #[cold]
    pub(crate) fn begin_later(&mut self, key: ConnKey, header: Header) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.detours.set(Detour::Unreported, true);
            conn.waiting = Some(Box::new(header));
            self.ready.add(key, &mut conn.due, Why::Unreported);
        }
    }

    /// Begins the message that waits on a connection, unless it has to wait longer, and goes on with
    /// those behind it. Returns `false` if it waits until the application has read completions.
    fn begin_waiting(&mut self, key: ConnKey) -> Result<bool, Fault> {
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
        let Some(header) = conn.waiting.take() else {
            return Ok(true);
        };
        conn.detours.set(Detour::Unreported, false);
        if self.must_wait(key, &header) {
            self.begin_later(key, *header);
            return Ok(false);
        }
        let conn = self.conns.get_mut(key).ok_or(Fault::Gone)?;
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

    /// Resumes the next one; returns `false` if there is no room, or it is another link's turn.
    fn resume_next_unreported(&mut self) -> bool {
        let Some(key) = self.lists.first_unreported() else {
            return false;
        };
        let Some(conn) = self
            .conns
            .get_mut(key)
            .filter(|conn| conn.waiting.is_some())
        else {
            return false;
        };
        self.ready.remove(key, &mut conn.due, Why::Unreported);
        let has_begun = self.begin_waiting(key).unwrap_or_else(|fault| {
            self.break_with(key, fault);
            true
        });
        let waits = self
            .conns
            .get(key)
            .is_some_and(|conn| conn.waiting.is_some());
        self.lists.has_had_turn(key, has_begun, waits);
        has_begun
    }
}
