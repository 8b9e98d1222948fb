//! The copies that a link waits for, and which of them are made in one turn.

use std::collections::VecDeque;
use std::sync::Arc;

use prov_message::{Endpoints, Transport};

use super::joined::{Meeting, destination};
use super::transfer::Transfer;
use crate::joint::{Board, Pace};
use crate::process::COPIES;

/// Bytes that are copied together at most: the first ones are told of with the
/// last ones.
const TOGETHER: u64 = 256 << 10;

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
    pub(super) meeting: Option<Box<Meeting>>,
    /// What copies from that process's memory take.
    pace: Option<Arc<Pace>>,
}

impl<T: Transport> Default for Transfers<T> {
    fn default() -> Self {
        Transfers {
            waiting: VecDeque::new(),
            count: 0,
            first: 0,
            alone: 0,
            meeting: None,
            pace: None,
        }
    }
}

impl<T: Transport> Transfers<T> {
    /// The peer's process may be asked to help, here.
    pub fn meet(&mut self, board: &Board) {
        self.meeting = Some(Box::new(Meeting::new(board.clone())));
        self.pace = Some(board.bounce.pace.clone());
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
    #[allow(clippy::indexing_slicing, reason = "one was pushed")]
    pub fn take(&mut self, batch: &mut Batch<T>) -> Option<()> {
        let mut left = TOGETHER;
        let limit = if self.alone == 0 { COPIES } else { 1 };
        self.alone = self.alone.saturating_sub(1);
        batch.pace.clone_from(&self.pace);
        let to = &mut batch.transfers;
        to.push(self.waiting.pop_front()?);
        if let Some(to) = destination(&to[0]) {
            let is_only = self.waiting.is_empty();
            let meeting = &mut self.meeting;
            batch.meeting = meeting.take_if(|meeting| meeting.concerns(&to, is_only));
        }
        if batch.meeting.is_some() || to[0].simple().is_none() {
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
    pub(super) fn put_all_back(&mut self, transfers: &mut Vec<Transfer<T>>) {
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
    pub(super) transfers: Vec<Transfer<T>>,
    /// Where the peer helps, if it may.
    pub(super) meeting: Option<Box<Meeting>>,
    /// What copies from the peer's memory take, which is measured.
    pub(super) pace: Option<Arc<Pace>>,
}

impl<T: Transport> Batch<T> {
    /// [`Transfer::make_room`].
    pub fn make_room(&mut self, endpoints: &mut Endpoints<T>) {
        if let [only] = &mut self.transfers[..] {
            only.make_room(endpoints);
        }
    }
}
