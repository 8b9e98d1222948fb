//! The transfers of a link, one after the other.

use std::collections::VecDeque;

use prov_base::errno::{Errno, Result};
use prov_message::{PayloadBuffer, Transport};

use super::transfer::{Goal, Transfer};
use crate::parts::{Arrived, Inflow, PART, Request};

/// What is fetched from one peer, in the order in which it was announced.
pub struct Transfers<T: Transport> {
    /// Those that wait.
    waiting: VecDeque<Transfer<T>>,
    /// The one that comes in parts.
    open: Option<Transfer<T>>,
    /// How many there are, with the one that an errand has.
    count: usize,
    /// Those that nothing may overtake.
    first: usize,
    /// The link's end of payloads in parts.
    inflow: Option<Box<Inflow>>,
}

impl<T: Transport> Default for Transfers<T> {
    fn default() -> Self {
        Transfers {
            waiting: VecDeque::new(),
            open: None,
            count: 0,
            first: 0,
            inflow: None,
        }
    }
}

/// What a look for the next part has come to.
pub(super) enum Step<T: Transport> {
    /// A part was copied, and there are more to come.
    Part,
    /// None has come.
    Nothing,
    /// The receiver is to copy the rest by itself: the transfer is the next one.
    Rest,
    /// The transfer is over.
    Over(Transfer<T>, Result),
}

impl<T: Transport> Transfers<T> {
    /// Payloads may come in parts from now on.
    pub fn meet(&mut self, inflow: Inflow) {
        self.inflow = Some(Box::new(inflow));
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

    /// Whether one comes in parts.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Adds one; whether the link has to be given a turn ([`Copier::add`](super::Copier::add)).
    #[must_use]
    pub fn push(&mut self, transfer: Transfer<T>) -> bool {
        self.first += usize::from(transfer.goes_first);
        self.waiting.push_back(transfer);
        self.count += 1;
        self.count == 1
    }

    /// The oldest one that waits.
    pub(super) fn take(&mut self) -> Option<Transfer<T>> {
        self.waiting.pop_front()
    }

    /// One is back, and not over.
    pub fn put_back(&mut self, transfer: Transfer<T>) {
        self.waiting.push_front(transfer);
    }

    /// Asks the sender for the rest of a transfer in parts, from this offset on; `false` if it
    /// cannot be had so.
    pub(super) fn ask(&mut self, transfer: &Transfer<T>, at: u64) -> bool {
        let (Some(inflow), Some(name)) = (&mut self.inflow, transfer.offer) else {
            return false;
        };
        let len = transfer.from.len().saturating_sub(at);
        let fits = transfer
            .memory()
            .is_some_and(|to| transfer.from.len() <= to.len() as u64);
        fits && len != 0 && inflow.open(Request { name, at, len })
    }

    /// The rest of this one comes in parts, for which the sender was asked.
    pub(super) fn await_parts(&mut self, transfer: Transfer<T>) {
        self.open = Some(transfer);
    }

    /// Whether the sender was asked for parts.
    pub(super) fn has_asked(&self) -> bool {
        self.inflow.as_ref().is_some_and(|inflow| inflow.is_open())
    }

    /// No parts are wanted any more.
    pub(super) fn withdraw(&mut self) {
        if let Some(inflow) = &mut self.inflow {
            inflow.close();
        }
    }

    /// Whether the transfer that comes in parts cannot come in another way.
    pub fn needs_parts(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_unreadable)
    }

    /// Whether something has come of the transfer that comes in parts.
    pub fn has_part(&self) -> bool {
        let looked = self.inflow.as_ref().map(|inflow| inflow.look());
        match looked {
            Some(Ok(Arrived::Part(_) | Arrived::Refused) | Err(_)) => self.is_open(),
            _ => false,
        }
    }

    /// Looks for the next part. `is_readable`: the receiver can copy the rest by itself.
    pub(super) fn step(&mut self, is_readable: bool) -> Step<T> {
        let (Some(inflow), Some(transfer)) = (&mut self.inflow, &mut self.open) else {
            return Step::Nothing;
        };
        let can_copy = is_readable && !transfer.is_unreadable;
        let outcome = match inflow.look() {
            Err(broken) => {
                log::warn!("a peer of this host has spoilt a payload: {}", broken.0);
                Err(Errno::EPROTO)
            }
            Ok(Arrived::Part(part)) => {
                if let Goal::Place(placing) = &mut transfer.to
                    && let PayloadBuffer::App(memory) = &placing.place
                {
                    inflow
                        .bytes(part)
                        .copy_to(&memory.slice(placing.done, part.len));
                    placing.done += part.len;
                }
                inflow.took();
                match transfer.is_whole() {
                    true => Ok(()),
                    false => return Step::Part,
                }
            }
            Ok(Arrived::NotYet) if !can_copy || !inflow.is_late() => return Step::Nothing,
            Ok(Arrived::NotBegun) if !can_copy => return Step::Nothing,
            Ok(Arrived::Refused) if !can_copy => Err(Errno::ENOMEM),
            Ok(_) => {
                self.copy_rest();
                return Step::Rest;
            }
        };
        inflow.close();
        match self.open.take() {
            Some(transfer) => Step::Over(transfer, outcome),
            None => Step::Nothing,
        }
    }

    /// The rest of the transfer that comes in parts is to be copied by the receiver.
    pub(super) fn copy_rest(&mut self) {
        self.withdraw();
        if let Some(transfer) = self.open.take() {
            self.waiting.push_front(transfer);
        }
    }

    /// That one is over.
    pub fn ended(&mut self, transfer: &Transfer<T>) {
        self.count -= 1;
        self.first -= usize::from(transfer.goes_first);
    }

    /// Takes all but the one that an errand has: they are given up.
    pub fn drain(&mut self) -> impl Iterator<Item = Transfer<T>> {
        self.copy_rest();
        let waiting = std::mem::take(&mut self.waiting);
        let go_first = waiting.iter().filter(|transfer| transfer.goes_first);
        self.first -= go_first.count();
        self.count -= waiting.len();
        waiting.into_iter()
    }
}

/// Bytes that the receiver copies at first of a payload that goes in parts: as long as that
/// takes, the sender has time to begin.
pub(super) const FIRST: u64 = PART as u64;
