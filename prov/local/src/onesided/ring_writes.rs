//! Short writes in the ring of a channel: the initiator's copies of those that the owner may not have
//! applied yet.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use prov_base::bounded;
use prov_base::errno::Errno;
use prov_util::request::RemotePiece;

use super::turns::{Giving, Invalid};
use super::window::Window;
use crate::channel::{FlightWords, INLINE};
use crate::ring::Broken;

/// Length in bytes of the longest such write: its record, with the description of one piece of remote
/// memory (24 bytes), fits into a slot.
pub const MOST_BYTES: usize = INLINE - 24;
/// Limit of writes of a link that the owner has not applied: a quarter of the ring, so that messages find
/// space beside them, and some 6 KiB of copies.
const MOST: usize = 64;
/// Time after which the initiator applies them, if the owner has applied none meanwhile: about what a
/// process that makes progress does between two calls. It is some hundred times what the copies take.
const PATIENCE: Duration = Duration::from_micros(100);

/// A write in the ring.
struct Write {
    to: RemotePiece,
    bytes: [u8; MOST_BYTES],
}

/// The writes of one link. See the [module](super::turns) that decides who applies them.
pub struct RingWrites {
    words: FlightWords,
    turns: Giving,
    writes: VecDeque<Write>,
    /// When the owner was first seen not to have applied the first one.
    since: Option<Instant>,
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

impl RingWrites {
    /// Returns those of a link with these words, of which this side is the initiator: none.
    pub fn new(words: FlightWords) -> Self {
        RingWrites {
            words,
            turns: Giving::default(),
            writes: VecDeque::new(),
            since: None,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether there is room for another one.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    pub fn has_room(&mut self) -> Result<bool, Broken> {
        if self.writes.len() >= MOST {
            self.look()?;
        }
        Ok(self.writes.len() < MOST)
    }

    /// Keeps a copy of a write whose record is in the ring, of at most [`MOST_BYTES`] bytes.
    pub fn push(&mut self, to: RemotePiece, from: &[u8]) {
        let mut bytes = [0; MOST_BYTES];
        for (place, byte) in bytes.iter_mut().zip(from) {
            *place = *byte;
        }
        self.writes.push_back(Write { to, bytes });
        bounded!(self.writes, MOST);
        self.turns.posted();
    }

    /// Forgets those that the owner has applied.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    pub fn look(&mut self) -> Result<(), Broken> {
        let applied = self.turns.look(self.words.applied())?;
        self.forget(applied);
        Ok(())
    }

    fn forget(&mut self, applied: usize) {
        self.writes.drain(..applied.min(self.writes.len()));
        if applied != 0 {
            self.since = None;
        }
    }

    /// Whether the owner has applied none of them for some time.
    ///
    /// # Errors
    /// The owner has written an invalid value.
    pub fn are_overdue(&mut self) -> Result<bool, Broken> {
        self.look()?;
        if self.writes.is_empty() {
            return Ok(false);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        Ok(since.elapsed() >= PATIENCE)
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
    ) -> Result<Settled, Broken> {
        let (applied, is_taken) = self.turns.take(self.words.applied())?;
        self.forget(applied);
        if !is_taken {
            return Ok(match self.writes.is_empty() {
                true => Settled::All,
                false => Settled::Busy,
            });
        }
        let mut done = 0;
        for write in &self.writes {
            let bytes = write.bytes.get(..write.to.len as usize).unwrap_or_default();
            match window.write(&write.to, bytes, socket) {
                // The region was closed meanwhile: the owner would refuse it, too.
                Ok(()) | Err(Errno::EACCES) => done += 1,
                Err(_) => break,
            }
        }
        self.turns.give_back(self.words.applied(), done);
        self.forget(done);
        Ok(match self.writes.is_empty() {
            true => Settled::All,
            false => Settled::ByOwner,
        })
    }
}
