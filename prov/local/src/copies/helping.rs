//! The helper's part of copies that the peers of a lane make of its memory
//! ([`joint`](crate::joint)): those who wait for the end of what they have offered
//! put some of it where it goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use prov_base::buffer::{AppIov, Iov};
use prov_base::errno::{Errno, Result};
use prov_message::{EpKey, Errand, Target, Transport};
use prov_util::mr::{Grants, MrTable};

use super::joined::SURE;
use crate::joint::{Board, Cut, Seen, Way};
use crate::process::OtherProcess;

/// Looks in vain after which it is looked whether a link still has offers.
const LOOKS: u32 = 64;
/// Bytes that are put where the peer wants them in one turn.
const DIRECT: u64 = 512 << 10;
/// Parts that are put into slots in one.
const SLOTS_PER_TURN: u32 = 8;
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
/// This process itself copies some, and would end if they were not there. Who
/// revokes them waits for that.
const COPYING: u32 = 4;

impl<T: Transport> Helpers<T> {
    pub(super) fn new(memory: Option<&MrTable>) -> Self {
        Helpers {
            links: Vec::new(),
            next: 0,
            looks: 0,
            target: memory.map(Target::new),
            at_work: None,
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
            while at_work.state.load(Ordering::SeqCst) & COPYING != 0 {
                std::thread::yield_now();
            }
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

    /// See [`super::Copier::next_help`]. `only_slots`: this side has copies of its own to
    /// make, and helps through slots alone, where the peer wants these.
    pub(super) fn next<'b>(
        &mut self,
        only_slots: bool,
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
            let has_slots = seen.what.wants_slots() && board.bounce.may_have_slots();
            let is_of_no_use = only_slots && !has_slots;
            if is_of_no_use || board.bounce.has_given_up(&seen) || board.is_full(&seen) {
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
                only_slots,
                gives_up: false,
            }));
        }
        None
    }

    pub(super) fn back(&mut self, helping: Box<Helping>) -> Option<(T::Link, [u64; 3])> {
        let Helping {
            target,
            seen,
            board,
            gives_up,
            ..
        } = *helping;
        self.target = target;
        let AtWork { link, late, .. } = self.at_work.take()?;
        if gives_up {
            board.bounce.give_up(seen);
        }
        Some((link, late?))
    }
}

impl<T: Transport> AtWork<T> {
    fn is_reading(&self) -> bool {
        self.state.load(Ordering::Acquire) & OVER == 0
    }
}

/// Parts of a peer's copy.
pub struct Helping {
    board: Board,
    seen: Seen,
    offer: Offer,
    target: Option<Target>,
    state: Arc<AtomicU32>,
    /// Whether help is of use through slots only.
    only_slots: bool,
    /// Whether no more of it can be helped with.
    gives_up: bool,
}

impl Helping {
    /// Does `work` with bytes that the peer copies, piece by piece.
    fn each(
        &mut self,
        at: usize,
        len: usize,
        mut work: impl FnMut(usize, &Iov<'_>) -> Result,
    ) -> Result {
        let grants = match &self.offer.bytes {
            Source::App(bytes) => return work(0, &bytes.slice(at, len)),
            Source::Registered(grants) => grants,
        };
        let target = self.target.as_mut().ok_or(Errno::EFAULT)?;
        let mut done = 0;
        while done < len {
            let memory = |bytes: &Iov<'_>| work(done, bytes);
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

    /// Whether what was just read is what the peer was offered.
    fn was_read(&mut self, outcome: Result) -> bool {
        let is_done = outcome.is_ok() && self.state.load(Ordering::SeqCst) & REVOKED == 0;
        self.gives_up = !is_done;
        is_done
    }

    /// Puts parts where the peer wants them.
    fn put(&mut self, cut: Cut) {
        let (what, memory) = (self.seen.what, self.offer.memory.clone());
        if self.only_slots || what.addr == 0 {
            self.gives_up = true;
            return;
        }
        let Some(parts) = self.board.claim(&self.seen, cut.within(DIRECT)) else {
            return;
        };
        let count = parts.len() as u16;
        let (at, len) = cut.parts(parts);
        let began = Instant::now();
        let outcome = self.each(at as usize, len as usize, |done, bytes| {
            // The peer has checked its addresses, or nothing is there.
            let to = what.addr.checked_add(at + done as u64);
            memory.put(bytes, to.ok_or(Errno::EFAULT)?)
        });
        if outcome.is_ok() && len >= SURE {
            let pace = &self.board.bounce.pace;
            pace.has_copied(len, began.elapsed());
        }
        let is_done = self.was_read(outcome);
        self.board.done(&self.seen, count, is_done);
    }

    /// Puts parts into slots.
    fn fill_slots(&mut self, cut: Cut) {
        let (bounce, began) = (self.board.bounce.clone(), Instant::now());
        let (mut filled, mut are_cached, mut wanting) = (0, true, None);
        for _ in 0..SLOTS_PER_TURN {
            let Some(slot) = self.board.free_slot(&self.seen) else {
                break;
            };
            if !bounce.is_there(slot) {
                wanting = Some(slot);
                break;
            }
            let Some(parts) = self.board.claim(&self.seen, 1) else {
                break;
            };
            let (at, len) = cut.parts(parts);
            let to = Iov::from(bounce.slot(slot, len as usize));
            let store = bounce.pace.put_in(to.len());
            let to = to.past_caches(store.past_caches);
            let before = self.state.fetch_or(COPYING, Ordering::SeqCst);
            let outcome = match before & REVOKED {
                0 => self.each(at as usize, len as usize, |done, bytes| {
                    bytes.copy_to(&to.slice(done, bytes.len()));
                    Ok(())
                }),
                _ => Err(Errno::ESHUTDOWN),
            };
            self.state.fetch_and(!COPYING, Ordering::SeqCst);
            let is_done = self.was_read(outcome);
            self.board.bounced(&self.seen, is_done);
            if !is_done {
                return;
            }
            bounce.pace.are_in(store, to.len());
            filled += len;
            are_cached &= !store.past_caches;
        }
        if filled != 0 && are_cached {
            bounce.pace.has_filled(filled, began.elapsed());
        }
        // The owner goes on meanwhile.
        self.gives_up = wanting.is_some_and(|slot| !bounce.provide(slot));
    }
}

impl Errand for Helping {
    fn run(&mut self) -> bool {
        let cut = Cut::of(self.seen.what.len);
        let way = match cut.fits_slots() {
            true => self.board.bounce.way(&self.seen),
            false => Way::Direct,
        };
        match way {
            Way::Direct => self.put(cut),
            Way::Bounced => self.fill_slots(cut),
        }
        // What was said of the end meanwhile is heard when this is over.
        self.state.fetch_or(OVER, Ordering::SeqCst);
        false
    }
}
