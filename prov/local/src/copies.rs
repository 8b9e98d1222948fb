//! Copies from the memory of peers' processes: who is to have the bytes makes
//! them, as [`Errand`]s without the lane's lock, since a page of the peer's
//! memory may be anywhere. The peer's process helps with the largest.

mod helping;
mod joined;
mod lane;

use std::collections::VecDeque;

use prov_message::{Course, Endpoints, EpKey, Errand, Kept, Place, Placing, Target, Transport};
use prov_util::buffer::AppIov;
use prov_util::errno::Result;
use prov_util::mr::MrTable;
use prov_util::process_memory::OtherIov;

use self::helping::Helpers;
pub use self::helping::{Helping, Offer, Source};
pub use self::joined::LEAST;
use self::joined::{Meeting, Turn, destination};
pub use self::lane::{Back, Copies};
use crate::joint::Board;
use crate::process::{COPIES, OtherProcess};

/// Bytes that are copied at once: meanwhile, the peer may wait for an answer.
const BYTES_PER_TURN: usize = 1 << 20;
/// Bytes after which there is time for another copy.
const SHORT: usize = 64 << 10;
/// Bytes that are copied together at most: the first ones are told of with the
/// last ones.
const TOGETHER: u64 = 256 << 10;

/// Bytes that are copied from a peer's memory.
pub struct Transfer<T: Transport> {
    pub to: Goal<T>,
    /// Where they are in the peer's memory.
    pub from: OtherIov,
    /// The peer's name for it, if it is to be told of the end by that.
    pub name: Option<u64>,
    /// The peer's name for what it has offered, if it can help by that.
    pub offer: Option<u64>,
    /// Whether nothing that the peer does later may overtake it.
    pub goes_first: bool,
}

/// Where they go.
pub enum Goal<T: Transport> {
    /// To their place in memory, which may be too small for a message.
    Place(Box<Placing<T>>),
    /// Into the queue of unexpected messages.
    Keep {
        kept: Kept,
        /// Bytes that are there.
        done: usize,
        /// Where those behind them are copied to. There may be more of it, in which
        /// anything stands: it may have been used before.
        next: Vec<u8>,
        /// How many of these have been.
        copied: usize,
    },
    /// Nobody wants them.
    Discard,
}

impl<T: Transport> From<Placing<T>> for Goal<T> {
    fn from(placing: Placing<T>) -> Self {
        Goal::Place(Box::new(placing))
    }
}

impl<T: Transport> From<Course<T>> for Goal<T> {
    fn from(course: Course<T>) -> Self {
        match course {
            Course::Place(placing) => Goal::Place(placing),
            Course::Keep(kept) => Goal::Keep {
                kept,
                done: 0,
                next: Vec::new(),
                copied: 0,
            },
            Course::Discard | Course::Done => Goal::Discard,
        }
    }
}

impl<T: Transport> Goal<T> {
    /// What will not come to its place any more.
    pub fn abandon(self) -> Option<Placing<T>> {
        match self {
            Goal::Place(placing) => Some(*placing),
            Goal::Keep { .. } | Goal::Discard => None,
        }
    }
}

impl<T: Transport> Transfer<T> {
    /// The bytes that are copied.
    fn done(&self) -> u64 {
        match &self.to {
            Goal::Place(placing) => placing.done as u64,
            Goal::Keep { done, copied, .. } => (done + copied) as u64,
            Goal::Discard => self.from.len(),
        }
    }

    /// Bytes of the next turn.
    fn left(&self) -> u64 {
        let left = self.from.len() - self.done();
        left.min(BYTES_PER_TURN as u64)
    }

    /// Where it goes, if it has not begun and is short and goes to memory of the
    /// application that has room for it: then it can be made together with others.
    fn simple(&self) -> Option<AppIov> {
        let Goal::Place(placing) = &self.to else {
            return None;
        };
        let Place::App(memory) = &placing.place else {
            return None;
        };
        let len = self.from.len();
        let is_simple = len <= SHORT.min(memory.len()) as u64 && placing.done == 0;
        is_simple.then(|| memory.slice(0, len as usize))
    }

    /// Takes memory for bytes that will be kept from where there is some to spare.
    pub fn make_room(&mut self, endpoints: &mut Endpoints<T>) {
        let left = self.left() as usize;
        if let Goal::Keep { next, .. } = &mut self.to
            && next.capacity() < left
        {
            *next = endpoints.spare(left);
        }
    }

    /// Whether all of them are.
    pub fn is_whole(&self) -> bool {
        self.done() >= self.from.len()
    }

    /// Gives bytes that were copied to the message that is kept, or to what it has
    /// become meanwhile: this `course`, if any.
    pub fn keep(
        &mut self,
        course: Option<Course<T>>,
        endpoints: &mut Endpoints<T>,
        registered: &mut Option<Target>,
    ) {
        let Goal::Keep {
            kept,
            done,
            next,
            copied,
        } = &mut self.to
        else {
            return;
        };
        let len = std::mem::take(copied);
        next.truncate(len);
        match course.map(Goal::from) {
            None => {
                if endpoints.append_all(*kept, next) {
                    *done += len;
                } else {
                    self.to = Goal::Discard;
                }
            }
            Some(Goal::Place(mut placing)) => {
                placing.place.write_at(registered, placing.done, next);
                placing.done += next.len();
                self.to = Goal::Place(placing);
            }
            Some(other) => self.to = other,
        }
    }
}

/// What is copied from the memory of one peer, in the order in which it came.
pub struct Transfers<T: Transport> {
    /// Those that are here: the oldest one may be with whoever copies.
    waiting: VecDeque<Transfer<T>>,
    /// How many there are with that.
    count: usize,
    /// Those that nothing may overtake.
    first: usize,
    /// How many are to be made one by one, since together they were not.
    alone: usize,
    /// Where the peer's process helps, unless that is with whoever copies.
    meeting: Option<Box<Meeting>>,
}

impl<T: Transport> Default for Transfers<T> {
    fn default() -> Self {
        Transfers {
            waiting: VecDeque::new(),
            count: 0,
            first: 0,
            alone: 0,
            meeting: None,
        }
    }
}

impl<T: Transport> Transfers<T> {
    /// The peer's process may be asked to help, here.
    pub fn meet(&mut self, board: &Board) {
        self.meeting = Some(Box::new(Meeting::new(board.clone())));
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many wait for their turn.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there are some that nothing may overtake.
    #[inline(always)]
    pub fn go_first(&self) -> bool {
        self.first != 0
    }

    /// Adds one; whether the peer has to be given a turn ([`Copier::add`]).
    #[must_use]
    pub fn push(&mut self, transfer: Transfer<T>) -> bool {
        self.first += usize::from(transfer.goes_first);
        self.waiting.push_back(transfer);
        self.count += 1;
        self.count == 1
    }

    /// The oldest one, to be copied, and those behind it that can be copied
    /// together with it.
    pub fn take(&mut self, batch: &mut Batch<T>) -> Option<()> {
        let mut left = TOGETHER;
        let limit = if self.alone == 0 { COPIES } else { 1 };
        self.alone = self.alone.saturating_sub(1);
        let to = &mut batch.transfers;
        to.push(self.waiting.pop_front()?);
        if to[0].simple().is_none() {
            if destination(&to[0]).is_some() {
                batch.meeting = self.meeting.take_if(|meeting| meeting.may_help());
            }
            return Some(());
        }
        left -= to[0].from.len();
        while to.len() < limit
            && let Some(next) = self.waiting.front()
            && next.simple().is_some()
            && next.from.len() <= left
        {
            left -= next.from.len();
            to.extend(self.waiting.pop_front());
        }
        Some(())
    }

    /// One is back, and not over.
    pub fn put_back(&mut self, transfer: Transfer<T>) {
        self.waiting.push_front(transfer);
    }

    /// Some are back that were not copied together, and will be one by one.
    fn put_all_back(&mut self, transfers: &mut Vec<Transfer<T>>) {
        self.alone = transfers.len();
        while let Some(last) = transfers.pop() {
            self.waiting.push_front(last);
        }
    }

    /// That one is over.
    pub fn ended(&mut self, transfer: &Transfer<T>) {
        self.count -= 1;
        self.first -= usize::from(transfer.goes_first);
    }

    /// Takes all that are here, which will not be made any more.
    pub fn drain(&mut self) -> impl Iterator<Item = Transfer<T>> {
        let waiting = std::mem::take(&mut self.waiting);
        let go_first = waiting.iter().filter(|transfer| transfer.goes_first);
        self.first -= go_first.count();
        self.count -= waiting.len();
        waiting.into_iter()
    }
}

/// What is copied in one turn.
pub struct Batch<T: Transport> {
    /// Not empty when taken; several if all are simple.
    transfers: Vec<Transfer<T>>,
    /// Where the peer helps, if it may.
    meeting: Option<Box<Meeting>>,
}

impl<T: Transport> Batch<T> {
    /// [`Transfer::make_room`].
    pub fn make_room(&mut self, endpoints: &mut Endpoints<T>) {
        if let [only] = &mut self.transfers[..] {
            only.make_room(endpoints);
        }
    }
}

/// Whose turn it is.
enum Due<T: Transport> {
    Link(T::Link),
    /// A copy that the peer helps with, and has begun.
    GoesOn(Box<Copying<T>>),
}

/// The copies of a lane: whose turn it is, and what they are made with.
pub struct Copier<T: Transport> {
    turns: VecDeque<Due<T>>,
    /// Those of peers that this side helps with.
    helpers: Helpers<T>,
    /// Whether there is nothing to be done.
    is_idle: bool,
    /// None while something is copied.
    target: Option<Target>,
    /// The endpoint for which that is.
    ep: Option<EpKey>,
    /// Room for the list of what is copied.
    spare: Vec<Transfer<T>>,
}

impl<T: Transport> Copier<T> {
    /// Into memory that is registered in this table, and any of the
    /// application's. Without a table, nothing is ever copied.
    pub fn new(memory: Option<&MrTable>) -> Self {
        Copier {
            turns: VecDeque::new(),
            helpers: Helpers::new(memory),
            is_idle: true,
            target: memory.map(Target::new),
            ep: None,
            spare: Vec::new(),
        }
    }

    /// Whether nothing waits for its turn, and no peer may be helped.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Whether nothing waits for its turn.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn note(&mut self) {
        self.is_idle = self.turns.is_empty() && self.helpers.is_empty();
    }

    /// A link has something to be copied.
    pub fn add(&mut self, link: T::Link) {
        self.turns.push_back(Due::Link(link));
        self.note();
    }

    /// The peer of a link is offered something of [`LEAST`] bytes or more: it may
    /// be helped to copy that.
    pub fn may_help(&mut self, link: T::Link) {
        self.helpers.add(link);
        self.note();
    }

    /// A link has ended: what is copied for it is not wanted any more.
    pub fn link_ended(&mut self, link: T::Link) {
        self.helpers.link_ended(link);
        for due in &mut self.turns {
            if let Due::GoesOn(copying) = due
                && copying.link == link
            {
                copying.give_up();
            }
        }
        self.note();
    }

    /// Whether something is being copied for an endpoint.
    pub fn is_at_work_for(&self, ep: EpKey) -> bool {
        let goes_on = |due: &Due<T>| matches!(due, Due::GoesOn(copying) if copying.ep == ep);
        self.ep == Some(ep) || self.helpers.is_at_work_for(ep) || self.turns.iter().any(goes_on)
    }

    /// The next copy. `take` has the endpoint of a link, the peer's memory, and
    /// what is to be copied ([`Transfers::take`]), if there still is something.
    #[cold]
    pub fn next(
        &mut self,
        mut take: impl FnMut(T::Link, &mut Batch<T>) -> Option<(EpKey, OtherProcess)>,
    ) -> Option<Copying<T>> {
        let target = self.target.take()?;
        let mut batch = Batch {
            transfers: std::mem::take(&mut self.spare),
            meeting: None,
        };
        while let Some(due) = self.turns.pop_front() {
            let copying = match due {
                Due::GoesOn(copying) => {
                    self.spare = batch.transfers;
                    *copying
                }
                Due::Link(link) => {
                    let Some((ep, memory)) = take(link, &mut batch) else {
                        continue;
                    };
                    Copying {
                        link,
                        ep,
                        batch,
                        memory,
                        target: None,
                        outcome: Ok(()),
                        is_only: true,
                    }
                }
            };
            return Some(self.lend(target, copying));
        }
        (self.target, self.spare) = (Some(target), batch.transfers);
        self.note();
        None
    }

    /// The next of the copies that have begun, where none may begin.
    #[cold]
    pub fn next_begun(&mut self) -> Option<Copying<T>> {
        let is_begun = |due: &Due<T>| matches!(due, Due::GoesOn(_));
        let begun = self.turns.iter().position(is_begun)?;
        let target = self.target.take()?;
        match self.turns.remove(begun) {
            Some(Due::GoesOn(copying)) => Some(self.lend(target, *copying)),
            _ => None,
        }
    }

    fn lend(&mut self, target: Target, mut copying: Copying<T>) -> Copying<T> {
        copying.target = Some(target);
        copying.is_only = self.turns.is_empty();
        self.ep = Some(copying.ep);
        self.note();
        copying
    }

    /// Copies have been made as far as this turn goes, or not: what is copied, and
    /// how it went; `None` where that goes on before anything else of the link.
    /// `waiting` are the link's, if that is there, to which those go back that are
    /// to be tried one by one.
    pub fn back(
        &mut self,
        mut copying: Copying<T>,
        waiting: Option<&mut Transfers<T>>,
    ) -> Option<(Vec<Transfer<T>>, Result)> {
        self.target = copying.target.take();
        self.ep = None;
        if copying.is_open() {
            if waiting.is_none() {
                copying.give_up();
            }
            self.turns.push_back(Due::GoesOn(Box::new(copying)));
            self.note();
            return None;
        }
        let Copying { batch, outcome, .. } = copying;
        let Batch {
            mut transfers,
            meeting,
        } = batch;
        if let Some(waiting) = waiting {
            if meeting.is_some() {
                waiting.meeting = meeting;
            }
            if outcome.is_err() && transfers.len() > 1 {
                waiting.put_all_back(&mut transfers);
                return Some((transfers, Ok(())));
            }
        }
        Some((transfers, outcome))
    }

    /// Help for a peer that has asked for some. `board` is where a link's does,
    /// `has_offers` whether there is something left that it may ask for, and `offer`
    /// what that is.
    #[cold]
    pub fn next_help<'b>(
        &mut self,
        board: impl Fn(T::Link) -> Option<&'b Board>,
        has_offers: impl Fn(T::Link) -> bool,
        offer: impl FnOnce(T::Link, u64) -> Option<Offer>,
    ) -> Option<Box<Helping>> {
        let next = self.helpers.next(board, has_offers, offer);
        self.note();
        next
    }

    /// A peer says `words` of what it was offered as `name`: whether it has to be
    /// told again later ([`Copier::helped`]), as it is being read still.
    pub fn defers(&mut self, link: T::Link, name: u64, words: [u64; 3]) -> bool {
        self.helpers.defers(link, name, words)
    }

    /// Help was given. What the peer of a link has said meanwhile of what it was
    /// offered.
    pub fn helped(&mut self, helping: Box<Helping>) -> Option<(T::Link, [u64; 3])> {
        self.helpers.back(helping)
    }

    /// The list that [`Copier::back`] gave is needed no more.
    pub fn emptied(&mut self, transfers: Vec<Transfer<T>>) {
        debug_assert!(transfers.is_empty());
        self.spare = transfers;
    }
}

/// What a lane does for copies between its peers and itself.
pub enum Work<T: Transport> {
    Copy(Copying<T>),
    Help(Box<Helping>),
}

impl<T: Transport> Work<T> {
    /// Whether all there is to do is to wait for a peer's process, which may need
    /// the processor.
    pub fn waits(&self) -> bool {
        matches!(self, Work::Copy(copying) if copying.waits())
    }
}

impl<T: Transport> Errand for Work<T> {
    fn run(&mut self) -> bool {
        match self {
            Work::Copy(copying) => copying.run(),
            Work::Help(helping) => helping.run(),
        }
    }
}

/// Copies from a peer's memory.
pub struct Copying<T: Transport> {
    link: T::Link,
    ep: EpKey,
    batch: Batch<T>,
    memory: OtherProcess,
    target: Option<Target>,
    outcome: Result,
    /// Whether there is nothing else to copy.
    is_only: bool,
}

impl<T: Transport> Copying<T> {
    /// From whose memory.
    pub fn link(&self) -> T::Link {
        self.link
    }

    fn waits(&self) -> bool {
        let meeting = self.batch.meeting.as_ref();
        meeting.is_some_and(|meeting| meeting.waits())
    }

    fn is_open(&self) -> bool {
        let meeting = self.batch.meeting.as_ref();
        meeting.is_some_and(|meeting| meeting.is_open())
    }

    fn give_up(&mut self) {
        if let Some(meeting) = &mut self.batch.meeting {
            meeting.give_up();
        }
    }

    /// Makes copies together that are simple.
    fn copy_together(&mut self) -> bool {
        let pairs = self.batch.transfers.iter().filter_map(|transfer| {
            let memory = transfer.simple()?;
            Some((&transfer.from, memory))
        });
        self.outcome = self.memory.copy_all(pairs);
        if self.outcome.is_ok() {
            for transfer in &mut self.batch.transfers {
                let len = transfer.from.len() as usize;
                if let Goal::Place(placing) = &mut transfer.to {
                    placing.done = len;
                }
            }
        }
        false
    }
}

impl<T: Transport> Errand for Copying<T> {
    fn run(&mut self) -> bool {
        let Batch { transfers, meeting } = &mut self.batch;
        let [transfer] = &mut transfers[..] else {
            return self.copy_together();
        };
        if let Some(meeting) = meeting {
            if !meeting.is_open()
                && let (Some(name), Some(to)) = (transfer.offer, destination(transfer))
            {
                meeting.begin(name, to, &self.memory);
            }
            if meeting.is_open() {
                let turn = meeting.go_on(&self.memory, &transfer.from, self.is_only);
                match (turn, &mut transfer.to) {
                    (Turn::Copied(len), Goal::Place(placing)) => placing.done = len as usize,
                    (Turn::Failed(error), _) => self.outcome = Err(error),
                    _ => {}
                }
                return false;
            }
        }
        let (done, left) = (transfer.done(), transfer.left());
        let from = transfer.from.slice(done, left);
        let left = left as usize;
        self.outcome = match &mut transfer.to {
            Goal::Place(placing) => {
                let Placing { place, done, .. } = &mut **placing;
                copy_to(place, *done, left, &mut self.target, &self.memory, &from)
                    .map(|()| *done += left)
            }
            Goal::Keep { next, copied, .. } => {
                next.resize(left, 0);
                self.memory
                    .copy_out(&from, next)
                    .map(|()| *copied = next.len())
            }
            Goal::Discard => Ok(()),
        };
        self.outcome.is_ok() && left <= SHORT
    }
}

/// Copies `len` bytes to their place `at` the offset, as far as it has room for
/// them.
fn copy_to(
    place: &Place,
    at: usize,
    len: usize,
    target: &mut Option<Target>,
    memory: &OtherProcess,
    from: &OtherIov,
) -> Result {
    let mut copied = 0;
    while copied < len {
        let mut outcome = Ok(());
        let room = place.part(target, at + copied, len - copied, |to| {
            if !to.is_empty() {
                outcome = memory.copy(&from.slice(copied as u64, to.len() as u64), to);
            }
        });
        outcome?;
        // What there is no room for is left where it is.
        copied += if room == 0 { len - copied } else { room };
    }
    Ok(())
}
