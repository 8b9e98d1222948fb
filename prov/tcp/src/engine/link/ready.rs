//! The ready queue of a lane: the connections for which there is something to do, each with the reasons.

use std::collections::VecDeque;

use prov_base::bounded;
use prov_base::bounds::PEERS;

use crate::engine::link::keys::ConnKey;

/// Why a connection is in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Why {
    /// There may be more to read than its turn allowed.
    Read,
    /// Its outbox waits for the end of a burst.
    Held,
    /// The progress thread has sent of its outbox, instead of the application, which has to be told.
    Sent,
    /// It is a connected endpoint's, and its stream has ended: it ends when the messages that other
    /// endpoints have received are handled.
    Ended,
    /// A copy has ended while the owner of the receives did not drive the lane.
    Copied,
    /// An operation of its peer waits until the application has read completions. The connection that
    /// was resumed last is the last one.
    Unreported,
    /// It waits for space in shared memory.
    Starved,
    /// Bytes of its outbox were set aside: they have to leave even if the application makes no more
    /// calls.
    Aside,
    /// Messages are complete for the application, and leave when the peer requests or fetches them.
    OnRequest,
    /// A device reads the next bytes of its outbox.
    Device,
}

/// Number of reasons.
const WHYS: usize = Why::Device as usize + 1;

/// A set of reasons.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Reasons(u16);

impl Reasons {
    const fn of(why: Why) -> Reasons {
        Reasons(1 << why as u16)
    }

    const fn or(self, why: Why) -> Reasons {
        Reasons(self.0 | Reasons::of(why).0)
    }

    #[inline(always)]
    pub fn has(self, why: Why) -> bool {
        self.has_any(Reasons::of(why))
    }

    #[inline(always)]
    pub fn has_any(self, others: Reasons) -> bool {
        self.0 & others.0 != 0
    }

    #[inline(always)]
    fn set(&mut self, why: Why, is_there: bool) {
        let Reasons(bit) = Reasons::of(why);
        self.0 = self.0 & !bit | if is_there { bit } else { 0 };
    }
}

/// Messages of peers wait that may be in an address vector by now.
const STRANGERS: Reasons = Reasons(1 << WHYS);

/// The reasons for which the next progress call has something to do.
const CHORES: Reasons = STRANGERS
    .or(Why::Read)
    .or(Why::Held)
    .or(Why::Sent)
    .or(Why::Ended)
    .or(Why::Copied)
    .or(Why::Unreported)
    .or(Why::Device);

/// The reasons that wait for a peer: nothing tells when it has moved, so that the progress thread looks
/// where the application makes no calls.
pub const STALLS: Reasons = Reasons::of(Why::Starved).or(Why::Aside).or(Why::OnRequest);

/// The ready queue. A connection is in it at most once for each reason, and has its reasons in
/// [`Connection::due`](super::connection::Connection::due).
#[derive(Default)]
pub struct Ready {
    turns: [VecDeque<ConnKey>; WHYS],
    /// The reasons for which there are connections, and [`STRANGERS`].
    any: Reasons,
}

#[allow(clippy::indexing_slicing, reason = "there is a list for each reason")]
impl Ready {
    /// Whether the next progress call has something to do.
    #[inline(always)]
    pub fn has_chores(&self) -> bool {
        self.any.has_any(CHORES)
    }

    /// Whether a connection waits for its peer.
    pub fn has_stalls(&self) -> bool {
        self.any.has_any(STALLS)
    }

    /// Notes whether messages of peers wait that may be in an address vector by now.
    pub fn has_strangers(&mut self, waits: bool) {
        self.any.0 = self.any.0 & !STRANGERS.0 | if waits { STRANGERS.0 } else { 0 };
    }

    /// Whether a connection is there for this reason.
    #[inline(always)]
    pub fn has(&self, why: Why) -> bool {
        self.any.has(why)
    }

    /// Returns the connections that are there for this reason, the next one first.
    pub fn of(&self, why: Why) -> &VecDeque<ConnKey> {
        &self.turns[why as usize]
    }

    /// Adds a connection at the end, unless it is there for this reason.
    #[inline]
    pub fn add(&mut self, key: ConnKey, due: &mut Reasons, why: Why) {
        if !due.has(why) {
            due.set(why, true);
            self.any.set(why, true);
            let turns = &mut self.turns[why as usize];
            turns.push_back(key);
            bounded!(turns, PEERS);
        }
    }

    /// Removes and returns the next connection for this reason, whose reasons `due_of` returns.
    #[inline]
    pub fn next<'a>(
        &mut self,
        why: Why,
        due_of: impl FnOnce(ConnKey) -> Option<&'a mut Reasons>,
    ) -> Option<ConnKey> {
        let turns = &mut self.turns[why as usize];
        let key = turns.pop_front()?;
        self.any.set(why, !turns.is_empty());
        if let Some(due) = due_of(key) {
            due.set(why, false);
        }
        Some(key)
    }

    /// Removes a connection, if it is there for this reason.
    pub fn remove(&mut self, key: ConnKey, due: &mut Reasons, why: Why) {
        if due.has(why) {
            due.set(why, false);
            let turns = &mut self.turns[why as usize];
            turns.retain(|other| *other != key);
            self.any.set(why, !turns.is_empty());
        }
    }

    /// Removes a connection that was there for these reasons.
    pub fn forget(&mut self, key: ConnKey, due: Reasons) {
        for (number, turns) in self.turns.iter_mut().enumerate() {
            let reason = Reasons(1 << number);
            if due.has_any(reason) {
                turns.retain(|other| *other != key);
                if turns.is_empty() {
                    self.any.0 &= !reason.0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn a_connection_is_there_once_for_each_reason() {
        let mut conns: SlotMap<ConnKey, Reasons> = SlotMap::with_key();
        let (one, other) = (
            conns.insert(Reasons::default()),
            conns.insert(Reasons::default()),
        );
        let mut ready = Ready::default();
        for key in [one, other, one] {
            ready.add(key, &mut conns[key], Why::Read);
            ready.add(key, &mut conns[key], Why::Aside);
        }
        assert!(ready.has_chores() && ready.has_stalls() && !ready.has(Why::Held));
        assert_eq!(ready.next(Why::Read, |key| conns.get_mut(key)), Some(one));
        assert!(!conns[one].has(Why::Read) && conns[one].has(Why::Aside));
        ready.add(one, &mut conns[one], Why::Read);
        assert_eq!(ready.of(Why::Read), &[other, one]);
        ready.forget(other, conns[other]);
        ready.remove(one, &mut conns[one], Why::Aside);
        assert!(ready.has_chores() && !ready.has_stalls());
        assert_eq!(ready.next(Why::Read, |key| conns.get_mut(key)), Some(one));
        assert_eq!(ready.next(Why::Read, |key| conns.get_mut(key)), None);
        assert!(!ready.has_chores());
        assert_eq!(conns[one], Reasons::default());
    }
}
