//! Rendezvous payloads ([`prov_local::copies`]): this side fetches those of its peers, and sends
//! parts of its own.

use std::time::Instant;

use prov_base::errno::{Errno, Result};
use prov_base::process_memory::OtherIov;
use prov_local::copies::{Copier, Copies, Goal, Pulls, Transfer};
use prov_local::link::payload::Payload;

use super::Core;
use super::arrival::TURN;
use super::keys::{LinkKey, from_peer};
use super::link::pending::Pending;
use super::link::{Fault, Link};
use super::messages::{Placing, Shm, Then};

/// Largest number of turns in which the messages left in a peer's channel are received: the channel
/// has fewer messages.
const LAST_TURNS: usize = 4096 / TURN;

impl Core {
    /// Queues the payload that a peer has announced as `name`, to be fetched.
    pub(super) fn pull(&mut self, key: LinkKey, placing: Placing, from: &OtherIov, name: u64) {
        let Some(link) = self.links.get_mut(key) else {
            return self.give_up(placing.into());
        };
        if from.is_empty() {
            return self.placed(key, placing, name, Ok(()));
        }
        let transfer = Transfer {
            goes_first: false,
            to: placing.into(),
            from: Box::new(*from),
            name: Some(name),
            offer: Some(name),
            is_unreadable: false,
        };
        if link.pulls.push(transfer) {
            self.copy_in_turn(key);
        }
    }

    /// Handles the end of the transfer of a payload that the peer has announced as `name`.
    pub(super) fn placed(&mut self, key: LinkKey, placing: Placing, name: u64, outcome: Result) {
        if placing.has_data() {
            self.find_source(key);
        }
        let Some(link) = self.links.get_mut(key) else {
            return self.give_up(placing.into());
        };
        let told = match placing.then {
            Then::Read(_) => Ok(()),
            Then::Receive(_) | Then::RemoteWrite { .. } => outcome,
        };
        self.endpoints
            .placed(&mut self.target, link.ep, link.src, placing, outcome);
        link.done(name, told);
        link.waits_for_space(key, &mut self.busy);
    }

    /// Receives the last messages of a peer that has ended, and ends the link when there are no
    /// more.
    pub(super) fn drain(&mut self, key: LinkKey) {
        for _ in 0..LAST_TURNS {
            if !self.take_in_slowly(key) {
                return self.drain_if_ended(key);
            }
        }
        self.break_link(key, Fault::Protocol("messages after the end"));
    }

    pub(super) fn drain_if_ended(&mut self, key: LinkKey) {
        let Some(link) = self.links.get(key).filter(|link| link.has_ended) else {
            return;
        };
        let receiver = link.channel.as_ref().map(|channel| &channel.receiver);
        let waits = receiver.is_some_and(|receiver| receiver.has_next());
        // Parts that the peer will not send are not waited for.
        let copies = !link.pulls.is_empty() && link.memory.is_some() && !link.pulls.is_open();
        if !waits && !copies {
            self.break_link(key, Fault::Ended(Errno::ESHUTDOWN));
        }
    }
}

impl Copies for Core {
    fn copier(&mut self) -> &mut Copier<Shm> {
        &mut self.copier
    }

    fn pulls(&mut self, key: LinkKey) -> Option<Pulls<'_, Shm>> {
        let link = self.links.get_mut(key)?;
        Some(Pulls {
            ep: link.ep,
            memory: link.memory.as_ref(),
            transfers: &mut link.pulls,
            endpoints: &mut self.endpoints,
        })
    }

    fn offered(&self, key: LinkKey, name: u64) -> Option<&Payload> {
        match self.links.get(key)?.pending.get(from_peer(name))? {
            Pending::Offer { payload, .. } => Some(payload),
            _ => None,
        }
    }

    fn has_offers(&self, key: LinkKey) -> bool {
        self.links.get(key).is_some_and(Link::has_offers)
    }

    fn wake_for_copies(&mut self) {
        if self.open.has_sleepers() {
            self.poller.wake_at(Instant::now());
        }
    }

    fn note_work(&mut self) {
        self.idle_calls = 0;
    }

    fn copied(&mut self, key: LinkKey, transfer: Transfer<Shm>, outcome: Result) {
        if let (Goal::Place(placing), Some(name)) = (transfer.to, transfer.name) {
            self.placed(key, *placing, name, outcome);
        }
        self.drain_if_ended(key);
    }
}
