//! Copies from the memory of peers' processes: who is to have the bytes makes
//! them, as [`Errand`](prov_message::Errand)s without the lane's lock, since a page
//! of the peer's memory may be anywhere. The peer's process helps with the largest.

mod copying;
mod helping;
mod joined;
mod lane;
mod queue;
mod transfer;

use std::collections::VecDeque;

use prov_base::errno::Result;
use prov_message::{EpKey, Target, Transport};
use prov_util::mr::MrTable;

pub use self::copying::{Copying, Work};
use self::helping::Helpers;
pub use self::helping::{Helping, Offer, Source};
pub use self::joined::LEAST;
pub use self::lane::{Back, Copies};
pub use self::queue::{Batch, Transfers};
pub use self::transfer::{Goal, Transfer};
use crate::joint::Board;
use crate::process::OtherProcess;

/// Bytes that are copied at once: meanwhile, the peer may wait for an answer.
const BYTES_PER_TURN: usize = 1 << 20;
/// Bytes after which there is time for another copy.
const SHORT: usize = 64 << 10;

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
    /// Whether it is the peers' turn to be helped: a copy was made since.
    owes_help: bool,
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
            owes_help: false,
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
    ) -> Option<Box<Copying<T>>> {
        let target = self.target.take()?;
        let mut batch = Batch {
            transfers: std::mem::take(&mut self.spare),
            meeting: None,
            pace: None,
        };
        while let Some(due) = self.turns.pop_front() {
            let copying = match due {
                Due::GoesOn(copying) => {
                    self.spare = batch.transfers;
                    copying
                }
                Due::Link(link) => {
                    let Some((ep, memory)) = take(link, &mut batch) else {
                        continue;
                    };
                    Box::new(Copying {
                        link,
                        ep,
                        batch,
                        memory,
                        target: None,
                        outcome: Ok(()),
                        is_only: true,
                    })
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
    pub fn next_begun(&mut self) -> Option<Box<Copying<T>>> {
        let is_begun = |due: &Due<T>| matches!(due, Due::GoesOn(_));
        let begun = self.turns.iter().position(is_begun)?;
        let target = self.target.take()?;
        match self.turns.remove(begun) {
            Some(Due::GoesOn(copying)) => Some(self.lend(target, copying)),
            _ => None,
        }
    }

    fn lend(&mut self, target: Target, mut copying: Box<Copying<T>>) -> Box<Copying<T>> {
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
        mut copying: Box<Copying<T>>,
        waiting: Option<&mut Transfers<T>>,
    ) -> Option<(Vec<Transfer<T>>, Result)> {
        self.target = copying.target.take();
        self.ep = None;
        self.owes_help = !self.helpers.is_empty();
        if copying.is_open() {
            if waiting.is_none() {
                copying.give_up();
            }
            self.turns.push_back(Due::GoesOn(copying));
            self.note();
            return None;
        }
        let Copying { batch, outcome, .. } = *copying;
        let Batch {
            mut transfers,
            meeting,
            ..
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
        self.owes_help = false;
        let next = self
            .helpers
            .next(!self.turns.is_empty(), board, has_offers, offer);
        self.note();
        next
    }

    /// Whether peers are to be helped before the next copy is made.
    pub(super) fn owes_help(&self) -> bool {
        self.owes_help
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
