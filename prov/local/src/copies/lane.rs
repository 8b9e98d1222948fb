//! What a lane does for transfers, independent of the provider.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use prov_base::buffer::Iov;
use prov_base::errno::{Errno, Result};
use prov_message::{Core, Endpoints, EpKey, Transport};

use super::queue::{Step, Transfers};
use super::{Copier, Copying, Goal, Transfer, VAIN_TURNS};
use crate::payload::{PartOf, Payload};
use crate::process::OtherProcess;
use crate::rota::Rounds;

/// The state of a link that its transfers need.
pub struct Pulls<'a, T: Transport> {
    pub ep: EpKey,
    /// The peer's memory, if this process can read it.
    pub memory: Option<&'a OtherProcess>,
    pub transfers: &'a mut Transfers<T>,
    pub endpoints: &'a mut Endpoints<T>,
}

/// A lane that fetches payloads from its peers, and sends parts of its own.
pub trait Copies: Core + Rounds<Key = LinkOf<Self>> {
    /// Returns the transfers of the lane.
    fn copier(&mut self) -> &mut Copier<Self::Transport>;

    /// Returns the transfers of a link; `None` if it has ended.
    fn pulls(&mut self, link: LinkOf<Self>) -> Option<Pulls<'_, Self::Transport>>;

    /// Returns the payload that the peer of a link was offered as `name`.
    fn offered(&self, link: LinkOf<Self>, name: u64) -> Option<&Payload>;

    /// Whether the peer of a link has offers of which it may ask for parts.
    fn has_offers(&self, link: LinkOf<Self>) -> bool;

    /// Makes a sleeping thread wake up and do the copies that are due.
    fn wake_for_copies(&mut self);

    /// Notes that there was work, so that the processor is not yielded.
    fn note_work(&mut self);

    /// Handles the end of a transfer of a link, which is complete or has failed.
    fn copied(&mut self, link: LinkOf<Self>, transfer: Transfer<Self::Transport>, outcome: Result);

    /// Ends a transfer: the next one of its link has its turn, or else the link has ended, and nobody
    /// waits for the transfer any more but the receive or read that it is for.
    fn end_transfer(
        &mut self,
        link: LinkOf<Self>,
        transfer: Transfer<Self::Transport>,
        outcome: Result,
    ) {
        if let Some(Pulls { transfers, .. }) = self.pulls(link) {
            if transfers.ended(&transfer) {
                self.copy_in_turn(link);
            }
            return self.copied(link, transfer, outcome);
        }
        self.give_up(transfer.to);
    }

    /// Reports the end of what a payload was to be copied for, to which no link leads any more.
    fn give_up(&mut self, goal: Goal<Self::Transport>) {
        let endpoints = self.endpoints();
        let placing = goal.abandon();
        let read = placing.and_then(|placing| endpoints.abandon(placing, Errno::ESHUTDOWN));
        if let Some(ticket) = read {
            endpoints.finish(ticket, Err(Errno::ESHUTDOWN));
        }
    }

    /// Queues a link for its next transfer, and wakes a sleeping thread, for which no message may
    /// arrive.
    fn copy_in_turn(&mut self, link: LinkOf<Self>) {
        self.copier().add(link);
        self.wake_for_copies();
    }

    /// Notes that the peer of a link is offered a payload and may ask for parts of it.
    fn has_offered(&mut self, link: LinkOf<Self>) {
        if !self.copier().resumes(link)
            && let Some(channel) = self.channel(link)
        {
            let outflow = channel.outflow();
            self.copier().offers(link, outflow);
        }
    }

    /// Moves parts in both directions, and returns the next direct copy, which is made without the
    /// lane's lock ([`Core::next_errand`]). While the application that owns the receives is not in
    /// a call, no transfer begins; each link continues with its next transfer when one is complete.
    #[inline]
    fn next_work(&mut self) -> Option<Copying<Self::Transport>> {
        match self.copier().is_idle() {
            true => None,
            false => self.do_work(),
        }
    }

    #[cold]
    fn do_work(&mut self) -> Option<Copying<Self::Transport>> {
        let any = self.receive_parts() | self.send_parts();
        let next = self.next_copy();
        if any || next.is_some() {
            self.note_work();
        }
        next
    }

    /// Whether a thread that is about to sleep has a copy to make first.
    fn is_needed_for_copies(&mut self) -> bool {
        let is_deaf = self.endpoints().is_deaf();
        self.copier().has_turns() && !is_deaf
    }

    /// Returns the next direct copy.
    fn next_copy(&mut self) -> Option<Copying<Self::Transport>> {
        let is_deaf = self.endpoints().is_deaf();
        let target = self.copier().target.take()?;
        loop {
            let copier = self.copier();
            let next = (!is_deaf).then(|| copier.turns.pop_front()).flatten();
            copier.note();
            let Some(link) = next else {
                self.copier().target = Some(target);
                return None;
            };
            let Some(begun) = self.begin(link) else {
                continue;
            };
            match begun {
                Begun::Copy(mut copying) => {
                    self.copier().ep = Some(copying.ep);
                    copying.target = Some(target);
                    return Some(*copying);
                }
                Begun::Parts => {
                    self.await_parts(link);
                    self.wake_sleeper(link);
                }
            }
        }
    }

    /// Begins the next transfer of a link.
    fn begin(&mut self, link: LinkOf<Self>) -> Option<Begun<Self::Transport>> {
        let Pulls {
            ep,
            memory,
            transfers,
            endpoints,
        } = self.pulls(link)?;
        // A link has one transfer in progress. It gets another turn when that is over.
        if transfers.is_open() {
            return None;
        }
        let mut transfer = transfers.take()?;
        let memory = match memory {
            Some(memory) if !transfer.is_unreadable => memory.clone(),
            _ => {
                if transfers.ask(&transfer) {
                    transfers.await_parts(transfer);
                    return Some(Begun::Parts);
                }
                self.end_transfer(link, transfer, Err(Errno::EPERM));
                return None;
            }
        };
        transfer.make_room(endpoints);
        let relocated = transfers.relocated.clone();
        Some(Begun::Copy(Box::new(Copying {
            link,
            ep,
            transfer,
            memory,
            relocated,
            target: None,
            outcome: Ok(()),
        })))
    }

    fn await_parts(&mut self, link: LinkOf<Self>) {
        let copier = self.copier();
        copier.open.push(link);
        bounded!(copier.open, PEERS);
        copier.note();
    }

    /// Handles the end of a direct copy ([`Core::errand_done`]).
    fn worked(&mut self, work: Copying<Self::Transport>) {
        let Copying {
            link,
            mut transfer,
            target,
            outcome,
            ..
        } = work;
        let copier = self.copier();
        (copier.target, copier.ep) = (target, None);
        match (outcome, self.pulls(link)) {
            // Some memory cannot be read by another process, but its owner can send it.
            (Err(Errno::EFAULT | Errno::EPERM), Some(pulls)) if transfer.can_restart() => {
                transfer.is_unreadable = true;
                pulls.transfers.put_back(transfer);
                self.copy_in_turn(link);
            }
            (outcome, _) => self.end_transfer(link, transfer, outcome),
        }
    }

    /// Copies the next part of each link whose transfer arrives in parts. Returns whether there was one.
    fn receive_parts(&mut self) -> bool {
        let mut any = false;
        let open = std::mem::take(&mut self.copier().open);
        for link in open {
            let Some(Pulls { transfers, .. }) = self.pulls(link) else {
                continue;
            };
            let step = transfers.step();
            any |= !matches!(step, Step::Nothing);
            match step {
                Step::Part => {
                    self.await_parts(link);
                    self.wake_sleeper(link);
                }
                Step::Nothing => self.await_parts(link),
                Step::Over(transfer, outcome) => self.end_transfer(link, transfer, outcome),
            }
        }
        self.copier().note();
        any
    }

    /// Fills the next slot of each link whose peer has asked for parts. Returns whether there was
    /// one.
    fn send_parts(&mut self) -> bool {
        let mut any = false;
        let mut offering = std::mem::take(&mut self.copier().offering);
        for one in &mut offering {
            let Some((name, part)) = one.outflow.next_part() else {
                continue;
            };
            any = true;
            let request = one.outflow.generation();
            if one.request != request {
                one.ahead.forget();
                one.request = request;
            }
            let to = Iov::from(one.outflow.slot(part));
            let payload = self.offered(one.link, name);
            let part = payload.map(|payload| payload.part(part.at, &to, &mut one.ahead));
            match part.unwrap_or(PartOf::Refused) {
                PartOf::Copied => one.outflow.publish(),
                PartOf::Refused => one.outflow.give_up(),
                PartOf::Later => continue,
            }
            one.ahead.forget();
            self.wake_sleeper(one.link);
        }
        self.copier().offering = offering;
        self.park_if_due(any);
        any
    }

    /// Stops polling the links without offers, every [`VAIN_TURNS`] turns without a request.
    fn park_if_due(&mut self, any: bool) {
        let copier = self.copier();
        copier.vain_turns = if any { 0 } else { copier.vain_turns + 1 };
        if copier.vain_turns < VAIN_TURNS {
            return;
        }
        copier.vain_turns = 0;
        let mut offering = std::mem::take(&mut copier.offering);
        let parked: Vec<_> = offering
            .extract_if(.., |one| !self.has_offers(one.link))
            .collect();
        let copier = self.copier();
        copier.offering = offering;
        copier.parked.extend(parked);
        bounded!(copier.parked, PEERS);
        copier.note();
    }
}

/// How a transfer begins.
pub enum Begun<T: Transport> {
    /// The receiver copies directly.
    Copy(Box<Copying<T>>),
    /// The sender was asked for parts.
    Parts,
}

/// The links of a lane.
type LinkOf<L> = <<L as Core>::Transport as Transport>::Link;
