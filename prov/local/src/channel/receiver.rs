//! The end of a channel that receives.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use prov_util::buffer::{AppIov, Piece};

use super::slot::{Direction, Head, Next, control};
use super::{AHEAD, INLINE, LONGEST, NEAR, PACE, SLEEP, SLOTS, STARVED};
use crate::barrier;
use crate::joint::Pace;
use crate::ring::{Broken, Consumer, lap};

/// Bytes of a message from which on it is timed how long it takes to have it.
const TIMED: usize = 16 << 10;

/// A message that has come.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub head: Head,
    /// Its bytes, which are there until the message is taken, and can be copied
    /// but not trusted to stay as they are.
    pub bytes: AppIov,
}

/// The end of a channel that receives.
pub struct Receiver {
    pub(super) way: Direction,
    pub(super) ring: Consumer,
    /// What was taken since the other side was told: slots, and a slot's share of
    /// what is mostly used of the area for each as many bytes of that.
    untold: usize,
    /// How many messages of this side the other one has taken, as the last long one
    /// of it has said.
    pub(super) heard: u64,
    /// The last message of which a part was fetched before it had come.
    pub(super) fetched: Option<u64>,
    woken: u64,
    pub(super) asymmetric: bool,
    /// What it takes to have what the other side sends.
    pace: Arc<Pace>,
    /// When the bytes of the next message were asked for, if it is a long one.
    since: Cell<Option<Instant>>,
}

impl Receiver {
    pub(super) fn new(way: Direction, pace: &Arc<Pace>) -> Self {
        Receiver {
            way,
            ring: Consumer::default(),
            untold: 0,
            heard: 0,
            fetched: None,
            woken: 0,
            asymmetric: false,
            pace: pace.clone(),
            since: Cell::new(None),
        }
    }

    /// The next message, without a look at what may be wrong with it.
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'_>> {
        let (slot, half) = self.ring.next(&self.way)?;
        Some(Next::new(self.way.slot(slot), half))
    }

    /// The next message, if it has come.
    ///
    /// # Errors
    /// The other side has broken the channel.
    pub fn next(&self) -> std::result::Result<Option<Record>, Broken> {
        let Some(next) = self.peek() else {
            return Ok(None);
        };
        let bytes = match next.bytes() {
            Some(bytes) => bytes.into(),
            None => {
                let bytes = self.far_bytes(&next);
                let bytes = AppIov::from(bytes.ok_or(Broken("place of a message"))?);
                bytes.prefetch();
                bytes
            }
        };
        Ok(Some(Record {
            head: next.head(),
            bytes,
        }))
    }

    /// The bytes of the next message where they are not in its slot; `None` if they
    /// are nowhere, for [`Receiver::next`].
    #[inline(always)]
    pub fn far_bytes(&self, next: &Next<'_>) -> Option<Piece> {
        let (offset, len) = next.place();
        if len >= TIMED {
            self.note_question();
        }
        self.way.area(offset, len)
    }

    #[cold]
    #[inline(never)]
    fn note_question(&self) {
        self.since.set(Some(Instant::now()));
    }

    /// Bytes of all messages that have come.
    pub fn waiting(&self) -> usize {
        let next = |ahead| {
            let half = self.ring.ahead(&self.way, ahead)?;
            let slot = (self.ring.taken().wrapping_add(ahead)) as usize % SLOTS;
            Some(Next::new(self.way.slot(slot), half).len().min(LONGEST))
        };
        (0..SLOTS as u64).map_while(next).sum()
    }

    /// Whether a message has come.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.ring.next(&self.way).is_some()
    }

    /// Has the processor fetch what is in place of a long message while its sender
    /// is at the rest, once.
    #[inline(always)]
    pub fn fetch_ahead(&mut self) {
        let next = self.ring.taken();
        let slot = self.way.slot(next as usize % SLOTS);
        if let Some(offset) = slot.begun(lap::<Direction>(next))
            && self.fetched != Some(next)
            && let Some(bytes) = self.way.area(offset, AHEAD)
        {
            self.fetched = Some(next);
            AppIov::from(bytes).prefetch();
        }
    }

    /// The next message, of `len` bytes, is taken. Whether the other side waits
    /// for room and is to be woken.
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, len: usize) -> bool {
        if len > INLINE {
            self.hear(len);
        }
        self.take_short()
    }

    /// [`Receiver::take`] for a message that is in its slot.
    #[inline(always)]
    #[must_use]
    pub fn take_short(&mut self) -> bool {
        self.ring.take();
        self.untold += 1;
        self.untold >= SLOTS / 4 && self.tell()
    }

    /// The next message, which is in the area, is about to be taken.
    fn hear(&mut self, len: usize) {
        if len >= TIMED {
            self.note_taken(len);
        }
        self.untold += len / (NEAR / SLOTS);
        let slot = self.ring.taken() as usize % SLOTS;
        self.heard = self.way.slot(slot).taken();
    }

    /// How long it takes to have the next message says nothing of others.
    pub fn leave_untimed(&self) {
        self.since.set(None);
    }

    #[cold]
    #[inline(never)]
    fn note_taken(&mut self, len: usize) {
        if let Some(since) = self.since.take() {
            self.pace.has_taken(len, since.elapsed());
        }
    }

    /// Whether the other side was not told of all that was taken.
    #[inline(always)]
    pub fn has_untold(&self) -> bool {
        self.untold != 0
    }

    /// Tells the other side what was taken. Whether it waits for room and is to
    /// be woken.
    #[inline(never)]
    #[must_use]
    pub fn tell(&mut self) -> bool {
        if self.untold == 0 {
            return false;
        }
        self.untold = 0;
        control(&self.way.taking, PACE).store(self.pace.word(), Ordering::Relaxed);
        self.ring.tell(&self.way);
        barrier::light(self.asymmetric);
        let sleep = control(&self.way.filling, SLEEP).load(Ordering::Relaxed);
        sleep & STARVED != 0 && std::mem::replace(&mut self.woken, sleep) != sleep
    }
}
