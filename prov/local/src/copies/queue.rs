//! The transfers of one link, in order.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::VecDeque;

use prov_base::errno::{Errno, Result};
use prov_message::{Endpoints, PayloadBuffer, Ticket, Transport};

use super::transfer::{Goal, Transfer};
use crate::parts::{Arrived, Inflow, Request};
use crate::relocation::Relocated;

/// The payloads to fetch from one peer, in the order in which they were announced.
pub struct Transfers<T: Transport> {
    /// The transfers that have not begun.
    waiting: VecDeque<Transfer<T>>,
    /// The transfer that arrives in parts.
    open: Option<Transfer<T>>,
    /// Number of transfers, including the one of an errand.
    count: usize,
    /// Number of transfers that nothing may overtake.
    first: usize,
    /// The receiving end of payloads in parts.
    inflow: Option<Box<Inflow>>,
    /// The payloads that the peer has copied elsewhere in its memory.
    pub(super) relocated: Option<Relocated>,
}

impl<T: Transport> Default for Transfers<T> {
    fn default() -> Self {
        Transfers {
            waiting: VecDeque::new(),
            open: None,
            count: 0,
            first: 0,
            inflow: None,
            relocated: None,
        }
    }
}

/// Outcome of polling for the next part.
pub(super) enum Step<T: Transport> {
    /// A part was copied, and more are due.
    Part,
    /// No part has arrived.
    Nothing,
    /// The transfer is complete, or has failed.
    Over(Transfer<T>, Result),
}

impl<T: Transport> Transfers<T> {
    /// Sets the receiving end: payloads may arrive in parts from this call on.
    pub fn meet(&mut self, inflow: Inflow) {
        self.inflow = Some(Box::new(inflow));
    }

    /// Sets where the peer says which payloads it has copied elsewhere in its memory.
    pub fn follow(&mut self, relocated: Relocated) {
        self.relocated = Some(relocated);
    }

    /// Whether there are no transfers.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of transfers in the queue.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there are transfers that nothing may overtake.
    #[inline(always)]
    pub fn go_first(&self) -> bool {
        self.first != 0
    }

    /// Whether a transfer arrives in parts.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Adds a transfer. Returns whether the link has to be queued
    /// ([`Copier::add`](super::Copier::add)).
    #[must_use]
    pub fn push(&mut self, transfer: Transfer<T>) -> bool {
        self.first += usize::from(transfer.goes_first);
        self.waiting.push_back(transfer);
        bounded!(self.waiting, OPERATIONS);
        self.count += 1;
        self.count == 1
    }

    /// Takes the oldest transfer of the queue.
    pub(super) fn take(&mut self) -> Option<Transfer<T>> {
        self.waiting.pop_front()
    }

    /// Puts back a transfer that is not complete.
    pub(super) fn put_back(&mut self, transfer: Transfer<T>) {
        self.waiting.push_front(transfer);
        bounded!(self.waiting, OPERATIONS);
    }

    /// Asks the sender for a payload in parts. Returns `false` if it cannot arrive in parts.
    pub(super) fn ask(&mut self, transfer: &Transfer<T>) -> bool {
        let (Some(inflow), Some(name)) = (&mut self.inflow, transfer.offer) else {
            return false;
        };
        let len = transfer.from.len();
        let fits = transfer.memory().is_some_and(|to| len <= to.len() as u64);
        fits && len != 0 && inflow.open(Request { name, at: 0, len })
    }

    /// Makes this transfer, for which the sender was asked, the one that arrives in parts.
    pub(super) fn await_parts(&mut self, transfer: Transfer<T>) {
        self.open = Some(transfer);
    }

    /// Whether polling for a part of the transfer in parts would have an outcome.
    pub fn has_part(&self) -> bool {
        let looked = self.inflow.as_ref().map(|inflow| inflow.look());
        match looked {
            Some(Ok(Arrived::Part(_) | Arrived::Refused) | Err(_)) => self.is_open(),
            _ => false,
        }
    }

    /// Polls for the next part.
    pub(super) fn step(&mut self) -> Step<T> {
        let (Some(inflow), Some(transfer)) = (&mut self.inflow, &mut self.open) else {
            return Step::Nothing;
        };
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
            Ok(Arrived::NotYet | Arrived::NotBegun) => return Step::Nothing,
            Ok(Arrived::Refused) => Err(Errno::ENOMEM),
        };
        inflow.close();
        match self.open.take() {
            Some(transfer) => Step::Over(transfer, outcome),
            None => Step::Nothing,
        }
    }

    /// Removes a transfer that is over from the counts. Returns whether there are others.
    pub(super) fn ended(&mut self, transfer: &Transfer<T>) -> bool {
        self.count -= 1;
        self.first -= usize::from(transfer.goes_first);
        self.count != 0
    }

    /// Gives up all transfers but the one of an errand, when the link ends for this reason. Returns the
    /// reads whose data will not arrive.
    pub fn abandon(&mut self, endpoints: &mut Endpoints<T>, error: Errno) -> Vec<Ticket> {
        if let Some(inflow) = &mut self.inflow {
            inflow.close();
        }
        let transfers = self.open.take().into_iter().chain(self.waiting.drain(..));
        let placings = transfers.filter_map(|transfer| transfer.to.abandon());
        placings
            .filter_map(|placing| endpoints.abandon(placing, error))
            .collect()
    }
}
