//! Short writes in the ring of a channel: the initiator's copies of those that the owner may not have
//! applied yet.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use prov_base::bounded;
use prov_base::errno::{Errno, Result};
use prov_util::request::RemotePiece;

use super::turns::{Giving, Invalid, MOST};
use super::window::Window;
use crate::channel::{FlightWords, INLINE};
use crate::ring::Broken;

/// Length in bytes of the longest such write: its record, with the description of one piece of remote
/// memory (24 bytes), fits into a slot.
pub const MOST_BYTES: usize = INLINE - 24;
/// Time after which the initiator applies them, if the owner has applied none meanwhile: an owner that polls
/// takes half a microsecond, one that also yields its processor, or polls from an MPI library's loop, some
/// microseconds, and a copy takes one.
const PATIENCE: Duration = Duration::from_micros(20);
/// Number of writes that the initiator copies after that before it puts one into the ring again: the
/// [`PATIENCE`] that each such try may cost is little beside so many copies.
const COPIES: u32 = 64;

/// A write in the ring, and what waits until it is applied.
struct Write<T> {
    to: RemotePiece,
    bytes: [u8; MOST_BYTES],
    waits: Option<T>,
}

/// The writes of one link. See the [module](super::turns) that decides who applies them.
pub struct RingWrites<T> {
    words: FlightWords,
    turns: Giving,
    writes: VecDeque<Write<T>>,
    /// What has waited for writes that are applied, with their outcomes, to be taken.
    pub ended: Vec<(T, Result)>,
    /// When the owner was first seen not to have applied the first one.
    since: Option<Instant>,
    /// Number of writes that are copied before the ring is used again.
    copies: u32,
}

/// What has become of the writes in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// All are applied.
    All,
    /// The owner applies one at this moment.
    Busy,
    /// Only the owner can apply the rest, in its turn.
    ByOwner,
}

impl From<Invalid> for Broken {
    fn from(_: Invalid) -> Self {
        Broken("number of writes that were applied")
    }
}

impl<T> RingWrites<T> {
    /// Returns those of a link with these words, of which this side is the initiator: none.
    pub fn new(words: FlightWords) -> Self {
        RingWrites {
            words,
            turns: Giving::default(),
            writes: VecDeque::new(),
            ended: Vec::new(),
            since: None,
            copies: 0,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether the next write may go through the ring: there is room, and the owner makes progress.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    pub fn takes_another(&mut self) -> std::result::Result<bool, Broken> {
        if self.copies != 0 {
            self.copies -= 1;
            return Ok(false);
        }
        if self.writes.len() >= MOST {
            self.look()?;
        }
        Ok(self.writes.len() < MOST)
    }

    /// Keeps a copy of a write whose record is in the ring, of at most [`MOST_BYTES`] bytes.
    pub fn push(&mut self, to: RemotePiece, from: &[u8], waits: Option<T>) {
        let mut bytes = [0; MOST_BYTES];
        for (place, byte) in bytes.iter_mut().zip(from) {
            *place = *byte;
        }
        self.writes.push_back(Write { to, bytes, waits });
        bounded!(self.writes, MOST);
        self.turns.posted();
    }

    /// Forgets those that the owner has applied.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    #[inline]
    pub fn look(&mut self) -> std::result::Result<(), Broken> {
        match self.turns.look(self.words.applied())? {
            0 => {}
            applied => self.forget(applied),
        }
        Ok(())
    }

    /// The owner has applied so many.
    fn forget(&mut self, applied: usize) {
        for behind in (0..applied).rev() {
            let Some(write) = self.writes.pop_front() else {
                break;
            };
            let outcome = match self.turns.was_refused(self.words.refused(), behind) {
                true => Err(Errno::EACCES),
                false => Ok(()),
            };
            self.ended.extend(write.waits.map(|waits| (waits, outcome)));
        }
        self.since = None;
    }

    /// Whether the owner has applied none of them for some time.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    pub fn are_overdue(&mut self) -> std::result::Result<bool, Broken> {
        self.look()?;
        if self.writes.is_empty() {
            return Ok(false);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_overdue = since.elapsed() >= PATIENCE;
        if is_overdue {
            self.copies = COPIES;
        }
        Ok(is_overdue)
    }

    /// Applies those that are left, unless the owner is at it. `socket` is the link's, which shows
    /// whether its other end is open.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    pub fn settle(
        &mut self,
        window: &mut Window,
        socket: BorrowedFd<'_>,
    ) -> std::result::Result<Settled, Broken> {
        let (applied, is_taken) = self.turns.take(self.words.applied())?;
        if applied != 0 {
            self.forget(applied);
        }
        if is_taken {
            let mut done = 0;
            while let Some(write) = self.writes.front() {
                let bytes = write.bytes.get(..write.to.len as usize).unwrap_or_default();
                let outcome = match window.write(&write.to, bytes, socket) {
                    // The region was closed meanwhile: the owner would refuse it, too.
                    outcome @ (Ok(()) | Err(Errno::EACCES)) => outcome,
                    Err(_) => break,
                };
                let waits = self.writes.pop_front().and_then(|write| write.waits);
                self.ended.extend(waits.map(|waits| (waits, outcome)));
                done += 1;
            }
            self.turns.give_back(self.words.applied(), done);
        }
        Ok(match (self.writes.is_empty(), is_taken) {
            (true, _) => Settled::All,
            (false, true) => Settled::ByOwner,
            (false, false) => Settled::Busy,
        })
    }

    /// Returns what has waited for writes that are applied by the end of the link, with their outcomes, and
    /// what waits for the others.
    pub fn into_ended(mut self) -> (Vec<(T, Result)>, impl Iterator<Item = T>) {
        // A word that cannot be ends nothing: the link has ended already.
        let _broken = self.look();
        let left = self.writes.into_iter().filter_map(|write| write.waits);
        (self.ended, left)
    }
}
