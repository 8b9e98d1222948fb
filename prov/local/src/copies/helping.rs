//! The helper's part of copies that the peers of a lane make of its memory
//! ([`joint`](crate::joint)): those who wait for the end of what they have offered
//! put some of it where it goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use prov_message::{EpKey, Errand, Target, Transport};
use prov_util::buffer::AppIov;
use prov_util::errno::{Errno, Result};
use prov_util::mr::{Grants, MrTable};

use crate::joint::{Board, Cut, Seen};
use crate::process::OtherProcess;

/// Looks in vain after which it is looked whether a link still has offers.
const LOOKS: u32 = 64;
/// Links that are looked at in one turn.
const AT_ONCE: usize = 8;

/// Bytes that a peer copies.
pub enum Source {
    /// Of an operation in flight.
    App(AppIov),
    /// Registered memory that the peer reads.
    Registered(Grants),
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Source::App(memory) => memory.len(),
            Source::Registered(grants) => grants.len(),
        }
    }
}

/// What a peer has called by its name.
pub struct Offer {
    /// The endpoint whose it is.
    pub ep: EpKey,
    /// The peer's memory.
    pub memory: OtherProcess,
    pub bytes: Source,
}

/// The links of a lane whose peers may be helped.
pub struct Helpers<T: Transport> {
    links: Vec<T::Link>,
    /// Whose turn it is.
    next: usize,
    /// Looks in vain.
    looks: u32,
    /// None while this side helps.
    target: Option<Target>,
    at_work: Option<AtWork<T>>,
    /// The last copy that could not be helped with: the peer goes on alone.
    given_up: Option<(T::Link, Seen)>,
}

/// Help that is under way.
struct AtWork<T: Transport> {
    link: T::Link,
    ep: EpKey,
    name: u64,
    state: Arc<AtomicU32>,
    /// What the peer has said of it meanwhile.
    late: Option<[u64; 3]>,
}

/// The bytes are being read.
const READING: u32 = 0;
/// Nobody reads them any more.
const OVER: u32 = 1;
/// The bytes may be others by now: the link has ended.
const REVOKED: u32 = 2;

impl<T: Transport> Helpers<T> {
    pub(super) fn new(memory: Option<&MrTable>) -> Self {
        Helpers {
            links: Vec::new(),
            next: 0,
            looks: 0,
            target: memory.map(Target::new),
            at_work: None,
            given_up: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    pub(super) fn add(&mut self, link: T::Link) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }

    pub(super) fn link_ended(&mut self, link: T::Link) {
        self.links.retain(|known| *known != link);
        if let Some(at_work) = &self.at_work
            && at_work.link == link
        {
            at_work.state.fetch_or(REVOKED, Ordering::SeqCst);
        }
    }

    pub(super) fn is_at_work_for(&self, ep: EpKey) -> bool {
        let at_work = self.at_work.as_ref();
        at_work.is_some_and(|at_work| at_work.ep == ep && at_work.is_reading())
    }

    pub(super) fn defers(&mut self, link: T::Link, name: u64, words: [u64; 3]) -> bool {
        match &mut self.at_work {
            Some(at_work)
                if (at_work.link, at_work.name) == (link, name) && at_work.is_reading() =>
            {
                at_work.late.get_or_insert(words);
                true
            }
            _ => false,
        }
    }

    pub(super) fn next<'b>(
        &mut self,
        board: impl Fn(T::Link) -> Option<&'b Board>,
        has_offers: impl Fn(T::Link) -> bool,
        offer: impl FnOnce(T::Link, u64) -> Option<Offer>,
    ) -> Option<Box<Helping>> {
        self.target.as_ref()?;
        self.looks += 1;
        if self.looks > LOOKS {
            self.looks = 0;
            self.links.retain(|link| has_offers(*link));
        }
        for _ in 0..self.links.len().min(AT_ONCE) {
            self.next += 1;
            let link = *self.links.get(self.next % self.links.len())?;
            let Some(board) = board(link) else {
                continue;
            };
            let Some(seen) = board.look() else {
                continue;
            };
            if let Some((given_up, last)) = &self.given_up
                && *given_up == link
                && last.is_same(&seen)
            {
                continue;
            }
            // An offer that is not there any more, or not so many bytes: that is
            // over, or the peer is broken and has spoilt its own copy.
            let found = offer(link, seen.what.name)
                .filter(|found| seen.what.len <= found.bytes.len() as u64)?;
            self.looks = 0;
            let state = Arc::new(AtomicU32::new(READING));
            self.at_work = Some(AtWork {
                link,
                ep: found.ep,
                name: seen.what.name,
                state: state.clone(),
                late: None,
            });
            return Some(Box::new(Helping {
                board: board.clone(),
                seen,
                offer: found,
                target: self.target.take(),
                state,
                has_failed: false,
            }));
        }
        None
    }

    pub(super) fn back(&mut self, helping: Box<Helping>) -> Option<(T::Link, [u64; 3])> {
        let Helping {
            target,
            seen,
            has_failed,
            ..
        } = *helping;
        self.target = target;
        let AtWork { link, late, .. } = self.at_work.take()?;
        if has_failed {
            self.given_up = Some((link, seen));
        }
        Some((link, late?))
    }
}

impl<T: Transport> AtWork<T> {
    fn is_reading(&self) -> bool {
        self.state.load(Ordering::Acquire) & OVER == 0
    }
}

/// A part of a peer's copy.
pub struct Helping {
    board: Board,
    seen: Seen,
    offer: Offer,
    target: Option<Target>,
    state: Arc<AtomicU32>,
    /// Whether a part could not be put in its place.
    has_failed: bool,
}

impl Helping {
    /// Puts a part where the peer wants it.
    fn put(&mut self, part: u16) -> Result {
        let what = self.seen.what;
        let (at, len) = Cut::of(what.len).part(part);
        // The peer has checked its addresses, or nothing is there.
        let to = what.addr.checked_add(at).ok_or(Errno::EFAULT)?;
        let (at, len) = (at as usize, len as usize);
        let memory = self.offer.memory;
        match &self.offer.bytes {
            Source::App(bytes) => memory.put(&bytes.slice(at, len), to),
            Source::Registered(grants) => {
                let target = self.target.as_mut().ok_or(Errno::EFAULT)?;
                let mut done = 0;
                while done < len {
                    let to = to + done as u64;
                    let memory = |bytes: &AppIov| memory.put(bytes, to);
                    match grants.part(&mut target.memory, at + done, len - done, memory) {
                        (0, _) | (_, None) => return Err(Errno::EFAULT),
                        (count, Some(outcome)) => {
                            outcome?;
                            done += count;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

impl Errand for Helping {
    fn run(&mut self) -> bool {
        let part = self.board.claim(&self.seen);
        let outcome = part.map(|part| self.put(part));
        // From here on it may be told of the end.
        let before = self.state.fetch_or(OVER, Ordering::SeqCst);
        if let Some(outcome) = outcome {
            let is_done = outcome.is_ok() && before & REVOKED == 0;
            self.has_failed = !is_done;
            self.board.done(&self.seen, is_done);
        }
        false
    }
}
