//! Writes of peers with immediate data that are reported later: the application's completion queue is
//! full, and no receive has reserved an entry for them.
//!
//! For providers over another one, which has carried out the write by the time that this side hears of
//! it. They read nothing more from below once as many writes wait here as the queue has entries
//! ([`Unreported::is_full`]), so that what is below holds peers back.

use std::collections::VecDeque;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;

use crate::reports::Reports;

/// A peer's write with immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteData {
    /// Length in bytes.
    pub len: usize,
    pub data: u64,
    /// The peer's number, or [`ANY_SOURCE`](prov_util::matching::ANY_SOURCE).
    pub src: u64,
}

/// See the [module](self) description. The endpoint's reports are `None` once it is closed: nothing
/// waits for it.
#[derive(Default)]
pub struct Unreported {
    waiting: VecDeque<RemoteData>,
}

impl Unreported {
    /// Returns whether no write waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of writes that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether a write has to wait, behind others or for room, and has it wait then.
    pub fn has_to_wait(&mut self, reports: Option<&Reports>, write: RemoteData) -> bool {
        let has_room = reports.is_none_or(Reports::has_room_unasked);
        if has_room && self.waiting.is_empty() {
            return false;
        }
        self.waiting.push_back(write);
        bounded!(self.waiting, OPERATIONS);
        true
    }

    /// Removes and returns the next write, if it can be reported.
    pub fn next(&mut self, reports: Option<&Reports>) -> Option<RemoteData> {
        match reports.is_none_or(Reports::has_room_unasked) {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// Returns whether nothing more may be read from below until the application has read completions.
    pub fn is_full(&self, reports: Option<&Reports>) -> bool {
        !self.waiting.is_empty()
            && reports.is_some_and(|reports| self.waiting.len() >= reports.room_unasked())
    }

    /// Forgets all writes.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}
